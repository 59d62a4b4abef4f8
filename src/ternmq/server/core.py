"""The broker core behind one event loop: runs turns, holds answers back, syncs, keeps house.

A **turn** is everything that came in one pass of the loop. Commands run as their frames are read;
then, once, ``_end_turn``: upkeep, one write of all new records, the answers that may go, the next
sync, the next background job, the next deadline. Threads wait for the disk: one syncs, two do
background jobs and cold reads; all report to the loop. On a quick disk a sync that is alone, or
beside more work than a turn does, runs in the loop (``sync_pace``), and its answers leave with the
same turn.

Loop only, save ``_report``. Nothing here decides anything about messages.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from ternmq.broker.clock import BrokerClock
from ternmq.broker.replies import Gate
from ternmq.broker.start import Options, Started, open_broker
from ternmq.journal.cold import ColdRead, WouldBlock
from ternmq.journal.disk import Disk
from ternmq.journal.sync_thread import Job, SyncThread
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    DiskWriteError,
    JournalError,
    JournalFailed,
    JournalFull,
    Unreadable,
)
from ternmq.model.marks import Rests
from ternmq.server.fairqueue import FairQueue
from ternmq.server.late_imports import Import, load_numpy
from ternmq.server.sync_pace import SyncPace, TimedSync

log = logging.getLogger("ternmq.server")

UPKEEP_S: Final = 0.001
"""Longest that a turn spends on STATE, MOVED and the like."""
HOUSE_EVERY_US: Final = 10_000
"""While only lone requests come, upkeep is asked for work this often: nothing of it is urgent."""
_HOUSE_SHIFT: Final = 8
"""And when the journal grew by 1/256 of a segment: before there can be work that cannot wait."""
READ_AGAIN_US: Final = 1_000_000
"""After a failed read of the disk nobody waits for the same bytes again so soon."""
_TOLD_AGAIN_S: Final = 60.0
"""So often the same unreadable bytes are a line of the log."""
_TOLD: Final = 256
_FULL_RETRY_S: Final = 0.1
SETTLED_AT: Final = 256
"""So many changed group queues are taken over into the figures at a time: half a millisecond."""
COLD_READS: Final = 2
"""Cold reads that the thread is given at a time: one that it makes, and the next one."""


class Clocks(Protocol):
    """The two clocks that broker time is made of, and how to be called at a time."""

    def monotonic_us(self) -> int:
        """Return µs since some moment; never goes back."""
        ...

    def wall_us(self) -> int:
        """Return µs since the epoch, as the machine believes."""
        ...

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Have something called in the loop at a time; return what cancels it."""
        ...


class SystemClocks:
    """The machine's clocks and the running loop's timers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic_us(self) -> int:
        """Return the monotonic clock."""
        return time.monotonic_ns() // 1000

    def wall_us(self) -> int:
        """Return the wall clock."""
        return time.time_ns() // 1000

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Have something called at a time."""
        delay = max(0.0, (monotonic_us - self.monotonic_us()) / 1e6)
        return self._loop.call_later(delay, call).cancel


class Reader(Protocol):
    """Whose command waits for the disk: a connection, or the broker itself."""

    @property
    def app(self) -> str | None:
        """Its app: a name, so that who ends connections and comes again has one turn, not more."""
        ...


class _Own:
    """The broker, as one who reads."""

    app: str | None = None


OWN: Final = _Own()
"""Reads of no connection: of timers, of pulls that wait."""


