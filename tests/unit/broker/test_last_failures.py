"""What a delivery says of the attempt before: a consumer's word, a lease's end, copied rows."""

from __future__ import annotations

import pytest

from ternmq.broker.gate.replies import PullReply
from ternmq.broker.query.messages import Queries
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.log.retention import RetentionSpec
from ternmq.record.fact.facts import Cause, Outcome
from tests.unit.broker.kit import SECOND, STEADY, World, explore, offsets, waiting
from tests.unit.broker.test_moved import YEAR_US, Large, outlive, retry_in_a_year

CONSUMER = int(Cause.CONSUMER)
Told = list[tuple[int, int, int, bytes]]


def start(world: World, **settings: object) -> int:
    world.topic("t")
    world.group("t", "g", retry=STEADY, **settings)
    return world.join()


def pull(world: World, session: int, rows: int = 32) -> PullReply:
    pulled = world.pull(session, "t", "g", rows)
    assert pulled is not None
    return pulled


def told(world: World, reply: PullReply) -> Told:
    failures = Queries(world.broker.ledger).last_failures("t", "g", reply)
    return waiting(failures.find)


def test_of_several_attempts_the_last_counts() -> None:
    def scenario(world: World) -> None:
        session = start(world, lease_us=3600 * SECOND)
        world.send("t", 6)
        first = pull(world, session)
        assert told(world, first) == []
        world.settle(session, "t", "g", first, Outcome.RETRY, [(0, 2), (4, 5)], reason="one")
        world.settle(session, "t", "g", first, Outcome.RETRY, [(2, 3)], reason="other")
        world.settle(session, "t", "g", first, Outcome.DONE, [(3, 4), (5, 6)])
        world.pass_time(SECOND)
        again = pull(world, session)
        assert told(world, again) == [
            (0, 2, CONSUMER, b"one"), (2, 1, CONSUMER, b"other"), (4, 1, CONSUMER, b"one"),
        ]  # fmt: skip
        world.settle(session, "t", "g", again, Outcome.RETRY, [(0, 1)], reason="two")
        world.settle(session, "t", "g", again, Outcome.RETRY, [(1, 2)])
        world.pass_time(2 * SECOND)
        third = pull(world, session)
        assert told(world, third) == [(0, 1, CONSUMER, b"two"), (1, 1, CONSUMER, b"")]

    explore(scenario)


def test_a_release_changes_nothing_of_it() -> None:
    def scenario(world: World) -> None:
        session = start(world, lease_us=3600 * SECOND)
        world.send("t", 2)
        world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, [(0, 1)], reason="no")
        world.pass_time(SECOND)
        again = pull(world, session)
        world.settle(session, "t", "g", again, Outcome.RELEASED)
        third = pull(world, session)
        assert offsets(third) == [0]
        assert told(world, third) == [(0, 1, CONSUMER, b"no")]

    explore(scenario)


def test_of_a_lease_that_ended() -> None:
    def scenario(world: World) -> None:
        session = start(world, lease_us=5 * SECOND)
        world.send("t", 3)
        pull(world, session)
        world.pass_time(5 * SECOND)
        world.pass_time(SECOND)
        again = pull(world, session)
        assert told(world, again) == [(0, 3, int(Cause.TIME), b"")]

    explore(scenario)


def test_in_ordered_groups() -> None:
    def scenario(world: World) -> None:
        world.topic("t", ordered=True)
        world.group("t", "g", lease_us=3600 * SECOND)
        session = world.join()
        world.send("t", "aaba")
        first = pull(world, session)
        world.settle(session, "t", "g", first, Outcome.RETRY, [(0, 1)], reason="no")
        world.pass_time(SECOND)
        again = pull(world, session)
        assert told(world, again) == [(0, 1, CONSUMER, b"no")]  # what was held up behind did not

    explore(scenario)


def test_of_rows_that_were_copied() -> None:
    world = Large(RetentionSpec())
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", 3)
    rows = retry_in_a_year(world, session, 3, reason="the first year")
    outlive(world, session, rows[-1])
    world.pass_time(YEAR_US)
    again = pull(world, world.join("other"))
    assert offsets(again) == [0, 1, 2]
    assert told(world, again) == [(0, 3, CONSUMER, b"the first year")]


def test_what_was_found_is_kept_when_a_read_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    session = start(world, lease_us=3600 * SECOND)
    world.send("t", 5)
    first = pull(world, session)
    for offset in range(5):
        row = [(offset, offset + 1)]
        world.settle(session, "t", "g", first, Outcome.RETRY, row, reason=f"no {offset}")
    world.pass_time(SECOND)
    failures = Queries(world.broker.ledger).last_failures("t", "g", pull(world, session))
    asked: list[int] = []
    get = world.broker.store.get

    class Job:
        def run(self) -> None:
            """Nothing is missing."""

    def blocking(position: int, length: int | None = None) -> bytes:
        asked.append(position)
        if asked.count(position) == 1:
            raise WouldBlock(Job())
        return get(position, length)

    monkeypatch.setattr(world.broker.store, "get", blocking)
    assert waiting(failures.find) == [(n, 1, CONSUMER, b"no %d" % n) for n in range(5)]
    assert len(asked) == 10, "each was asked for again once, whatever was found before"


def test_a_reset_forgets_them() -> None:
    world = World()
    session = start(world, lease_us=3600 * SECOND)
    world.send("t", 1)
    world.settle(session, "t", "g", pull(world, session), Outcome.RETRY, reason="no")
    world.pass_time(SECOND)
    again = pull(world, session)
    world.run(lambda: world.broker.operating.reset(world.now, "t", "g", 0, 0))
    assert told(world, again) == []
    assert told(world, pull(world, session)) == []
