"""Views that fall behind, of a copy that is cut, or whose segments go."""

from __future__ import annotations

import asyncio

import pytest

from ternmq.broker.standby import Standby
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.model.types import Position
from ternmq.server.node import applying as module
from ternmq.server.node.applying import NEAR_BYTES, Applying
from tests.asynchronous import until
from tests.unit.broker.kit import World, difference, portrait

SEGMENT = 16384


class Following:
    """A copy of a journal with many STATE sets, and views of it that have begun early."""

    def __init__(self) -> None:
        world = self.world = World(segment_bytes=SEGMENT, state_from=0, budget=50)
        world.topic("t")
        world.group("t", "g")
        world.send("t", 1)
        self.early = world.broker.journal.committed
        session = world.join()
        while world.broker.journal.end < 6 * SEGMENT:
            world.send("t", 4)
            reply = world.pull(session, "t", "g")
            assert reply is not None
            world.settle(session, "t", "g", reply)
        world.commit()
        self.disk = MemoryDisk(world.disk.image())
        copy = Copy.open(self.disk)
        assert copy is not None
        self.copy = copy
        copy.tell(committed=self.early)
        self.applying = Applying(self.disk, world.options.limits, enabled=True, in_place=True)
        self.applying.look(copy, 0)
        assert self.applying.applied == self.early

    def commit_all(self) -> None:
        """Hear from the primary that all of the copy is committed."""
        self.copy.tell(committed=self.copy.end)


async def test_views_that_are_far_behind_are_loaded_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ternmq.cluster")
    monkeypatch.setattr(module, "FAR_BYTES", SEGMENT)
    one = Following()
    one.commit_all()
    one.applying.look(one.copy, 0)
    assert one.applying.applied == one.copy.end  # at once: loaded, not applied in slices
    assert "its newest state is loaded" in caplog.text
    standby = one.applying._standby
    assert standby is not None
    assert standby.newest is not None
    assert difference(portrait(one.world.broker.views), portrait(standby.views)) == []


async def test_otherwise_they_are_applied_in_slices() -> None:
    one = Following()
    one.commit_all()
    one.applying.look(one.copy, 0)
    assert one.applying.applied == one.early
    await until(lambda: one.applying.applied == one.copy.end, "all is applied", 30)


async def test_a_copy_that_is_far_behind_is_copied_first() -> None:
    one = Following()
    one.commit_all()
    one.applying.look(one.copy, NEAR_BYTES + 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert one.applying.applied == one.early


async def test_a_cut_below_what_is_applied_throws_the_views_away() -> None:
    one = Following()
    assert one.applying.cut(one.early)
    assert one.applying.applied == one.early
    assert not one.applying.cut(Position(one.early - 8))
    assert one.applying.applied == 0
    one.applying.look(one.copy, 0)
    assert one.applying.applied == one.early  # loaded again


async def test_segments_go_when_the_views_have_what_took_their_place() -> None:
    one = Following()
    one.commit_all()
    first, needs = Position(SEGMENT), one.copy.end
    assert not one.applying.may_remove(first, needs, 0)
    one.applying.look(one.copy, 0)
    await until(lambda: one.applying.may_remove(first, needs, 0), "all is applied", 30)
    one.copy.remove_below(first, needs=needs)
    one.applying.removed(one.copy.first)
    standby = one.applying._standby
    assert standby is not None
    assert standby.first == first
    assert standby.views.index.coverage.first_number == 1


async def test_views_that_wait_do_not_fill_the_disk() -> None:
    one = Following()
    one.commit_all()
    assert one.applying.may_remove(Position(SEGMENT), one.copy.end, NEAR_BYTES + 1)
    assert one.applying.applied == 0


async def test_a_reign_does_not_wait_for_views_that_are_far_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ternmq.cluster")
    one = Following()
    monkeypatch.setattr(module, "FAR_BYTES", one.copy.end - one.early - 1)
    assert one.applying.successor(one.copy) is None
    assert "a promotion recovers the journal" in caplog.text


async def test_a_reign_takes_over_and_applies_the_rest() -> None:
    """Also what was not committed: it becomes a part of the reign."""
    one = Following()
    successor = one.applying.successor(one.copy)
    assert successor is not None
    ready = successor.ready()
    assert difference(portrait(one.world.broker.views), portrait(ready.views)) == []
    assert ready.replayed.ending.valid_end == one.copy.end


async def test_a_backup_has_no_views() -> None:
    one = Following()
    backup = Applying(one.disk, one.world.options.limits, enabled=False, in_place=True)
    backup.look(one.copy, 0)
    assert backup.applied == 0
    assert not backup.holds_files


async def test_an_error_that_nobody_expected_does_not_end_the_copying(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Following()
    one.commit_all()

    def broken(self: Standby, commit: Position, may_go_on: object) -> bool:
        raise KeyError(7)

    monkeypatch.setattr(Standby, "apply", broken)
    one.applying.look(one.copy, 0)
    await until(lambda: "the copy cannot be applied" in caplog.text, "it gives up", 30)
    assert "KeyError: 7" in caplog.text
    assert one.applying.applied == 0
    assert one.applying.may_remove(Position(SEGMENT), one.copy.end, 0)
    one.applying.look(one.copy, 0)
    assert one.applying.applied == 0


async def test_a_load_in_a_thread_that_fails_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = Following()

    def broken(self: Standby, commit: Position, wanted: object) -> None:
        raise KeyError(7)

    monkeypatch.setattr(Standby, "load", broken)
    other = Applying(one.disk, one.world.options.limits, enabled=True, in_place=False)
    other.look(one.copy, 0)
    assert other.holds_files
    await until(lambda: not other.holds_files, "the load is over", 30)
    assert "KeyError: 7" in caplog.text


async def test_a_load_in_a_thread_that_is_not_wanted_any_more_changes_nothing() -> None:
    one = Following()
    other = Applying(one.disk, one.world.options.limits, enabled=True, in_place=False)
    other.look(one.copy, 0)
    other.discard()
    await until(lambda: not other.holds_files, "the load is over", 30)
    assert other.applied == 0
    other.look(one.copy, 0)
    await until(lambda: other.applied == one.early, "it is loaded again", 30)
