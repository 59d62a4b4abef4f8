"""What rests on a segment that went is brought up to date in pieces, and no answer is wrong before.

Work is counted, not timed: so many queues, names and groups are looked at in a step, however many
there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.group.rowstate import RowState
from ternmq.broker.ledger import removed
from ternmq.broker.query.messages import Queries
from ternmq.broker.upkeep import removal
from ternmq.broker.upkeep import retention as moving
from ternmq.journal.disk.memory import MemoryDisk, MemoryFile
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.errors import OffsetExpired
from tests.unit.broker import kit
from tests.unit.broker.kit import difference, offsets, portrait
from tests.unit.broker.upkeep.test_upkeep import SEGMENT, Kept

TOPICS = 30
PIECE = 4


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[Any]:
    """Return a list that gets the first argument of every call of a method."""
    calls: list[Any] = []
    inner: Callable[..., object] = getattr(owner, name)

    def counting(self: object, one: object, *more: object) -> object:
        calls.append(one)
        return inner(self, one, *more)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step does one piece, and a piece has four queues or names."""
    monkeypatch.setattr(removal, "PIECES_A_STEP", 1)
    monkeypatch.setattr(removal, "QUEUES_A_PIECE", PIECE)
    monkeypatch.setattr(removed, "QUEUES_A_PIECE", PIECE)
    monkeypatch.setattr(removed, "NAMES_A_PIECE", PIECE)


def removed_a_moment_ago(prepare: Callable[[Kept], None] = lambda world: None) -> Kept:
    """Return a world whose oldest segment, with rows of many queues, has just gone."""
    world = Kept(RetentionSpec(max_bytes=4 * SEGMENT))
    for number in range(TOPICS):
        world.topic(f"t{number}", keep_until_consumed=False)
        world.group(f"t{number}", "g")
        world.send(f"t{number}", 3)
    prepare(world)
    world.topic("filler", keep_until_consumed=False)
    world.grow("filler", 1)
    return world


def queue_of(world: Kept, topic: str) -> Queue:
    return world.broker.views.catalog.topic(topic).queues[0]


def stale(world: Kept) -> int:
    """Return how many queues have not found out yet where they begin."""
    topics = world.broker.views.catalog.topics.values()
    return sum([one.queues[0].first_as_of != one.queues[0]._firsts.removed for one in topics])


@pytest.mark.usefixtures("small")
def test_the_queues_of_a_segment_that_went_forget_it_some_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = removed_a_moment_ago()
    going = world.started.upkeep.moving.removal
    left = [stale(world)]
    assert left[0] >= TOPICS - PIECE
    asked = counted(monkeypatch, type(world.broker.index.coverage), "segments_of")
    while going.goes_on:
        asked.clear()
        world.turn()
        assert len(asked) <= 4 * PIECE  # some for the rows, some for where they begin
        left.append(stale(world))
    assert left[-1] == 0
    assert max([before - now for before, now in itertools.pairwise(left)]) <= PIECE
    assert len(left) > TOPICS // PIECE
    number = world.broker.journal.first // SEGMENT
    assert all(one.numbers[0] >= number for one in world.broker.index.coverage.queues.values())
    assert world.broker.views.expired_rows == 3 * TOPICS


@pytest.mark.usefixtures("small")
def test_a_queue_tells_where_it_begins_before_its_turn() -> None:
    world = removed_a_moment_ago()
    going = world.started.upkeep.moving.removal
    last = f"t{TOPICS - 1}"
    assert stale(world) > 1
    before = world.broker.views.expired_rows
    assert queue_of(world, last).first == 3
    assert world.broker.views.expired_rows == before + 3
    with pytest.raises(OffsetExpired):
        Queries(world.broker.ledger).read(last, 0, 0, 10, 1 << 20)
    one_before = f"t{TOPICS - 2}"
    session = world.join()
    assert world.pull(session, one_before, "g") is None
    world.send(one_before, 2)
    pulled = world.pull(session, one_before, "g")
    assert pulled is not None
    assert offsets(pulled) == [3, 4]
    assert world.broker.views.expired_rows == before + 6
    while going.goes_on:
        world.turn()
    assert world.broker.views.expired_rows == 3 * TOPICS  # each counted once, whoever asked


