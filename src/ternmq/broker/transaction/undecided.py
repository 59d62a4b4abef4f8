"""Undecided transactions, and the PREPARED records of each.

The records of a transaction are numbered (``ordinal``) and stored in pages of 1,024. Each page is
an object of its own in STATE (TRANSACTION): a transaction that grows writes only its newest page
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ternmq.broker.transaction.duetimes import DueTimes
from ternmq.broker.transaction.writers import Writer
from ternmq.record.fact.state import TRANSACTION_ENTRY, TRANSACTION_HEAD
from ternmq.record.fact.transactions import Prepared

PAGE_BITS: Final = 10

assert TRANSACTION_ENTRY.size << PAGE_BITS < 60 * 1024


class PreparedBatch(NamedTuple):
    """A PREPARED record."""

    position: int
    tag_mask: int
    topic: int
    queue: int
    """With due times: the queue that the writer asked for, 2^32-1 for none."""
    rows: int
    length: int


class Transaction:
    """A transaction from its first PREPARED record until its decision."""

    __slots__ = (
        "batch_id",
        "bytes",
        "count",
        "number",
        "opened_us",
        "pages",
        "rows",
        "topics",
        "writer",
    )

    def __init__(self, number: int, writer: int, batch_id: int, opened_us: int) -> None:
        self.number = number
        self.writer = writer
        self.batch_id = batch_id
        self.opened_us = opened_us
        self.pages: dict[int, list[PreparedBatch]] = {}
        self.topics: set[int] = set()
        self.count = 0
        self.rows = 0
        self.bytes = 0

    def batches(self) -> Iterator[PreparedBatch]:
        """Yield its PREPARED records in the order of the journal."""
        for page in sorted(self.pages):
            yield from self.pages[page]


class Undecided:
    """All undecided transactions. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        segment_size: Segment size of the journal, in bytes.
    """

    __slots__ = (
        "_by_segment",
        "_segment_size",
        "batches",
        "by_name",
        "by_number",
        "bytes",
        "changed",
        "next_number",
        "times",
    )

    def __init__(self, segment_size: int) -> None:
        self._segment_size = segment_size
        self.by_number: dict[int, Transaction] = {}
        """By number, in the order in which they were opened."""
        self.by_name: dict[tuple[int, int], Transaction] = {}
        """By number of the writer and batch id."""
        self.next_number = 1
        self.batches = 0
        self.bytes = 0
        self.changed: dict[tuple[int, int], int] = {}
        """(number, page) -> newest record that changed it."""
        self.times = DueTimes()
        self._by_segment: dict[int, int] = {}

    def of(self, writer: Writer | None, batch_id: int) -> Transaction | None:
        """Return a writer's undecided transaction, None if there is none."""
        return None if writer is None else self.by_name.get((writer.number, batch_id))

    def writers(self) -> set[int]:
        """Return the numbers of the writers that have undecided transactions."""
        return {number for number, _ in self.by_name}

    def pins(self, segment: int) -> bool:
        """Return whether a segment holds rows of an undecided transaction."""
        return segment in self._by_segment

    @property
    def segments(self) -> int:
        """Number of segments that hold rows of undecided transactions."""
        return len(self._by_segment)

    # -- facts ------------------------------------------------------------------------------------

    def apply_prepared(
        self, position: int, length: int, time_us: int, fact: Prepared, tag_mask: int
    ) -> None:
        """Add a PREPARED record to its transaction."""
        transaction = self._transaction(fact.transaction, fact.writer, fact.batch_id, time_us)
        batch = PreparedBatch(position, tag_mask, fact.topic, fact.queue, fact.count, length)
        page = fact.ordinal >> PAGE_BITS
        transaction.pages.setdefault(page, []).append(batch)
        self.changed[transaction.number, page] = position
        self._count(transaction, batch)

    def apply_resolved(self, number: int) -> None:
        """Remove a transaction that was decided."""
        self.times.drop(number)
        transaction = self.by_number.pop(number, None)
        if transaction is None:
            return
        name = transaction.writer, transaction.batch_id
        if self.by_name.get(name) is transaction:
            del self.by_name[name]
        self.batches -= transaction.count
        self.bytes -= transaction.bytes
        for page, batches in transaction.pages.items():
            del self.changed[number, page]
            for batch in batches:
                segment = batch.position // self._segment_size
                left = self._by_segment[segment] - 1
                if left:
                    self._by_segment[segment] = left
                else:
                    del self._by_segment[segment]

    def _transaction(self, number: int, writer: int, batch_id: int, opened_us: int) -> Transaction:
        transaction = self.by_number.get(number)
        if transaction is None:
            transaction = Transaction(number, writer, batch_id, opened_us)
            self.by_number[number] = self.by_name[writer, batch_id] = transaction
            self.next_number = max(self.next_number, number + 1)
        return transaction

    def _count(self, transaction: Transaction, batch: PreparedBatch) -> None:
        transaction.topics.add(batch.topic)
        transaction.count += 1
        transaction.rows += batch.rows
        transaction.bytes += batch.length
        self.batches += 1
        self.bytes += batch.length
        segment = batch.position // self._segment_size
        self._by_segment[segment] = self._by_segment.get(segment, 0) + 1

    # -- STATE ------------------------------------------------------------------------------------

    def encode(self, number: int, page: int) -> bytes:
        """Return a page for STATE; empty if it is gone."""
        transaction = self.by_number.get(number)
        if transaction is None:
            return b""
        batches = transaction.pages[page]
        head = TRANSACTION_HEAD.pack(
            transaction.writer, len(batches), transaction.batch_id, transaction.opened_us
        )
        return head + b"".join([TRANSACTION_ENTRY.pack(*batch) for batch in batches])

    def load(self, number: int, page: int, payload: bytes, stamp: int) -> None:
        """Load a page as it was at ``stamp``."""
        if not payload:
            return
        writer, count, batch_id, opened_us = TRANSACTION_HEAD.unpack_from(payload)
        transaction = self._transaction(number, writer, batch_id, opened_us)
        entries = payload[
            TRANSACTION_HEAD.size : TRANSACTION_HEAD.size + count * TRANSACTION_ENTRY.size
        ]
        batches = [PreparedBatch(*entry) for entry in TRANSACTION_ENTRY.iter_unpack(entries)]
        transaction.pages[page] = batches
        self.changed[number, page] = stamp
        for batch in batches:
            self._count(transaction, batch)

    def finish(self) -> None:
        """Sort the transactions, once everything is replayed."""
        self.by_number = dict(sorted(self.by_number.items()))
