"""The index of the newest records, in memory: those that no run file covers yet.

A ``Tail`` covers positions ``[start, stop)`` of one segment. It is filled in the order of the
journal and then frozen: from that moment nothing changes it, so a worker thread may read it while
the caller's thread still uses it. Columns are ``array.array``: a queue with one message costs about
half a kilobyte, a further batch 20 bytes, and no object per batch is kept.

Methods that search a whole column import numpy when they are called: a broker that only listens
does not need it (`server.telemetry.late_imports` lists when it is imported).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from ternmq.journal.index.batch_facts import CopyFacts
from ternmq.model.types import NO_POSITION, Position

_STRETCH_BITS: Final = 10
ENTRY_BIT: Final = 1 << 63
"""Marks an entry in the place of an offset: the rows of a PREPARED were scheduled."""
COMMITTED: Final = 1
"""Flag of a decision."""


class Measure(NamedTuple):
    """How far a limit of bytes reaches in a queue: the result of ``Index.measure``."""

    stop: int
    """Offset up to which the records have at most the bytes allowed."""
    stop_bytes: int
    """Bytes of the records up to ``stop``."""
    bytes: int
    """Bytes of all records, to the end that was given."""


class Places(msgspec.Struct):
    """The records that hold the batches of a stretch of a queue: columns, in offset order.

    Attributes:
        first_offsets: Offset of the first row of each batch.
        positions: Position of each batch's record.
        lengths: Bytes of each record, header and padding included.
        stop: These batches hold every kept row of ``[start, stop)``; for rows from there on, call
            again. Equal to ``start`` when there is none.
        masks: Tag bloom of each batch, None when all are zero.
        resolved: Position of the RESOLVED that made the batch's rows messages, for a batch in a
            PREPARED, else 0; None when all are zero.
    """

    first_offsets: Sequence[int]
    positions: Sequence[int]
    lengths: Sequence[int]
    stop: int
    masks: Sequence[int] | None = None
    resolved: Sequence[int] | None = None

    def visible_from(self, at: int) -> int:
        """Return the position of the record that made the rows of a batch messages."""
        return (self.resolved[at] if self.resolved is not None else 0) or self.positions[at]


@dataclass(slots=True, frozen=True)
class Settlement:
    """The outcome of a PREPARED.

    Attributes:
        first_offset: Offset of its first row, None: dropped, or scheduled.
        position: Position of the RESOLVED.
        first_entry: Entry of its first row if its rows were scheduled, else None.
    """

    first_offset: int | None
    position: Position
    first_entry: int | None = None


@dataclass(slots=True, frozen=True)
class Decision:
    """The decision on a transaction with check-back.

    Attributes:
        committed: Whether it was committed; else it was rolled back.
        position: Position of the RESOLVED.
    """

    committed: bool
    position: Position


@dataclass(slots=True, frozen=True)
class Place:
    """One row: the position of its record, and its row in the record's batch or in the MOVED."""

    position: Position
    row: int


def newest(place: Place) -> tuple[int, int]:
    """Return the sort key of a place: the newest sorts last."""
    return place.position, place.row


