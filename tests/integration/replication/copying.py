"""A small follower that copies into memory, a client of few words, and a primary for them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from ternmq.cluster.coordination.record import Leadership, Member, Writer
from ternmq.cluster.replication.incoming import Incoming
from ternmq.cluster.replication.reign import Change, Reign
from ternmq.cluster.replication.settings import CopySettings
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import scan
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import Busy, TernMQError
from ternmq.model.secret import Secret
from ternmq.model.types import Epoch, Position
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact.header import HEADER_BYTES, Kind
from ternmq.server.app import Server
from ternmq.server.replication.primary import Primary
from ternmq.settings import Mode, load
from ternmq.wire import bodies, control
from ternmq.wire.bodies import Ack, Bytes, Marks
from ternmq.wire.commands import Command
from ternmq.wire.control import Followed, Resign
from ternmq.wire.session import Answer, ClientSession, Refusal
from ternmq.wire.stream import FollowerStream
from tests.asynchronous import until

TOKEN: Final = "of-the-cluster"
GROUP: Final = "orders"
JOURNAL: Final = 77
ME: Final = Member("a", 1)


class Copier:
    """A follower: checks what comes, writes it into memory, acknowledges it if it shall."""

    def __init__(self, port: int, *, broker: str = "b", incarnation: int = 9) -> None:
        self.port = port
        self.broker = broker
        self.incarnation = incarnation
        self.acks = True
        self.tls: ssl.SSLContext | None = None
        self.disk = MemoryDisk()
        self.incoming: Incoming | None = None
        self.followed: Followed | None = None
        self.refusal: TernMQError | None = None
        self.resigned: Resign | None = None
        self.marks: Marks | None = None
        self.echo = 0
        self.ended = False
        self.unacknowledged = 0
        self.most_unacknowledged = 0
        self.frames = 0
        self._stream = FollowerStream()
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter

    async def follow(self, **changes: object) -> None:
        """Connect, and wait for the answer."""
        fields: dict[str, object] = {
            "token": TOKEN, "group": GROUP, "journal": 0, "broker": self.broker,
            "incarnation": self.incarnation, "told": 0, "end": 0,
        }  # fmt: skip
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        follow = control.Follow(**(fields | changes))  # type: ignore[arg-type]
        self._writer.write(self._stream.follow(follow))
        self._task = asyncio.create_task(self._run(reader))
        await until(lambda: self.followed or self.refusal or self.ended, "an answer to FOLLOW")

    async def _run(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(1 << 18):
                for event in self._stream.receive(data):
                    self._take(event)
                if self.acks and self.followed is not None:
                    self.acknowledge()
        except OSError:
            return  # the primary has aborted it
        finally:
            self.ended = True

    def _take(self, event: object) -> None:
        match event:
            case Followed():
                self._begin(event)
            case Refusal():
                self.refusal = event.error
            case Resign():
                self.resigned = event
            case Marks():
                self.marks = event
                self.echo = event.sent_at
            case Bytes():
                assert self.incoming is not None
                self.frames += 1
                self.unacknowledged += len(event.records)
                self.most_unacknowledged = max(self.most_unacknowledged, self.unacknowledged)
                size = self.segment_bytes
                for piece in self.incoming.take(
                    Position(event.position), Epoch(event.epoch), event.records
                ):
                    base = piece.position - piece.position % size
                    file = self.disk.open(segment_name(base), create=True)
                    file.pwrite(piece.data, piece.position - base)

    def _begin(self, followed: Followed) -> None:
        self.followed = followed
        self.echo = followed.now_us
        self.segment_bytes = followed.segment_bytes
        if self.incoming is None or followed.start != self.incoming.end:
            self.disk = MemoryDisk()
            crc = None if followed.start else 0
            self.incoming = Incoming(
                segment_size=followed.segment_bytes, end=Position(followed.start), last_crc=crc,
                last_epoch=Epoch(0), followed=Epoch(followed.epoch),
            )  # fmt: skip

    @property
    def end(self) -> int:
        """End of the copy."""
        assert self.incoming is not None
        return self.incoming.end

    def acknowledge(self, **changes: int) -> None:
        """Acknowledge everything, or something else."""
        assert self.followed is not None
        promise_ms = self.followed.lease_us // 1000
        told = Ack(
            self.followed.epoch, self.incarnation, self.end, self.end, 0, self.echo, promise_ms
        )
        self.say(self._stream.acknowledge(told._replace(**changes)))
        self.unacknowledged = 0

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    def checkpoint(self) -> control.Checkpoint:
        """Return the newest record of the copy."""
        last = list(scan(self.disk, self.first, segment_size=self.segment_bytes))[-1]
        return control.Checkpoint(last.position, last.epoch, last.crc)

    @property
    def saved_bytes(self) -> int:
        """How many bytes compression has saved on this connection."""
        return self._stream.saved_bytes

    @property
    def first(self) -> Position:
        """Where the copy begins."""
        return Position(min(int(name[:20]) for name in self.disk.names("journal")))

    async def again(self, **changes: object) -> None:
        """End the connection, and follow from the newest record on."""
        await self.close()
        self._stream, self.followed, self.ended = FollowerStream(), None, False
        fields = {"end": self.end, "journal": JOURNAL, "checkpoints": [self.checkpoint()]}
        await self.follow(**(fields | changes))

    async def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._writer.transport.abort()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Sender:
    """A client that creates a topic and sends to it; answers are awaited when it is wanted."""

    def __init__(self) -> None:
        self.answered: dict[int, bodies.Receipt] = {}
        self.refused: list[tuple[int, TernMQError]] = []
        self.bytes = 0
        self.ended = False
        self.session = ClientSession()
        self.shrinks = False
        """Whether what it sends can be compressed."""
        self._sequence = 0
        self._producer = secrets.randbits(63)
        self._writer: asyncio.StreamWriter
        self._task: asyncio.Task[None] | None = None

    async def connect(self, port: int, *, wait: bool = True) -> None:
        """Connect and say HELLO."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._task = asyncio.create_task(self._run(reader))
        self._writer.write(self.session.hello(control.Hello(client=secrets.token_hex(8))))
        if wait:
            await until(lambda: self.session.welcome is not None, "WELCOME")

    async def _run(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                self.bytes += len(data)
                for event in self.session.receive(data):
                    if isinstance(event, Answer) and event.command is Command.SEND:
                        self.answered[event.id] = bodies.unpack_receipt(event.body)
                    elif isinstance(event, Refusal):
                        self.refused.append((event.id, event.error))
        self.ended = True

    def send(self, size: int = 100, topic: str = "t") -> int:
        """Send a message; return the id of the request."""
        row = Row(bytes(size) if self.shrinks else secrets.token_bytes(size))
        batch = encode(
            [row], topic_seed=topic_seed(topic), producer_id=self._producer,
            first_sequence=self._sequence, born_us=time.time_ns() // 1000,
        )  # fmt: skip
        self._sequence += 1
        id_, frame = self.session.ask(Command.SEND, bodies.pack_send(topic, None, batch))
        self._writer.write(frame)
        return id_

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    def ping(self) -> None:
        """Ask something whose answer depends on nothing."""
        self._writer.write(self.session.ask(Command.PING)[1])

    async def sent(self, count: int, size: int = 100) -> None:
        """Send messages, and wait until all are answered; what is refused as Busy is sent again.

        The next file of the journal is made in a thread, which may take longer than sends do.
        """
        waiting = {self.send(size) for _ in range(count)}

        def all_answered() -> bool:
            for id_, error in self.refused:
                if id_ in waiting:
                    assert isinstance(error, Busy), error
                    waiting.remove(id_)
                    waiting.add(self.send(size))
            return waiting <= self.answered.keys()

        await until(all_answered, "answers to sends")

    async def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._writer.transport.abort()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Pair:
    """A server that is the primary of a broker group, under a clock that the test can move."""

    def __init__(
        self,
        folder: Path,
        members: tuple[Member, ...],
        settings: CopySettings,
        flags: dict[str, object],
    ) -> None:
        self._flags = flags
        self.ahead_us = 0
        self.changes: list[Change] = []
        self.deposed: list[str] = []
        self.settings = settings
        self._folder = folder
        self._members = members
        self._ends: list[Copier | Sender] = []
        self._ticking: asyncio.Task[None] | None = None

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000 + self.ahead_us

    async def start(self) -> None:
        """Start the server; make it the primary."""
        flags = {"listen": "127.0.0.1:0", "http": "off", "drain_timeout": "0s", **self._flags}
        settings = load(environ={}, flags=flags, mode=Mode.TESTING)
        self.server = Server(settings, disk=RealDisk(self._folder))
        await self.server.start()
        self.core = self.server.core
        self.journal = self.core.broker.journal
        await self.core.settle_down()
        self.record = Leadership(
            version=1, writer=Writer("a", 1, 1), journal=JOURNAL, epoch=self.journal.epoch,
            primary="a", members=self._members,
        )  # fmt: skip
        reign = Reign("a", self.record, self.journal.durable, self.settings, self.now_us())
        self.primary = Primary(
            self.core, reign, group=GROUP, broker="a", journal_number=JOURNAL,
            token=Secret(TOKEN), settings=self.settings, now_us=self.now_us,
            on_change=self.changes.append, on_deposed=self.deposed.append,
        )  # fmt: skip
        self.server.hub.take_follower = self.primary.follow
        self._ticking = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            self.primary.tick()
            await asyncio.sleep(0.05)

    async def learned(self) -> None:
        """Let the coordinator accept the change that was asked for."""
        await until(lambda: self.changes, "a change of the members")
        change = self.changes.pop(0)
        assert change.replaces == self.record.version
        self.record = Leadership(
            version=change.replaces + 1, writer=Writer("a", 1, 2), journal=JOURNAL,
            epoch=self.record.epoch, primary="a", members=change.members, why=change.why,
        )  # fmt: skip
        self.primary.learned(self.record)

    def copier(self, broker: str = "b", incarnation: int = 9) -> Copier:
        """Return a follower that has not connected yet; it is closed at the end."""
        copier = Copier(self.server.port, broker=broker, incarnation=incarnation)
        self._ends.append(copier)
        return copier

    def sender(self) -> Sender:
        """Return a client that has not connected yet; it is closed at the end."""
        sender = Sender()
        self._ends.append(sender)
        return sender

    def stream(self, first: int = 0) -> bytes:
        """Return the journal as it is streamed."""
        return stream_of(self.core.disk, self.journal.segment_size, first)

    async def close(self) -> None:
        for each in self._ends:
            await each.close()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        self.primary.close()
        await self.server.abandon()


@contextlib.asynccontextmanager
async def pair(
    folder: Path, *members: Member, settings: CopySettings | None = None, **flags: object
) -> AsyncIterator[Pair]:
    """Run a primary; ``flags`` are settings of its broker."""
    one = Pair(folder, (ME, *members), settings or CopySettings(), flags)
    await one.start()
    try:
        yield one
    finally:
        await one.close()


def stream_of(disk: Disk, size: int, first: int) -> bytes:
    """Return the records of a journal, of a PAD only the header."""
    parts: list[bytes] = []
    for record in scan(disk, first, segment_size=size):
        base = record.position - record.position % size
        length = HEADER_BYTES if record.kind == Kind.PAD else record.length
        parts.append(disk.open(segment_name(base)).pread(length, record.position - base))
    return b"".join(parts)
