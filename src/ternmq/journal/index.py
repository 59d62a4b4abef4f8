"""Where the messages of every queue stand in the journal: a cache derived from its records.

Every record of messages enters the live tail through ``add``, MOVED, PREPARED and RESOLVED through
methods of their own; older positions are answered by frozen tails and run files, whose life is told
in ``coverage``. Per queue the index keeps the segments that hold its messages, with the first
offset in each: 12 bytes apiece. Nothing here is ever synced: a run file proves itself by its
checksums and by the journal's chain (``index_open``), or is rebuilt.

Reads of run files may raise ``WouldBlock``; they have no effect, so the caller runs the job and
asks again. Called from one thread.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ternmq.journal.batch_facts import CopyFacts
from ternmq.journal.cold import DamagedBlock, WouldBlock
from ternmq.journal.coverage import Coverage
from ternmq.journal.run import Run
from ternmq.journal.run_jobs import Source
from ternmq.journal.tail import Measure, Place, Places, QueueTail, Settlement
from ternmq.model.types import NO_POSITION, Position
from ternmq.record.transactions import Part

__all__ = ["Index", "Place", "Places", "WouldBlock"]


class Index(Coverage):
    """Finds batches by topic, queue and offset, and records by what else they are looked up by.

    Made by ``index_open.open_index``, or for an empty journal directly; see ``Coverage`` for
    arguments.
    """

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
        """Take in a MESSAGES record. Records come in the order of the journal; below 1 us.

        Args:
            topic: Topic number.
            queue: Queue number.
            first_offset: Of the first row that is a message.
            count: Rows that are messages.
            position: Of the record.
            length: Of the record, header and padding included.
            tag_mask: Bloom of the batch's tags; 0 when it has none.
            producer_id: From the batch.
            first_sequence: From the batch.
            key_hashes: u64 per row of the batch, 0 for a row without key; empty when no row has
                one.
            ids: u128 (low, high) per row, likewise.
            time_us: Of the record.
            rows: Rows of the batch when some were left out, else 0.
        """
        if position >= self._limit:
            self._roll(position)
        key = topic << 32 | queue
        tail = self._tails.get(key)
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
        live = self._live
        live.producers.append(producer_id)
        live.sequences.append(first_sequence)
        live.counts.append(rows or count)
        live.positions.append(position)
        live.last_time_us = time_us
        if key_hashes:
            live.keys.add(topic, position, key_hashes)
        if ids:
            live.ids.add(topic, position, ids)

    def add_moved(self, copies: CopyFacts, position: int, time_us: int) -> None:
        """Take in a MOVED record, in the order of the journal."""
        if not copies.offsets:
            return
        if position >= self._limit:
            self._roll(position)
        live = self._live
        live.add_copies(position, copies)
        live.first_time_us = live.first_time_us or time_us
        live.last_time_us = time_us
        if copies.key_hashes:
            live.keys.add(copies.topic, position, copies.key_hashes)
        if copies.ids:
            live.ids.add(copies.topic, position, copies.ids)

    def add_prepared(
        self,
        topic: int,
        count: int,
        position: int,
        producer_id: int,
        first_sequence: int,
        key_hashes: bytes,
        time_us: int,
    ) -> None:
        """Take in a PREPARED record, in the order of the journal; arguments as of ``add``.

        What is looked up by id or key is told by ``settlement``.
        """
        if position >= self._limit:
            self._roll(position)
        live = self._live
        live.producers.append(producer_id)
        live.sequences.append(first_sequence)
        live.counts.append(count)
        live.positions.append(position)
        live.first_time_us = live.first_time_us or time_us
        live.last_time_us = time_us
        if key_hashes:
            live.keys.add(topic, position, key_hashes)

    def add_resolved(
        self, position: int, time_us: int, parts: Sequence[Part], dropped: Sequence[int]
    ) -> None:
        """Take in a RESOLVED record, in the order of the journal; some 1 us a PREPARED."""
        if position >= self._limit:
            self._roll(position)
        live = self._live
        for body, first_offset, tag_mask, topic, queue, count, length in parts:
            key = topic << 32 | queue
            tail = self._tails.get(key)
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
        if parts:
            live.last_time_us = time_us

    def locate(self, topic: int, queue: int, start: int, stop: int, max_bytes: int) -> Places:
        """Return the batches that hold the rows ``[start, stop)`` of a queue.

        At least one batch is returned where there is one, more only while their lengths sum up to
        at most ``max_bytes``, and only as far as one source reaches: ``Places.stop`` says how far
        that is. From the live tail it takes below 1 us for 32 singles.

        Raises:
            WouldBlock: a run file must be read.
        """
        key = topic << 32 | queue
        if self.floor_of is not None:
            floor = self.floor_of(key)
            if start < floor:
                return Places((), (), (), min(stop, floor))
        tail = self._tails.get(key)
        if tail is None or start < tail.first_offsets[0]:
            return self._locate_cold(key, start, stop, max_bytes)
        return tail.locate(start, stop, max_bytes)

    def measure(self, topic: int, queue: int, start: int, end: int, max_bytes: int) -> Measure:
        """Return how far one may read, and what the records of the rows ``[start, end)`` take.

        Up to ``Measure.stop`` they have at most ``max_bytes`` together; it is one record at least.
        O(segments): some blocks of each run file are read.

        Raises:
            WouldBlock: a run file must be read.
        """
        if self.mended:
            self._take_mended()
        key = topic << 32 | queue
        segments = self.segments_of(key)
        if segments is None or start >= end:
            return Measure(start, 0, 0)
        at = max(0, bisect_right(segments.first_offsets, start) - 1)
        place, stop, taken, total = start, -1, 0, 0
        try:
            for number in segments.numbers[at:]:
                for source in self.sources(number):
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
            raise self._mend(error) from error
        stop = place if stop < 0 else stop
        if stop <= start < place:
            one = self.locate(topic, queue, start, end, 1)  # one record is more than was allowed
            return Measure(one.stop, one.lengths[0], total)
        return Measure(stop, taken, total)

    def visible(self, topic: int, queue: int, mark: int) -> int:
        """Return the queue's next offset as far as records stand below ``mark``.

        0 when the index holds no batch of the queue.

        Raises:
            WouldBlock: a run file must be read.
        """
        key = topic << 32 | queue
        tail = self._tails.get(key)
        if tail is not None:
            if tail.positions[-1] < mark:
                return tail.next_offset
            below = tail.visible(mark)
            if below is not None:
                return below
        return self._visible_cold(key, mark)

    def first_offset(self, topic: int, queue: int) -> int | None:
        """Return the oldest offset kept in order (moved rows apart), None if there is none."""
        key = topic << 32 | queue
        segments = self.segments_of(key)
        if segments is None:
            return None
        first = segments.first_offsets[0]
        return first if self.floor_of is None else max(first, self.floor_of(key))

    def _new_queue(self, key: int, first_offset: int, time_us: int) -> QueueTail:
        """Return the tail of a queue that has none yet since the last cut."""
        if not self._live.first_time_us:
            self._live.first_time_us = time_us
        self._register(key, self._number, first_offset)
        tail = self._tails[key] = QueueTail()
        return tail

    # ------------------------------------------------------------------ older than the live tail

    def _locate_cold(self, key: int, start: int, stop: int, max_bytes: int) -> Places:
        if self.mended:
            self._take_mended()
        segments = self.segments_of(key)
        if segments is None:
            return Places((), (), (), start)
        at = bisect_right(segments.first_offsets, start) - 1
        if at < 0:
            # Gone with its segment: nothing is kept below the first offset.
            return Places((), (), (), min(stop, segments.first_offsets[0]))
        try:
            for source in self.sources(segments.numbers[at]):
                end = source.next_offset(key)
                if end is not None and end > start:
                    return source.locate(key, start, stop, max_bytes)
        except DamagedBlock as error:
            raise self._mend(error) from error
        return Places((), (), (), start)

    def _visible_cold(self, key: int, mark: int) -> int:
        if self.mended:
            self._take_mended()
        segments = self.segments_of(key)
        if segments is None:
            return 0
        try:
            for number in reversed(segments.numbers):
                for source in reversed(self.sources(number)):
                    if source.start < mark:
                        whole = source is not self._live and source.stop <= mark
                        found = source.next_offset(key) if whole else source.visible(key, mark)
                        if found is not None:
                            return found
        except DamagedBlock as error:
            raise self._mend(error) from error
        return segments.first_offsets[0]

    # ------------------------------------------------------------------ look-ups (see ``lookup``)
    #
    # A message may stand in several records: where it was stored, and in MOVED records, which hold
    # copies. Places come newest first, so the newest copy is met before what it was made from.

    def by_message_id(self, producer: int, sequence: int) -> Iterator[Place]:
        """Yield the places of a message id, newest first.

        Raises:
            WouldBlock: a run file must be read.
        """
        try:
            for source in self.newest_first():
                yield from source.message_id(producer, sequence)
        except DamagedBlock as error:
            raise self._mend(error) from error

    def by_key(
        self, topic: int, hashed: int, since_us: int, until_us: int, before: Position = NO_POSITION
    ) -> Iterator[Place]:
        """Yield rows whose key has this hash, newest first, in records below ``before``.

        Only sources that hold a time of ``[since_us, until_us)`` are asked; the caller looks at the
        records' own times and at the keys themselves.

        Raises:
            WouldBlock: a run file must be read.
        """
        try:
            for source in self.newest_first():
                first_us, last_us = times(source)
                if source.start < before and first_us < until_us and last_us >= since_us:
                    yield from source.key(topic, hashed, before)
        except DamagedBlock as error:
            raise self._mend(error) from error

    def by_application_id(self, topic: int, low: int, high: int) -> Iterator[Place]:
        """Yield rows whose application id has this hash, newest first.

        Raises:
            WouldBlock: a run file must be read.
        """
        try:
            for source in self.newest_first():
                yield from source.application_id(topic, low, high)
        except DamagedBlock as error:
            raise self._mend(error) from error

    def settlement(self, position: int) -> Settlement | None:
        """Return what became of the PREPARED at ``position``, None while it is undecided.

        Sources are asked from that position on: as a rule the answer is near.

        Raises:
            WouldBlock: a run file must be read.
        """
        if self.mended:
            self._take_mended()
        try:
            for number in range(position // self.segment_size, self._number + 1):
                for source in self.sources(number):
                    if source is self._live or source.stop > position:
                        found = source.settlement(position)
                        if found is not None:
                            return found
        except DamagedBlock as error:
            raise self._mend(error) from error
        return None

    def moved(self, topic: int, queue: int, offset: int) -> Place | None:
        """Return the newest MOVED record, and the row in it, that holds a copy of an offset.

        Raises:
            WouldBlock: a run file must be read.
        """
        return next(self.copies(topic, queue, offset), None)

    def newest_copies(self, topic: int, queue: int, offsets: Sequence[int]) -> dict[int, Position]:
        """Return the newest MOVED record with a copy of each of some offsets; none: left out.

        For offsets that lie together: every source is gone through once, from the lowest to the
        highest, where ``moved`` would search each of them again for every offset.

        Raises:
            WouldBlock: a run file must be read.
        """
        found: dict[int, Position] = {}
        if not offsets:
            return found
        left = set(offsets)
        start, stop = min(left), max(left) + 1
        try:
            for source in self.newest_first():
                for offset, position in source.newest_copies(
                    topic << 32 | queue, start, stop
                ).items():
                    if offset in left:
                        left.remove(offset)
                        found[offset] = position
                if not left:
                    break
        except DamagedBlock as error:
            raise self._mend(error) from error
        return found

    def copies(
        self, topic: int, queue: int, offset: int, above: Position = Position(0)
    ) -> Iterator[Place]:
        """Yield the places of an offset's copies in MOVED records, newest first.

        Only sources that reach beyond ``above`` are asked.

        Raises:
            WouldBlock: a run file must be read.
        """
        try:
            for source in self.newest_first():
                if source is not self._live and source.stop <= above:
                    return
                yield from source.moved(topic << 32 | queue, offset)
        except DamagedBlock as error:
            raise self._mend(error) from error


def times(source: Source) -> tuple[int, int]:
    """Return the broker times of a source's first and last record of messages, zeros if none."""
    one = source.head if isinstance(source, Run) else source
    return one.first_time_us, one.last_time_us
