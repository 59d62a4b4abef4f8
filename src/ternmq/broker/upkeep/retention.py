"""Copies owed and scheduled rows out of the oldest segment, and then removes the segment.

When retention wants to remove the oldest segment, every row that is owed to a group and stored only
there is written again in a MOVED record, with its known failures; the failure store then refers to
the MOVED record. The work is cut into steps of a few rows, so that no turn of the loop is long. A
crash in between costs only the copies: rows that were moved stay moved. The segment is unlinked
when everything that the judgement depends on is durable (`removal`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.shards import shards_of
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.views import HeldKey
from ternmq.broker.upkeep.copied import Copied, OwedRow
from ternmq.broker.upkeep.judging import Judging
from ternmq.broker.upkeep.oldestsegment import OldestSegment
from ternmq.broker.upkeep.owedcopies import OwedCopies
from ternmq.broker.upkeep.preparedcopies import PreparedCopies
from ternmq.broker.upkeep.refreshing import Refreshing
from ternmq.broker.upkeep.removal import Removal
from ternmq.broker.upkeep.schedulecopies import ScheduleCopies
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.journal.log.retention import Decision, Pin, RetentionSpec
from ternmq.journal.state.sets import StateWriter

LOOKS_A_STEP: Final = 256
FUTILE_PART: Final = 8
"""A removal is futile if it frees less than one part in this many of the segment."""
FUTILE_DOUBLINGS: Final = 6
"""Most doublings of the time until the next look, one for each futile removal in a row."""


class Moving:
    """Carries out retention: judges the oldest segment, moves what is owed, removes the segment.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
        writer: Writes the STATE sets that must exist before a segment is removed.
        spec: Limits of the journal.
    """

    def __init__(self, ledger: Ledger, writer: StateWriter, spec: RetentionSpec) -> None:
        self._ledger = ledger
        self._oldest = OldestSegment(ledger)
        self.judging = Judging(ledger, self._oldest, writer, spec)
        self._active = False
        self._copied_ahead = False
        """Whether the scheduled rows of the segment, and the prepared ones, are copied."""
        self._keys: Iterator[HeldKey] = iter(())
        """The group queues that are still to be examined."""
        self._progress: Progress | None = None
        self._shards: deque[int] = deque()
        self._copied = Copied(ledger.index)
        self._late: dict[HeldPage, dict[HeldKey, int]] = {}
        """Group queues that had unread rows in the segment when they were examined, and their
        cursors then."""
        self._checks: deque[HeldPage] = deque()
        """Pages of ``_late`` that are still to be checked again."""
        self._checked_end = 0
        """Pages changed by records below this position were checked again or are in ``_checks``."""
        self._pulled: list[HeldKey] = []
        """Group queues of ``_late`` that have pulled since: to be examined again."""
        self._looked_end = 0
        self._next_look_us = 0
        self.refreshing = Refreshing(ledger.journal, writer)
        self._rewritten_bytes = 0
        """Bytes written again of the segment that is being emptied."""
        self._futile = 0
        """Number of futile removals in a row, up to the last one."""
        self.removal = Removal(ledger, self._copied)
        self.schedule_copies = ScheduleCopies(ledger)
        self.prepared_copies = PreparedCopies(ledger)
        self.owed_copies = OwedCopies(ledger)

    @property
    def removed_segments(self) -> int:
        """Segments removed since the start."""
        return self.removal.removed_segments

    def step(
        self,
        now_us: int,
        look_every_us: int,
        free: int,
        total: int,
        may_go_on: Callable[[], bool],
    ) -> RemoveJob | None:
        """Do a piece of the work; return the job that removes files when a segment was removed.

        Raises:
            WouldBlock: run the job, then call again; nothing is lost.
        """
        if self.removal.goes_on:
            self.removal.step(may_go_on)
            return None
        if self.removal.frees:
            return None
        if not self._active and not self._begins(now_us, look_every_us, free, total, may_go_on):
            return None
        if not self._move_some(now_us, may_go_on):
            return None
        if not self._copied_ahead:
            self._copied_ahead = self._copy_ahead(now_us, may_go_on)
            if not self._copied_ahead:
                return None
        journal = self._ledger.journal
        if not self._looked_end:
            # The records up to here leave nothing owed. They, and the MOVED among them, must be
            # committed before the segment is removed. Otherwise a power cut undoes them: rows are
            # owed again whose content is gone.
            self._looked_end = journal.end
        if self._looked_end > journal.committed:
            return None
        if self._ledger.rewinds != self.judging.rewinds:
            self._active = False
            self._next_look_us = now_us
            return None  # a group may want to read rows that it had finished: judge again
        if not self._is_over(may_go_on):
            return None
        self._active = False
        self._next_look_us = now_us + self._pause_us(look_every_us)
        self.owed_copies.end()
        job = self.removal.remove()
        self.removal.step(may_go_on)
        return job

    def _begins(
        self,
        now_us: int,
        look_every_us: int,
        free: int,
        total: int,
        may_go_on: Callable[[], bool],
    ) -> bool:
        """Judge the oldest segment if it is time; return whether its removal begins."""
        if not self.judging.under_way and now_us < self._next_look_us:
            return False
        found = self.judging.look(now_us, free, total, may_go_on)
        if found is None:
            return False
        self._next_look_us = now_us + look_every_us
        self._ledger.room.block(blocked=found.verdict is Decision.REFUSE)
        pressure = self.judging.pressure
        if found.pin is Pin.STATE and (pressure or not self._futile):
            self.refreshing.want(now_us, self._oldest.end, at_once=pressure)
        if found.verdict is not Decision.REMOVE:
            return False
        self._active = True
        self._rewritten_bytes = 0
        self._copied_ahead = False
        self.schedule_copies.begin()
        self.prepared_copies.begin()
        self._copied.begin(self.judging.rewinds)
        self._keys = iter(list(self._ledger.views.progress))
        self._late = {}
        self._checks.clear()
        self._checked_end = 0
        self._pulled = []
        self._looked_end = 0
        return True

    def _copy_ahead(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Copy some rows that are no messages yet; return whether all of the segment are copied."""
        scheduled, prepared = self.schedule_copies, self.prepared_copies
        before = scheduled.copied_bytes + prepared.copied_bytes
        try:
            oldest = self._oldest
            return scheduled.step(now_us, oldest.end, may_go_on) and prepared.step(
                now_us, oldest.number, may_go_on
            )
        finally:
            self._rewritten_bytes += scheduled.copied_bytes + prepared.copied_bytes - before

    def _pause_us(self, look_every_us: int) -> int:
        """Return how long to wait before the next segment, after one was emptied.

        If nearly all of a journal is owed to groups that have received it before, segments could be
        removed for ever, each one written again at the end: that frees nothing and keeps the disk
        busy.
        """
        size = self._ledger.journal.segment_size
        if self._rewritten_bytes <= size - size // FUTILE_PART:
            self._futile = 0
            return 0
        self._futile += 1
        return look_every_us << min(self._futile, FUTILE_DOUBLINGS)

    def _is_over(self, may_go_on: Callable[[], bool]) -> bool:
        """Return whether the segment may be removed; groups with unread rows in it may have pulled.

        A step checks some pages of them; later rounds check only pages changed by a record since
        the last check. A group that has pulled is examined again, even if it is owed nothing: that
        it is owed nothing may depend on records that are not durable yet.
        """
        looked = 0
        while True:
            while self._checks:
                if looked and (looked >= LOOKS_A_STEP or not may_go_on()):
                    return False
                late = self._late[self._checks[0]]
                pulled = [key for key, cursor in late.items() if self._has_pulled(key, cursor)]
                looked += len(late)
                self._checks.popleft()
                for key in pulled:
                    del late[key]
                self._pulled += pulled
            if self._pulled:
                self._keys, self._pulled = iter(self._pulled), []
                self._looked_end = 0
                return False
            since, self._checked_end = self._checked_end, self._ledger.journal.end
            pages = [one for one in self._late if max(one.changed, one.touched) >= since]
            if not pages:
                return True
            self._checks.extend(pages)

    def _has_pulled(self, key: HeldKey, cursor: int) -> bool:
        progress = self._ledger.views.progress.get(key)
        return progress is not None and (
            progress.cursor != cursor
            or any(self._owed(progress, shard) for shard in shards_of(progress))
        )

    def _move_some(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Examine some shards, or write one MOVED record; return whether all are examined."""
        for looked in range(LOOKS_A_STEP):
            if looked and not may_go_on():
                return False
            progress = self._progress
            if progress is not None and self.owed_copies.under_way:
                self._copy_owed(now_us, progress)
                return False
            if progress is not None and self._shards:
                # A look that blocks is repeated: the shard stays first until it was examined.
                journal = self._ledger.journal
                rows = self._copied.take(
                    progress,
                    self._shards[0],
                    self._oldest.boundary(progress),
                    self._oldest.end,
                    journal.end,
                )
                self._shards.popleft()
                self.owed_copies.put(rows)
                continue
            key = next(self._keys, None)
            if key is None:
                self._progress = None
                return True
            self._progress = progress = self._ledger.views.progress.get(key)
            if progress is not None:
                shards = shards_of(progress)
                self._copied.keep(key, shards)
                self._shards = deque(shards)
                if progress.cursor < self._oldest.boundary(progress):
                    self._late.setdefault(progress.page, {})[key] = progress.cursor
        return False

    def _copy_owed(self, now_us: int, progress: Progress) -> None:
        copies = self.owed_copies
        before = copies.copied_bytes
        copies.step(now_us, progress)
        self._rewritten_bytes += copies.copied_bytes - before

    @property
    def goes_on(self) -> bool:
        """Whether the next turn has work that need not wait for anything."""
        if self._active:
            return not self._looked_end or self._looked_end <= self._ledger.journal.committed
        return self.removal.goes_on or self.judging.under_way

    def _owed(self, progress: Progress, shard: int) -> list[OwedRow]:
        """Return the rows of a shard that would lose their content or their history."""
        return self._copied.owed(progress, shard, self._oldest.boundary(progress), self._oldest.end)
