"""Reads of the disk for commands that cannot run before: done in a thread, in fair order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Final, Protocol

from ternmq.journal.cache.cold import ColdRead, WouldBlock
from ternmq.journal.log.worker import Job
from ternmq.model.errors import DiskReadError, JournalError, JournalFailed
from ternmq.server.engine.clocks import Clocks
from ternmq.server.engine.fairqueue import FairQueue

log = logging.getLogger("ternmq.server")

READ_AGAIN_US: Final = 1_000_000
"""Time after a failed read of the disk for which requests for the same bytes fail at once."""
_AWAITED_S: Final = 1.0
COLD_READS: Final = 2
"""Most cold reads in the thread's queue: the running one and the next one."""


class Reader(Protocol):
    """The party whose command waits for the disk: a connection, or the broker itself."""

    @property
    def app(self) -> str | None:
        """The app's name, not an object of the connection: reconnecting gains no extra turn."""
        ...


class Awaited:
    """A read that no thread does: its bytes are damaged, and somebody tries to mend them.

    Whoever has made it calls ``ColdReads.go_on`` when the command may be run again. Upkeep, which
    gives its jobs to a thread, waits there for a moment, and tries again.
    """

    def __init__(self) -> None:
        self._over = Event()

    def run(self) -> None:
        """Wait until it is over, for at most a second; for the thread of background jobs."""
        self._over.wait(_AWAITED_S)

    def end(self) -> None:
        """Let ``run`` return."""
        self._over.set()


class _Own:
    """The broker as a reader."""

    app: str | None = None


OWN: Final = _Own()
"""The reader of everything that no connection requests: of timers, of parked pulls."""


class ColdReads:
    """The cold reads that commands wait for.

    Not thread-safe: call it from the loop.

    Args:
        loop: The event loop.
        clocks: Its timers repeat failed reads.
        submit: Gives a read to the thread, which passes it to ``ended`` in the loop.
        touch: Schedules the end of the turn.
        fail: Stops the broker permanently.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clocks: Clocks,
        submit: Callable[[Job], None],
        touch: Callable[[], None],
        fail: Callable[[JournalError], None],
    ) -> None:
        self._loop = loop
        self._clocks = clocks
        self._submit = submit
        self._touch = touch
        self._fail = fail
        self._waiting: dict[Job, list[Callable[[], None]]] = {}
        """The calls that wait for each read."""
        self._queued: FairQueue[str | None, Reader, Job, Job] = FairQueue()
        """Reads that were not given to the thread yet."""
        self._given = 0
        """Number of reads that the thread has."""
        self._closed = False

    def __len__(self) -> int:
        """How many reads there are, queued, running and to be repeated."""
        return len(self._waiting)

    def __contains__(self, job: Job) -> bool:
        """Whether a job is one of them."""
        return job in self._waiting

    def read(self, blocked: WouldBlock, then: Callable[[], None], reader: Reader = OWN) -> None:
        """Do a cold read in the read thread; ``then`` runs in the loop afterwards.

        ``then`` also runs if the read failed: the command is run again and raises the error.
        Apps take turns, and so do the connections of an app: however many reads of one app wait,
        a read of another app waits for at most one of each app.

        Args:
            blocked: The exception that names the read.
            then: Called in any case.
            reader: The party whose command waits.
        """
        waiting = self._waiting.get(blocked.job)
        if waiting is not None:
            waiting.append(then)
            return
        self._waiting[blocked.job] = [then]
        if isinstance(blocked.job, Awaited):
            return
        self._queued.put(reader.app, reader, blocked.job, blocked.job)
        self._read_some()

    def forget(self, reader: Reader) -> None:
        """Drop the queued reads of a lost connection, except those that others wait for as well."""
        for job in self._queued.drop(reader.app, reader):
            if len(self._waiting[job]) > 1:
                self._queued.put(reader.app, reader, job, job)
            else:
                self._loop.call_soon(self._go_on, job)

    def ended(self, job: Job, error: Exception | None) -> None:
        """Let the waiting commands go on: the thread has ended a read."""
        self._given -= 1
        self._read_some()
        if error is not None:
            self._failed(job, error)
        else:
            self._go_on(job)

    def go_on(self, job: Awaited) -> None:
        """Let the commands go on that wait for damaged bytes: they are mended, or stay damaged."""
        job.end()
        if job in self._waiting:
            self._go_on(job)

    def close(self) -> None:
        """Let no command go on from here on."""
        self._closed = True

    def _read_some(self) -> None:
        """Give the thread its next reads: few at a time, since given reads cannot be reordered."""
        while self._queued and self._given < COLD_READS:
            self._given += 1
            self._submit(self._queued.pop()[1])

    def _failed(self, job: Job, error: Exception) -> None:
        """Let the waiting commands fail, and for a while all others that need the same bytes."""
        again_us = self._clocks.monotonic_us() + READ_AGAIN_US
        if isinstance(job, ColdRead) and isinstance(error, DiskReadError):
            cache, block = job.cache, job.blocks[0]
            cache.fail(block, str(error.args[0]))
            self._clocks.call_at(again_us, partial(cache.forgive, block))
            self._go_on(job)
        else:
            log.error("a read failed, and is tried again: %s", error)
            self._clocks.call_at(again_us, partial(self._go_on, job))

    def _go_on(self, job: Job) -> None:
        """Run the calls that waited for a read; an error in one does not stop the others."""
        if self._closed:
            return
        for then in self._waiting.pop(job):
            try:
                then()
            except JournalFailed as failure:
                self._fail(failure)
                return
            except Exception:
                log.exception("a request that had waited for the disk failed")
        self._touch()
