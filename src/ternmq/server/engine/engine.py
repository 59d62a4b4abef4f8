"""The broker core behind one event loop: runs turns, holds answers back, syncs, does upkeep.

A **turn** is everything that arrived in one pass of the loop. Commands run as their frames are
read; then ``_end_turn`` runs once: upkeep, one write of all new records, the next sync, the answers
that may leave, the next background job, the next deadline. Threads wait for the disk: one syncs,
two do background jobs and cold reads; all report to the loop. On a quick disk a sync runs in the
loop (``sync_pace``) if it is for a lone request, or while there is more work than one turn does;
its answers leave in the same turn.

Nothing here decides anything about messages. Not thread-safe: only ``_report`` may be called from
another thread than the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable
from typing import Final

from ternmq.broker.clock.clock import GAP_US, BrokerClock
from ternmq.broker.gate.replies import DoneReply, Gate
from ternmq.broker.start import Options, Ready, Started, open_broker
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.worker import Job, SyncThread
from ternmq.model.errors import (
    CorruptJournal,
    DiskReadError,
    DiskWriteError,
    InvalidRequest,
    JournalError,
    JournalFailed,
    JournalFull,
    Unreadable,
)
from ternmq.model.marks import Rests
from ternmq.model.types import Position
from ternmq.model.words import lasting
from ternmq.server.engine.clocks import Clocks, SystemClocks
from ternmq.server.engine.coldreads import Awaited, ColdReads
from ternmq.server.engine.copies import Copies, Errand
from ternmq.server.engine.reading_core import Outlet
from ternmq.server.engine.sync_pace import SyncPace, TimedSync
from ternmq.server.telemetry.late_imports import Import, load_numpy

log = logging.getLogger("ternmq.server")

UPKEEP_S: Final = 0.001
"""Longest that a turn spends on STATE, MOVED and the like."""
HOUSE_EVERY_US: Final = 10_000
"""Interval of upkeep while only lone requests come: none of its work is urgent then."""
_HOUSE_SHIFT: Final = 8
"""Upkeep also runs whenever the journal has grown by 1/256 of a segment: before there can be work
that cannot wait."""
_TOLD_AGAIN_S: Final = 60.0
"""Shortest time between two log lines about the same unreadable bytes."""
_TOLD: Final = 256
_FULL_RETRY_S: Final = 0.1
SETTLED_AT: Final = 256
"""Changed group queues at which a turn updates the figures: that takes half a millisecond."""
_FROZEN_US: Final = 500_000
"""Delay of a timer that shows that the process did not run."""
_HANDED_S: Final = 1.0
"""Longest that hand-outs wait for a sync that somebody else needs."""
_CATCH_UP_S: Final = 1.0
"""Longest that timers wait then: enough for a client to connect again, on a busy machine too."""
_CATCH_UP_AT_START_S: Final = 0.2
"""Longest that timers wait at a start: one that is killed again and again must deliver, too."""


class Core:
    """The open broker and its turns. The constructor blocks until the broker is open.

    Args:
        disk: The data root, locked.
        options: Options of the broker.
        clocks: Sources of broker time.
        loop: The event loop that everything runs in.
        seed: For the jitter of retries; None: the machine's randomness.
        ready: See ``open_broker``.

    Raises:
        CorruptJournal, UnknownRecordKind, DiskError: As ``open_broker``.
    """

    copies: Copies | None = None
    """The copies of the journal at other brokers; None: there are none."""
    look_at: Callable[[Position], None] | None = None
    """Called with the position of a record that may be damaged on the disk: it is looked at."""
    _strict = 0
    """The commit mark as it was when at least two copies counted last."""
    _enough = 0
    """The commit mark as it was when as many copies counted last as the broker group needs."""
    _frozen_until = 0.0
    """Time of ``perf_counter`` at which timers run again after the process was frozen; 0: it never
    was."""
    _turned_at = 0.0
    """Time of ``perf_counter`` at which the last turn ended; or began, if the process was frozen in
    it."""

    def __init__(
        self,
        disk: Disk,
        options: Options,
        clocks: Clocks,
        loop: asyncio.AbstractEventLoop,
        seed: int | None = None,
        *,
        ready: Ready | None = None,
    ) -> None:
        self.loop = loop
        self.clocks = clocks
        chance = random.Random(seed)  # noqa: S311 - jitter of retries, no secret
        opening_us = clocks.monotonic_us()  # belongs to the wall clock's reading, not to its end
        self.started: Started = open_broker(
            disk, wall_us=clocks.wall_us(), chance=chance, options=options, ready=ready
        )
        self.broker = self.started.broker
        self.upkeep = self.started.upkeep
        start_us = max(self.started.report.time_us, self.broker.views.last_time_us)
        self.clock = BrokerClock(start_us, opening_us)
        self.gate: Gate[tuple[Outlet, bytes, int]] = Gate()
        self.failure: JournalError | None = None
        self.on_failure: Callable[[JournalError], None] = lambda _: None
        self.on_woken: Callable[[], None] = lambda: None
        """Called in each turn, to answer parked pulls and reads that can be answered now."""
        self.on_ticked: Callable[[], None] = lambda: None
        """Called after the due timers have run, before ``on_woken``."""
        self.on_durable: Callable[[], None] = lambda: None
        """Called after ``on_woken`` when records became durable within the same turn."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called when the answers of a turn have been handed to their outlets."""
        self.unreadable_reads = 0
        """Number of requests, and steps of upkeep, that failed because bytes cannot be read."""
        self.syncs = 0
        self.sync_s = 0.0
        """Total seconds spent in syncs."""
        self.last_sync_s = 0.0
        self.syncs_in_loop = 0
        """Number of syncs that ran in the loop."""
        self.asked = 0
        """Number of requests that were begun; callers that begin one increment it."""
        self.turns = 0
        self.longest_turn_s = 0.0
        """Longest ``_end_turn``; the code that reads it for a metric resets it."""
        self.disk = disk
        self.in_turn = self.pressed = False
        """``in_turn``: ``_end_turn`` runs; answers that are made now leave with this turn.
        ``pressed``, set by the desk: some app has more work than one turn does, and another app has
        little."""
        self._told: dict[str, float] = {}
        """Error text about unreadable bytes -> loop time of its last log line."""
        self._turn: asyncio.Handle | None = None
        """The scheduled ``_end_turn``."""
        self._cancel_deadline: Callable[[], None] | None = None
        self._armed_us = 0
        self._asked_before_sync = self._asked_before_turn = 0
        self._house_us = self._house_end = 0
        """Upkeep runs in every turn from this broker time (0: it has work now) or this end of the
        journal on, even if the turn is that of a lone request."""
        self._synced_end = self.broker.journal.durable
        """Position up to which syncs have been started."""
        self._changed = self.broker.views.figures.changed
        self._pace = SyncPace()
        self._handed_timer: asyncio.TimerHandle | None = None
        """Set while hand-outs wait for a sync that somebody else needs."""
        self._handed_due = False
        """Whether they have waited long enough."""
        self._syncing = self._closed = self._settles_down = False
        self._numpy_asked = "numpy" in sys.modules
        self._now_us = 0
        self._sync_thread = SyncThread(self._report)
        self._work_thread = SyncThread(self._report, name="ternmq-work")
        self._read_thread = SyncThread(self._report, name="ternmq-read")
        self.cold_reads = ColdReads(loop, clocks, self._read_thread.submit, self.touch, self.fail)

    # -- time and turns ---------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return broker time; the same within a turn."""
        if not self._now_us:
            self._now_us = self.clock.read(self.clocks.monotonic_us(), self.clocks.wall_us())
            self.broker.alarming.clock_gap_us = self.clock.gap_us
        return self._now_us

    def clock_gap_us(self) -> int:
        """Read the clocks; return how far the wall clock is ahead of broker time now."""
        self.clock.read(self.clocks.monotonic_us(), self.clocks.wall_us())
        return self.clock.gap_us

    def accept_clock(self, app: str) -> DoneReply:
        """Let broker time follow the wall clock from now on, at once if it is ahead.

        If there is no room for the record, broker time has moved all the same, and the call may be
        repeated.

        Args:
            app: App that requests it.

        Raises:
            InvalidRequest: The wall clock is behind, by more than the clock drifts by itself.
            JournalFull: There is no room for the record.
        """
        before_us = self.now_us()
        gap_us = self.clock_gap_us()
        if gap_us < -GAP_US:
            raise InvalidRequest(
                f"the wall clock is {lasting(-gap_us)} behind broker time, which never goes back:"
                " set the wall clock; or stop the broker, and start it again after this time"
            )
        self.clock.accept()
        self._now_us = 0
        return self.broker.administration.accept_clock(self.now_us(), before_us, app)

    def clock_moved(self) -> None:
        """Forget the clock readings: a test has moved the clocks."""
        self._now_us = 0

    def touch(self) -> None:
        """Schedule the end of the turn for the end of this pass of the loop."""
        if self._turn is None:
            self._turn = self.loop.call_soon(self._end_turn)

    def hold(
        self, outlet: Outlet, frame: bytes, position: int, rests: Rests, settled_bytes: int
    ) -> None:
        """Hold an answer back until the record that it depends on is committed."""
        self.gate.hold(position, rests, (outlet, frame, settled_bytes))

    def expect_messages(self) -> None:
        """Import what only traffic of messages needs, at the first sign of it."""
        if not self._numpy_asked:
            self._numpy_asked = True
            self.import_beside(Import("numpy", load_numpy))

    def import_beside(self, job: Import) -> None:
        """Import a library in the read thread; ``job.then`` runs in the loop afterwards.

        ``job.then`` also runs if the import failed: the code that needs the library imports it
        again and gets the error.
        """
        self._read_thread.submit(job)

    def read_beside(self, errand: Errand) -> None:
        """Do a job in the read thread; its ``then`` runs in the loop afterwards.

        A job that ends after ``close`` is not told of.
        """
        self._read_thread.submit(errand)

    def may_answer(self) -> bool:
        """Return whether anything may leave to clients now."""
        return self.copies is None or self.copies.may_answer()

    def time_us(self) -> int:
        """Read broker time, without keeping it for the turn; for code outside of turns."""
        return self.clock.read(self.clocks.monotonic_us(), self.clocks.wall_us())

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
            if due_us is not None and due_us <= now and not self._catches_up(now - due_us):
                self._tick(now)
            self.on_woken()
            if len(self._changed) >= SETTLED_AT:  # else once a second, by the tick
                broker.views.figures.settle()
            keeps_house = self._keeps_house(now)
            if keeps_house:
                self._keep_up(now, began + UPKEEP_S)
            journal.flush()
            if self.copies is not None:
                self.copies.written()  # so that link and disk work at the same time
            if self._start_sync():
                self.on_durable()  # parked pulls may get these rows
                if journal.written != journal.end:
                    self.touch()  # they did: a PULLED record has to be written
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
        ended = time.perf_counter()
        self.turns += 1
        took = ended - began
        self._turned_at = ended if took < _FROZEN_US / 1e6 else began
        if took > self.longest_turn_s:
            self.longest_turn_s = took

    def _keeps_house(self, now: int) -> bool:
        """Return whether this turn does upkeep: no if it is for a lone request soon after another.

        Upkeep has next to nothing to do then, and polling all its parts would be a sixth of the
        request's cost.
        """
        asked, self._asked_before_turn = self.asked - self._asked_before_turn, self.asked
        return asked != 1 or now >= self._house_us or self.broker.journal.end >= self._house_end

    def _go_on_keeping_house(self, now: int) -> None:
        """Submit the next background job; decide when upkeep runs again."""
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
        """Count and log bytes that cannot be read; return the error to answer with."""
        self.unreadable_reads += 1
        text = str(error.args[0])
        now = self.loop.time()
        if now - self._told.get(text, -_TOLD_AGAIN_S) >= _TOLD_AGAIN_S:
            if len(self._told) >= _TOLD:
                self._told.clear()
            self._told[text] = now
            log.error("bytes of the journal cannot be read: %s", text)
        return Unreadable(text)

    def _catches_up(self, late_us: int) -> bool:
        """Return whether timers wait, because the process was frozen; ``late_us``: the oldest.

        What clients did meanwhile waits in the sockets, and is read first: an acknowledgement or an
        extension counts before the end of its lease.
        """
        now = time.perf_counter()
        # No turn since the timer was due: under load there are turns, only late ones. It is usual
        # that the process is frozen in a turn: just after an answer has left.
        slept = late_us >= _FROZEN_US and now - late_us / 1e6 > self._turned_at
        if slept and isinstance(self.clocks, SystemClocks):  # others may jump
            pause = min(late_us / 1e6, _CATCH_UP_S if self.turns else _CATCH_UP_AT_START_S)
            self._frozen_until = now + pause
            self.touch_later(pause)
        return now < self._frozen_until

    def _tick(self, now: int) -> None:
        try:
            if self.broker.tick(now):
                self.touch()  # more is due: the next pass of the loop
        except WouldBlock as blocked:
            self.cold_reads.read(blocked, self.touch)
        except JournalFull:
            self.touch_later(_FULL_RETRY_S)
        self.on_ticked()

    def release(self) -> None:
        """Hand the answers that may leave to their outlets."""
        journal = self.broker.journal
        free = self.gate.release(journal.committed, journal.written, self._strict, self._enough)
        for outlet, frame, settled_bytes in free:
            outlet.put(frame, settled_bytes)

    def _start_sync(self) -> bool:
        """Begin the next sync if none runs; return whether it ran here, in the loop.

        Raises:
            JournalFailed: It ran here and failed.
        """
        if self._syncing or self._sync_waits():
            return False
        sync = self.broker.journal.next_sync()
        if sync is None:
            return False
        pressed = self.pressed
        timed = TimedSync(sync, sync.upto - self._synced_end, pressed=pressed)
        self._synced_end = sync.upto
        asked, self._asked_before_sync = self.asked - self._asked_before_sync, self.asked
        alone = asked == 1 and len(self.gate) == 1 and not self.cold_reads
        here = self._pace.fair if pressed else alone and self._pace.quick
        if not (here and timed.small and not self.upkeep.at_work):
            self._syncing = True
            self._sync_thread.submit(timed)
            return False
        error: Exception | None = None
        try:
            timed.run()
        except Exception as caught:  # noqa: BLE001 - as in the thread: whatever it is, it is fatal
            error = caught
        self.syncs_in_loop += 1
        self._synced(timed, error, here=True)
        return True

    @property
    def syncing(self) -> int | None:
        """Number of the sync that the thread runs now: how many ended before; None: none runs."""
        return self.syncs if self._syncing else None

    def _sync_waits(self) -> bool:
        """Return whether the next sync can wait until somebody needs it: hand-outs need none."""
        needed = len(self.gate) > 0 or self._settles_down
        if needed or self._handed_due or not self.broker.ledger.only_handed_out:
            self._handed_due = False
            return False
        if self._handed_timer is None:
            self._handed_timer = self.loop.call_later(_HANDED_S, self._sync_handed)
        return True

    def _sync_handed(self) -> None:
        self._handed_timer = None
        self._handed_due = True
        self.touch()

    def _arm(self, deadline_us: int | None) -> None:
        """Schedule a turn for the next deadline."""
        if self.cold_reads and deadline_us == 0:
            deadline_us = None  # a woken pull waits for a read, which ends in a turn
        if deadline_us is None:
            return
        if self._frozen_until and time.perf_counter() < self._frozen_until:
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
        """Schedule a turn after a delay."""
        self.loop.call_later(delay_s, self.touch)

    # -- the threads ------------------------------------------------------------------------------

    def _report(self, job: Job, error: Exception | None) -> None:
        """Pass a finished job to the loop. Thread-safe."""
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
                    self._turn.cancel()  # replaced by the call below; else one would follow in vain
                self._end_turn()
            return
        if job in self.cold_reads and not isinstance(job, Awaited):  # upkeep ran the latter
            self.cold_reads.ended(job, error)
            return
        if isinstance(job, Errand):
            if not self._closed:
                job.then(error)
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
        except DiskWriteError as failure:  # the folder is gone, as in ``_keep_up``
            self.fail(JournalFailed(f"{failure.args[0]}"))
            return
        if error is not None:
            log.warning("a background job failed and is tried again: %s", error)
        self.touch()

    def _synced(self, job: TimedSync, error: Exception | None, *, here: bool = False) -> None:
        """Move the durable mark after a sync; ``here``: the loop ran it.

        Raises:
            JournalFailed: The sync failed.
        """
        self.syncs += 1
        self.last_sync_s = job.took_s
        self.sync_s += job.took_s
        journal = self.broker.journal
        if error is not None:
            journal.failed(error)
            raise JournalFailed(f"a sync failed: {error}") from error
        if job.small:
            if job.pressed:
                self._pace.took_pressed(job.took_s, here=here)
            else:
                self._pace.took(job.took_s)
        if self.failure is None:
            journal.synced(job.sync)
            self.broker.committed()
            if self.copies is not None:
                self.copies.synced()

    def commit(self, upto: Position, *, strict: bool) -> None:
        """Move the commit mark of a journal that has copies; the next turn sends what it frees.

        Args:
            upto: Position below which this disk and every copy that counts hold the bytes.
            strict: At least two copies count, and as many as the broker group needs, so that
                answers about strict topics are freed, too.

        Raises:
            ValueError: See ``Journal.commit``.
        """
        if self.failure is not None:
            return
        journal = self.broker.journal
        moved = journal.commit(upto)
        copies = self.broker.ledger.copies
        copies.strict = strict
        if strict and self._strict < journal.committed:
            self._strict = journal.committed
            self.touch()
        if (strict or copies.needed == 1) and self._enough < journal.committed:
            self._enough = journal.committed
            self.touch()
        if moved:
            self.broker.committed()
            self.touch()

    def fail(self, error: JournalError) -> None:
        """Stop permanently: nothing is answered from here on."""
        if self.failure is None:
            self.failure = error
            log.critical("the journal has failed, stopping: %s", error)
            self.on_failure(error)

    # -- the end ----------------------------------------------------------------------------------

    @property
    def works(self) -> bool:
        """Whether it takes turns: it has neither failed nor been closed."""
        return self.failure is None and not self._closed

    async def settle_down(self, most_s: float | None = None) -> None:
        """Wait until all records are committed and all answers were handed out, or it ends.

        Args:
            most_s: Longest wait in seconds; None: no limit.
        """
        journal = self.broker.journal
        until = None if most_s is None else self.loop.time() + most_s
        self._settles_down = True
        try:
            while self.works and (until is None or self.loop.time() < until):
                if self._syncing or self.cold_reads:
                    await asyncio.sleep(0.0005)  # a thread works, and wakes the loop
                elif self._turn is not None:
                    await asyncio.sleep(0)
                elif journal.committed < journal.durable == journal.end:
                    await asyncio.sleep(0.0005)  # another copy has to acknowledge
                elif journal.committed < journal.end or len(self.gate):
                    self.touch()
                else:
                    return
        finally:
            self._settles_down = False

    def close(self, *, clean: bool) -> None:
        """Stop; a clean stop writes STATE and MARK. Blocks until the threads have ended.

        Raises:
            JournalError: The clean stop failed.
        """
        self._closed = True
        self.cold_reads.close()
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
