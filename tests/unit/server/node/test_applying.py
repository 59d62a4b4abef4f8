"""A follower applies what is committed, and a promotion goes on with its views."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from ternmq.broker.standby import Standby
from ternmq.broker.start import Ready
from ternmq.cluster.coordination.memory import Register
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.server.node.applying import Applying, Successor
from ternmq.server.node.follower import Replica
from ternmq.server.node.node import Node
from tests.asynchronous import until
from tests.unit.server.node.kit import core_of
from tests.unit.server.node.test_coordinator import pair, put


def replica_of(node: Node) -> Replica:
    """Return the copy of a broker that follows."""
    assert node._replica is not None
    return node._replica


def views_of(node: Node) -> Standby:
    """Return the views of a broker that follows."""
    standby = replica_of(node).applying._standby
    assert standby is not None
    return standby


async def applied(a: Node, b: Node) -> None:
    """Wait until the follower has applied all that its primary has committed."""
    journal = core_of(a).broker.journal
    await until(
        lambda: b._replica is not None and b._replica.applying.applied >= journal.committed,
        "the follower applies what is committed", 30,
    )  # fmt: skip


async def test_a_follower_applies_what_is_committed_and_says_how_far(tmp_path: Path) -> None:
    async with pair(tmp_path, Register()) as (a, b):
        await put(a, "one")
        await applied(a, b)
        assert "one" in views_of(b).views.holds
        assert views_of(b).applied <= replica_of(b).copy.committed  # type: ignore[union-attr]
        primary = a.reigning.primary  # type: ignore[union-attr]
        assert primary is not None
        end = core_of(a).broker.journal.committed

        def told() -> bool:
            return any(one.applied >= end for one in primary.figures())

        await until(told, "the primary hears how far", 30)
        assert replica_of(b).figures().applied == views_of(b).applied


async def test_a_promotion_goes_on_with_the_views(tmp_path: Path) -> None:
    async with pair(tmp_path, Register()) as (a, b):
        await put(a, "one")
        await applied(a, b)
        views = views_of(b).views
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert core_of(b).broker.views is views
        assert "one" in views.holds
        assert core_of(b).started.report.record_count == 0
        await put(b, "two")
        assert set(core_of(b).broker.views.holds) == {"one", "two"}


async def test_the_loop_goes_on_while_the_rest_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others must see that this broker is there: its announcement is renewed by the loop."""
    begun, goes_on = threading.Event(), threading.Event()
    ready = Successor.ready

    def slow(self: Successor) -> Ready:
        begun.set()
        assert goes_on.wait(30)
        return ready(self)

    async with pair(tmp_path, Register()) as (a, b):
        await put(a, "one")
        await applied(a, b)
        monkeypatch.setattr(Successor, "ready", slow)
        a.stopping.set()
        await until(begun.is_set, "b applies the rest", 30)
        assert b.server is None
        goes_on.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert "one" in core_of(b).broker.views.holds


async def test_a_clean_stop_of_the_primary_is_known_to_the_next_one(tmp_path: Path) -> None:
    """What was handed out is not suspect then, as at a start after a clean stop."""
    async with pair(tmp_path, Register()) as (a, b):
        await applied(a, b)
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert core_of(b).started.report.clean


async def test_views_that_cannot_be_used_are_recovered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, Register()) as (a, b):
        await put(a, "one")
        await applied(a, b)
        views = views_of(b).views

        def broken(self: Successor) -> None:
            raise CorruptJournal("position 7 cannot be read")

        monkeypatch.setattr(Successor, "ready", broken)
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert "the journal is recovered: position 7 cannot be read" in caplog.text
        assert core_of(b).broker.views is not views
        assert "one" in core_of(b).broker.views.holds


async def test_views_that_were_not_loaded_are_recovered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "ternmq.cluster")
    monkeypatch.setattr(Applying, "look", lambda self, copy, behind_bytes: None)
    async with pair(tmp_path, Register()) as (a, b):
        await put(a, "one")
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert "the state of the copy is not loaded" in caplog.text
        assert "one" in core_of(b).broker.views.holds


async def test_a_follower_whose_journal_cannot_be_applied_goes_on_as_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, Register()) as (a, b):
        await applied(a, b)

        def broken(self: Standby, commit: Position, may_go_on: object) -> bool:
            raise CorruptJournal("position 7 cannot be read")

        monkeypatch.setattr(Standby, "apply", broken)
        await put(a, "one")
        await until(lambda: "the copy cannot be applied" in caplog.text, "it gives up", 30)
        assert replica_of(b).applying.applied == 0
        await put(a, "two")  # answered, so the follower acknowledges
        monkeypatch.undo()
        a.stopping.set()
        await until(lambda: b.server is not None, "b leads", 30)
        assert set(core_of(b).broker.views.holds) == {"one", "two"}


async def test_an_acknowledgement_does_not_wait_for_applying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views that stand still hold back nothing that is answered."""
    async with pair(tmp_path, Register()) as (a, b):
        await applied(a, b)
        before = views_of(b).applied
        monkeypatch.setattr(Standby, "apply", lambda self, commit, may_go_on: False)
        await asyncio.wait_for(put(a, "one"), 20)
        assert views_of(b).applied == before