@pytest.mark.usefixtures("small")
def test_a_stop_in_the_middle_leaves_nothing_undone() -> None:
    world = removed_a_moment_ago()
    assert world.started.upkeep.moving.removal.goes_on
    first = world.broker.journal.first
    world.commit()
    before = portrait(world.broker.views)
    world.restart()
    assert world.broker.journal.first == first
    assert stale(world) == 0
    assert not difference(portrait(world.broker.views), before)


@pytest.mark.usefixtures("small")
def test_names_of_what_is_gone_are_forgotten_some_in_a_step() -> None:
    def delete_some(world: Kept) -> None:
        for number in range(20):
            name = f"t{number}"
            world.run(lambda name=name: world.broker.administration.delete_topic(world.now, name))  # type: ignore[misc]

    world = removed_a_moment_ago(delete_some)
    entries = world.broker.views.gone.entries
    left = [len(entries)]
    assert left[0] == 40  # topics and groups
    while world.started.upkeep.moving.removal.goes_on:
        world.turn()
        left.append(len(entries))
    assert left[-1] == 0
    assert max([before - now for before, now in itertools.pairwise(left)]) <= PIECE


def test_a_row_that_went_unread_is_not_said_to_be_unread() -> None:
    world = removed_a_moment_ago()
    queries = Queries(world.broker.ledger)
    states = [queries.row("t0", "g", 0, offset)[0].state for offset in range(3)]
    assert states == [RowState.NOT_OWED] * 3
    world.send("t0", 1)
    assert queries.row("t0", "g", 0, 3)[0].state is RowState.UNREAD


def test_the_next_segment_waits_until_the_space_of_the_one_before_is_free() -> None:
    world = Kept(RetentionSpec(max_bytes=4 * SEGMENT))
    world.topic("t", keep_until_consumed=False)
    upkeep, going = world.started.upkeep, world.started.upkeep.moving.removal

    def turn_without_jobs() -> None:
        world.send("t", 5)
        world.pass_time(10_000)
        upkeep.step(world.now, lambda: True)
        world.commit()

    kept = None
    for _ in range(3000):
        turn_without_jobs()
        while kept is None and (job := upkeep.next_job()) is not None:
            if isinstance(job, RemoveJob) and job.file is not None:
                kept = job
                break
            job.run()
            upkeep.finished(job, None)
        if kept is not None:
            break
    assert kept is not None
    assert going.removed_segments == 1
    assert going.frees
    for _ in range(200):
        turn_without_jobs()
    assert going.removed_segments == 1
    assert not upkeep.goes_on  # or whoever runs the turns would run one after the other
    kept.run()
    assert kept.file is None
    turn_without_jobs()
    assert going.removed_segments == 1  # nobody has looked at the disk anew
    upkeep.finished(kept, None)
    world.grow("t", 1)


class Lingering(MemoryDisk):
    """What is removed takes its space until nobody has it open, as with a file system."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.handles: list[LingeringFile] = []
        self.lingers: list[tuple[str, int]] = []

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        found = super().open(name, create=create)
        mine = LingeringFile(self, name, self._files[name])
        assert isinstance(found, MemoryFile)
        self.handles.append(mine)
        return mine

    def remove(self, name: str) -> None:
        size = len(self._files.get(name, b""))
        super().remove(name)
        self.lingers.append((name, size))

    def free_bytes(self) -> int:
        there = {one.name for one in self.handles}
        lingering = sum([size for name, size in self.lingers if name in there])
        return max(0, super().free_bytes() - lingering)


class LingeringFile(MemoryFile):
    def close(self) -> None:
        disk = self._disk
        assert isinstance(disk, Lingering)
        disk.handles = [one for one in disk.handles if one is not self]


def test_space_that_is_being_freed_counts_as_soon_as_it_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither goes another segment for what the disk said before, nor stays the journal full."""
    monkeypatch.setattr(kit, "MemoryDisk", Lingering)
    world = Kept(RetentionSpec(watermark=0.5))
    assert isinstance(world.disk, Lingering)
    world.disk.capacity = 16 * SEGMENT
    world.topic("t", keep_until_consumed=False)
    upkeep = world.started.upkeep
    going, journal = upkeep.moving.removal, world.broker.journal
    found = False
    while not found:
        world.send("t", 5)
        world.pass_time(2000)
        upkeep.step(world.now, lambda: True)
        world.commit()
        found = going.frees
        while not found and (job := upkeep.next_job()) is not None:
            job.run()
            upkeep.finished(job, None)
    world.pass_time(2000)
    upkeep.step(world.now, lambda: True)  # looks at the disk, and the space is not free yet
    room = journal.room()
    for _ in range(20):
        while (job := upkeep.next_job()) is not None:
            job.run()
            upkeep.finished(job, None)
        assert journal.room() > room
        world.pass_time(10)
        upkeep.step(world.now, lambda: True)
        world.commit()
    assert going.removed_segments == 1


