"""RESET forgets what a group is owed in few steps, however much it is; memory is freed in pieces.

Work is counted in bytecodes, which no other load on the machine changes.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakSet

import pytest

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.upkeep import ticks
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import SECOND, World, difference, portrait
from tests.work import bytecodes

Owed = Callable[[World, int, int], None]

_SEARCHED = 60
"""What it may take to search among ten times as many: far below one for each row."""


def in_hand(world: World, session: int, rows: int) -> None:
    """Rows are leased, in leases of ten."""
    for _ in range(rows // 10):
        assert world.pull(session, "t", "g", 10) is not None


def every_other_done(world: World, session: int, rows: int) -> None:
    """Rows are leased, with settled ones between them."""
    for _ in range(rows // 100):
        pulled = world.pull(session, "t", "g", 100)
        assert pulled is not None
        done = [(at, at + 1) for start, stop, *_ in pulled.runs for at in range(start, stop, 2)]
        world.settle(session, "t", "g", pulled, Outcome.DONE, done)


def failing(outcome: Outcome) -> Owed:
    def fail(world: World, session: int, rows: int) -> None:
        for _ in range(rows // 100):
            pulled = world.pull(session, "t", "g", 100)
            assert pulled is not None
            delay_us = 3600 * SECOND if outcome is Outcome.RETRY else None
            world.settle(session, "t", "g", pulled, outcome, delay_us=delay_us, reason="no")

    return fail


OWED: dict[str, Owed] = {
    "leased": in_hand,
    "scattered": every_other_done,
    "waiting": failing(Outcome.RETRY),
    "dead": failing(Outcome.DEAD),
}


def owed(kind: str, rows: int, *, ordered: bool) -> World:
    """Return a world whose group is owed so many rows."""
    world = World()
    world.topic("t", ordered=ordered)
    world.group("t", "g")
    session = world.join()
    # Of an ordered topic each row has a key of its own.
    world.send("t", "".join(chr(0x100 + at) for at in range(rows)) if ordered else rows)
    OWED[kind](world, session, rows)
    return world


def reset(world: World, offset: int = 0) -> int:
    """Do it; return how much work it was."""
    return bytecodes(lambda: world.broker.operating.reset(world.now, "t", "g", 0, offset))


@pytest.mark.parametrize(
    ("kind", "ordered"),
    [
        ("leased", False),
        ("scattered", False),
        ("waiting", False),
        ("waiting", True),
        ("dead", True),
    ],
)
def test_a_reset_is_as_much_work_for_many_rows_as_for_few(kind: str, ordered: bool) -> None:
    few = reset(owed(kind, 100, ordered=ordered))
    world = owed(kind, 1000, ordered=ordered)
    progress = world.progress("t", "g")
    # Nothing but the leases, of which a group has some thousand at most, is walked.
    leases = len(progress.leases)
    many = reset(world)
    assert many <= few + 12 * leases + _SEARCHED
    assert (progress.cursor, progress.open_runs(), progress.leased_rows) == (0, 0, 0)
    assert (progress.failures.waiting_rows, progress.failures.dead_rows) == (0, 0)
    world.commit()
    before = portrait(world.broker.views)
    world.restart(clean=True)
    assert not difference(portrait(world.broker.views), before)


def test_what_was_forgotten_is_freed_some_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "FREED_A_TURN", 10)
    world = owed("leased", 1000, ordered=False)
    world.broker.ticking.work_a_turn = 5  # a tick does one thing
    freed: list[int] = []
    free = Discarded.free

    def counting(self: Discarded, most: int) -> bool:
        freed.append(most)
        return free(self, most)

    monkeypatch.setattr(Discarded, "free", counting)
    reset(world)
    discarded = world.broker.views.discarded
    assert discarded
    world.pass_time(2 * SECOND)
    for _ in range(200):
        at = len(freed)
        world.broker.tick(world.now)
        assert len(freed) <= at + 1
        if not discarded:
            break
    assert not discarded
    assert len(freed) >= 100 // 10  # leases, among others
    assert set(freed) == {10}


class Thing:
    """Something that is freed some time."""


def test_containers_are_emptied_piece_by_piece() -> None:
    alive: WeakSet[Thing] = WeakSet()

    def made(count: int) -> list[Thing]:
        things = [Thing() for _ in range(count)]
        alive.update(things)
        return things

    discarded = Discarded()
    discarded.put(made(25), dict(enumerate(made(25))), [], {})
    left = [len(alive)]
    while discarded.free(10):
        left.append(len(alive))
    assert left == [50, 40, 30, 20, 10]
    assert not alive
    assert not discarded
    assert not discarded.free(10)


def test_dead_letters_below_the_offset_stay() -> None:
    world = owed("dead", 1000, ordered=False)
    reset(world, 300)
    progress = world.progress("t", "g")
    assert progress.failures.dead_rows == 300
    before = portrait(world.broker.views)
    world.commit()
    world.restart()
    assert not difference(portrait(world.broker.views), before)


def test_a_set_behind_a_reset_names_nothing_that_it_changed() -> None:
    """A shard keeps some of its dead letters and forgets the others; no other fact tells of it."""
    world = owed("dead", 200, ordered=False)
    world.restart(clean=True)
    reset(world, 50)
    progress = world.progress("t", "g")
    assert progress.failures.dead_rows == 50
    before = portrait(world.broker.views)
    world.restart(clean=True)
    assert not difference(portrait(world.broker.views), before)
    assert world.progress("t", "g").failures.dead_rows == 50


@pytest.mark.parametrize("kind", ["scattered", "waiting", "dead"])
def test_what_a_group_that_goes_was_owed_is_freed_some_in_a_turn(kind: str) -> None:
    world = owed(kind, 1000, ordered=False)
    views = world.broker.views
    progress = world.progress("t", "g")
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "g"))
    assert views.discarded
    assert (
        progress.open_runs() == progress.failures.waiting_rows == progress.failures.dead_rows == 0
    )
    views.figures.settle()
    assert (views.figures.leased, views.figures.waiting, views.figures.dead) == (0, 0, 0)
    assert not views.figures.by_session
    before = portrait(views)
    world.restart()
    assert not difference(portrait(world.broker.views), before)
