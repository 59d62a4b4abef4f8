"""Which member owns which queue."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ternmq.broker.operation.assigner import average, configured, exclusive
from ternmq.model.assignments import Assignment


def test_five_queues_for_two_members_and_then_for_three() -> None:
    one = average(5, [7], [])
    assert one == [7] * 5
    two = average(5, [7, 8], one)
    assert two == [7, 7, 7, 8, 8]
    three = average(5, [7, 8, 9], two)
    assert three == [7, 7, 9, 8, 8]
    assert average(5, [7, 8], [7, 7, 0, 8, 8]) == [7, 7, 7, 8, 8]  # the third one left


def test_nobody_owns_the_queues_of_a_group_without_members() -> None:
    assert average(3, [], [7, 7, 7]) == [0, 0, 0]
    assert exclusive(2, []) == [0, 0]


def test_more_members_than_queues() -> None:
    assert average(2, [7, 8, 9], [9, 0]) == [9, 7]


@pytest.mark.parametrize("seed", range(200))
def test_all_queues_have_an_owner_all_members_their_share_and_few_queues_move(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(1, 40)
    members = chance.sample(range(1, 30), chance.randint(1, 12))
    before = [chance.choice([0, *range(1, 30)]) for _ in range(chance.randint(0, count))]
    after = average(count, members, before)
    assert after == average(count, members, before)
    held = Counter(after)
    assert set(after) <= set(members)
    assert all(held[one] in {count // len(members), -(-count // len(members))} for one in members)
    # No queue moves that could have stayed: who lost one has a full share.
    had = Counter(before)
    moved = sum(one != two for one, two in zip(after, before, strict=False) if two in members)
    quota, extra = divmod(count, len(members))
    keep = sorted((had[one] for one in members), reverse=True)
    most = sum(min(one, quota + (at < extra)) for at, one in enumerate(keep))
    assert moved == sum(keep) - most
    assert average(count, members, after) == after


def test_configured_queues_belong_to_the_first_member_that_fits() -> None:
    assign = [
        Assignment((0, 1), "blue-*"),
        Assignment((0, 1, 2), "green-?"),
        Assignment((9,), "*"),
    ]
    assert configured(5, {7: "green-1"}, assign) == [7, 7, 7, 0, 0]
    assert configured(5, {7: "green-1", 8: "blue-2", 9: "blue-1"}, assign) == [8, 8, 7, 0, 0]
    assert configured(5, {7: "green-12"}, assign) == [0] * 5


def test_one_member_owns_all_queues_the_one_that_joined_first() -> None:
    assert exclusive(3, [8, 7]) == [8, 8, 8]