def test_groups_that_may_have_pulled_are_looked_at_some_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each group on a topic of its own, with unread rows in the segment that goes."""
    monkeypatch.setattr(moving, "LOOKS_A_STEP", PIECE)
    looks = counted(monkeypatch, moving.Moving, "_has_pulled")
    passes: list[int] = []
    is_over = moving.Moving._is_over

    def counting(self: moving.Moving, may_go_on: Callable[[], bool]) -> bool:
        looks.clear()
        over = is_over(self, may_go_on)
        passes.append(len(looks))
        return over

    monkeypatch.setattr(moving.Moving, "_is_over", counting)
    # A page has 64 groups: of 200 those of one are looked at in a step.
    world = Kept(RetentionSpec(max_bytes=4 * SEGMENT))
    for number in range(200):
        world.topic(f"t{number}", keep_until_consumed=False)
        world.group(f"t{number}", "g")
        world.send(f"t{number}", 1)
    world.topic("filler", keep_until_consumed=False)
    while sum(passes) < 200:
        world.grow("filler", 1)
    assert max(passes) <= 64


def test_only_who_pulled_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Kept(RetentionSpec(max_bytes=4 * SEGMENT))
    session = world.join()
    monkeypatch.setattr(moving, "LOOKS_A_STEP", PIECE)
    for number in range(TOPICS):
        world.topic(f"t{number}", keep_until_consumed=False)
        world.group(f"t{number}", "g")
        world.send(f"t{number}", 1)
    world.topic("filler", keep_until_consumed=False)
    retention = world.started.upkeep.moving
    looked = counted(monkeypatch, type(retention._copied), "keep")
    while not retention._late:
        looked.clear()
        world.send("filler", 5)
        world.turn()
    assert not retention.removed_segments
    key = looked[0]
    name = world.broker.views.catalog.topics[key[1]].name
    pulled = world.pull(session, name, "g")
    assert pulled is not None
    assert offsets(pulled) == [0]
    world.grow("filler", 1)
    assert sorted(looked) == sorted([*world.broker.views.progress, key])
    assert retention.owed_copies.copied_rows == 1
    world.settle(session, name, "g", pulled)


def test_a_group_that_pulls_while_others_are_looked_at_again_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moving, "LOOKS_A_STEP", 1)
    world = Kept(RetentionSpec(max_bytes=4 * SEGMENT))
    session = world.join()
    for name in ("first", "second"):
        world.topic(name, keep_until_consumed=False)
        world.send(name, 1)
    world.group("first", "g")
    world.topic("filler", keep_until_consumed=False)
    for number in range(64):  # the two groups stand on different pages
        world.group("filler", f"g{number}")
        world.run(
            lambda number=number: world.broker.administration.unsubscribe(  # type: ignore[misc]
                world.now, "filler", f"g{number}"
            )
        )
    world.group("second", "g")
    pulled: list[int] = []
    is_over = moving.Moving._is_over

    def between(self: moving.Moving, may_go_on: Callable[[], bool]) -> bool:
        over = is_over(self, may_go_on)
        if not pulled and self._checks:
            assert not over
            reply = world.pull(session, "first", "g")
            assert reply is not None
            pulled.extend(offsets(reply))
        return over

    monkeypatch.setattr(moving.Moving, "_is_over", between)
    world.grow("filler", 1)
    assert pulled == [0]
    assert world.started.upkeep.moving.owed_copies.copied_rows == 1
