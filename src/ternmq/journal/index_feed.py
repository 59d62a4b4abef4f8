"""From records to the index: the one place that says what of a MESSAGES record is indexed.

The broker calls ``Index.add`` with what it knows when it decides; replay, repair of the index and
the checker call ``add_record`` with what the record says. Both must agree (``Index.equal``).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_intdigest

from ternmq.journal.disk import Disk
from ternmq.journal.index import Index
from ternmq.journal.scan import RawRecord, scan
from ternmq.journal.segment import segment_name
from ternmq.journal.tail import Tail
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position
from ternmq.record import messages, moved
from ternmq.record.batch import Batch, BatchFlag
from ternmq.record.header import Kind

_BATCH_FIELDS: Final = struct.Struct("<IIQQ")  # flags, count, producer, first sequence of a batch
_BATCH_FIELDS_AT: Final = 16
_INDEXED: Final = int(BatchFlag.KEY_HASH | BatchFlag.TAG_CODES | BatchFlag.APPLICATION_ID_HASH)
_MESSAGES: Final = int(Kind.MESSAGES)
_MOVED: Final = int(Kind.MOVED)


def mask_of(tags: Iterable[str]) -> int:
    """Return the tag bloom of a batch: bit ``xxh3_64(tag) % 64`` for each tag of its dictionary."""
    mask = 0
    for tag in tags:
        if tag:
            mask |= 1 << (xxh3_64_intdigest(tag.encode()) & 63)
    return mask


def id_hash_bytes(batch: Batch) -> bytes:
    """Return the hashes of the application ids as ``Index.add`` wants them."""
    halves = list(itertools.chain.from_iterable(batch.application_ids()))
    return struct.pack(f"<{len(halves)}Q", *halves)


def add_record(index: Index, record: RawRecord) -> None:
    """Take a record into the index; kinds that it does not hold, and records it has, pass by."""
    kind = record.kind
    if kind == _MESSAGES:
        if record.position >= index.tail.start:
            _add_messages(index, record)
    elif kind == _MOVED and record.position >= index.tail.start:
        content = moved.unpack(record.body)
        index.add_moved(
            content.topic, content.queue, content.offsets(), record.position, record.time_us
        )


def _add_messages(index: Index, record: RawRecord) -> None:
    body = record.body
    topic, queue, first_offset, count, run_count, _, length, _ = messages.PREFIX.unpack_from(body)
    at = messages.PREFIX_BYTES + messages.RUN.size * run_count
    flags, rows, producer, sequence = _BATCH_FIELDS.unpack_from(body, at + _BATCH_FIELDS_AT)
    mask, keys, ids = 0, b"", b""
    if flags & _INDEXED:
        batch = Batch(body[at : at + length])
        mask = mask_of(batch.tag_dictionary())
        keys = batch.key_hash_bytes()
        ids = id_hash_bytes(batch)
    index.add(
        topic,
        queue,
        first_offset,
        count,
        record.position,
        record.length,
        mask,
        producer,
        sequence,
        keys,
        ids,
        record.time_us,
        rows,
    )


def rebuild_tail(disk: Disk, start: Position, stop: Position, *, segment_size: int) -> Tail:
    """Return what the index holds of positions ``[start, stop)`` of one segment, from the journal.

    Blocks; some 2 us a record of messages. ``start`` and ``stop`` are ends of records.

    Raises:
        CorruptJournal: the records do not reach ``stop``.
        DiskError: the disk could not read.
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