class Outlet(Protocol):
    """Where an answer goes: a connection."""

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Take a frame that may leave; ``settled_bytes`` of requests are done with it."""
        ...


class Core:
    """Started broker and its turns.

    Args:
        disk: The data root, locked.
        options: Of the broker.
        clocks: See ``Clocks``.
        loop: That everything runs in.
        seed: For the jitter of retries; None: the machine's randomness.

    Raises:
        CorruptJournal, UnknownRecordKind, DiskError: As ``open_broker``. Blocks until it is open.
    """

    def __init__(
        self,
        disk: Disk,
        options: Options,
        clocks: Clocks,
        loop: asyncio.AbstractEventLoop,
        seed: int | None = None,
    ) -> None:
        self.loop = loop
        self.clocks = clocks
        chance = random.Random(seed)  # noqa: S311 - jitter of retries, no secret
        opening_us = clocks.monotonic_us()  # belongs to the wall clock's reading, not to its end
        self.started: Started = open_broker(
            disk, wall_us=clocks.wall_us(), chance=chance, options=options
        )
        self.broker = self.started.broker
        self.upkeep = self.started.upkeep
        start_us = max(self.started.report.time_us, self.broker.views.last_time_us)
        self.clock = BrokerClock(start_us, opening_us)
        self.gate: Gate[tuple[Outlet, bytes, int]] = Gate()
        self.failure: JournalError | None = None
        self.on_failure: Callable[[JournalError], None] = lambda _: None
        self.on_woken: Callable[[], None] = lambda: None
        """Called in each turn in which parked pulls or reads may be over."""
        self.on_ticked: Callable[[], None] = lambda: None
        """Called when time has done what it was time for, before ``on_woken``."""
        self.on_durable: Callable[[], None] = lambda: None
        """Called when records became durable within a turn, behind ``on_woken``."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called when the answers of a turn have been handed to their outlets."""
        self.unreadable_reads = 0
        """Requests, and pieces of upkeep, that failed because bytes cannot be read."""
        self.syncs = 0
        self.sync_s = 0.0
        """Seconds spent in syncs, all in all."""
        self.last_sync_s = 0.0
        self.syncs_in_loop = 0
        """How many of them ran in the loop."""
        self.asked = 0
        """Requests that were begun: whoever begins one counts it."""
        self.turns = 0
        self.longest_turn_s = 0.0
        """Longest ``_end_turn``; whoever reads it for a metric sets it back."""
        self.disk = disk
        self.in_turn = self.pressed = False
        """A turn is being ended: answers that are made now leave with it. And, as whoever knows
        says: some app has more work than one turn does, and another asks for little."""
        self._told: dict[str, float] = {}
        """Unreadable bytes that the log told of, and when."""
        self._turn: asyncio.Handle | None = None
        """The end of a turn that is due."""
        self._cancel_deadline: Callable[[], None] | None = None
        self._armed_us = 0
        self._asked_before_sync = self._asked_before_turn = 0
        self._house_us = self._house_end = 0
        """Broker time (0: upkeep has work), and end of the journal, from which on a turn asks for
        upkeep whoever it is for."""
        self._synced_end = self.broker.journal.durable
        """As far as syncs have been begun."""
        self._changed = self.broker.views.figures.changed
        self._pace = SyncPace()
        self._reading: dict[Job, list[Callable[[], None]]] = {}
        self._cold: FairQueue[str | None, Reader, Job, Job] = FairQueue()
        """Reads that the thread has not been given yet."""
        self._cold_reads = 0
        """Those that it has been given."""
        self._syncing = self._closed = False
        self._numpy_asked = "numpy" in sys.modules
        self._now_us = 0
        self._sync_thread = SyncThread(self._report)
        self._work_thread = SyncThread(self._report, name="ternmq-work")
        self._read_thread = SyncThread(self._report, name="ternmq-read")

    # -- time and turns ---------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return broker time; the same within a turn."""
        if not self._now_us:
            self._now_us = self.clock.read(self.clocks.monotonic_us(), self.clocks.wall_us())
        return self._now_us

    def clock_moved(self) -> None:
        """Forget what was read of the clocks: somebody has moved them by hand."""
        self._now_us = 0

    def touch(self) -> None:
        """Say that something was asked: the turn is ended when this pass of the loop is over."""
        if self._turn is None:
            self._turn = self.loop.call_soon(self._end_turn)

    def hold(
        self, outlet: Outlet, frame: bytes, position: int, rests: Rests, settled_bytes: int
    ) -> None:
        """Keep an answer back until what it rests on is committed."""
        self.gate.hold(position, rests, (outlet, frame, settled_bytes))

    def read_first(
        self, blocked: WouldBlock, then: Callable[[], None], reader: Reader = OWN
    ) -> None:
        """Do what a command waits for off the loop; ``then`` runs in the loop afterwards.

        It runs also when the disk failed: the command, asked again, raises what there is to say.
        Apps, and the connections of an app, take turns: however many reads of one wait, another's
        read waits for one of each app.

        Args:
            blocked: By what.
            then: Is called in any case.
            reader: Whose command it is.
        """
        waiting = self._reading.get(blocked.job)
        if waiting is not None:
            waiting.append(then)
            return
        self._reading[blocked.job] = [then]
        self._cold.put(reader.app, reader, blocked.job, blocked.job)
        self._read_some()

    def forget(self, reader: Reader) -> None:
        """Read nothing more that only a connection waits for that is lost."""
        for job in self._cold.drop(reader.app, reader):
            if len(self._reading[job]) > 1:
                self._cold.put(reader.app, reader, job, job)
            else:
                self.loop.call_soon(self._go_on, job)

    def expect_messages(self) -> None:
        """Say that messages begin to move: what is not imported before is imported now."""
        if not self._numpy_asked:
            self._numpy_asked = True
            self.import_beside(Import("numpy", load_numpy))

    def import_beside(self, job: Import) -> None:
        """Import a library off the loop; ``job.then`` runs in the loop afterwards.

        It runs also when the library cannot be imported: whoever imports it then is told why.
        """
        self._read_thread.submit(job)

    def _read_some(self) -> None:
        """Give the thread what it is to read next: few at a time, since it cannot be told again."""
        while self._cold and self._cold_reads < COLD_READS:
            self._cold_reads += 1
            self._read_thread.submit(self._cold.pop()[1])

    def _end_turn(self) -> None:
        self._turn = None
        if self._closed or self.failure is not None:
            return
        began = time.perf_counter()
        now = self.now_us()
        broker, journal = self.broker, self.broker.journal
        self.in_turn = True
        try:
            due_us = broker.timers.next_us()
            if due_us is not None and due_us <= now:
                self._tick(now)
            self.on_woken()
            if len(self._changed) >= SETTLED_AT:  # else once a second, by the tick
                broker.views.figures.settle()
            keeps_house = self._keeps_house(now)
            if keeps_house:
                self._keep_up(now, began + UPKEEP_S)
            journal.flush()
            if self._start_sync():
                self.on_durable()  # what somebody waits for may be
                if journal.written != journal.end:
                    self.touch()  # they were handed rows, and a record says so
            self.release()
        except JournalFailed as error:
            self.fail(error)
            return
        finally:
            self.in_turn = False
        if keeps_house:
            self._go_on_keeping_house(now)
        self.on_turn()
        self._arm(broker.next_deadline_us())
        self._now_us = 0
        self.turns += 1
        took = time.perf_counter() - began
        if took > self.longest_turn_s:
            self.longest_turn_s = took

    def _keeps_house(self, now: int) -> bool:
        """Return whether this turn asks for upkeep: not that of a lone request soon after another.

        Upkeep has next to nothing to do then, and to ask all its parts for work would be a sixth of
        what the request costs.
        """
        asked, self._asked_before_turn = self.asked - self._asked_before_turn, self.asked
        return asked != 1 or now >= self._house_us or self.broker.journal.end >= self._house_end

    def _go_on_keeping_house(self, now: int) -> None:
        """Hand out the next background job; see when upkeep is asked for again."""
        upkeep, journal = self.upkeep, self.broker.journal
        job = upkeep.next_job()
        if job is not None:
            self._work_thread.submit(job)
        goes_on = upkeep.goes_on
        if goes_on:
            self.touch()
        busy = goes_on or job is not None or self.broker.writer.active
        self._house_us = 0 if busy else now + HOUSE_EVERY_US
        self._house_end = journal.end + (journal.segment_size >> _HOUSE_SHIFT)

    def _keep_up(self, now: int, until: float) -> None:
        try:
            self.upkeep.step(now, lambda: time.perf_counter() < until)
        except (DiskReadError, CorruptJournal) as error:
            self.unreadable(error)
        except DiskWriteError as error:  # the folder is gone: nothing more would be kept
            raise JournalFailed(f"{error.args[0]}") from error

    def unreadable(self, error: JournalError) -> Unreadable:
        """Count and log bytes that cannot be read; return what to answer. All else goes on."""
        self.unreadable_reads += 1
        text = str(error.args[0])
        now = self.loop.time()
        if now - self._told.get(text, -_TOLD_AGAIN_S) >= _TOLD_AGAIN_S:
            if len(self._told) >= _TOLD:
                self._told.clear()
            self._told[text] = now
            log.error("bytes of the journal cannot be read: %s", text)
        return Unreadable(text)

    def _tick(self, now: int) -> None:
        try:
            if self.broker.tick(now):
                self.touch()  # more is due: the next pass of the loop
        except WouldBlock as blocked:
            self.read_first(blocked, self.touch)
        except JournalFull:
            self.touch_later(_FULL_RETRY_S)
        self.on_ticked()

    def release(self) -> None:
        """Hand out the answers that may go."""
        journal = self.broker.journal
        for outlet, frame, settled_bytes in self.gate.release(journal.durable, journal.written):
            outlet.put(frame, settled_bytes)

    def _start_sync(self) -> bool:
        """Begin the next sync if none runs; return whether it is over already.

        Raises:
            JournalFailed: It is, and failed.
        """
        if self._syncing:
            return False
        sync = self.broker.journal.next_sync()
        if sync is None:
            return False
        timed = TimedSync(sync, sync.upto - self._synced_end)
        self._synced_end = sync.upto
        asked, self._asked_before_sync = self.asked - self._asked_before_sync, self.asked
        alone = asked == 1 and len(self.gate) == 1 and not self._reading
        here = (alone or self.pressed) and not self.upkeep.at_work
        if not (here and self._pace.quick and timed.small):
            self._syncing = True
            self._sync_thread.submit(timed)
            return False
        error: Exception | None = None
        try:
            timed.run()
        except Exception as caught:  # noqa: BLE001 - as in the thread: whatever it is, it is fatal
            error = caught
        self.syncs_in_loop += 1
        self._synced(timed, error)
        return True

    def _arm(self, deadline_us: int | None) -> None:
        """See that a turn comes when the next time is due."""
        if self._reading and deadline_us == 0:
            deadline_us = None  # a woken pull waits for a read, which ends in a turn
        if deadline_us is None:
            return
        if self._cancel_deadline is not None:
            if deadline_us >= self._armed_us:
                return
            self._cancel_deadline()
        self._armed_us = deadline_us
        at = self.clocks.monotonic_us() + max(0, deadline_us - self.now_us())
        self._cancel_deadline = self.clocks.call_at(at, self._deadline)

    def _deadline(self) -> None:
        self._cancel_deadline = None
        self._now_us = 0
        self.touch()

    def touch_later(self, delay_s: float) -> None:
        """Have a turn after a while."""
        self.loop.call_later(delay_s, self.touch)

    # -- the threads ------------------------------------------------------------------------------

    def _report(self, job: Job, error: Exception | None) -> None:
        """Any thread: hand a finished job to the loop."""
        try:
            self.loop.call_soon_threadsafe(self._take, job, error)
        except RuntimeError:
            log.debug("a job ended after the loop was closed")

    def _take(self, job: Job, error: Exception | None) -> None:
        self._now_us = 0
        if isinstance(job, TimedSync):
            self._syncing = False
            try:
                self._synced(job, error)
            except JournalFailed as failure:
                self.fail(failure)
            else:
                if self._turn is not None:
                    self._turn.cancel()  # this is it: else each pass from now on had one more
                self._end_turn()
            return
        if job in self._reading:
            self._cold_reads -= 1
            self._read_some()
            if error is not None:
                self._read_failed(job, error)
            else:
                self._go_on(job)
            return
        if isinstance(job, Import):
            if error is not None:
                log.error("%s cannot be imported: %s", job.library, error)
            job.then()
            return
        self._house_us = 0
        try:
            self.upkeep.finished(job, error)
        except JournalFailed as failure:
            self.fail(failure)
            return
        if error is not None:
            log.warning("a background job failed and is tried again: %s", error)
        self.touch()

    def _read_failed(self, job: Job, error: Exception) -> None:
        """Let everybody who waits hear of it, and for a while whoever asks for the same bytes."""
        again_us = self.clocks.monotonic_us() + READ_AGAIN_US
        if isinstance(job, ColdRead) and isinstance(error, DiskReadError):
            cache, block = job.cache, job.blocks[0]
            cache.fail(block, str(error.args[0]))
            self.clocks.call_at(again_us, partial(cache.forgive, block))
            self._go_on(job)
        else:
            log.error("a read failed, and is tried again: %s", error)
            self.clocks.call_at(again_us, partial(self._go_on, job))

    def _go_on(self, job: Job) -> None:
        """Run what waited for the disk; what goes wrong in one is no business of the others."""
        if self._closed:
            return
        for then in self._reading.pop(job):
            try:
                then()
            except JournalFailed as failure:
                self.fail(failure)
                return
            except Exception:
                log.exception("what had waited for the disk failed")
        self.touch()

    def _synced(self, job: TimedSync, error: Exception | None) -> None:
        """Let what a sync made durable be so.

        Raises:
            JournalFailed: It failed.
        """
        self.syncs += 1
        self.last_sync_s = job.took_s
        self.sync_s += job.took_s
        journal = self.broker.journal
        if error is not None:
            journal.failed(error)
            raise JournalFailed(f"a sync failed: {error}") from error
        if job.small:
            self._pace.took(job.took_s)
        if self.failure is None:
            journal.synced(job.sync)
            self.broker.committed()

    def fail(self, error: JournalError) -> None:
        """Stop for good: nothing is answered from here on."""
        if self.failure is None:
            self.failure = error
            log.critical("the journal has failed, stopping: %s", error)
            self.on_failure(error)

    # -- the end ----------------------------------------------------------------------------------

    async def settle_down(self, most_s: float | None = None) -> None:
        """Wait until everything that was recorded is durable and every answer was handed out.

        Args:
            most_s: No longer than this; None: for as long as it takes.
        """
        journal = self.broker.journal
        until = None if most_s is None else self.loop.time() + most_s
        while self.failure is None and (until is None or self.loop.time() < until):
            if self._syncing or self._reading:
                await asyncio.sleep(0.0005)  # a thread works, and wakes the loop
            elif self._turn is not None:
                await asyncio.sleep(0)
            elif journal.durable < journal.end or len(self.gate):
                self.touch()
            else:
                return

    def close(self, *, clean: bool) -> None:
        """Stop; a clean stop writes STATE and MARK. Blocks until the threads have ended.

        Raises:
            JournalError: The stop could not be made clean.
        """
        self._closed = True
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        for thread in (self._read_thread, self._work_thread, self._sync_thread):
            thread.close()
        try:
            if clean and self.failure is None:
                self.upkeep.close(
                    self.clock.read(self.clocks.monotonic_us(), self.clocks.wall_us())
                )
        finally:
            self.disk.close()
