"""Another broker of the group is asked for records, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ternmq.cluster.coordination.group import Presence
from ternmq.model.types import Position
from ternmq.server.node.visitors import Porch
from ternmq.server.process.doorway import Doorway
from ternmq.server.scrub import asking
from ternmq.server.scrub.asking import Peer
from ternmq.server.scrub.donors import DonorFailed
from ternmq.wire import frames
from tests.unit.journal.kit import SEGMENT
from tests.unit.journal.mending.kit import contents
from tests.unit.server.scrub.test_giving import JOURNAL, Desk

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def there(port: int) -> Presence:
    return Presence("orders", "a", 1, f"127.0.0.1:{port}")


def peer(port: int, *, journal: int = JOURNAL) -> Peer:
    return Peer("a", lambda: there(port), journal, Desk().settings)


@asynccontextmanager
async def porch() -> AsyncIterator[tuple[Desk, int]]:
    """A broker that follows, and gives what it has."""
    desk = Desk()
    one = Porch(lambda: "it does not lead", lambda: None, desk.giver.take, str)
    doorway = Doorway("127.0.0.1", 0)
    await one.open(doorway, None)
    try:
        yield desk, doorway.port
    finally:
        await one.close()
        doorway.close()


@asynccontextmanager
async def somebody(serve: Serve) -> AsyncIterator[int]:
    """A program that listens, and does as it likes."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_records_come():
    async with porch() as (desk, port):
        record = desk.records[5]
        got = await peer(port).read(record.position, SEGMENT)
    whole = contents(desk.disk)[0]
    assert got == whole[record.position : record.position + len(got)]
    assert len(got) > record.length


async def test_it_is_refused():
    async with porch() as (_, port):
        with pytest.raises(DonorFailed, match="another journal"):
            await peer(port, journal=JOURNAL + 1).read(Position(0), SEGMENT)


async def test_nobody_listens():
    async with somebody(lambda r, w: asyncio.sleep(0)) as port:
        pass
    with pytest.raises(DonorFailed, match="cannot be reached"):
        await peer(port).read(Position(0), SEGMENT)


async def test_it_does_not_answer(monkeypatch):
    monkeypatch.setattr(asking, "_PATIENCE_S", 0.05)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async with somebody(silent) as port:
        with pytest.raises(DonorFailed, match="does not answer"):
            await peer(port).read(Position(0), SEGMENT)
        await ended.wait()  # nothing of the connection is left


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n" * 9, "cannot be read"),
        (frames.HEADER.pack(1 << 31, frames.MAGIC, 117, frames.ANSWER, 0, 1), "cannot be read"),
    ],
)
async def test_it_sends_something_else(said, why):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)
        writer.close()

    async with somebody(serve) as port:
        with pytest.raises(DonorFailed, match=why):
            await peer(port).read(Position(0), SEGMENT)


async def test_a_broker_that_was_just_started_is_waited_for(monkeypatch):
    """The coordinator shows it a moment later than it is a member."""
    async with porch() as (desk, port):
        shown: list[Presence] = []
        one = Peer("a", lambda: shown[0] if shown else None, JOURNAL, desk.settings)
        reading = asyncio.create_task(one.read(Position(0), SEGMENT))
        await asyncio.sleep(0)
        assert not reading.done()
        shown.append(there(port))
        assert await reading
    monkeypatch.setattr(asking, "_ANNOUNCED_S", 0.01)
    with pytest.raises(DonorFailed, match="does not run"):
        await Peer("a", lambda: None, JOURNAL, desk.settings).read(Position(0), SEGMENT)
