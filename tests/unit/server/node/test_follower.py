"""A follower's connection ends only when nothing works on the copy any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from ternmq.cluster.coordination.group import Presence
from ternmq.cluster.replication.settings import CopySettings
from ternmq.cluster.replication.standing import Loyalty
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.batch.compress import compress_frame
from ternmq.record.fact.header import Kind
from ternmq.server.node.follower import Replica
from ternmq.server.node.node import boot_us
from ternmq.server.node.stream import Stream
from ternmq.settings import Mode, load
from ternmq.wire.control import Followed
from ternmq.wire.stream import PrimaryStream
from tests.asynchronous import until
from tests.unit.journal.kit import SEGMENT


def stream_of(replica: Replica) -> object:
    """Return its connection, whatever it was a moment ago."""
    return replica._stream


async def _never() -> bool:
    return False


async def replica_of(folder: Path) -> Replica:
    """Return a copy that is empty and open."""
    settings = load(
        environ={
            "TERNMQ_DATA": str(folder), "TERNMQ_NAME": "b", "TERNMQ_HTTP": "off",
            "TERNMQ_CLUSTER": "sqlite:////not/used", "TERNMQ_CLUSTER_TOKEN": "0" * 32,
            "TERNMQ_LISTEN": "127.0.0.1:1",
        },
        mode=Mode.SERVE,
    )  # fmt: skip
    replica = Replica(
        settings, 7, Loyalty(CopySettings(), Epoch(0), boot_us()), boot_us, lambda: None
    )
    await replica.open(77, Position(0), _never)
    return replica


class Idle:
    """A thread that does nothing."""

    def submit(self, job: object) -> None:
        """Leave a job undone."""


class Transport:
    """A connection; notes what is done with it."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


async def test_a_job_that_outlasts_the_connection_is_waited_for(tmp_path: Path) -> None:
    """Also when the broker may stand for primary meanwhile, and cancels the following."""
    accepted: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    replica = await replica_of(tmp_path)
    there = Presence("main", "a", 1, f"127.0.0.1:{port}", False, "")
    following = asyncio.create_task(replica.follow(there))
    await until(lambda: accepted, "a connection")
    stream = replica._stream
    assert stream is not None
    stream.idle.clear()  # as a job does that has begun
    stream.end("a is silent")
    await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.sleep(0.01)
    assert not following.done()
    assert stream_of(replica) is stream
    stream.idle.set()
    await following
    assert stream_of(replica) is None
    replica.close()
    for writer in accepted:
        writer.close()
    server.close()


@pytest.mark.parametrize("damage", ["none", "the frame", "the records"])
async def test_of_a_damaged_compressed_piece_nothing_is_written(
    tmp_path: Path, damage: str
) -> None:
    disk = MemoryDisk()
    journal, _ = open_journal(disk, wall_us=1, segment_size=SEGMENT)
    journal.append(Kind.MARK, bytes(2000), 1)
    journal.flush()
    name = segment_name(Position(0))
    records = bytearray(disk.open(name).pread(journal.written, 0))
    if damage == "the records":
        records[-1] ^= 1
    frame = bytearray(compress_frame(bytes(records)))
    if damage == "the frame":
        del frame[-4:]
    replica = await replica_of(tmp_path)
    stream = Stream(
        replica, Presence("main", "a", 1, "127.0.0.1:1", False, ""), replica._follow([])
    )
    transport = Transport()
    stream.connection_made(cast("asyncio.Transport", transport))
    primary = PrimaryStream(1)
    followed = Followed(
        version=2, broker="a", journal=77, epoch=journal.epoch, record_version=1,
        segment_bytes=SEGMENT, first=0, end=journal.written, matched=NO_POSITION, start=0,
        lease_us=3_000_000, silent_us=2_000_000, now_us=1, compress="zstd",
    )  # fmt: skip
    replica._threads = [Idle(), Idle()]  # type: ignore[list-item]
    stream.data_received(primary.answer(followed))
    head = primary.bytes_head(0, journal.epoch, len(frame), len(records))
    stream.data_received(head + bytes(frame))
    assert replica.copy is not None
    if damage == "none":
        assert replica.copy.end == journal.written
        assert stream.saved_bytes == len(records) - len(frame)
        assert not stream.ended.done()
    else:
        assert replica.copy.end == 0
        assert "sent what cannot be followed" in stream.ended.result()
        assert transport.aborted
    stream.end("over")
    replica._threads = []
    replica.close()


async def test_a_stream_that_was_ended_does_not_begin(tmp_path: Path) -> None:
    """It was ended while its connection was made: it follows and acknowledges nothing."""
    replica = await replica_of(tmp_path)
    there = Presence("main", "a", 1, "127.0.0.1:1", False, "")
    for ends in (False, True):
        stream = Stream(replica, there, replica._follow([]))
        transport = Transport()
        if ends:
            stream.end("this broker stands for primary")
        stream.connection_made(cast("asyncio.Transport", transport))
        assert bool(transport.written) is not ends
        assert (stream._timer is None) is ends
        stream.end("over")
        assert transport.aborted
    replica.close()
