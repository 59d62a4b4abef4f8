"""A run file, read block by block through the cold cache.

In memory a run keeps its head (4 bytes for each block of 16 KiB) and two lists of fences (the first
row of each block of QUEUES and of BATCHES), so that a look-up reads one block of each. Every method
may raise ``WouldBlock``; a block with a wrong checksum raises ``DamagedBlock``, and the index has
the run rebuilt.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ternmq.journal.cache.cold import Block, ColdCache, DamagedBlock
from ternmq.journal.index import bloom, idx_file
from ternmq.journal.index.idx_file import BATCHES_PER_BLOCK, Head
from ternmq.journal.index.sums import Sums
from ternmq.journal.index.tail import (
    COMMITTED,
    Decision,
    Measure,
    Place,
    Places,
    Settlement,
    Tail,
    fitting,
    newest,
    places_of,
    settled,
)
from ternmq.model.errors import FileMissing
from ternmq.model.types import Position

_BATCH: Final = struct.Struct("<QII")
_PRODUCER: Final = struct.Struct("<QQII")
_KEY: Final = struct.Struct("<IIQI")
_ID: Final = struct.Struct("<QQIII")
_COPY: Final = struct.Struct("<QQII")  # of MOVED and of MOVED_IDS
_RESOLVED: Final = struct.Struct("<QQII")
_DECISION: Final = struct.Struct("<QII")
_MAX_ROWS_KEPT: Final = 4096

_QueueRow = tuple[int, int, int, int]
"""first_offset, next_offset, first_batch, batch_count."""


class Run:
    """One run file, a source of the index like a ``Tail``.

    Args:
        cache: The cache that its blocks are read through.
        name: Name of the file.
        head: The file's head.
        queue_keys: Key of the first row of each block of QUEUES.
        fences: The section FENCES.
        lines: The section BLOOMS.
        sums: The section SUMS.
    """

    __slots__ = (
        "_base",
        "_cache",
        "_lines",
        "_fences",
        "_queue_keys",
        "_rows",
        "_sums",
        "_totals",
        "head",
        "name",
        "start",
        "stop",
    )

    def __init__(
        self,
        cache: ColdCache,
        name: str,
        head: Head,
        queue_keys: memoryview,
        fences: memoryview,
        lines: tuple[int, int, int],
        sums: memoryview,
    ) -> None:
        self.name = name
        self.head = head
        self.start = head.start
        self.stop = head.stop
        self._base = head.base
        self._cache = cache
        self._queue_keys = queue_keys
        self._fences = fences
        self._lines = lines
        self._sums = Sums(sums, partial(self._block, idx_file.BATCHES))
        self._rows: dict[int, _QueueRow | None] = {}
        self._totals: dict[int, int] = {}

    # ------------------------------------------------------------------ queues

    def first_offset(self, key: int) -> int | None:
        """Return the queue's first offset here, None if it has no batch here."""
        row = self._queue(key)
        return None if row is None else row[0]

    def next_offset(self, key: int) -> int | None:
        """Return one above the queue's last offset here, None if it has no batch here."""
        row = self._queue(key)
        return None if row is None else row[1]

    def locate(self, key: int, start: int, stop: int, max_bytes: int) -> Places:
        """Return batches of one block that hold ``[start, stop)``; the queue has batches here."""
        row = self._queue(key)
        assert row is not None
        first_offset, end, begin, count = row
        start = max(start, first_offset)
        if start >= end or start >= stop:
            return Places((), (), (), start)
        at = self._batch_of(row, start)
        number = at // BATCHES_PER_BLOCK
        front = number * BATCHES_PER_BLOCK
        behind = min(front + BATCHES_PER_BLOCK, begin + count)
        # A batch has at least one row: at most one batch per row is needed.
        last = min(behind, at + stop - start)
        data = memoryview(self._block(idx_file.BATCHES, number))
        left, right = 2 * (at - front), 2 * (last - front)
        firsts: list[int] = data.cast("Q")[left:right:2].tolist()
        halves = data.cast("I")
        lengths: list[int] = halves[2 * left + 3 : 2 * right : 4].tolist()
        wanted = bisect_left(firsts, stop, 1)
        taken = min(wanted, fitting(lengths[:wanted], max_bytes))
        if taken < len(firsts):
            reached = firsts[taken]
        elif at + taken == begin + count:
            reached = end
        elif at + taken == behind:
            reached = self._fences[number + 1]
        else:
            reached = stop
        base = self._base
        places = halves[2 * left + 2 : 2 * (left + 2 * taken) : 4].tolist()
        visible = [base + 8 * place for place in places]
        masks = self._beside(idx_file.MASKS, number, at - front, taken)
        bodies = self._beside(idx_file.BODIES, number, at - front, taken)
        end = min(stop, reached)
        if bodies is None:
            return Places(firsts[:taken], visible, lengths[:taken], end, masks)
        return places_of(firsts[:taken], visible, bodies, lengths[:taken], end, masks)

    def _beside(self, section: int, number: int, at: int, count: int) -> list[int] | None:
        """Return a column beside some batches of a block, None if it is empty."""
        if not self.head.sections[section].length:
            return None
        column = memoryview(self._block(section, number)).cast("Q")
        found: list[int] = column[at : at + count].tolist()
        return found

    def measure(self, key: int, start: int, end: int, max_bytes: int) -> Measure:
        """Return how far ``max_bytes`` reaches in a queue with batches here; reads some blocks."""
        row = self._queue(key)
        assert row is not None
        first_offset, next_offset, begin, count = row
        start, whole = max(start, first_offset), end >= next_offset
        end = min(end, next_offset)
        if start >= end:
            return Measure(start, 0, 0)
        if whole and start == first_offset:
            total = self._whole(key, row)
            if total <= max_bytes:
                return Measure(end, total, total)
        first = self._batch_of(row, start)
        last = begin + count if whole else self._batch_of(row, end)
        if last == first:
            last += 1  # the batch goes on behind ``end``
        sums = self._sums
        before = sums.before(first)
        total = sums.before(last) - before
        if total <= max_bytes:
            return Measure(end, total, total)
        taken = sums.fitting(before + max_bytes)
        if taken <= first:
            return Measure(start, 0, total)
        return Measure(self._batch(taken)[0], sums.before(taken) - before, total)

    def _whole(self, key: int, row: _QueueRow) -> int:
        """Return the bytes of all batches of a queue here; kept, so that they are read once."""
        total = self._totals.get(key)
        if total is None:
            _, _, begin, count = row
            total = self._sums.before(begin + count) - self._sums.before(begin)
            if len(self._totals) >= _MAX_ROWS_KEPT:
                self._totals.clear()
            self._totals[key] = total
        return total

    def visible(self, key: int, mark: int) -> int | None:
        """Return the queue's next offset below ``mark``, None if no batch here is below it."""
        row = self._queue(key)
        if row is None:
            return None
        _, end, begin, count = row
        place = (mark - self._base + 7) >> 3
        at = bisect_left(
            range(begin, begin + count), place, key=lambda index: self._batch(index)[1]
        )
        if at == count:
            return end
        return self._batch(begin + at)[0] if at else None

    def _batch_of(self, row: _QueueRow, offset: int) -> int:
        """Return the number of the batch that holds an offset of the queue of ``row``."""
        first_offset, end, begin, count = row
        # The same bounds as in ``QueueTail.locate``: for singles they meet.
        low = begin + max(0, count - (end - offset))
        high = begin + min(count, offset - first_offset + 1)
        if high - low > 1:
            block = (
                bisect_right(
                    self._fences,
                    offset,
                    low // BATCHES_PER_BLOCK + 1,
                    (high - 1) // BATCHES_PER_BLOCK + 1,
                )
                - 1
            )
            low = max(low, block * BATCHES_PER_BLOCK)
            high = min(high, (block + 1) * BATCHES_PER_BLOCK)
            firsts = memoryview(self._block(idx_file.BATCHES, block)).cast("Q")
            front = block * BATCHES_PER_BLOCK
            low += (
                bisect_right(range(low, high), offset, key=lambda at: firsts[2 * (at - front)]) - 1
            )
        return low

    def _batch(self, index: int) -> tuple[int, int, int]:
        """Return first offset, place and length of a batch."""
        first_offset, place, length = self._row(idx_file.BATCHES, index, _BATCH)
        return first_offset, place, length

    def _queue(self, key: int) -> _QueueRow | None:
        rows = self._rows
        if key in rows:
            return rows[key]
        found: _QueueRow | None = None
        block = bisect_right(self._queue_keys, key) - 1
        if block >= 0:
            data = self._block(idx_file.QUEUES, block)
            column = memoryview(data).cast("Q")
            at = bisect_left(range(0, len(column), 4), key, key=column.__getitem__)
            if 4 * at < len(column) and column[4 * at] == key:
                _, first_offset, end, begin, count = idx_file.QUEUE_ROW.unpack_from(data, 32 * at)
                found = (first_offset, end, begin, count)
        if len(rows) >= _MAX_ROWS_KEPT:
            rows.clear()
        rows[key] = found
        return found

    # ------------------------------------------------------------------ look-ups

    def message_id(self, producer: int, sequence: int) -> list[Place]:
        """Return the places of a message id, newest first."""
        if not self._may_hold(0, bloom.entry(0, producer)):
            return []
        places = list(self._copies(idx_file.MOVED_IDS, producer, sequence))
        wanted = (producer, sequence + 1)
        at = self._first(idx_file.PRODUCERS, _PRODUCER, lambda row: (row[0], row[1]) >= wanted)
        if at:
            found, first, rows, place = self._row(idx_file.PRODUCERS, at - 1, _PRODUCER)
            if found == producer and sequence < first + rows:
                places.append(Place(Position(self._base + 8 * place), sequence - first))
        return sorted(places, key=newest, reverse=True)

    def key(self, topic: int, hashed: int, before: Position) -> Iterator[Place]:
        """Yield the rows whose key has this hash in records below ``before``, newest first."""
        if self._may_hold(1, bloom.entry(topic, hashed)):
            wanted = (topic, hashed)
            end = (*wanted, (before - self._base + 7) // 8)
            stop = self._first(idx_file.KEYS, _KEY, lambda row: (row[0], row[2], row[1]) >= end)
            for index in range(stop - 1, -1, -1):
                found, place, value, row = self._row(idx_file.KEYS, index, _KEY)
                if (found, value) != wanted:
                    return
                yield Place(Position(self._base + 8 * place), row)

    def application_id(self, topic: int, low: int, high: int) -> Iterator[Place]:
        """Yield the rows whose application id has this hash, newest first."""
        if self._may_hold(2, bloom.entry(topic, low)):
            wanted = (topic, low, high)
            stop = self._first(idx_file.IDS, _ID, lambda row: (row[2], row[0], row[1]) > wanted)
            for index in range(stop - 1, -1, -1):
                found_low, found_high, found, place, row = self._row(idx_file.IDS, index, _ID)
                if (found, found_low, found_high) != wanted:
                    return
                yield Place(Position(self._base + 8 * place), row)

    def moved(self, key: int, offset: int) -> Iterator[Place]:
        """Yield the copies of a moved row, newest first."""
        return self._copies(idx_file.MOVED, key, offset)

    def newest_copies(self, key: int, start: int, stop: int) -> dict[int, Position]:
        """Return the MOVED record with the newest copy of each offset in ``[start, stop)``."""
        found: dict[int, Position] = {}
        section = self.head.sections[idx_file.MOVED]
        if not section.length:
            return found
        first, end = (key, start), (key, stop)
        at = self._first(idx_file.MOVED, _COPY, lambda row: (row[0], row[1]) >= first)
        for index in range(at, section.rows):
            high, offset, place, _ = self._row(idx_file.MOVED, index, _COPY)
            if (high, offset) >= end:
                break
            found[offset] = Position(self._base + 8 * place)  # the newest is last
        return found

    def settlement(self, position: int) -> Settlement | None:
        """Return the outcome of the PREPARED at ``position``, None if no RESOLVED here names it."""
        if self.head.sections[idx_file.RESOLVED].length:
            at = self._first(idx_file.RESOLVED, _RESOLVED, lambda row: row[0] > position)
            if at:
                found, first_offset, place, _ = self._row(idx_file.RESOLVED, at - 1, _RESOLVED)
                if found == position:
                    return settled(first_offset, self._base + 8 * place)
        return None

    def decision(self, number: int) -> Decision | None:
        """Return the decision on a transaction with check-back, None if no RESOLVED here is it."""
        if not self.head.first_decided <= number <= self.head.last_decided:
            return None
        at = self._first(idx_file.DECISIONS, _DECISION, lambda row: row[0] > number)
        if at:
            found, place, flags = self._row(idx_file.DECISIONS, at - 1, _DECISION)
            if found == number:
                return Decision(bool(flags & COMMITTED), Position(self._base + 8 * place))
        return None

    def _copies(self, number: int, high: int, low: int) -> Iterator[Place]:
        """Yield the places under two numbers in a section of copies, newest first."""
        if self.head.sections[number].length:
            wanted = (high, low)
            stop = self._first(number, _COPY, lambda row: (row[0], row[1]) > wanted)
            for index in range(stop - 1, -1, -1):
                found_high, found_low, place, row = self._row(number, index, _COPY)
                if (found_high, found_low) != wanted:
                    return
                yield Place(Position(self._base + 8 * place), row)

    def _may_hold(self, which: int, hashed: int) -> bool:
        lines = self._lines[which]
        if not lines:
            return False
        line = sum(self._lines[:which]) + bloom.line_of(hashed, lines)
        section = self.head.sections[idx_file.BLOOM]
        block, at = divmod(line * bloom.LINE_BYTES, section.block_bytes)
        data = self._block(idx_file.BLOOM, block)
        return bloom.may_hold(data[at : at + bloom.LINE_BYTES], hashed)

    def _first(
        self, number: int, layout: struct.Struct, beyond: Callable[[tuple[int, ...]], bool]
    ) -> int:
        """Return the number of the first row for which ``beyond`` is true; the rows are sorted."""
        low, high = 0, self.head.sections[number].rows
        while low < high:
            middle = (low + high) // 2
            if beyond(self._row(number, middle, layout)):
                high = middle
            else:
                low = middle + 1
        return low

    # ------------------------------------------------------------------ blocks

    def _row(self, number: int, index: int, layout: struct.Struct) -> tuple[int, ...]:
        section = self.head.sections[number]
        block, at = divmod(index * section.row_bytes, section.block_bytes)
        return layout.unpack_from(self._block(number, block), at)

    def _block(self, number: int, block: int) -> bytes:
        section = self.head.sections[number]
        at = block * section.block_bytes
        data = self._cache.kept(self.name, section.offset + at, 1)
        if data is not None:
            return data
        wanted = Block(
            self.name,
            section.offset + at,
            min(section.block_bytes, section.length - at),
            self.head.block_crcs[section.first_block + block],
        )
        try:
            return self._cache.read(wanted)
        except FileMissing as error:  # removed from outside: handled like damage
            raise DamagedBlock(self.name, wanted.at) from error


Source = Run | Tail
"""A part of the index that covers a stretch of the journal."""


Rebuild = Callable[[Position, Position], Tail]
"""Reads positions ``[start, stop)`` of the journal and returns the tail of them."""
