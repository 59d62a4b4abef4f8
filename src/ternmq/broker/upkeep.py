"""What the broker does for itself between commands: STATE, index runs, retention, spare segments.

``step`` belongs to a turn and is bounded; ``next_job`` gives out, one at a time, what may block,
for a worker thread. Nothing here is needed for an answer to be right; without it the journal only
grows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ternmq.broker.ledger import Ledger
from ternmq.broker.moving import Moving
from ternmq.broker.statesets import StateSets
from ternmq.journal.cold import Job, WouldBlock
from ternmq.journal.disk import Disk
from ternmq.journal.idx_file import NO_HINT, StateHint
from ternmq.journal.journal import AllocateJob
from ternmq.journal.retention import RetentionSpec
from ternmq.journal.run_jobs import RemoveJob, RunJob
from ternmq.model.errors import CorruptJournal, DiskError, DiskReadError, JournalFull
from ternmq.model.types import SECOND_US, Position

LOOK_EVERY_US: Final = SECOND_US
REFRESH_SEGMENTS: Final = 16
"""Most segments behind the end that an object of STATE is named in, however long the journal is."""
QUIET_US: Final = 200_000
"""How long nothing is recorded before a MARK says that all is durable."""


class Upkeep:
    """Gives every turn a piece of the work, and says what a worker thread is to run.

    Not thread-safe: call it from the broker's loop; jobs run elsewhere.

    Args:
        ledger: The journal and what is computed from it.
        state_sets: Writes the state.
        disk: The data root.
        retention: Limits of the journal.
        refresh_segments: Objects of STATE are written again, so that old segments may go, when
            their chunk is older than this many segments and stands in the older half of the
            journal, or is older than ``REFRESH_SEGMENTS``.
        look_every_us: How often the oldest segment is judged, and what failed is tried again.
    """

    def __init__(
        self,
        ledger: Ledger,
        state_sets: StateSets,
        disk: Disk,
        retention: RetentionSpec | None = None,
        *,
        refresh_segments: int = 2,
        look_every_us: int = LOOK_EVERY_US,
    ) -> None:
        self._journal = ledger.journal
        self._index = ledger.index
        self._state_sets = state_sets
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
        """What an object of STATE is copied from is being read."""
        self._full = False
        """The last step found no room in the journal."""
        self._retry_us = 0
        self._now_us = 0
        self._seal_us = 0
        self._retain_us = 0
        self._space_us = 0
        self._free = self._total = 0
        self._quiet_end = Position(0)
        self._quiet_since_us = 0
        self.stalls = 0
        """STATE or MOVED found no room in the journal; tried again later."""

    def step(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        """Do a piece of what is due, while ``may_go_on()``; in each turn before ``flush``.

        Raises:
            DiskReadError, CorruptJournal: What a group is owed cannot be read, so its segment
                stays; that is tried again later, and everything else goes on.
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
                self._add(index.cut(journal.end, journal.last_crc, self._hint))
            if now_us >= self._seal_us:
                self._jobs.extend(index.unsealed(journal.written, self._hint))
            if self._blocked is None and now_us >= self._retain_us and may_go_on():
                self._retain(now_us, may_go_on)
        except JournalFull:
            self.stalls += 1
            self._full = True

    @property
    def goes_on(self) -> bool:
        """Whether the next turn has work for the oldest segment to go that waits for nothing.

        Whoever runs the turns makes one soon then, so that a segment goes on an idle broker, too.
        """
        if self._full:
            return False
        refreshing = self.moving.refreshing
        if self._copying is None and not refreshing.lacks_room:
            writing = refreshing.active if self._writer.active else refreshing.goal() > 0
            if writing:
                return True
        waits = self._blocked is not None or self._now_us < self._retain_us
        return not waits and self.moving.goes_on

    @property
    def watches(self) -> bool:
        """Whether time alone may give it work: whoever runs the turns makes one a second then."""
        journal = self._journal
        return journal.first != journal.base or journal.room() <= 0

    def _keep_state(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Write a piece of a STATE set, of one that lets the oldest segment go if that is wanted.

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

        Its last set lets the oldest segment go, if that waits for such a set.
        """
        goal = self.moving.refreshing.goal_of_a_stop()
        self._state_sets.close(now_us, goal or self._refresh_below(), goal)

    def _refresh_below(self) -> int:
        """Return where objects of STATE are written again instead of being named there.

        To write them all takes 0.2 s with 40,000 topics, so not every few segments where the
        journal keeps many: what stands in its younger half is in the way of no segment yet.
        """
        journal = self._journal
        size = journal.segment_size
        half = (journal.end - journal.first) // 2
        age = max(self._refresh_segments * size, min(half, REFRESH_SEGMENTS * size))
        return max(0, journal.end - age)

    def _mark(self, now_us: int) -> None:
        """Let the journal say that all is durable, once it has been quiet for a while.

        Not at once: the MARK's own sync would stand in the way of the next send's.
        """
        journal = self._journal
        if journal.end != self._quiet_end:
            self._quiet_end, self._quiet_since_us = journal.end, now_us
        elif now_us - self._quiet_since_us >= QUIET_US:
            journal.mark(now_us)
            self._quiet_end = journal.end

    def _retain(self, now_us: int, may_go_on: Callable[[], bool]) -> None:
        removal = self.moving.removal
        frees = removal.frees
        if frees and not removal.goes_on:
            return
        try:
            # What the disk says before the space of the segment that went is free is of no use.
            if (
                now_us >= self._space_us and not frees
            ):  # asking the file system takes as long as a turn
                self._space_us = now_us + self._look_every_us
                self._free, self._total = self._disk.free_bytes(), self._disk.total_bytes()
            job = self.moving.step(now_us, self._look_every_us, self._free, self._total, may_go_on)
            if job is not None:
                self._space_us = now_us  # a segment went: is more to go, is asked of the disk anew
        except WouldBlock as blocked:
            self._blocked = blocked
            self._jobs.appendleft(blocked.job)
            return
        except (DiskReadError, CorruptJournal):
            self._retain_us = now_us + self._look_every_us  # nothing is removed meanwhile
            raise
        self._add(job)

    def _add(self, job: Job | None) -> None:
        if job is not None:
            self._jobs.append(job)

    # -- jobs -------------------------------------------------------------------------------------

    @property
    def at_work(self) -> bool:
        """Whether a job is out: something else is at the disk."""
        return self._out is not None

    def next_job(self) -> Job | None:
        """Return work for a worker thread, or None while one is out or nothing is to be done."""
        if self._out is not None:
            return None
        spare = self._journal.wants_spare()
        if spare is not None:
            self._out = spare
        elif self._jobs:
            self._out = self._jobs.popleft()
        return self._out

    def finished(self, job: Job, error: Exception | None) -> None:
        """Take note that a job's ``run`` returned, or raised.

        What failed is tried again, but not before ``look_every_us`` has passed: a disk that is full
        or broken would be kept busy with nothing else.
        """
        self._out = None
        later_us = self._now_us + self._look_every_us
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
                self._add(self._index.installed(job))
            else:
                self._index.failed(job)
                self._seal_us = later_us
                if not isinstance(error, DiskError):
                    raise error
        elif isinstance(job, RemoveJob):
            self.moving.removal.freed(job)
            self._journal.retry_spare()  # there is room again
