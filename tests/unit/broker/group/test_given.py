"""What a group was given before: the spans, what changes them, and how few they stay."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.cursors import encode_given, given_entries
from ternmq.broker.group.given import MOST_SPANS, NOTHING, UNKNOWN, Given, began
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.progress import Progress
from ternmq.record.fact.facts import CursorMoved, LeasedRun, Move, Span
from ternmq.record.fact.replay import Cause, Replayed


def moved(given: Given, before: int, move: Move, cursor: int) -> Given:
    return given.moved(before, CursorMoved(1, 2, 3, move, cursor, 1))


def replayed(given: Given, cursor: int, runs: list[LeasedRun], before: list[Span] | None) -> Given:
    return given.replayed(cursor, Replayed(1, 2, 3, 0, 1, Cause.REPLAY, runs, (), (), before))


def reset(given: Given, before: int, cursor: int) -> Given:
    return moved(given, before, Move.RESET, cursor)


def test_a_reset_back_tells_what_was_read_and_nothing_beyond():
    given = reset(NOTHING, 10, 4)
    assert given == Given(4, ((0, 10),))
    assert list(given.runs(4, 12, 1)) == [(4, 10, 1, 2), (10, 12, 1, 1)]
    assert [given.deliveries(at) for at in (0, 9, 10)] == [2, 2, 1]
    assert given.stop == 10


def test_a_reset_forward_and_back_leaves_the_gap_unmarked():
    forward = reset(NOTHING, 10, 30)
    back = reset(forward, 35, 0)
    assert back == Given(0, ((0, 10), (30, 35)))
    assert list(back.runs(5, 40, 1)) == [(5, 10, 1, 2), (10, 30, 1, 1), (30, 35, 1, 2),
                                         (35, 40, 1, 1)]  # fmt: skip


def test_what_was_skipped_or_stood_before_the_start_was_not_given():
    given = moved(began(100), 110, Move.SKIP, 200)
    assert given == Given(200, (), ((100, 110),))
    assert given.spans(205) == [(100, 110), (200, 205)]
    assert reset(given, 205, 0) == Given(0, ((100, 110), (200, 205)))
    assert moved(given, 200, Move.SKIP, 200) is given


@pytest.mark.parametrize("move", [Move.COMMIT, Move.FILTERED, Move.EXPIRED])
def test_other_moves_go_on_reading(move):
    given = moved(NOTHING, 5, move, 50)
    assert given is NOTHING
    assert given.spans(50) == [(0, 50)]


def test_a_replay_of_what_was_never_given_is_remembered():
    given = began(100)
    assert replayed(given, 120, [(105, 110, 1, 1)], []) == given
    given = replayed(given, 120, [(5, 7, 1, 0), (98, 103, 1, 0)], [(100, 103)])
    assert given == Given(100, ((100, 103),), ((5, 7), (98, 100)))
    assert given.spans(120) == [(5, 7), (98, 120)]
    assert [given.deliveries(at) for at in (5, 99, 100, 103)] == [1, 1, 2, 1]


def test_of_a_replay_by_an_older_broker_all_may_have_been_given():
    assert replayed(began(100), 120, [(5, 7, 1, 0), (8, 9, 1, 3)], None).earlier == ((5, 7),)


def test_of_too_many_spans_the_smallest_gaps_are_closed():
    chance = random.Random(3)
    edges = sorted(chance.sample(range(10_000), 400))
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    given = replayed(NOTHING, 0, [(start, stop, 1, 0) for start, stop in spans], [])
    assert len(given.others) == MOST_SPANS
    for start, stop in spans:
        assert any(low <= start < stop <= high for low, high in given.others)
    kept = [after[0] - before[1] for before, after in pairwise(given.others)]
    all_ = sorted(after[0] - before[1] for before, after in pairwise(spans))
    assert sorted(kept) == all_[-(MOST_SPANS - 1) :]


def test_what_is_unknown_ends_where_the_queue_ends():
    assert UNKNOWN.deliveries(1 << 40) == 2
    assert UNKNOWN.below(77) == Given(0, ((0, 77),))
    assert UNKNOWN.below(0) == NOTHING
    assert reset(UNKNOWN, 5, 0).below(9) == Given(0, ((0, 9),))


def test_entries_of_state_are_read_as_they_were_written():
    values = [NOTHING, Given(7), Given(0, ((0, 3), (5, 8)), ((9, 11),)), Given(1, (), ((0, 1),))]
    queues = [Progress(9, 4, at, 0, HeldPage(), SHARED) for at in range(len(values))]
    for one, given in zip(queues, values, strict=True):
        one.given = given
    found = list(given_entries(encode_given(queues)))
    assert found == [(9, 4, at, given) for at, given in enumerate(values) if given != NOTHING]
    assert encode_given(queues[:1]) == b""
