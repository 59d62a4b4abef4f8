"""What a lease that ends costs: an attempt of the rows that may have been begun, no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ternmq.broker.delivery import leases as leases_module
from ternmq.broker.delivery.leases import ENDED_ROWS_A_TURN, LEASE_WORK, QUEUE_WORK, Leases
from ternmq.broker.gate.replies import PullReply
from ternmq.model.specs import Limits, RetryPolicy
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, STEADY, World, attempts, explore, offsets

GRACE = 10 * SECOND
LEASE = 30 * SECOND


def pull(
    world: World, session: int, rows: int, at_once: int, queue: int | None = None
) -> PullReply:
    pulled = world.pull(session, "t", "g", rows, at_once=at_once, queue=queue)
    assert pulled is not None
    return pulled


def begin(world: World, **settings: object) -> tuple[int, int]:
    """Make a group; return two sessions, the first of which is going to be lost."""
    world.topic("t")
    world.group("t", "g", retry=STEADY, **settings)
    return world.join(), world.join()


def lose(world: World, session: int) -> None:
    world.broker.clients.disconnected(world.now, session)
    world.pass_time(GRACE)


def test_a_lost_session_costs_only_the_rows_that_it_may_have_begun() -> None:
    def scenario(world: World) -> None:
        one, other = begin(world)
        world.send("t", 6)
        pull(world, one, 6, at_once=2)
        lose(world, one)
        again = attempts(pull(world, other, 10, at_once=2))
        assert again == {0: (2, 2), 1: (2, 2)} | dict.fromkeys(range(2, 6), (1, 2))

    explore(scenario)


def test_what_was_settled_is_not_among_those_that_may_have_been_begun() -> None:
    def scenario(world: World) -> None:
        one, other = begin(world)
        world.send("t", 6)
        pulled = pull(world, one, 4, at_once=1)
        pull(world, one, 2, at_once=1)
        world.settle(one, "t", "g", pulled, spans=[(0, 2), (3, 4)])
        lose(world, one)
        assert attempts(pull(world, other, 10, at_once=1)) == {2: (2, 2), 4: (1, 2), 5: (1, 2)}

    explore(scenario)


def test_of_several_queues_the_lease_that_came_first_was_begun() -> None:
    world = World()
    world.topic("t", queues=2)
    world.group("t", "g", retry=STEADY)
    one, other = world.join(), world.join()
    for queue in (0, 1):
        world.send("t", 3, queue=queue)
    pull(world, one, 3, at_once=2, queue=1)
    pull(world, one, 3, at_once=2, queue=0)
    lose(world, one)
    assert attempts(pull(world, other, 10, 2, queue=0)) == dict.fromkeys(range(3), (1, 2))
    assert attempts(pull(world, other, 10, 2, queue=1)) == {0: (2, 2), 1: (2, 2), 2: (1, 2)}


def test_a_consumer_that_does_not_say_may_have_begun_everything() -> None:
    def scenario(world: World) -> None:
        one, other = begin(world)
        world.send("t", 8)
        pull(world, one, 4, at_once=0)
        pull(world, one, 4, at_once=1)
        lose(world, one)
        again = attempts(pull(world, other, 10, at_once=0))
        assert again == dict.fromkeys(range(5), (2, 2)) | dict.fromkeys(range(5, 8), (1, 2))

    explore(scenario)


def test_a_message_that_ends_its_consumer_is_a_dead_letter_and_no_other_is() -> None:
    """As a worker that is started again and again: its policy's last attempt is the poison's."""
    world = World()
    world.topic("t")
    world.group("t", "g", retry=RetryPolicy(first_us=SECOND, attempts=3, jitter=0.0))
    world.send("t", 20)
    for _ in range(3):
        one = world.join()
        pulled = pull(world, one, 20, at_once=1)
        rows = offsets(pulled)
        # All before offset 4 are done and told; 4 kills.
        done = [(offset, offset + 1) for offset in rows if offset < 4]
        if done:
            world.settle(one, "t", "g", pulled, spans=done)
        lose(world, one)
        world.pass_time(5 * SECOND)
    progress = world.progress("t", "g")
    assert [row.offset for row in progress.failures.dead_before(1 << 62, 100)] == [4]
    assert attempts(pull(world, world.join(), 20, at_once=1)) == dict.fromkeys(range(5, 20), (1, 4))


def test_a_parked_pull_says_it_as_well() -> None:
    world = World()
    one, other = begin(world)
    world.broker.park(one, "t", "g", 10, 1 << 20, world.now + SECOND, 1)
    world.send("t", 4)
    (over,) = world.woken()
    assert over.reply is not None
    lose(world, one)
    again = attempts(pull(world, other, 10, at_once=1))
    assert again == {0: (2, 2), 1: (1, 2), 2: (1, 2), 3: (1, 2)}


def test_a_lease_that_ends_by_time_costs_what_may_have_been_begun() -> None:
    """A consumer that hangs, and whose connection lives."""

    def scenario(world: World) -> None:
        one, other = begin(world)
        world.send("t", 7)
        pull(world, one, 5, at_once=2)
        world.pass_time(LEASE)
        again = pull(world, other, 10, at_once=2)
        assert attempts(again) == {0: (2, 2), 1: (2, 2)} | {
            2: (1, 2), 3: (1, 2), 4: (1, 2), 5: (1, 1), 6: (1, 1)
        }  # fmt: skip

    explore(scenario)


@pytest.mark.parametrize("at_once", [1, 700])
def test_a_lost_session_with_more_rows_than_a_turn_ends(at_once: int) -> None:
    world = World(Limits(pull_messages=4000))
    one, other = begin(world)
    rows = 2 * ENDED_ROWS_A_TURN + 100
    world.send("t", rows)
    pull(world, one, rows, at_once=at_once)
    lose(world, one)
    again = attempts(pull(world, other, rows, at_once=1))
    assert again == {offset: (2 if offset < at_once else 1, 2) for offset in range(rows)}


def test_after_a_start_of_the_broker_nobody_knows_and_all_count() -> None:
    """A message that ends both would else come again for ever."""
    world = World()
    one, other = begin(world)
    world.send("t", 4)
    pull(world, one, 4, at_once=1)
    world.restart()
    world.resume(other)
    world.pass_time(GRACE)
    assert one not in world.broker.views.sessions.by_number
    assert attempts(pull(world, other, 10, at_once=1)) == dict.fromkeys(range(4), (2, 2))


def test_what_the_client_gives_back_at_its_end_costs_nothing() -> None:
    def scenario(world: World) -> None:
        one, other = begin(world)
        world.send("t", 3)
        pulled = pull(world, one, 3, at_once=3)
        world.settle(one, "t", "g", pulled, Outcome.RELEASED, spans=[(0, 1)])
        world.leave(one)
        assert attempts(pull(world, other, 10, at_once=3)) == dict.fromkeys(range(3), (1, 2))

    explore(scenario)


def test_in_an_ordered_group_the_first_heads_of_keys_were_begun() -> None:
    def scenario(world: World) -> None:
        world.topic("t", ordered=True)
        world.group("t", "g", retry=STEADY)
        one, other = world.join(), world.join()
        world.send("t", "aabcca")
        pull(world, one, 6, at_once=2)
        lose(world, one)
        again = attempts(pull(world, other, 10, at_once=2))
        assert again == {0: (2, 2), 1: (1, 2), 2: (2, 2), 3: (1, 2), 4: (1, 2), 5: (1, 2)}

    explore(scenario)


def test_an_ordered_lease_that_ends_by_time_costs_the_first_heads() -> None:
    def scenario(world: World) -> None:
        world.topic("t", ordered=True)
        world.group("t", "g", retry=STEADY)
        one, other = world.join(), world.join()
        world.send("t", "abcb")
        pulled = pull(world, one, 4, at_once=1)
        world.settle(one, "t", "g", pulled, spans=[(0, 1)])
        world.pass_time(LEASE)
        again = attempts(pull(world, other, 10, at_once=1))
        assert again == {1: (2, 2), 2: (1, 2), 3: (1, 2)}

    explore(scenario)


def test_an_ordered_session_with_more_rows_than_a_turn_ends() -> None:
    """In pieces, none of which leaves a row in a hand behind one of its key that comes again."""
    world = World(Limits(pull_messages=4000))
    world.topic("t", ordered=True)
    world.group("t", "g", retry=STEADY)
    one, other = world.join(), world.join()
    keys = "ab" * ENDED_ROWS_A_TURN
    world.send("t", keys)
    pull(world, one, len(keys), at_once=1)
    lose(world, one)
    again = attempts(pull(world, other, len(keys), at_once=1))
    assert again == {offset: (2 if offset == 0 else 1, 2) for offset in again}
    assert len(again) > 2


def test_a_piece_of_a_sessions_end_looks_at_no_more_groups_than_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.topic("t")
    groups = [f"g{number}" for number in range(ENDED_ROWS_A_TURN // 5)]
    for name in groups:
        world.group("t", name, retry=STEADY)
    one = world.join()
    world.send("t", 1)
    for name in groups:
        assert world.pull(one, "t", name, 1, at_once=1) is not None
    looked: list[int] = []
    look = Leases.release_unbegun

    def counted(*given: Any) -> int:
        looked.append(1)
        return look(*given)

    monkeypatch.setattr(Leases, "release_unbegun", counted)
    world.broker.clients.disconnected(world.now, one)
    session = world.broker.views.sessions.by_number[one]
    most = ENDED_ROWS_A_TURN // (1 + LEASE_WORK + QUEUE_WORK) + 1
    ended = world.broker.clients.grace_over(world.now + GRACE, session.gone_us, session)
    assert ENDED_ROWS_A_TURN <= ended < ENDED_ROWS_A_TURN + 1 + LEASE_WORK + QUEUE_WORK
    assert len(looked) == most


def test_a_piece_looks_at_the_sessions_that_it_ends_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many sessions whose leases are over at one time, each is looked at in few pieces."""
    world = World()
    begin(world, window=2000)
    sessions = [world.join() for _ in range(120)]
    world.send("t", 600)
    for session in sessions * 5:
        pull(world, session, 1, at_once=1)
    looked: list[int] = []
    look = leases_module._unbegun

    def counted(given: Sequence[Any]) -> Iterator[Any]:
        looked.append(len(given))
        return look(given)

    monkeypatch.setattr(leases_module, "_unbegun", counted)
    world.now += LEASE
    turns = 0
    while world.broker.tick(world.now):
        turns += 1
        assert sum(looked) <= ENDED_ROWS_A_TURN // LEASE_WORK + 5
        looked.clear()
    assert turns > 4
    again = attempts(pull(world, sessions[0], 600, at_once=0))
    assert sorted(attempt for attempt, _ in again.values()) == [1] * 480 + [2] * 120
