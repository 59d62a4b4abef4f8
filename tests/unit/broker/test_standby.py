"""The views of a copy: loaded, applied below a mark, bounded in memory, good for a reign."""

from __future__ import annotations

import pytest

from ternmq.broker.group.keyorder import KeyOrder
from ternmq.broker.standby import Standby, Unwanted
from ternmq.journal.state.sets import StateKey, directory_of
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Limits
from ternmq.model.types import Position
from ternmq.record.fact.facts import Outcome
from ternmq.record.fact.state import DEDUP
from tests.unit.broker.kit import SECOND, World, difference, portrait

LIMITS = Limits(producer_idle_us=10 * SECOND, dedup_window_us=5 * SECOND)


def standby_of(world: World, commit: Position | None = None) -> Standby:
    """Return views of the world's journal, loaded up to a mark, or all that is committed."""
    journal = world.broker.journal
    found = Standby(
        world.disk, world.options.limits, segment_size=journal.segment_size, first=journal.first
    )
    found.load(journal.committed if commit is None else commit)
    return found


def follow(world: World, standby: Standby) -> None:
    """Apply all that is committed."""
    world.commit()
    assert not standby.apply(world.broker.journal.committed, lambda: True)


def same(world: World, standby: Standby) -> None:
    """Check that the views are those of the broker."""
    assert difference(portrait(world.broker.views), portrait(standby.views)) == []


def worked(world: World, times: int) -> None:
    """Send, hand out, settle; some rows fail, and some keys wait behind others."""
    session = world.join()
    for turn in range(times):
        world.send("t", "abca", producer=turn % 3 + 1)
        reply = world.pull(session, "t", "g", 4)
        if reply is not None:
            world.settle(session, "t", "g", reply, Outcome.RETRY if turn % 5 == 4 else Outcome.DONE)
        world.pass_time(SECOND // 4)
    world.commit()


def world_with_keys(state_from: int | None = None, budget: int = 1) -> World:
    world = World(LIMITS, state_from=state_from, budget=budget)
    world.topic("t", ordered=True)
    world.group("t", "g")
    return world


def test_applied_one_by_one_they_are_those_of_the_broker() -> None:
    world = world_with_keys()
    standby = standby_of(world)
    worked(world, 30)
    left = True
    while left:
        left = standby.apply(world.broker.journal.committed, lambda: False)
    same(world, standby)


def test_nothing_is_applied_above_the_mark() -> None:
    world = world_with_keys()
    standby = standby_of(world)
    mark = world.broker.journal.committed
    worked(world, 3)
    assert not standby.apply(mark, lambda: True)
    assert standby.applied == mark
    follow(world, standby)
    same(world, standby)


def test_a_slice_ends_when_it_may_not_go_on() -> None:
    world = world_with_keys()
    standby = standby_of(world)
    worked(world, 20)
    before = standby.applied
    assert standby.apply(world.broker.journal.committed, lambda: False)
    assert before < standby.applied < world.broker.journal.committed


def test_they_are_loaded_from_the_newest_set_below_the_mark() -> None:
    world = world_with_keys(state_from=0, budget=5)
    worked(world, 40)
    writer = world.broker.writer
    assert len(writer.complete) > 1
    newest, before = writer.complete[-1], writer.complete[-2]
    standby = standby_of(world)
    assert standby.newest is not None
    assert standby.newest.end == newest.end
    same(world, standby)
    earlier = standby_of(world, newest.end)
    assert earlier.newest is not None
    assert earlier.newest.end == before.end
    follow(world, earlier)
    assert earlier.newest.end == newest.end
    same(world, earlier)


def test_a_load_that_is_not_wanted_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ternmq.broker.standby._LOOKS", 2)
    world = world_with_keys()
    worked(world, 5)
    journal = world.broker.journal
    standby = Standby(world.disk, LIMITS, segment_size=journal.segment_size, first=journal.first)
    with pytest.raises(Unwanted):
        standby.load(journal.committed, lambda: False)


def test_records_that_cannot_be_read_are_said() -> None:
    world = world_with_keys()
    standby = standby_of(world)
    worked(world, 3)
    file = world.disk.open(f"journal/{0:020d}.seg")
    file.pwrite(b"\xff", standby.applied + 60)
    with pytest.raises(CorruptJournal, match=f"position {standby.applied} cannot be read"):
        standby.apply(world.broker.journal.committed, lambda: True)


def test_what_the_primary_forgets_in_ticks_is_forgotten_by_the_records() -> None:
    world = world_with_keys()
    standby = standby_of(world)
    for producer in range(100, 140):
        world.send("t", "a", producer=producer)
    follow(world, standby)
    assert len(standby.views.dedup.producers) == 40
    for _ in range(15):  # ten seconds, and some
        world.pass_time(SECOND)
        world.send("t", "a", producer=1)
        follow(world, standby)
    assert set(standby.views.dedup.producers) == {1}
    same(world, standby)


def test_free_lines_that_nobody_pulls_do_not_pile_up() -> None:
    world = world_with_keys(state_from=0, budget=50)
    standby = standby_of(world)
    most = 0
    for _ in range(12):
        worked(world, 20)
        follow(world, standby)
        (progress,) = standby.views.progress.values()
        assert isinstance(progress.order, KeyOrder)
        most = max(most, len(progress.order.lines._free))
    assert most < 60  # of some 700 that were pushed
    same(world, standby)


def test_what_a_set_has_of_deduplication_is_not_kept_for_the_next_one() -> None:
    world = world_with_keys(state_from=0, budget=20)
    standby = standby_of(world)
    for _ in range(8):
        worked(world, 10)
        follow(world, standby)
    log = standby.views.dedup._log
    assert len(log.recent) < 60 * 40
    assert set(log.runs) == {(key.d, key.c) for key in _dedup_keys(world)}


def _dedup_keys(world: World) -> list[StateKey]:
    ended = [one.end for one in world.broker.writer.complete]
    end = max(one for one in ended if one < world.broker.journal.committed)
    directory, _ = directory_of(world.disk, world.options.segment_bytes, end)
    return [key for key in directory if key.type == DEDUP]


def test_no_record_is_written_and_the_journal_is_not_changed() -> None:
    world = world_with_keys(state_from=0, budget=5)
    standby = standby_of(world)
    worked(world, 20)
    before = {name: data for name, data in world.disk.image().items() if "journal/" in name}
    follow(world, standby)
    while (job := standby.next_job()) is not None:
        job.run()
        standby.finished(job, None)
    after = {name: data for name, data in world.disk.image().items() if "journal/" in name}
    assert after == before