class QueueTail:
    """The batches of one queue in a ``Tail``.

    Attributes:
        first_offsets: Offset of each batch's first row, ascending.
        positions: Position of the record that made each batch visible, never descending.
        lengths: Bytes of the record that holds each batch.
        masks: Tag bloom of each batch; None while all are zero.
        bodies: Position of the PREPARED that holds the batch, 0: the record at ``positions`` holds
            it; None while all are zero.
        next_offset: One above the last row.
    """

    __slots__ = ("bodies", "first_offsets", "lengths", "masks", "next_offset", "positions")

    def __init__(self) -> None:
        self.first_offsets = array("Q")
        self.positions = array("Q")
        self.lengths = array("I")
        self.masks: array[int] | None = None
        self.bodies: array[int] | None = None
        self.next_offset = 0

    def locate(self, start: int, stop: int, max_bytes: int) -> Places:
        """Return the batches that hold ``[start, stop)``; see ``Index.locate``.

        ``start`` is at or above the first offset.
        """
        firsts = self.first_offsets
        end = self.next_offset
        if start >= end or start >= stop:
            return Places((), (), (), start)
        size = len(firsts)
        head = firsts[0]
        if stop > end:
            stop = end
        if size == end - head:  # singles only: no need to search
            first = start - head
            last = stop - head
        else:
            # A batch has at least one row, so the batch of `start` is at most `start - head` from
            # the front and `end - start` from the back.
            low = size - end + start
            high = start - head + 1
            first = bisect_right(firsts, start, low if low > 0 else 0, min(size, high)) - 1
            last = bisect_left(firsts, stop, first + 1, min(size, first + stop - start + 1))
        if self.bodies is not None:
            return self._locate_prepared(self.bodies, first, last, stop, max_bytes)
        positions = self.positions
        lengths = self.lengths
        # The stretch of the journal from the first to the last record is an upper bound of the sum.
        if positions[last - 1] + lengths[last - 1] - positions[first] > max_bytes:
            last, stop = self._cut(first, last, stop, max_bytes)
        masks = self.masks
        return Places(
            firsts[first:last],
            positions[first:last],
            lengths[first:last],
            stop,
            None if masks is None else masks[first:last],
        )

    def _locate_prepared(
        self, bodies: array[int], first: int, last: int, stop: int, max_bytes: int
    ) -> Places:
        """Return batches of which some are in a PREPARED."""
        last, stop = self._cut(first, last, stop, max_bytes)
        masks = self.masks
        return places_of(
            self.first_offsets[first:last],
            self.positions[first:last],
            bodies[first:last],
            self.lengths[first:last],
            stop,
            None if masks is None else masks[first:last],
        )

    def _cut(self, first: int, last: int, stop: int, max_bytes: int) -> tuple[int, int]:
        """Return where the batches and the offsets end when at most ``max_bytes`` are wanted."""
        at = fitting(self.lengths[first:last], max_bytes) + first
        return (last, stop) if at == last else (at, self.first_offsets[at])

    def measure(self, start: int, end: int, max_bytes: int) -> Measure:
        """Return how far ``max_bytes`` reaches; O(batches), below 1 ns each."""
        firsts = self.first_offsets
        start, end = max(start, firsts[0]), min(end, self.next_offset)
        if start >= end:
            return Measure(start, 0, 0)
        first = bisect_right(firsts, start) - 1
        last = bisect_left(firsts, end, first + 1)
        import numpy as np  # imported here: see the head of this file

        sums = np.cumsum(np.frombuffer(self.lengths[first:last], np.uint32), dtype=np.uint64)
        total = int(sums[-1])
        if total <= max_bytes:
            return Measure(end, total, total)
        taken = int(np.searchsorted(sums, max_bytes, side="right"))
        stop = max(start, firsts[first + taken])
        return Measure(stop, int(sums[taken - 1]) if taken else 0, total)

    def visible(self, mark: int) -> int | None:
        """Return the next offset below position ``mark``, None if no batch is below it."""
        if not self.positions or self.positions[-1] < mark:
            return self.next_offset
        index = bisect_left(self.positions, mark)
        return self.first_offsets[index] if index else None


def places_of(
    first_offsets: Sequence[int],
    visible: Sequence[int],
    bodies: Sequence[int],
    lengths: Sequence[int],
    stop: int,
    masks: Sequence[int] | None,
) -> Places:
    """Return places of batches of which some are in a PREPARED; arguments as in ``QueueTail``."""
    resolved = [where if body else 0 for where, body in zip(visible, bodies, strict=True)]
    positions = [body or where for where, body in zip(visible, bodies, strict=True)]
    return Places(
        first_offsets, positions, lengths, stop, masks, resolved if any(resolved) else None
    )


def fitting(lengths: Sequence[int], max_bytes: int) -> int:
    """Return how many of the lengths, at least one, have a sum of at most ``max_bytes``."""
    total = 0
    for index, length in enumerate(lengths):
        total += length
        if total > max_bytes:
            return max(index, 1)
    return len(lengths)


