"""Adding records to the index: MESSAGES, MOVED, PREPARED, RESOLVED and SCHEDULED.

The broker calls ``Index.add`` and its like with the values it decided on; a rebuild of the index
and the checker call ``add_record`` with the record. Both compute facts with ``batch_facts``, so the
results are equal (``Index.equal``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ternmq.journal.disk.port import Disk
from ternmq.journal.index.batch_facts import BatchFacts, CopyFacts, facts_of, facts_of_moved
from ternmq.journal.index.tail import Tail
from ternmq.journal.log.scan import RawRecord, Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.record.fact import messages, moved, transactions
from ternmq.record.fact.header import Kind
from ternmq.record.fact.transactions import DuePart, Part, Resolution

_MESSAGES: Final = int(Kind.MESSAGES)
_MOVED: Final = int(Kind.MOVED)
_PREPARED: Final = int(Kind.PREPARED)
_RESOLVED: Final = int(Kind.RESOLVED)
_SCHEDULED: Final = int(Kind.SCHEDULED)
_INDEXED: Final = frozenset({_MESSAGES, _MOVED, _PREPARED, _RESOLVED, _SCHEDULED})


class Records(Protocol):
    """What records are added to: an ``Index``, which describes the arguments."""

    @property
    def tail(self) -> Tail:
        """The tail that records are added to; records below its ``start`` are not to be added."""
        ...

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
        """Add a MESSAGES record."""
        ...

    def note_fulfilled(self) -> None:
        """Note that the record added last holds rows that are in an earlier one, too."""
        ...

    def add_moved(self, copies: CopyFacts, position: int, time_us: int) -> None:
        """Add a MOVED record."""
        ...

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
        """Add a PREPARED or SCHEDULED record."""
        ...

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
        """Add a RESOLVED record."""
        ...


def add_record(index: Records, record: RawRecord) -> None:
    """Add a record to the index; ignore kinds that it does not hold and records that it has."""
    kind = record.kind
    if kind == _MESSAGES:
        if record.position >= index.tail.start:
            _add_messages(index, record)
    elif kind == _MOVED and record.position >= index.tail.start:
        copies = facts_of_moved(moved.unpack(record.body))
        index.add_moved(copies, record.position, record.time_us)
    elif kind == _PREPARED and record.position >= index.tail.start:
        prepared = transactions.unpack_prepared(record.body)
        if prepared.count:
            _add_unseen(index, record, prepared.topic, facts_of(prepared.batch)._replace(ids=b""))
            if prepared.replaced is not None:
                index.note_fulfilled()
    elif kind == _SCHEDULED and record.position >= index.tail.start:
        scheduled = messages.unpack(record.body)
        _add_unseen(index, record, scheduled.topic, facts_of(scheduled.batch))
        if scheduled.origin is not None:
            index.note_fulfilled()
    elif kind == _RESOLVED and record.position >= index.tail.start:
        resolved = transactions.unpack_resolved(record.body)
        index.add_resolved(
            record.position,
            record.time_us,
            resolved.parts,
            resolved.dropped,
            resolved.due,
            resolved.transaction if resolved.group else 0,
            committed=resolved.outcome is Resolution.COMMITTED,
        )


def _add_unseen(index: Records, record: RawRecord, topic: int, known: BatchFacts) -> None:
    index.add_unseen(
        topic, known.rows, record.position, known.producer_id, known.first_sequence,
        known.key_hashes, known.ids, record.time_us,
    )  # fmt: skip


def _add_messages(index: Records, record: RawRecord) -> None:
    body = record.body
    topic, queue, first_offset, count, run_count, flags, length, _ = messages.PREFIX.unpack_from(
        body
    )
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    producer_id, first_sequence, rows, _, tag_mask, keys, ids = facts_of(body[at : at + length])
    index.add(
        topic, queue, first_offset, count, record.position, record.length, tag_mask, producer_id,
        first_sequence, keys, ids, record.time_us, rows,
    )  # fmt: skip
    if flags & messages.FULFILS:
        index.note_fulfilled()


def read_tail(
    index: Records, disk: Disk, start: Position, stop: Position, *, segment_size: int
) -> Tail:
    """Return the tail of positions ``[start, stop)`` of one segment, read from the journal.

    Blocks; about 2 us for each MESSAGES record. ``start`` and ``stop`` are ends of records;
    ``index`` is empty and begins at ``start``.

    Raises:
        CorruptJournal: The records do not reach ``stop``.
        DiskError: The disk could not read.
    """
    tail = index.tail
    scanner = Scanner(disk, start, segment_size=segment_size, stop=stop, only=_INDEXED)
    for record in scanner:
        add_record(index, record)
    reached = scanner.position
    if reached < stop:
        base = tail.base
        raise CorruptJournal(
            f"records end at position {reached}", file=segment_name(base), byte=reached - base
        )
    tail.stop = stop
    return tail
