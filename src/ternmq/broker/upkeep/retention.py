"""Copies owed and scheduled rows out of the oldest segment, and then removes the segment.

When retention wants to remove the oldest segment, every row that is owed to a group and stored only
there is written again in a MOVED record, with its known failures; the failure store then refers to
the MOVED record. The work is cut into steps of a few rows, so that no turn of the loop is long. A
crash in between costs only the copies: rows that were moved stay moved. The segment is unlinked
when everything that the judgement depends on is durable (`removal`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.history import failure_entries
from ternmq.broker.group.owed import Owed, owed_row, told_row
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.shards import shards_of
from ternmq.broker.ledger.factkinds import MOVED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.views import HeldKey
from ternmq.broker.upkeep.copied import Copied, OwedRow
from ternmq.broker.upkeep.preparedcopies import PreparedCopies
from ternmq.broker.upkeep.refreshing import Refreshing
from ternmq.broker.upkeep.removal import Removal
from ternmq.broker.upkeep.schedulecopies import ScheduleCopies
from ternmq.journal.index.run_jobs import RemoveJob
from ternmq.journal.log.retention import (
    Decision,
    Judgement,
    Pin,
    QueueShare,
    RetentionSpec,
    judge,
    under_pressure,
)
from ternmq.journal.state.sets import StateWriter
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Batch, Compression, slice_batch, uncompressed
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import HEADER_BYTES, time_us_of
from ternmq.record.fact.moved import MovedFailure, Piece

ROWS_A_STEP: Final = 64
LOOKS_A_STEP: Final = 256
SHARES_A_LOOK: Final = 64
"""Weight of the queues judged together: usually one of the first already keeps the segment."""
GROUPS_A_SHARE: Final = 8
"""Groups of one queue that take as long to check as another queue."""
JUDGED_A_STEP: Final = 64
BYTES_A_STEP: Final = 256 * 1024
FUTILE_PART: Final = 8
"""A removal is futile if it frees less than one part in this many of the segment."""
FUTILE_DOUBLINGS: Final = 6
"""Most doublings of the time until the next look, one for each futile removal in a row."""
COPIED_AFTER_US: Final = DAY_US
"""How long a segment is kept only because rows are in it that are no messages yet, if there is no
pressure."""
TOLD_BYTES: Final = 1024 * 1024
"""Most bytes of one row's failures in a record beside its content: 4 MB in one turn take 25 ms."""


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
        self._writer = writer
        self.spec = spec
        self._active = False
        self._copied_ahead = False
        """Whether the scheduled rows of the segment, and the prepared ones, are copied."""
        self._keys: Iterator[HeldKey] = iter(())
        """The group queues that are still to be examined."""
        self._progress: Progress | None = None
        self._shards: deque[int] = deque()
        self._rows: list[OwedRow] = []
        self._told: list[tuple[Progress, int]] = []
        """Group queues and offsets whose content is in a MOVED record, but not yet the failures."""
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
        self._inflated: tuple[int, bytes] = (-1, b"")
        """Position of the record inflated last, and its batch; its next row often follows."""
        self._judging: Iterator[int] | None = None
        """The queues that are still to be judged for the oldest segment; None between looks."""
        self._rewinds = 0
        self._free_of_others: tuple[int, int, bool] | None = None
        """If only STATE keeps the oldest segment: its end, and the rewinds and pressure then."""
        self.refreshing = Refreshing(ledger.journal, writer)
        self.pinned = Judgement(Decision.KEEP, Pin.ACTIVE)
        """The last judgement of the oldest segment."""
        self.pinned_since_us = 0
        """Since when this reason keeps this segment (broker time); 0 before the first look."""
        self._pinned_end = 0
        self._looked_us = 0
        """Broker time of the last look."""
        self._pressure = False
        """Whether there was pressure at the last look."""
        self._rewritten_bytes = 0
        """Bytes written again of the segment that is being emptied."""
        self._futile = 0
        """Number of futile removals in a row, up to the last one."""
        self.removal = Removal(ledger, self._copied)
        self.schedule_copies = ScheduleCopies(ledger)
        self.prepared_copies = PreparedCopies(ledger)
        self.moved_rows = 0

    # -- questions of the judgement ---------------------------------------------------------------

    def retention_us(self, topic: int) -> int:
        """Return how long a topic keeps messages; 0 for a deleted topic."""
        known = self._ledger.views.catalog.topics.get(topic)
        return known.spec.retention_us if known is not None else 0

    def unread_below(self, share: QueueShare) -> bool:
        """Return whether a group that must not miss the share has not finished it."""
        topic = self._ledger.views.catalog.topics.get(share.topic)
        if topic is None or not topic.spec.keep_until_consumed:
            return False
        progress = self._ledger.views.progress
        return any(
            not progress[group, share.topic, share.queue].finished(share.stop)
            for group in topic.subscriptions
        )

    @property
    def removed_segments(self) -> int:
        """Segments removed since the start."""
        return self.removal.removed_segments

    def _shares_of(self, keys: Iterable[int]) -> list[QueueShare]:
        """Return the shares of those of some queues that have messages in the oldest segment."""
        journal, index = self._ledger.journal, self._ledger.index
        prepared = self._ledger.views.prepared_rows
        number = journal.first // journal.segment_size
        with_prepared = prepared.holds(number)
        floor_of = index.floor_of
        found: list[QueueShare] = []
        for key in keys:
            segments = index.coverage.segments_of(key)
            stop = 0
            topic, queue = key >> 32, key & 0xFFFFFFFF
            if segments is not None and segments.numbers[0] == number:
                if len(segments.first_offsets) > 1:
                    stop = segments.first_offsets[1]
                    if floor_of is not None:
                        stop = max(stop, floor_of(key))
                else:
                    known = self._ledger.views.catalog.topics.get(topic)
                    stop = known.queues[queue].next if known is not None else 1 << 62
            if with_prepared:
                stop = max(stop, prepared.stop(number, topic, queue))
            if stop:
                found.append(QueueShare(topic, queue, stop))
        return found

    # -- steps ------------------------------------------------------------------------------------

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
        if not self._active:
            if self._judging is None and now_us < self._next_look_us:
                return None
            found = self._judge(now_us, free, total, may_go_on)
            if found is None:
                return None
            self._next_look_us = now_us + look_every_us
            self._take_note(now_us, found)
            if found.verdict is not Decision.REMOVE:
                return None
            self._active = True
            self._rewritten_bytes = 0
            self._copied_ahead = False
            self.schedule_copies.begin()
            self.prepared_copies.begin()
            self._copied.begin(self._rewinds)
            self._keys = iter(list(self._ledger.views.progress))
            self._late = {}
            self._checks.clear()
            self._checked_end = 0
            self._pulled = []
            self._looked_end = 0
        if not self._move_some(now_us, may_go_on):
            return None
        if not self._copied_ahead:
            self._copied_ahead = self._copy_ahead(now_us, may_go_on)
            if not self._copied_ahead:
                return None
        journal = self._ledger.journal
        if not self._looked_end:
            # The records up to here leave nothing owed. They, and the MOVED among them, must be on
            # the disk before the segment is removed. Otherwise a power cut undoes them: rows are
            # owed again whose content is gone.
            self._looked_end = journal.end
        if self._looked_end > journal.durable:
            return None
        if self._ledger.rewinds != self._rewinds:
            self._active = False
            self._next_look_us = now_us
            return None  # a group may want to read rows that it had finished: judge again
        if not self._is_over(may_go_on):
            return None
        self._active = False
        self._next_look_us = now_us + self._pause_us(look_every_us)
        self._inflated = -1, b""
        job = self.removal.remove()
        self.removal.step(may_go_on)
        return job

    def _copy_ahead(self, now_us: int, may_go_on: Callable[[], bool]) -> bool:
        """Copy some rows that are no messages yet; return whether all of the segment are copied."""
        scheduled, prepared = self.schedule_copies, self.prepared_copies
        before = scheduled.copied_bytes + prepared.copied_bytes
        try:
            number = self._ledger.journal.first // self._ledger.journal.segment_size
            return scheduled.step(now_us, self._end(), may_go_on) and prepared.step(
                now_us, number, may_go_on
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
            if progress is not None and (self._rows or self._told):
                if not self._is_there(progress):
                    self._rows.clear()
                    self._told.clear()
                elif self._told:
                    self._write_told(now_us, progress)
                else:
                    self._write(now_us, progress)
                return False
            if progress is not None and self._shards:
                # A look that blocks is repeated: the shard stays first until it was examined.
                journal = self._ledger.journal
                self._rows = self._copied.take(
                    progress, self._shards[0], self._boundary(progress), self._end(), journal.end
                )
                self._shards.popleft()
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
                if progress.cursor < self._boundary(progress):
                    self._late.setdefault(progress.page, {})[key] = progress.cursor
        return False

    def present(self) -> Judgement:
        """Return what keeps the oldest segment now: what the last look found, if that still holds.

        If the reason found is gone, for example because a group has finished since, the queues are
        judged again, as many as a look judges in a turn. Changes nothing: the next look acts on it.
        """
        found = self.pinned
        if self._still(found):
            return found
        number = self._ledger.journal.first // self._ledger.journal.segment_size
        if self._ledger.views.undecided.pins(number):
            return found._replace(pin=Pin.TRANSACTION, share=None)
        kept_ahead = None if self._pressure else self._kept_ahead(self._looked_us)
        if kept_ahead is not None:
            return found._replace(pin=kept_ahead, share=None)
        left = iter(list(self._ledger.index.coverage.queues))
        for _ in range(JUDGED_A_STEP):
            keys = self._next_queues(left)
            now = self._asked(keys, self._looked_us, pressure=self._pressure)
            if now.verdict is not Decision.REMOVE:
                return now
            if not keys:
                break
        if self._end() <= self._writer.removable_below():
            return Judgement(Decision.REMOVE, Pin.NOTHING)
        return Judgement(Decision.KEEP, Pin.STATE)

    def _still(self, found: Judgement) -> bool:
        """Return whether the reason that a look found to keep the oldest segment still holds."""
        journal, views = self._ledger.journal, self._ledger.views
        share = found.share
        match found.pin:
            case Pin.TRANSACTION:
                return views.undecided.pins(journal.first // journal.segment_size)
            case Pin.SCHEDULE | Pin.CHECK_BACK:
                return self._kept_ahead(self._looked_us) is found.pin
            case Pin.HOLD:
                return views.lowest_hold is not None and views.lowest_hold < self._end()
            case Pin.GROUP:
                return share is not None and self.unread_below(share)
            case Pin.RETENTION:
                return share is not None and share.topic in views.catalog.topics
            case Pin.NOTHING | Pin.ACTIVE | Pin.STATE:
                return True

    @property
    def blocked_by_hold(self) -> bool:
        """Whether sends are refused because of a hold."""
        return self.pinned.verdict is Decision.REFUSE and self.pinned.pin is Pin.HOLD

    @property
    def goes_on(self) -> bool:
        """Whether the next turn has work that need not wait for anything."""
        if self._active:
            return not self._looked_end or self._looked_end <= self._ledger.journal.durable
        return self.removal.goes_on or self._judging is not None

    def _take_note(self, now_us: int, found: Judgement) -> None:
        end = self._end()
        if found.pin is not self.pinned.pin or end != self._pinned_end:
            self.pinned_since_us, self._pinned_end = now_us, end
        self.pinned = found
        self._ledger.room.block(blocked=found.verdict is Decision.REFUSE)

    def _judge(
        self, now_us: int, free: int, total: int, may_go_on: Callable[[], bool]
    ) -> Judgement | None:
        """Return the judgement of the oldest segment; None: call again in the next turn.

        A turn judges some thousand queues, until one keeps the segment. A finding stays true until
        a group is reset or starts again (``Ledger.rewinds`` counts these): otherwise groups only
        move forward.
        """
        journal = self._ledger.journal
        end = self._end()
        if end > journal.durable or end >= journal.end:
            return Judgement(Decision.KEEP, Pin.ACTIVE)
        pressure = self._ledger.room.used_up or under_pressure(
            self.spec, journal.end - journal.first, free, total
        )
        self._looked_us, self._pressure = now_us, pressure
        number = journal.first // journal.segment_size
        keep = Decision.REFUSE if pressure else Decision.KEEP
        if self._ledger.views.undecided.pins(number):
            self._judging = None
            return Judgement(keep, Pin.TRANSACTION)
        kept_ahead = None if pressure else self._kept_ahead(now_us)
        if kept_ahead is not None:
            self._judging = None
            return Judgement(keep, kept_ahead)
        removable = end <= self._writer.removable_below()
        if self._judging is None:
            self._rewinds = self._ledger.rewinds
            if not removable and self._free_of_others == (end, self._rewinds, pressure):
                return self._only_state(now_us, end, pressure=pressure)
            self._judging = iter(list(self._ledger.index.coverage.queues))
        for piece in range(JUDGED_A_STEP):
            if piece and not may_go_on():
                return None
            keys = self._next_queues(self._judging)
            found = self._asked(keys, now_us, pressure=pressure)
            if found.verdict is not Decision.REMOVE:
                self._judging = None
                return found
            if not keys:
                self._judging = None
                if removable:
                    return found
                self._free_of_others = end, self._rewinds, pressure
                return self._only_state(now_us, end, pressure=pressure)
        return None

    def _kept_ahead(self, now_us: int) -> Pin | None:
        """Return which rows that are no messages yet keep the oldest segment for now, if any do.

        They are copied before it is removed. Without this time, rows that become messages much
        later would be copied again and again on a broker that has nothing else to store.
        """
        journal, views = self._ledger.journal, self._ledger.views
        number = journal.first // journal.segment_size
        if views.schedule.pins(number):
            pin = Pin.SCHEDULE
        elif views.checked.pins(number):
            pin = Pin.CHECK_BACK
        else:
            return None
        return pin if now_us - self._last_us() < COPIED_AFTER_US else None

    def _asked(self, keys: list[int], now_us: int, *, pressure: bool) -> Judgement:
        """Return the judgement that follows from some queues and from the holds."""
        return judge(
            self,
            self._shares_of(keys),
            end=self._end(),
            last_us=self._last_us(),
            held_from=self._ledger.views.lowest_hold,
            now_us=now_us,
            pressure=pressure,
        )

    def _next_queues(self, left: Iterator[int]) -> list[int]:
        """Return the queues that are judged next; empty at the end."""
        topics = self._ledger.views.catalog.topics
        keys: list[int] = []
        weight = 0
        for key in left:
            topic = topics.get(key >> 32)
            keys.append(key)
            weight += 1 + (len(topic.subscriptions) // GROUPS_A_SHARE if topic is not None else 0)
            if weight >= SHARES_A_LOOK:
                break
        return keys

    def _only_state(self, now_us: int, end: int, *, pressure: bool) -> Judgement:
        """Request that the state is written again behind the oldest segment."""
        if pressure or not self._futile:
            self.refreshing.want(now_us, end, at_once=pressure)
        return Judgement(Decision.KEEP, Pin.STATE)

    def _last_us(self) -> int:
        """Return when the newest message of the oldest segment was stored."""
        ledger = self._ledger
        number = ledger.journal.first // ledger.journal.segment_size
        return max(
            ledger.index.coverage.last_time_us(ledger.journal.first),
            ledger.views.prepared_rows.last_us(number),
        )

    def _owed(self, progress: Progress, shard: int) -> list[OwedRow]:
        """Return the rows of a shard that would lose their content or their history."""
        return self._copied.owed(progress, shard, self._boundary(progress), self._end())

    def _end(self) -> int:
        """Return where the oldest segment ends."""
        journal = self._ledger.journal
        return journal.first + journal.segment_size

    def _boundary(self, progress: Progress) -> int:
        """Return the queue's first offset without the segment: below it, only copies are left."""
        journal = self._ledger.journal
        topic = self._ledger.views.catalog.topics.get(progress.topic)
        if topic is None:
            return 0
        key = progress.topic << 32 | progress.queue
        number = journal.first // journal.segment_size
        index = self._ledger.index
        segments = index.coverage.segments_of(key)
        if segments is not None:
            at = bisect_right(segments.numbers, number)
            if at < len(segments.numbers):
                above = self._ledger.views.prepared_rows.stop(
                    number, progress.topic, progress.queue
                )
                floor = 0 if index.floor_of is None else index.floor_of(key)
                return max(segments.first_offsets[at], above, floor)
        return topic.queues[progress.queue].next

    def _write(self, now_us: int, progress: Progress) -> None:
        """Write one MOVED record of the next rows, as many as fit.

        The failures known to every group are stored with a row's content: once this copy exists,
        the other groups do not copy the row again, and the records of its failures may be removed.
        A row that needs more than a step's bytes gets a record of its own; failures beyond
        ``TOLD_BYTES`` go into the next record (if that one is lost in a crash, ``Copied`` finds
        that they are missing).
        """
        ledger = self._ledger
        pieces: list[Piece] = []
        failures: list[MovedFailure] = []
        room = ledger.journal.max_body - moved.HEAD.size
        left = min(BYTES_A_STEP, room)
        rest: list[tuple[Progress, int]] = []
        done = 0
        others = self._others(progress)
        rows = max(1, ROWS_A_STEP * 8 // max(8, len(others)))
        for row in self._rows[:rows]:
            still = owed_row(progress, row.offset)
            piece = self._piece(progress, row.offset) if still is not None and row.content else None
            told: list[tuple[Progress, Owed]] = []
            if still is not None and still.position:
                told.append((progress, still))
            if piece is not None:
                told += [(other, one) for other in others if (one := told_row(other, row.offset))]
            known = [self._failure(*one) for one in told]
            size = sum([one.body_bytes for one in known]) + (piece.body_bytes if piece else 0)
            alone = size > left
            if alone:
                if pieces or failures:
                    break
                left = min(room, TOLD_BYTES + (piece.body_bytes if piece else 0))
            done += 1
            if piece is not None:
                pieces.append(piece)
                left -= piece.body_bytes
            for (of, one), failure in zip(told, known, strict=True):
                left -= failure.body_bytes
                if left < 0 and (pieces or failures):
                    rest.append((of, one.offset))
                else:
                    failures.append(failure)
            if alone:
                break
        self._append(now_us, progress, pieces, failures)
        del self._rows[:done]
        self._told += rest
        self.moved_rows += done

    def _write_told(self, now_us: int, progress: Progress) -> None:
        """Write one MOVED record of failures that did not fit beside their row's content."""
        failures: list[MovedFailure] = []
        left = min(BYTES_A_STEP, self._ledger.journal.max_body) - moved.HEAD.size
        done = 0
        for other, offset in self._told[:ROWS_A_STEP]:
            row = told_row(other, offset) if self._is_there(other) else None
            if row is not None:
                failure = self._failure(other, row)
                left -= failure.body_bytes
                if left < 0 and failures:
                    break
                failures.append(failure)
            done += 1
        self._append(now_us, progress, [], failures)
        del self._told[:done]

    def _append(
        self, now_us: int, progress: Progress, pieces: list[Piece], failures: list[MovedFailure]
    ) -> None:
        if pieces or failures:
            ledger = self._ledger
            fact = moved.Moved(
                progress.topic, progress.queue, tuple(_joined(pieces)), tuple(failures)
            )
            position = ledger.record(now_us, MOVED, fact)
            self._rewritten_bytes += ledger.end - position

    def _is_there(self, progress: Progress) -> bool:
        key = progress.group, progress.topic, progress.queue
        return self._ledger.views.progress.get(key) is progress

    def _others(self, progress: Progress) -> list[Progress]:
        """Return the same queue of the topic's other groups."""
        views = self._ledger.views
        topic = views.catalog.topics[progress.topic]
        keys = [(group, progress.topic, progress.queue) for group in topic.subscriptions]
        return [
            views.progress[key]
            for key in keys
            if key[0] != progress.group and key in views.progress
        ]

    def _failure(self, progress: Progress, row: Owed) -> MovedFailure:
        """Return everything that is known of a row's failures."""
        ledger = self._ledger
        entries = failure_entries(
            ledger.store, progress, row.offset, row.position, ledger.journal.first
        )
        return MovedFailure(
            progress.group, row.attempt, row.deliveries, row.offset, row.when_us, tuple(entries)
        )

    def _piece(self, progress: Progress, offset: int) -> Piece:
        """Return the row's content as a piece, with the time at which it was first stored."""
        ledger = self._ledger
        topic = ledger.views.catalog.topics[progress.topic]
        places = ledger.index.locate(progress.topic, progress.queue, offset, offset + 1, 1)
        if places.positions:
            position = places.positions[0]
            record = ledger.store.at_place(places, 0)
            stored = messages.of_record(record)
            batch, row, time_us = stored.batch, stored.row_of(offset), time_us_of(record)
        else:
            place = ledger.index.moved(progress.topic, progress.queue, offset)
            if place is None:
                raise CorruptJournal(
                    f"offset {offset} of queue {progress.queue} of topic {topic.name} is owed to a "
                    "group and kept nowhere"
                )
            position = place.position
            copy, row = moved.unpack(ledger.store.get(position)[HEADER_BYTES:]).row(place.row)
            batch, time_us = copy.batch, copy.time_us
        plain = batch
        if Batch(batch).compression is not Compression.NONE:
            if self._inflated[0] != position:
                self._inflated = position, uncompressed(batch, topic.seed)
            plain = self._inflated[1]
        piece = Piece(offset, time_us, 0, 1, slice_batch(plain, row, row + 1, topic.seed))
        if piece.body_bytes > ledger.journal.max_body - moved.HEAD.size:
            return Piece(offset, time_us, row, 1, batch)  # inflated, it fits into no segment
        return piece


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces sorted by offset, as the index requires."""
    return sorted(pieces, key=lambda piece: piece.first_offset)
