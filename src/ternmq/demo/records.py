"""The records of the demo's processes, in a file for each process, one JSON array a line.

Times are microseconds of the machine's monotonic clock, which all processes share, so that events
of two processes can be ordered.
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
CASHIERS: Final = "*.cashier.jsonl"

_LONGEST_UNSYNCED: Final = 0.05
"""Longest time in seconds that a noted line waits for the next sync."""

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
    """A consumer handled a message or failed on it; written before its ack or retry is sent."""

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
    """From the making of the batch by the producer to here, by the machine's wall clock."""
    failed: bool


class Acked(Record, frozen=True, tag="acked"):
    """The broker answered an ack: the message may never come again."""

    topic: str
    queue: int
    offset: int
    at_us: int


class Unanswered(Record, frozen=True, tag="unanswered"):
    """An ack was not answered, or refused: the message may come again."""

    topic: str
    queue: int
    offset: int
    at_us: int
    why: str


class Ended(Record, frozen=True, tag="ended"):
    """A process ended by itself; its file is complete."""

    at_us: int


class Stored(Record, frozen=True, tag="stored"):
    """The producer received receipts."""

    topic: str
    sent: int
    stored: int
    duplicates: int
    """How many of these an earlier send had stored already."""
    at_us: int


class Scheduled(Record, frozen=True, tag="scheduled"):
    """The producer is about to schedule a reminder."""

    event: str
    due_us: int
    """When it is due."""


class CancelAnswered(Record, frozen=True, tag="cancel"):
    """The broker answered a cancel."""

    event: str
    cancelled: bool
    """False: it was delivered before."""
    at_us: int


class Paying(Record, frozen=True, tag="paying"):
    """A cashier has begun to pay a booking."""

    flight: str
    transaction: str


class Paid(Record, frozen=True, tag="paid"):
    """A booking is paid; written before its transaction is committed."""

    flight: str
    transaction: str
    by_checker: bool
    """A cashier that was killed had begun it, and the checker of another one has finished it."""
    at_us: int


class Refused(Record, frozen=True, tag="refused"):
    """The card is refused: the transaction of the booking is rolled back."""

    flight: str
    at_us: int


class Planted(Record, frozen=True, tag="planted"):
    """The producer planted a fault."""

    sabotage: str
    event: str


class Killed(Record, frozen=True, tag="killed"):
    """The conductor ended a process with SIGKILL; at this time the process was gone."""

    process: str
    at_us: int


class Back(Record, frozen=True, tag="back"):
    """The broker listens again."""

    at_us: int


class DeadLetter(Record, frozen=True, tag="dead"):
    """A dead letter, read through the client at the end."""

    group: str
    topic: str
    event: str
    attempts: int
    reason: str


AnyRecord = (
    Began
    | Handled
    | Acked
    | Unanswered
    | Ended
    | Stored
    | Scheduled
    | CancelAnswered
    | Paying
    | Paid
    | Refused
    | Planted
    | Killed
    | Back
    | DeadLetter
)

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(AnyRecord)


class TornFile(Exception):
    """A file of a process that was not killed has an invalid line."""


def now_us() -> int:
    """Return the time by the machine's monotonic clock."""
    return time.monotonic_ns() // 1000


def consumer_file(process: str) -> str:
    """Return the name of a consumer process's file."""
    return f"{process}.consumer.jsonl"


def cashier_file(process: str) -> str:
    """Return the name of a cashier process's file."""
    return f"{process}.cashier.jsonl"


def write_run(folder: Path, run: Run) -> None:
    """Write the options of the run."""
    (folder / RUN).write_bytes(msgspec.json.encode(run))


def read_run(folder: Path) -> Run:
    """Return the options of the run."""
    return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)


def read(path: Path, *, killed: bool = False) -> Iterator[AnyRecord]:
    """Yield the records of a file.

    Args:
        path: The file; without a file, there are no records.
        killed: The process was killed: the last line may be torn.

    Raises:
        TornFile: A line is not a record.
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
    """A file whose lines are on disk when ``write`` returns. Not thread-safe: for one event loop.

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
        """Write a line and sync it at once; blocks, so only for rare lines."""
        self._sync(_encoder.encode(record) + b"\n")

    async def close(self) -> None:
        """Write and sync the remaining lines."""
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
