"""What the processes of the demo write down, each to a file of its own, one JSON array a line.

Times are microseconds of the machine's monotonic clock, which all processes share, so that what
happened in two of them can be put in order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from ternmq.demo.plan import Run

RUN: Final = "run.json"
CONDUCTOR: Final = "conductor.jsonl"
PRODUCER: Final = "producer.jsonl"
DEAD_LETTERS: Final = "dead-letters.jsonl"
CONSUMERS: Final = "*.consumer.jsonl"

_LONGEST_UNSYNCED: Final = 0.05
"""Seconds that a line which nobody waits for may wait for the next sync."""

T = TypeVar("T")


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A line."""


class Began(Record, frozen=True, tag="began"):
    """A consumer process began."""

    process: str
    group: str
    pid: int
    at_us: int


class Handled(Record, frozen=True, tag="handled"):
    """A consumer worked on a message, or failed on it; written before the broker is told."""

    event: str
    checksum: int
    """CRC32 of the body."""
    topic: str
    queue: int
    offset: int
    attempt: int
    deliveries: int
    suspect: bool
    """``maybe_redelivered``."""
    begun_us: int
    ended_us: int
    latency_us: int
    """From send (when its batch was made) to here: wall clock of the machine, read by both."""
    failed: bool


class Acked(Record, frozen=True, tag="acked"):
    """The broker answered an ack: what it is about may never come again."""

    topic: str
    queue: int
    offset: int
    at_us: int


class Unanswered(Record, frozen=True, tag="unanswered"):
    """An ack was not answered, or refused: what it is about may come again."""

    topic: str
    queue: int
    offset: int
    at_us: int
    why: str


class Ended(Record, frozen=True, tag="ended"):
    """A process came to its end by itself; its file is whole."""

    at_us: int


class Stored(Record, frozen=True, tag="stored"):
    """The producer was given receipts."""

    topic: str
    sent: int
    stored: int
    duplicates: int
    """Of these, those that a resend had stored before."""
    at_us: int


class Planted(Record, frozen=True, tag="planted"):
    """The producer planted a fault."""

    sabotage: str
    event: str


class Killed(Record, frozen=True, tag="killed"):
    """The conductor ended a process with SIGKILL; at this time it was gone."""

    process: str
    at_us: int


class Back(Record, frozen=True, tag="back"):
    """The broker listens again."""

    at_us: int


class DeadLetter(Record, frozen=True, tag="dead"):
    """A dead letter, as it was read through the client when all was done."""

    group: str
    topic: str
    event: str
    attempts: int
    reason: str


AnyRecord = (
    Began | Handled | Acked | Unanswered | Ended | Stored | Planted | Killed | Back | DeadLetter
)

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(AnyRecord)


class TornFile(Exception):
    """A file of a process that was not killed has a line that is none."""


def now_us() -> int:
    """Return the time by the machine's monotonic clock."""
    return time.monotonic_ns() // 1000


def consumer_file(process: str) -> str:
    """Return the name of a consumer process's file."""
    return f"{process}.consumer.jsonl"


def write_run(folder: Path, run: Run) -> None:
    """Write down what was asked for."""
    (folder / RUN).write_bytes(msgspec.json.encode(run))


def read_run(folder: Path) -> Run:
    """Return what was asked for."""
    return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)


def read(path: Path, *, killed: bool = False) -> Iterator[AnyRecord]:
    """Yield the records of a file.

    Args:
        path: The file; none, if it is not there.
        killed: Its process was killed: the last line may be torn.

    Raises:
        TornFile: A line is no record.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if killed and not line.endswith(b"\n"):
                return
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError as error:
                raise TornFile(f"{path.name}, line {number}: {error}") from error


class SyncedFile:
    """A file whose lines are on disk when ``write`` returns. One event loop.

    Lines that are written while a sync runs share the next one.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._lines: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    async def write(self, record: Record) -> None:
        """Write a line; returns when it is synced."""
        self._lines.append(_encoder.encode(record) + b"\n")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._kick()
        await future

    def note(self, record: Record) -> None:
        """Write a line with the next sync, within 50 ms."""
        self._lines.append(_encoder.encode(record) + b"\n")
        if self._later is None and self._running is None:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(_LONGEST_UNSYNCED, self._kick)

    def note_now(self, record: Record) -> None:
        """Write a line and sync it, here and now: not for where much is done."""
        self._sync(_encoder.encode(record) + b"\n")

    async def close(self) -> None:
        """Write and sync what is left."""
        while self._lines or self._running is not None:
            self._kick()
            assert self._running is not None
            await self._running
        os.close(self._descriptor)

    def _kick(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._lines:
                lines, self._lines = self._lines, []
                waiting, self._waiting = self._waiting, []
                await asyncio.to_thread(self._sync, b"".join(lines))
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
        finally:
            self._running = None

    def _sync(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fdatasync(self._descriptor)
