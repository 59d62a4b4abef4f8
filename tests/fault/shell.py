"""A small shell around the broker core: turns, one sync thread, one worker thread, a gate.

It does what the server will do, without a network. Nothing is answered that the gate has not
released; after a failure nothing is answered at all.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from ternmq.broker.gate.replies import Gate, PullReply
from ternmq.broker.start import Options, open_broker
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.journal import SyncJob
from ternmq.journal.log.worker import Job, SyncThread
from ternmq.model.errors import JournalFull
from ternmq.model.marks import Rests
from ternmq.record.batch.batch import Batch, Row
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import HEADER_BYTES, Kind

P = ParamSpec("P")
T = TypeVar("T")

STEP_SECONDS = 0.001
IDLE_SECONDS = 0.002


class Work(Protocol):
    """What the shell's clients do."""

    done: bool

    def act(self) -> bool:
        """Issue one command; return whether there was anything to do."""
        ...


class OutRow(NamedTuple):
    """A row of a pull's answer."""

    offset: int
    attempt: int
    deliveries: int
    position: int
    row: Row


class Shell:
    """Owns a broker; one thread calls it.

    Args:
        disk: The data root; locked here.
        options: Of the core.
        seed: For the jitter.
        speed: How much faster broker time runs than the clock.
    """

    def __init__(self, disk: Disk, options: Options, seed: int, speed: int = 1) -> None:
        disk.lock()
        started = open_broker(
            disk,
            wall_us=time.time_ns() // 1000,
            chance=random.Random(seed),
            options=options,
        )
        self.broker = started.broker
        self.upkeep = started.upkeep
        self.report = started.report
        self.gate: Gate[Callable[[], None]] = Gate()
        self.woken: Callable[[int, PullReply | None], None] | None = None
        self.syncs = 0
        self.hold_syncs = False
        self.commands_a_turn = 8
        self.quiet = False
        """No work of upkeep is out, or was due at the end of the last turn."""
        self._disk = disk
        self._start_ns = time.monotonic_ns()
        self._start_us = started.report.time_us
        self._speed = speed
        self._came: SimpleQueue[tuple[Job, Exception | None]] = SimpleQueue()
        self._sync_thread = SyncThread(self._report)
        self._work_thread = SyncThread(self._report, name="work")
        self._syncing = False
        self._working = False

    def _report(self, job: Job, error: Exception | None) -> None:
        self._came.put((job, error))

    @property
    def now_us(self) -> int:
        """Broker time."""
        return self._start_us + (time.monotonic_ns() - self._start_ns) * self._speed // 1000

    def ask(self, command: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
        """Run a command, reading from the disk where it must."""
        while True:
            try:
                return command(*args, **given)
            except WouldBlock as blocked:
                blocked.job.run()

    def answer(self, position: int, rests: Rests, then: Callable[[], None]) -> None:
        """Let ``then`` happen when the position is committed."""
        self.gate.hold(position, rests, then)

    def turn(self, work: Work) -> None:
        """Take in what came back, let the clients act, hand out what may go, start what must run.

        Answers go out before the next sync begins: after a sync that fails there are none.
        """
        broker = self.broker
        self._collect(block=False)
        self._release()
        acted = 0
        try:
            while acted < self.commands_a_turn and work.act():
                acted += 1
            broker.tick(self.now_us)
            if self.woken is not None:
                for token, reply in self.ask(lambda: broker.woken_pulls(self.now_us)):
                    self.woken(token, reply)
        except JournalFull:
            acted = 0  # no segment is ready; upkeep has one made
        now_us = self.now_us
        until = time.monotonic() + STEP_SECONDS
        self.upkeep.step(now_us, lambda: time.monotonic() < until)
        if not acted:
            broker.journal.mark(now_us)
        broker.journal.flush()
        self._release()
        self._start()
        if not acted:
            self._collect(block=True)

    def _collect(self, *, block: bool) -> None:
        try:
            job, error = self._came.get(block, IDLE_SECONDS)
            while True:
                self._take(job, error)
                job, error = self._came.get(block=False)
        except Empty:
            return

    def _take(self, job: Job, error: Exception | None) -> None:
        journal = self.broker.journal
        if not isinstance(job, SyncJob):
            self._working = False
            self.upkeep.finished(job, error)
        elif error is not None:
            journal.failed(error)
        else:
            self._syncing = False
            journal.synced(job)
            self.broker.committed()

    def _release(self) -> None:
        journal = self.broker.journal
        if journal.failure is None:
            for then in self.gate.release(journal.committed, journal.written):
                then()

    @property
    def syncing(self) -> bool:
        """Whether a sync is out."""
        return self._syncing

    def _start(self) -> None:
        if not self.hold_syncs:
            sync = self.broker.journal.next_sync()
            if sync is not None:
                self._syncing = True
                self.syncs += 1
                self._sync_thread.submit(sync)
        job = self.upkeep.next_job()
        if job is not None:
            self._working = True
            self._work_thread.submit(job)
        self.quiet = not self._working

    def close(self) -> None:
        """Answer what is owed, then stop cleanly."""
        journal = self.broker.journal
        while self._syncing or journal.durable < journal.end or len(self.gate):
            journal.flush()
            self._start()
            self._collect(block=True)
            self._release()
        self._work_thread.close()
        self._sync_thread.close()
        self._collect(block=False)
        self.broker.close(self.now_us)
        self._disk.close()

    def rows(self, reply: PullReply) -> list[OutRow]:
        """Return what a pull hands out, read from the journal."""
        found: list[OutRow] = []
        for (start, stop, attempt, deliveries), places in zip(
            reply.runs, reply.places, strict=True
        ):
            firsts = list(places.first_offsets)
            for offset in range(start, stop):
                at = bisect_right(firsts, offset) - 1
                position = places.positions[at]
                row = self.row_at(position, offset)
                found.append(OutRow(offset, attempt, deliveries, position, row))
        return found

    def row_at(self, position: int, offset: int) -> Row:
        """Return the row with this offset out of the record at a position."""
        record = self.ask(lambda: self.broker.store.get(position))
        if record[13] != Kind.MOVED:
            stored = messages.of_record(record)
            return Batch(stored.batch).row(stored.row_of(offset))
        for piece in moved.unpack(record[HEADER_BYTES:]).pieces:
            if piece.first_offset <= offset < piece.first_offset + piece.row_count:
                row = piece.row_start + offset - piece.first_offset
                return Batch(piece.batch).row(row)
        raise LookupError(f"MOVED at {position} does not hold offset {offset}")