class HashTail:
    """Hashes of one kind (keys, application ids) of the batches in a ``Tail``.

    Attributes:
        width: Bytes of a hash; a hash of zeros means "none".
        hashes: A hash per row, batch after batch.
        topics: Topic of each batch (or MOVED record) that has hashes.
        positions: Position of the batch's record.
        ends: End of the batch's hashes in ``hashes``, in bytes.
    """

    __slots__ = ("ends", "hashes", "positions", "topics", "width")

    def __init__(self, width: int) -> None:
        self.width = width
        self.hashes = bytearray()
        self.topics = array("I")
        self.positions = array("Q")
        self.ends = array("Q")

    def add(self, topic: int, position: int, hashes: bytes) -> None:
        """Add a batch's hashes."""
        self.hashes += hashes
        self.topics.append(topic)
        self.positions.append(position)
        self.ends.append(len(self.hashes))

    def find(self, topic: int, *words: int, before: Position = NO_POSITION) -> Iterator[Place]:
        """Yield the rows whose hash consists of these u64, newest first. O(n), about 1 ns a row.

        Only rows of records below ``before`` are searched.
        """
        import numpy as np  # imported here: see the head of this file

        records = bisect_left(self.positions, before)
        size = self.ends[records - 1] if records else 0
        columns = np.frombuffer(bytes(self.hashes[:size]), "<u8").reshape(-1, len(words))
        for index in np.flatnonzero((columns == np.array(words, np.uint64)).all(axis=1))[::-1]:
            at = bisect_right(self.ends, int(index) * self.width)
            if self.topics[at] == topic:
                begin = self.ends[at - 1] if at else 0
                yield Place(Position(self.positions[at]), int(index) - begin // self.width)


class Tail:
    """The content of the index for positions ``[start, stop)``, in memory.

    Attributes:
        base: Base of its segment.
        start: First position covered.
        stop: First position not covered; set by ``Index`` when the tail is frozen.
        queues: ``topic << 32 | queue`` -> the queue's batches.
        producers, sequences, counts, positions: Producer id, first sequence, rows (also those left
            out) and position of every batch, in journal order.
        fulfilled: Those of them, by number, that are rows of a scheduled batch that came due: parts
            of a batch that may be here, too, where batches sent by clients never overlap.
        keys: Hashes of keys.
        ids: Hashes of application ids.
        copies: ``(position, facts)`` of every MOVED record; ``add_copies`` adds them.
        prepared, prepared_offsets, prepared_at: Of every PREPARED that a RESOLVED names: its
            position, the offset of its first row (2**64-1: dropped), the RESOLVED's position.
        decided, decided_at, decided_flags: Of every RESOLVED of a transaction with check-back:
            number of the transaction, the RESOLVED's position, ``COMMITTED`` or 0.
        first_time_us: Broker time of the first indexed record, 0 if there is none.
        last_time_us: Broker time of the last one.
    """

    __slots__ = (
        "_copies_near",
        "base",
        "copies",
        "counts",
        "decided",
        "decided_at",
        "decided_flags",
        "first_time_us",
        "fulfilled",
        "ids",
        "keys",
        "last_time_us",
        "positions",
        "prepared",
        "prepared_at",
        "prepared_offsets",
        "producers",
        "queues",
        "sequences",
        "start",
        "stop",
    )

    def __init__(self, base: Position, start: Position) -> None:
        self.base = base
        self.start = start
        self.stop = start
        self.queues: dict[int, QueueTail] = {}
        self.producers = array("Q")
        self.sequences = array("Q")
        self.counts = array("I")
        self.positions = array("Q")
        self.fulfilled = array("I")
        self.keys = HashTail(8)
        self.ids = HashTail(16)
        self.copies: list[tuple[int, CopyFacts]] = []
        self._copies_near: dict[tuple[int, int], list[int]] = {}
        """(queue, stretch of 1024 offsets) -> indexes into ``copies`` with rows there. A segment
        may hold thousands of MOVED records, and each of their rows is looked up again."""
        self.prepared = array("Q")
        self.prepared_offsets = array("Q")
        self.prepared_at = array("Q")
        self.decided = array("Q")
        self.decided_at = array("Q")
        self.decided_flags = array("I")
        self.first_time_us = 0
        self.last_time_us = 0

    def first_offset(self, key: int) -> int | None:
        """Return the queue's first offset here, None if it has no batch here."""
        queue = self.queues.get(key)
        return None if queue is None else queue.first_offsets[0]

    def next_offset(self, key: int) -> int | None:
        """Return one above the queue's last offset here, None if it has no batch here."""
        queue = self.queues.get(key)
        return None if queue is None else queue.next_offset

    def locate(self, key: int, start: int, stop: int, max_bytes: int) -> Places:
        """Return the queue's batches that hold ``[start, stop)``; the queue has batches here."""
        queue = self.queues[key]
        return queue.locate(max(start, queue.first_offsets[0]), stop, max_bytes)

    def measure(self, key: int, start: int, end: int, max_bytes: int) -> Measure:
        """Return how far ``max_bytes`` reaches in a queue that has batches here."""
        return self.queues[key].measure(start, end, max_bytes)

    def visible(self, key: int, mark: int) -> int | None:
        """Return the queue's next offset below ``mark``, None if no batch here is below it."""
        queue = self.queues.get(key)
        return None if queue is None else queue.visible(mark)

    def message_id(self, producer: int, sequence: int) -> list[Place]:
        """Return the places of a message id, newest first."""
        places = [
            Place(Position(position), row)
            for position, copies in self.copies
            if sequence in copies.sequences
            for row, one in enumerate(copies.sequences)
            if one == sequence and copies.producers[row] == producer
        ]
        import numpy as np  # imported here: see the head of this file

        firsts = np.frombuffer(self.sequences.tobytes(), "<u8")
        # Unsigned: a sequence below the batch's first wraps round to more than the batch's rows.
        rows = np.uint64(sequence) - firsts
        found = np.flatnonzero(
            (np.frombuffer(self.producers.tobytes(), "<u8") == np.uint64(producer))
            & (rows < np.frombuffer(self.counts.tobytes(), "<u4"))
        )
        places += [
            Place(Position(self.positions[index]), sequence - self.sequences[index])
            for index in found.tolist()
        ]
        return sorted(places, key=newest, reverse=True)

    def key(self, topic: int, hashed: int, before: Position) -> Iterator[Place]:
        """Yield the rows whose key has this hash in records below ``before``, newest first."""
        return self.keys.find(topic, hashed, before=before)

    def application_id(self, topic: int, low: int, high: int) -> Iterator[Place]:
        """Yield the rows whose application id has this hash, newest first."""
        return self.ids.find(topic, low, high)

    def add_copies(self, position: int, copies: CopyFacts) -> None:
        """Add a MOVED record, in the order of the journal."""
        key = copies.topic << 32 | copies.queue
        for stretch in {offset >> _STRETCH_BITS for offset in copies.offsets}:
            self._copies_near.setdefault((key, stretch), []).append(len(self.copies))
        self.copies.append((position, copies))

    def moved(self, key: int, offset: int) -> Iterator[Place]:
        """Yield the copies of a moved row, newest first."""
        for index in reversed(self._copies_near.get((key, offset >> _STRETCH_BITS), ())):
            position, copies = self.copies[index]
            if offset in copies.offsets:
                yield Place(Position(position), copies.offsets.index(offset))

    def newest_copies(self, key: int, start: int, stop: int) -> dict[int, Position]:
        """Return the MOVED record with the newest copy of each offset in ``[start, stop)``."""
        found: dict[int, Position] = {}
        for stretch in range(start >> _STRETCH_BITS, (stop - 1 >> _STRETCH_BITS) + 1):
            for index in self._copies_near.get((key, stretch), ()):
                position, copies = self.copies[index]
                for offset in copies.offsets:
                    # A record with rows in several stretches is in the list of each.
                    if start <= offset < stop and offset >> _STRETCH_BITS == stretch:
                        found[offset] = Position(position)
        return found

    def settlement(self, position: int) -> Settlement | None:
        """Return the outcome of the PREPARED at ``position``, None if no RESOLVED here names it."""
        if not self.prepared:
            return None
        import numpy as np  # imported here: see the head of this file

        found = np.frombuffer(self.prepared.tobytes(), "<u8") == np.uint64(position)
        for index in np.flatnonzero(found).tolist():
            return settled(self.prepared_offsets[index], self.prepared_at[index])
        return None

    def decision(self, number: int) -> Decision | None:
        """Return the decision on a transaction with check-back, None if no RESOLVED here is it."""
        if not self.decided:
            return None
        import numpy as np  # imported here: see the head of this file

        found = np.frombuffer(self.decided.tobytes(), "<u8") == np.uint64(number)
        for index in np.flatnonzero(found).tolist():
            return Decision(
                bool(self.decided_flags[index] & COMMITTED), Position(self.decided_at[index])
            )
        return None


def settled(first_offset: int, position: int) -> Settlement:
    """Return the settlement that a row of RESOLVED in the index describes."""
    if first_offset & ENTRY_BIT and first_offset != NO_POSITION:
        return Settlement(None, Position(position), first_offset ^ ENTRY_BIT)
    return Settlement(None if first_offset == NO_POSITION else first_offset, Position(position))
