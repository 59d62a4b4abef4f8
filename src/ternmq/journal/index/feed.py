"""Adding records to the index: MESSAGES, MOVED, PREPARED and RESOLVED.

The broker calls ``Index.add`` and its like with the values it decided on; a rebuild of the index
and the checker call ``add_record`` with the record. Both compute facts with ``batch_facts``, so the
results are equal (``Index.equal``).
"""

from __future__ import annotations

from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.journal.index.batch_facts import facts_of, facts_of_moved
from ternmq.journal.index.index import Index
from ternmq.journal.index.tail import Tail
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.record.fact import messages, moved, transactions
from ternmq.record.fact.header import Kind

_MESSAGES: Final = int(Kind.MESSAGES)
_MOVED: Final = int(Kind.MOVED)
_PREPARED: Final = int(Kind.PREPARED)
_RESOLVED: Final = int(Kind.RESOLVED)


def add_record(index: Index, record: RawRecord) -> None:
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
        known = facts_of(prepared.batch)
        index.add_prepared(
            prepared.topic,
            known.rows,
            record.position,
            known.producer_id,
            known.first_sequence,
            known.key_hashes,
            record.time_us,
        )
    elif kind == _RESOLVED and record.position >= index.tail.start:
        resolved = transactions.unpack_resolved(record.body)
        index.add_resolved(record.position, record.time_us, resolved.parts, resolved.dropped)


def _add_messages(index: Index, record: RawRecord) -> None:
    body = record.body
    topic, queue, first_offset, count, run_count, _, length, _ = messages.PREFIX.unpack_from(body)
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    known = facts_of(body[at : at + length])
    index.add(
        topic,
        queue,
        first_offset,
        count,
        record.position,
        record.length,
        known.tag_mask,
        known.producer_id,
        known.first_sequence,
        known.key_hashes,
        known.ids,
        record.time_us,
        known.rows,
    )


def rebuild_tail(disk: Disk, start: Position, stop: Position, *, segment_size: int) -> Tail:
    """Return the tail of positions ``[start, stop)`` of one segment, read from the journal.

    Blocks; about 2 us for each MESSAGES record. ``start`` and ``stop`` are ends of records.

    Raises:
        CorruptJournal: The records do not reach ``stop``.
        DiskError: The disk could not read.
    """
    index = Index(disk, segment_size=segment_size, start=start)
    tail = index.tail
    reached = start
    for record in scan(disk, start, segment_size=segment_size):
        if record.position >= stop:
            break
        add_record(index, record)
        reached = record.end
    if reached < stop:
        base = tail.base
        raise CorruptJournal(
            f"records end at position {reached}", file=segment_name(base), byte=reached - base
        )
    tail.stop = stop
    return tail
