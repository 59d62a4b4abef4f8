"""What the broker does between commands: STATE, index runs, retention, spare segments.

``step`` is called in a turn and is bounded; ``next_job`` returns, one at a time, jobs that may
block, for a worker thread. No answer depends on this work; without it the journal would only grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.upkeep.expiring import Expiring
from ternmq.broker.upkeep.fulfilling import Fulfilling
from ternmq.broker.upkeep.retention import Moving
from ternmq.broker.upkeep.statesets import StateSets
from ternmq.journal.cache.cold import Job, WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.idx_file import NO_HINT, StateHint
from ternmq.journal.index.run_jobs import RemoveJob, RunJob
from ternmq.journal.log.journal import AllocateJob
from ternmq.journal.log.retention import RetentionSpec
from ternmq.model.errors import CorruptJournal, DiskError, DiskReadError, JournalFull
from ternmq.model.types import DAY_US, SECOND_US, Position

LOOK_EVERY_US: Final = SECOND_US
REFRESH_SEGMENTS: Final = 16
"""Most segments behind the end in which STATE names an object, however long the journal is."""
QUIET_US: Final = 200_000
"""Time without a new record after which a MARK records that everything is durable."""
MARK_EVERY_US: Final = DAY_US
"""Time without a new record after which another MARK states the time; see ``_lacks_time``."""


class Upkeep:
    """Does a piece of the work in every turn, and returns jobs for a worker thread.

    Not thread-safe: call it from the broker's loop; the jobs run in other threads.

    Args:
        ledger: The journal and what is computed from it.
        state_sets: Writes the state.
        fulfilling: Has reads for the worker thread, which come before all others.
        expiring: Records rows of groups that nobody pulls.
        disk: The data root.
        retention: Limits of the journal.
        refresh_segments: An object of STATE is written again, so that old segments may be removed,
            if its chunk is older than this many segments and in the older half of the journal, or
            older than ``REFRESH_SEGMENTS``.
        look_every_us: Interval of the judgement of the oldest segment, and of retries after errors.
    """

    def __init__(
        self,
        ledger: Ledger,
        state_sets: StateSets,
        fulfilling: Fulfilling,
        expiring: Expiring,
        disk: Disk,
        retention: RetentionSpec | None = None,
        *,
        refresh_segments: int = 2,
        look_every_us: int = LOOK_EVERY_US,
    ) -> None:
        self._journal = ledger.journal
        self._index = ledger.index
        self._state_sets = state_sets
        self._fulfilling = fulfilling
        self._expiring = expiring
        self._writer = state_sets.writer
        self._disk = disk
        self.moving = Moving(ledger, state_sets.writer, retention or RetentionSpec())
        self._refresh_segments = refresh_segments
        self._look_every_us = look_every_us
        self._hint = NO_HINT
        self._jobs: deque[Job] = deque()
        self._out: Job | None = None
        self._blocked: WouldBlock | None = None
        self._copying: Job | None = None
        """The running read that an object of STATE is copied from."""
        self._reading: Job | None = None
        """The running read of rows that may have expired."""
        self._full = False
        """Whether the last step found no room in the journal."""
        self._retry_us = 0
        self._now_us = 0
        self._expire_us = 0
        self._seal_us = 0
        self._retain_us = 0
        self._space_us = 0
        self._free = self._total = 0
        self._quiet_end = Position(0)
        self._quiet_since_us = 0
        self._marked_us = 0
        """When the last MARK was written."""
        self.stalls = 0
        """Number of steps that found no room for STATE or MOVED; they are repeated later."""

    def step(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        """Do a piece of what is due, while ``may_go_on()``; call it in each turn before ``flush``.

        Raises:
            DiskReadError, CorruptJournal: Rows owed to a group cannot be read, so their segment
                stays. This is tried again later, and everything else goes on.
        """
        journal, index = self._journal, self._index
        self._now_us = now_us
        if now_us >= self._retry_us:
            self._retry_us = now_us + self._look_every_us
            journal.retry_spare()
        self._mark(now_us)
        self._full = False
        try:
            if self._copying is None and self._keep_state(now_us, may_go_on):
                newest = self._writer.complete[-1]
                self._hint = StateHint(newest.begin, newest.end)
                self._add(index.coverage.cut(journal.end, journal.last_crc, self._hint))
            if now_us >= self._seal_us:
                self._jobs.extend(index.coverage.unsealed(journal.written, self._hint))
            if self._reading is None and now_us >= self._expire_us:
                self._expire(now_us, may_go_on)
            if self._blocked is None and now_us >= self._retain_us and may_go_on():
                self._retain(now_us, may_go_on)
        except JournalFull:
            self.stalls += 1
            self._full = True

    @property
    def goes_on(self) -> bool:
        """Whether the next turn has work that need not wait for anything.

        That is work on the oldest segment, or expired rows. If so, the server runs a turn soon, so
        that segments are removed on an idle broker, too.
        """
        if self._full:
            return False
        refreshing = self.moving.refreshing
        if self._copying is None and not refreshing.lacks_room:
            writing = refreshing.active if self._writer.active else refreshing.goal() > 0
            if writing:
                return True
        if self._reading is None and self._now_us >= self._expire_us and self._expiring.goes_on:
            return True
        waits = self._blocked is not None or self._now_us < self._retain_us
        return not waits and self.moving.goes_on

    @property
    def watches(self) -> bool:
        """Whether time alone may bring work: the server then runs a turn every second."""
        journal = self._journal
        return self._expiring.watches or journal.first != journal.base or journal.room() <= 0

    def _keep_state(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Write a piece of a STATE set; begin one for the oldest segment if that is wanted.

        Returns:
            Whether a set ended.
        """
        writer, refreshing = self._writer, self.moving.refreshing
        if writer.active:
            if refreshing.active and refreshing.lacks_room:
                return False
        else:
            goal = refreshing.goal()
            if goal:
                writer.begin(now_us, goal, goal)
                refreshing.begun()
        try:
            ended = self._state_sets.step(now_us, may_go_on, self._refresh_below())
        except WouldBlock as blocked:
            self._copying = blocked.job
            self._jobs.appendleft(blocked.job)
            return False
        if ended:
            refreshing.ended()
        return ended

    def close(self, now_us: int) -> None:
        """Stop the broker cleanly; see ``StateSets.close``.

        If only STATE keeps the oldest segment, the last set is written so that it needs it no more.
        """
        goal = self.moving.refreshing.goal_of_a_stop()
        self._state_sets.close(now_us, goal or self._refresh_below(), goal)

    def _refresh_below(self) -> int:
        """Return the position below which objects of STATE are written again instead of named.

        Writing all of them takes 0.2 s with 40,000 topics, so it is not done every few segments in
        a long journal: objects in its younger half do not keep any segment yet.
        """
        journal = self._journal
        size = journal.segment_size
        half = (journal.end - journal.first) // 2
        age = max(self._refresh_segments * size, min(half, REFRESH_SEGMENTS * size))
        return max(0, journal.end - age)

    def _mark(self, now_us: int) -> None:
        """Append a MARK that everything is durable, once the journal has been quiet for a while.

        Not at once: the sync of the MARK would delay the sync of the next send.
        """
        journal = self._journal
        if journal.end != self._quiet_end:
            self._quiet_end, self._quiet_since_us = journal.end, now_us
        elif now_us - self._quiet_since_us >= QUIET_US:
            if journal.mark(now_us, again=self._lacks_time(now_us)) is not None:
                self._marked_us = now_us
            self._quiet_end = journal.end

    def _lacks_time(self, now_us: int) -> bool:
        """Return whether the newest record of a quiet journal is so old that time is to be stated.

        A start goes on from the time of the last record if the wall clock is far ahead of it. So
        without this, the time of a broker that was idle for months would go back.
        """
        return now_us - max(self._marked_us, self._quiet_since_us) >= MARK_EVERY_US

    def _expire(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        try:
            self._expiring.step(now_us, may_go_on)
        except WouldBlock as blocked:
            self._reading = blocked.job
            self._add(blocked.job)
        except JournalFull:  # what removes segments must go on
            self.stalls += 1
            self._expire_us = now_us + self._look_every_us

    def _retain(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        removal = self.moving.removal
        frees = removal.frees
        if frees and not removal.goes_on:
            return
        try:
            # Until the space of the removed segment is free, the disk's figures are of no use.
            if (
                now_us >= self._space_us and not frees
            ):  # the call to the file system takes as long as a turn
                self._space_us = now_us + self._look_every_us
                self._free, self._total = self._disk.free_bytes(), self._disk.total_bytes()
            job = self.moving.step(now_us, self._look_every_us, self._free, self._total, may_go_on)
            if job is not None:
                self._space_us = now_us  # a segment was removed: read the disk's figures again
        except WouldBlock as blocked:
            self._blocked = blocked
            self._jobs.appendleft(blocked.job)
            return
        except (DiskReadError, CorruptJournal):
            self._retain_us = now_us + self._look_every_us  # nothing is removed until then
            raise
        self._add(job)

    def _add(self, job: Job | None) -> None:
        if job is not None:
            self._jobs.append(job)

    # -- jobs -------------------------------------------------------------------------------------

    @property
    def at_work(self) -> bool:
        """Whether a worker thread has a job, which may use the disk."""
        return self._out is not None

    def next_job(self) -> Job | None:
        """Return a job for a worker thread; None if one has a job, or if there is none."""
        if self._out is not None:
            return None
        spare = self._journal.wants_spare()
        if spare is not None:
            self._out = spare
        else:
            self._out = self._fulfilling.next_job()
            if self._out is None and self._jobs:
                self._out = self._jobs.popleft()
        return self._out

    def finished(self, job: Job, error: Exception | None) -> None:
        """Note that a job's ``run`` returned, or raised.

        A failed job is tried again, but not before ``look_every_us`` has passed: otherwise a disk
        that is full or broken would be kept busy by it.
        """
        self._out = None
        if self._fulfilling.finished(job, error):
            return
        later_us = self._now_us + self._look_every_us
        if job is self._reading:
            self._reading = None
            if error is not None:
                self._expire_us = later_us
            return
        if job is self._copying:
            self._copying = None
            if error is not None:
                self._writer.unreadable()
            return
        if self._blocked is not None and job is self._blocked.job:
            self._blocked = None
            if error is not None:
                self._retain_us = later_us
            return
        if isinstance(job, AllocateJob):
            if error is None:
                self._journal.spare_ready(job)
            else:
                self._journal.spare_failed(job, error)
        elif isinstance(job, RunJob):
            if error is None:
                self._add(self._index.coverage.installed(job))
            else:
                self._index.coverage.failed(job)
                self._seal_us = later_us
                if not isinstance(error, DiskError):
                    raise error
        elif isinstance(job, RemoveJob):
            self.moving.removal.freed(job)
            self._journal.retry_spare()  # there is room again
