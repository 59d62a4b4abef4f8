"""The positions of every queue's messages in the journal: a cache derived from its records.

MESSAGES records are added to the live tail by ``add``; MOVED, PREPARED, SCHEDULED and RESOLVED by
methods of their own. Older positions are looked up in frozen tails and run files, which
``coverage`` manages. Per queue the index keeps the segments that hold its messages, with the first
offset in each: 12 bytes apiece. Nothing here is ever synced: a run file is used only if its
checksums and the journal's chain confirm it (``open``), else it is rebuilt.

Reads of run files may raise ``WouldBlock``; they have no effect, so the caller runs the job and
calls again. Called from one thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from ternmq.journal.cache.cold import ColdCache, DamagedBlock, WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.batch_facts import CopyFacts
from ternmq.journal.index.coverage import Coverage
from ternmq.journal.index.feed import read_tail
from ternmq.journal.index.run import Run, Source
from ternmq.journal.index.tail import (
    COMMITTED,
    ENTRY_BIT,
    Decision,
    Measure,
    Place,
    Places,
    QueueTail,
    Settlement,
    Tail,
)
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.fact.transactions import DuePart, Part

__all__ = ["Index", "Place", "Places", "WouldBlock"]


class Index:
    """Finds batches by topic, queue and offset, and rows by message id, key or application id.

    Made by ``open.open_index``, or directly for an empty journal.

    Attributes:
        coverage: The tails and run files that it looks things up in.

    Args:
        disk: The data root.
        segment_size: Bytes of a segment.
        start: Position from which records will be added.
        cache: The cache that the record store uses too; None makes a new one.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size: int,
        start: Position = Position(0),
        cache: ColdCache | None = None,
    ) -> None:
        self.coverage = Coverage(
            disk,
            segment_size=segment_size,
            start=start,
            cache=ColdCache(disk) if cache is None else cache,
            rebuild=self.rebuild_tail,
        )
        self.floor_of: Callable[[int], int] | None = None
        """Returns, by queue, an offset below which its prepared rows were in removed segments, 0 if
        none were: ``segments_of`` may give a smaller first offset. None while no queue needs it.
        Set by `broker.transaction.preparedrows`."""

    @property
    def tail(self) -> Tail:
        """The tail that records are added to; records below its ``start`` are not to be added."""
        return self.coverage.live

    def rebuild_tail(self, start: Position, stop: Position) -> Tail:
        """Return the tail of some positions, read from the journal; see ``read_tail``."""
        disk, segment_size = self.coverage.disk, self.coverage.segment_size
        fresh = Index(disk, segment_size=segment_size, start=start)
        return read_tail(fresh, disk, start, stop, segment_size=segment_size)

    # ------------------------------------------------------------------ the hot path

    def add(
        self,
        topic: int,
        queue: int,
        first_offset: int,
        count: int,
        position: int,
        length: int,
        tag_mask: int,
        producer_id: int,
        first_sequence: int,
        key_hashes: bytes,
        ids: bytes,
        time_us: int,
        rows: int = 0,
    ) -> None:
        """Add a MESSAGES record. Records come in the order of the journal; below 1 us.

        Args:
            topic: Topic number.
            queue: Queue number.
            first_offset: Offset of the first row that is a message.
            count: Number of rows that are messages.
            position: Position of the record.
            length: Bytes of the record, header and padding included.
            tag_mask: Bloom of the batch's tags; 0 when it has none.
            producer_id: From the batch.
            first_sequence: From the batch.
            key_hashes: u64 per row of the batch, 0 for a row without key; empty when no row has
                one.
            ids: Hashes of application ids: u128 (low, high) per row, likewise.
            time_us: Broker time of the record.
            rows: Number of rows of the batch if some of them were left out, else 0.
        """
        coverage = self.coverage
        if position >= coverage.limit:
            coverage.roll(position)
        key = topic << 32 | queue
        tail = coverage.tails.get(key)
        if tail is None:
            tail = self._new_queue(key, first_offset, time_us)
        tail.first_offsets.append(first_offset)
        tail.positions.append(position)
        tail.lengths.append(length)
        tail.next_offset = first_offset + count
        masks = tail.masks
        if masks is not None:
            masks.append(tag_mask)
        elif tag_mask:
            tail.masks = array("Q", bytes(8 * (len(tail.lengths) - 1)))
            tail.masks.append(tag_mask)
        if tail.bodies is not None:
            tail.bodies.append(0)
        live = coverage.live
        live.producers.append(producer_id)
        live.sequences.append(first_sequence)
        live.counts.append(rows or count)
        live.positions.append(position)
        live.last_time_us = time_us
        if key_hashes:
            live.keys.add(topic, position, key_hashes)
        if ids:
            live.ids.add(topic, position, ids)

    def note_fulfilled(self) -> None:
        """Note that the record added last holds rows that are in an earlier one, too.

        A MESSAGES with FULFILS, or a SCHEDULED or PREPARED that is a copy: it may hold a part of a
        batch, so its sequences may overlap those of others.
        """
        live = self.coverage.live
        live.fulfilled.append(len(live.producers) - 1)

    def add_moved(self, copies: CopyFacts, position: int, time_us: int) -> None:
        """Add a MOVED record, in the order of the journal."""
        if not copies.offsets:
            return
        if position >= self.coverage.limit:
            self.coverage.roll(position)
        live = self.coverage.live
        live.add_copies(position, copies)
        live.first_time_us = live.first_time_us or time_us
        live.last_time_us = time_us
        if copies.key_hashes:
            live.keys.add(copies.topic, position, copies.key_hashes)
        if copies.ids:
            live.ids.add(copies.topic, position, copies.ids)

    def add_unseen(
        self,
        topic: int,
        count: int,
        position: int,
        producer_id: int,
        first_sequence: int,
        key_hashes: bytes,
        ids: bytes,
        time_us: int,
    ) -> None:
        """Add a PREPARED or SCHEDULED record, in the order of the journal; arguments as of ``add``.

        Its rows are found by id or key, but they are no messages yet: rows of a PREPARED are if
        ``settlement`` returns their offset, rows of a SCHEDULED are stored again when they are due.
        """
        if position >= self.coverage.limit:
            self.coverage.roll(position)
        live = self.coverage.live
        live.producers.append(producer_id)
        live.sequences.append(first_sequence)
        live.counts.append(count)
        live.positions.append(position)
        live.first_time_us = live.first_time_us or time_us
        live.last_time_us = time_us
        if key_hashes:
            live.keys.add(topic, position, key_hashes)
        if ids:
            live.ids.add(topic, position, ids)

    def add_resolved(
        self,
        position: int,
        time_us: int,
        parts: Sequence[Part],
        dropped: Sequence[int],
        due: Sequence[DuePart] = (),
        checked: int = 0,
        *,
        committed: bool = False,
    ) -> None:
        """Add a RESOLVED record, in the order of the journal; about 1 us for each PREPARED.

        Args:
            position: Position of the record.
            time_us: Its broker time.
            parts: See ``Resolved``.
            dropped: See ``Resolved``.
            due: See ``Resolved``.
            checked: Number of a transaction with check-back, which is found by it; 0: another one.
            committed: Whether that was committed.
        """
        if position >= self.coverage.limit:
            self.coverage.roll(position)
        live = self.coverage.live
        for body, first_offset, tag_mask, topic, queue, count, length in parts:
            key = topic << 32 | queue
            tail = self.coverage.tails.get(key)
            if tail is None:
                tail = self._new_queue(key, first_offset, time_us)
            bodies = tail.bodies
            if bodies is None:
                bodies = tail.bodies = array("Q", bytes(8 * len(tail.lengths)))
            bodies.append(body)
            tail.first_offsets.append(first_offset)
            tail.positions.append(position)
            tail.lengths.append(length)
            tail.next_offset = first_offset + count
            if tail.masks is not None:
                tail.masks.append(tag_mask)
            elif tag_mask:
                tail.masks = array("Q", bytes(8 * (len(tail.lengths) - 1)))
                tail.masks.append(tag_mask)
            live.prepared.append(body)
            live.prepared_offsets.append(first_offset)
            live.prepared_at.append(position)
        for body in dropped:
            live.prepared.append(body)
            live.prepared_offsets.append(NO_POSITION)
            live.prepared_at.append(position)
        for part in due:
            live.prepared.append(part.position)
            live.prepared_offsets.append(part.first_entry | ENTRY_BIT)
            live.prepared_at.append(position)
        if checked:
            live.decided.append(checked)
            live.decided_at.append(position)
            live.decided_flags.append(COMMITTED if committed else 0)
        if parts:
            live.last_time_us = time_us

    def locate(self, topic: int, queue: int, start: int, stop: int, max_bytes: int) -> Places:
        """Return the batches that hold the rows ``[start, stop)`` of a queue.

        At least one batch is returned if there is one, more only while their lengths sum up to at
        most ``max_bytes``, and only from one source: ``Places.stop`` is the offset reached. Takes
        below 1 us for 32 batches of one row in the live tail.

        Raises:
            WouldBlock: A run file must be read.
        """
        key = topic << 32 | queue
        if self.floor_of is not None:
            floor = self.floor_of(key)
            if start < floor:
                return Places((), (), (), min(stop, floor))
        tail = self.coverage.tails.get(key)
        if tail is None or start < tail.first_offsets[0]:
            return self._locate_cold(key, start, stop, max_bytes)
        return tail.locate(start, stop, max_bytes)

    def measure(self, topic: int, queue: int, start: int, end: int, max_bytes: int) -> Measure:
        """Return how far ``max_bytes`` of records reach, and the bytes of ``[start, end)``.

        The records of the rows below ``Measure.stop`` have at most ``max_bytes``, but at least one
        record is counted. O(segments): some blocks of each run file are read.

        Raises:
            WouldBlock: A run file must be read.
        """
        if self.coverage.mended:
            self.coverage.take_mended()
        key = topic << 32 | queue
        segments = self.coverage.segments_of(key)
        if segments is None or start >= end:
            return Measure(start, 0, 0)
        at = max(0, bisect_right(segments.first_offsets, start) - 1)
        place, stop, taken, total = start, -1, 0, 0
        try:
            for number in segments.numbers[at:]:
                for source in self.coverage.sources(number):
                    next_offset = source.next_offset(key)
                    if next_offset is None or next_offset <= place:
                        continue
                    found = source.measure(key, place, end, max(0, max_bytes - taken))
                    total += found.bytes
                    upto = min(next_offset, end)
                    if stop < 0:
                        taken += found.stop_bytes
                        if found.stop < upto:
                            stop = found.stop
                    place = upto
                    if place >= end:
                        break
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        stop = place if stop < 0 else stop
        if stop <= start < place:
            one = self.locate(topic, queue, start, end, 1)  # one record is more than was allowed
            return Measure(one.stop, one.lengths[0], total)
        return Measure(stop, taken, total)

    def visible(self, topic: int, queue: int, mark: int) -> int:
        """Return the queue's next offset, counting only records below the position ``mark``.

        0 when the index holds no batch of the queue.

        Raises:
            WouldBlock: A run file must be read.
        """
        key = topic << 32 | queue
        tail = self.coverage.tails.get(key)
        if tail is not None:
            if tail.positions[-1] < mark:
                return tail.next_offset
            below = tail.visible(mark)
            if below is not None:
                return below
        return self._visible_cold(key, mark)

    def first_offset(self, topic: int, queue: int) -> int | None:
        """Return the oldest offset kept, None if there is none; copies in MOVED do not count."""
        key = topic << 32 | queue
        segments = self.coverage.segments_of(key)
        if segments is None:
            return None
        first = segments.first_offsets[0]
        return first if self.floor_of is None else max(first, self.floor_of(key))

    def _new_queue(self, key: int, first_offset: int, time_us: int) -> QueueTail:
        """Return the tail of a queue that has none yet since the last cut."""
        if not self.coverage.live.first_time_us:
            self.coverage.live.first_time_us = time_us
        self.coverage.register(key, self.coverage.number, first_offset)
        tail = self.coverage.tails[key] = QueueTail()
        return tail

    # ------------------------------------------------------------------ older than the live tail

    def _locate_cold(self, key: int, start: int, stop: int, max_bytes: int) -> Places:
        if self.coverage.mended:
            self.coverage.take_mended()
        segments = self.coverage.segments_of(key)
        if segments is None:
            return Places((), (), (), start)
        at = bisect_right(segments.first_offsets, start) - 1
        if at < 0:
            # Its segment was removed: nothing is kept below the first offset.
            return Places((), (), (), min(stop, segments.first_offsets[0]))
        try:
            for source in self.coverage.sources(segments.numbers[at]):
                end = source.next_offset(key)
                if end is not None and end > start:
                    return source.locate(key, start, stop, max_bytes)
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return Places((), (), (), start)

    def _visible_cold(self, key: int, mark: int) -> int:
        if self.coverage.mended:
            self.coverage.take_mended()
        segments = self.coverage.segments_of(key)
        if segments is None:
            return 0
        try:
            for number in reversed(segments.numbers):
                for source in reversed(self.coverage.sources(number)):
                    if source.start < mark:
                        whole = source is not self.coverage.live and source.stop <= mark
                        found = source.next_offset(key) if whole else source.visible(key, mark)
                        if found is not None:
                            return found
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return segments.first_offsets[0]

    # ------------------------------------------------------------------ look-ups (see ``lookup``)
    #
    # A message may be in several records: the one it was stored with, and MOVED records, which hold
    # copies. Places come newest first, so the newest copy comes before what it was made from.

    def by_message_id(self, producer: int, sequence: int) -> Iterator[Place]:
        """Yield the places of a message id, newest first.

        Raises:
            WouldBlock: A run file must be read.
        """
        try:
            for source in self.coverage.newest_first():
                yield from source.message_id(producer, sequence)
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error

    def by_key(
        self, topic: int, hashed: int, since_us: int, until_us: int, before: Position = NO_POSITION
    ) -> Iterator[Place]:
        """Yield rows whose key has this hash, newest first, in records below ``before``.

        Only sources whose times overlap ``[since_us, until_us)`` are searched; the caller checks
        the records' own times and the keys themselves.

        Raises:
            WouldBlock: A run file must be read.
        """
        try:
            for source in self.coverage.newest_first():
                first_us, last_us = times(source)
                if source.start < before and first_us < until_us and last_us >= since_us:
                    yield from source.key(topic, hashed, before)
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error

    def by_application_id(self, topic: int, low: int, high: int) -> Iterator[Place]:
        """Yield rows whose application id has this hash, newest first.

        Raises:
            WouldBlock: A run file must be read.
        """
        try:
            for source in self.coverage.newest_first():
                yield from source.application_id(topic, low, high)
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error

    def settlement(self, position: int) -> Settlement | None:
        """Return the outcome of the PREPARED at ``position``, None while it is undecided.

        Sources are searched from that position on: the RESOLVED is usually near.

        Raises:
            WouldBlock: A run file must be read.
        """
        if self.coverage.mended:
            self.coverage.take_mended()
        try:
            for number in range(position // self.coverage.segment_size, self.coverage.number + 1):
                for source in self.coverage.sources(number):
                    if source is self.coverage.live or source.stop > position:
                        found = source.settlement(position)
                        if found is not None:
                            return found
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return None

    def decision(self, number: int) -> Decision | None:
        """Return the decision on a transaction with check-back; None if none is in the journal.

        Only run files that may have it are read: usually one, as numbers ascend.

        Raises:
            WouldBlock: A run file must be read.
        """
        try:
            for source in self.coverage.newest_first():
                found = source.decision(number)
                if found is not None:
                    return found
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return None

    def moved(self, topic: int, queue: int, offset: int) -> Place | None:
        """Return the place of an offset's newest copy in a MOVED record, None if there is none.

        Raises:
            WouldBlock: A run file must be read.
        """
        return next(self.copies(topic, queue, offset), None)

    def newest_copies(self, topic: int, queue: int, offsets: Sequence[int]) -> dict[int, Position]:
        """Return offset -> position of the newest MOVED record with a copy of it.

        Offsets without a copy are left out. For offsets that lie together: every source is read
        once, from the lowest offset to the highest; ``moved`` would search it for every offset.

        Raises:
            WouldBlock: A run file must be read.
        """
        found: dict[int, Position] = {}
        if not offsets:
            return found
        left = set(offsets)
        start, stop = min(left), max(left) + 1
        try:
            for source in self.coverage.newest_first():
                for offset, position in source.newest_copies(
                    topic << 32 | queue, start, stop
                ).items():
                    if offset in left:
                        left.remove(offset)
                        found[offset] = position
                if not left:
                    break
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return found

    def copied(self, topic: int, queue: int, start: int, stop: int) -> set[int]:
        """Return the offsets of ``[start, stop)`` of which a MOVED record has a copy.

        Raises:
            WouldBlock: A run file must be read.
        """
        found: set[int] = set()
        try:
            for source in self.coverage.newest_first():
                found.update(source.newest_copies(topic << 32 | queue, start, stop))
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error
        return found

    def copies(
        self, topic: int, queue: int, offset: int, above: Position = Position(0)
    ) -> Iterator[Place]:
        """Yield the places of an offset's copies in MOVED records, newest first.

        Only sources that reach beyond ``above`` are searched.

        Raises:
            WouldBlock: A run file must be read.
        """
        try:
            for source in self.coverage.newest_first():
                if source is not self.coverage.live and source.stop <= above:
                    return
                yield from source.moved(topic << 32 | queue, offset)
        except DamagedBlock as error:
            raise self.coverage.mend(error) from error


def times(source: Source) -> tuple[int, int]:
    """Return the broker times of a source's first and last indexed record, zeros if it has none."""
    one = source.head if isinstance(source, Run) else source
    return one.first_time_us, one.last_time_us
