"""A read of the disk that failed for good was tried again at once, for ever, and never answered."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ternmq.broker.delivery.pulls import Delivery
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import File
from ternmq.model.errors import DiskReadError, Unreadable
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.asynchronous import until
from tests.integration.raw import RawClient, texts

_LARGE = "x" * 300_000
"""Keeps what lies behind it out of the stretch of the disk that is read with what lies before."""


class BadFile:
    """A file of which one byte cannot be read."""

    def __init__(self, disk: BadDisk, inner: File) -> None:
        self.name = inner.name
        self._disk = disk
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def pread(self, length: int, offset: int) -> bytes:
        """Read; counts what fails."""
        if self._disk.covers(self.name, length, offset):
            self._disk.failed += 1
            raise DiskReadError(f"reading {self.name} at {offset}: planned")
        return self._inner.pread(length, offset)

    def try_pread(self, length: int, offset: int) -> bytes | None:
        """Read what memory holds: not that byte."""
        if self._disk.covers(self.name, length, offset):
            return None
        return self._inner.try_pread(length, offset)


class BadDisk(MemoryDisk):
    """A disk with a bad sector, when it is told so."""

    bad: int | None = None
    failed = 0

    def covers(self, name: str, length: int, offset: int) -> bool:
        """Tell whether a read would meet it."""
        return name.endswith(".seg") and self.bad is not None and (
            offset <= self.bad < offset + length
        )  # fmt: skip

    def open(self, name: str, *, create: bool = False) -> File:  # type: ignore[override]
        """Open."""
        return BadFile(self, super().open(name, create=create))  # type: ignore[return-value]


@pytest.fixture
def disk() -> BadDisk:
    return BadDisk()


@pytest.fixture
def bad(disk: BadDisk) -> Iterator[InProcessBroker]:
    """Run a broker whose topic ``orders`` begins with a message that cannot be read."""
    with broker(disk=disk) as one:
        with RawClient(one.port) as client:
            client.create("orders")
            client.join("orders", "billing")
            client.send("orders", "lost")
            client.send("filler", _LARGE)
            client.send("orders", "kept")
            client.send("prices", "fine")
            client.join("prices", "billing")
        first = one._server.core.broker.index.locate(1, 0, 0, 1, 1).positions[0]
        one.restart()  # nothing of it is in memory any more
        disk.bad = first + 60
        yield one
        disk.bad = None


def test_who_asks_gets_an_error_and_everything_else_goes_on(
    bad: InProcessBroker, disk: BadDisk, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(bad.port) as client:
        client.socket.settimeout(10.0)
        for _ in range(2):
            with pytest.raises(Unreadable, match=r"\.seg at \d+"):
                client.read("orders", 0)
        with pytest.raises(Unreadable):
            client.manage(Command.FIND, control.Find(topic="orders", offset=0), control.FoundPage)
        assert disk.failed <= 2, "the disk is not asked for the same bytes again so soon"
        assert client.send("orders", "more").first_offset == 2
        assert texts(client.pull("prices", "billing")) == {0: "fine"}
        assert client.read("orders", 1).stop == 3
        assert bad._server.core.unreadable_reads == 3
    lines = [one for one in caplog.records if "cannot be read" in one.getMessage()]
    assert len(lines) == 1
    assert lines[0].levelno == logging.ERROR


def test_a_group_passes_over_it_and_the_row_fails_by_its_policy(
    bad: InProcessBroker, disk: BadDisk
) -> None:
    with RawClient(bad.port) as client:
        client.socket.settimeout(10.0)
        with pytest.raises(Unreadable):
            client.pull("orders", "billing")
        assert texts(client.pull("orders", "billing")) == {1: "kept"}
        asked = control.FailedList(topic="orders", group="billing", dead=False)
        disk.bad = None
        bad.clock.advance(seconds=2)
        (row,) = client.manage(Command.FAILED_LIST, asked, control.FailedPage).rows
        assert row.offset == 0
        assert ".seg at" in row.failures[0].reason
        bad.clock.advance(hours=1)
        again = client.pull("orders", "billing")
        assert texts(again)[0] == "lost"
        assert [run.attempt for run in again.runs if run.start == 0] == [2]


def test_all_who_wait_for_the_same_bytes_are_answered(bad: InProcessBroker) -> None:
    asked = bodies.pack_read(bodies.Read("orders", 0, 0, 10, 0, 0))
    with RawClient(bad.port) as client:
        client.socket.settimeout(10.0)
        for id_ in [client.ask(Command.READ, asked) for _ in range(20)]:
            with pytest.raises(Unreadable):
                client.wait(id_)


def test_pulls_that_wait_are_told(timed: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise DiskReadError("reading a.seg at 7: planned")

    with RawClient(timed.port) as client, RawClient(timed.port) as sender:
        for topic in ("orders", "prices"):
            client.create(topic)
            client.join(topic, "billing")
        waiting = client.ask_pull("orders", "billing", wait_ms=300_000)
        client.call(Command.PING)
        with monkeypatch.context() as patch:
            patch.setattr(Delivery, "pull_any", fails)
            sender.send("orders", "a")
            with pytest.raises(Unreadable):
                client.wait(waiting)
        sender.send("prices", "b")
        assert texts(client.pull("prices", "billing")) == {0: "b"}
        assert texts(client.pull("orders", "billing")) == {0: "a"}


async def test_one_that_goes_wrong_takes_no_other_along(timed: InProcessBroker) -> None:
    told: list[str] = []

    def wrong() -> None:
        raise ValueError("a bug")

    core = timed._server.core

    class Done:
        def run(self) -> None:
            """Nothing is to be done."""

    def ask() -> None:
        blocked = WouldBlock(Done())
        core.cold_reads.read(blocked, wrong)
        core.cold_reads.read(blocked, lambda: told.append("other"))

    timed._loop.call_soon_threadsafe(ask)
    await until(lambda: told)


def test_owed_bytes_that_cannot_be_read_stop_no_turn(
    timed: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise DiskReadError("reading a.seg at 7: planned")

    core = timed._server.core
    monkeypatch.setattr(core.upkeep.moving, "step", fails)
    monkeypatch.setattr(core.upkeep, "_retain_us", 0)
    with RawClient(timed.port) as client:
        client.socket.settimeout(10.0)
        client.send("orders", "a")
        client.send("orders", "b")
    assert core.unreadable_reads == 1, "and it is not tried again in each turn"


@pytest.mark.parametrize("ordered", [False, True])
def test_groups_that_read_before_they_deliver_pass_over_it_too(
    disk: BadDisk, ordered: bool
) -> None:
    """Their pulls were refused for ever: a filter, or the order by key, needs the messages."""
    with broker(disk=disk) as one:
        with RawClient(one.port) as client:
            client.create("orders", ordered=ordered)
            wanted = {"mode": "ordered"} if ordered else {"filter": "$key IS NULL"}
            client.join("orders", "billing", **wanted)
            key = "k" if ordered else ""
            client.send("orders", "lost", ordering_key=key)
            client.send("filler", _LARGE)
            client.send("orders", "kept", ordering_key=key)
        first = one._server.core.broker.index.locate(1, 0, 0, 1, 1).positions[0]
        one.restart()
        disk.bad = first + 60
        with RawClient(one.port) as client:
            client.socket.settimeout(10.0)
            for _ in range(2):
                with pytest.raises(Unreadable):
                    client.pull("orders", "billing")
                one.clock.advance(minutes=11)
            assert texts(client.pull("orders", "billing")) == {1: "kept"}
            asked = control.FailedList(topic="orders", group="billing", dead=True)
            disk.bad = None
            one.clock.advance(seconds=2)
            (row,) = client.manage(Command.FAILED_LIST, asked, control.FailedPage).rows
            assert (row.offset, row.attempts) == (0, 0)
            assert ".seg at" in row.failures[0].reason
