"""The records that a cut removes: what is known of them.

An intact record states its own values. A damaged one states nothing that can be believed, neither
in its header nor behind it: its CRC does not say which of its bytes changed. But offsets are dense,
so the intact records before and behind it say which offsets of a queue are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.scan import CHUNK_BYTES, RawRecord
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import proven
from ternmq.model.types import Position
from ternmq.record.fact import transactions
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, Kind, header_of
from ternmq.record.fact.messages import PREFIX

_EMPTY: Final = frozenset({Kind.PAD, Kind.SEGMENT, Kind.MARK})
"""Kinds of records that are not listed as lost: they hold no facts."""
_Rows = tuple[int, int, int, int]
"""Topic, queue, first offset, count."""


@dataclass(slots=True, frozen=True)
class LostRecord:
    """A record that a cut removes.

    Attributes:
        kind: The kind that its header states.
        position: Its position; of a damaged record the beginning of the damage, which may have hit
            further records.
        length: Bytes; of a damaged record those up to the next intact one.
        whole: Its CRC fits. If False, only the position and the offsets can be relied on.
        topic, queue, first_offset, count: Of a whole MESSAGES record its values; of a whole
            SCHEDULED record its topic and number of rows, which have no offset yet. Of a damaged
            record the offsets that are missing between the intact records before and behind it;
            None if those do not say it. None for other kinds.
    """

    kind: int
    position: Position
    length: int
    whole: bool
    topic: int | None = None
    queue: int | None = None
    first_offset: int | None = None
    count: int | None = None


@dataclass(slots=True)
class _Gap:
    """Bytes between two intact records, and the offsets that only they can have held."""

    told: LostRecord | None
    position: Position
    length: int
    missing: list[_Rows] = field(default_factory=list)


def lost_records(disk: Disk, bases: list[Position], cut: int, size: int) -> Iterator[LostRecord]:
    """Yield the records behind ``cut``, in order, as far as they are known.

    Reads the journal from its first segment on, for the offsets before the cut.
    """
    found: list[LostRecord | _Gap] = []
    ends: dict[tuple[int, int], tuple[int, int]] = {}  # queue: its next offset, gaps before that
    gaps = 0
    gap: _Gap | None = None
    end: int = bases[0]
    for record in proven_from(disk, bases, end):
        if record.position > end >= cut:
            told = _header_at(disk, bases, end, record.position - end, size)
            gap = _Gap(told, Position(end), record.position - end)
            found.append(gap)
            gaps += 1
        for topic, queue, first, count in _stored(record):
            # a journal with its beginning has every queue from its offset 0 on
            known = ends.get((topic, queue), (0, 0) if bases[0] == 0 else None)
            if gap is not None and known is not None and known[0] < first and gaps - known[1] == 1:
                gap.missing.append((topic, queue, known[0], first - known[0]))
            ends[topic, queue] = first + count, gaps
        if record.position >= cut and record.kind not in _EMPTY:
            found += _whole(record)
        end = record.end
    for one in found:
        if isinstance(one, LostRecord):
            yield one
        else:
            yield from _of_gap(one)


def _of_gap(gap: _Gap) -> Iterator[LostRecord]:
    """Yield the damaged record of a gap, once for each queue that misses offsets."""
    told = gap.told
    if not gap.missing:
        yield told or LostRecord(0, gap.position, gap.length, whole=False)
        return
    if told is None or told.kind not in {Kind.MESSAGES, Kind.RESOLVED}:
        told = LostRecord(Kind.MESSAGES, gap.position, gap.length, whole=False)
    for topic, queue, first, count in gap.missing:
        yield replace(told, topic=topic, queue=queue, first_offset=first, count=count)


def _stored(record: RawRecord) -> list[_Rows]:
    """Return the offsets that an intact record gave to messages."""
    if record.kind == Kind.MESSAGES and len(record.body) >= PREFIX.size:
        return [PREFIX.unpack_from(record.body)[:4]]
    if record.kind == Kind.RESOLVED:
        parts = transactions.unpack_resolved(record.body).parts
        return [(one.topic, one.queue, one.first_offset, one.rows) for one in parts]
    return []


def _whole(record: RawRecord) -> list[LostRecord]:
    told = LostRecord(record.kind, record.position, record.length, whole=True)
    if record.kind == Kind.SCHEDULED and len(record.body) >= PREFIX.size:
        topic, _, _, count = PREFIX.unpack_from(record.body)[:4]
        return [replace(told, topic=topic, count=count)]
    return [
        replace(told, topic=topic, queue=queue, first_offset=first, count=count)
        for topic, queue, first, count in _stored(record)
    ] or [told]


def _header_at(
    disk: Disk, bases: list[Position], position: int, length: int, size: int
) -> LostRecord | None:
    """Return the damaged record at ``position`` if its header still looks like one."""
    base = Position(position - position % size)
    if base not in bases:
        return None
    file = disk.open(segment_name(base))
    try:
        head = file.pread(HEADER_BYTES, position - base)
    finally:
        file.close()
    if len(head) < HEADER_BYTES:
        return None
    header = header_of(head)
    if header.magic != MAGIC or header.position != position or header.kind in _EMPTY:
        return None
    return LostRecord(header.kind, Position(position), length, whole=False)


def proven_from(disk: Disk, bases: list[Position], position: int) -> Iterator[RawRecord]:
    """Yield the records from ``position`` on that are valid by themselves, chain or not."""
    for base in bases:
        file = disk.open(segment_name(base))
        try:
            size = file.size()
            offset = skip = max(0, position - base)
            while offset < size:
                chunk = file.pread(min(CHUNK_BYTES, size - offset), offset)
                if not chunk:
                    break
                for record in proven(file, base, chunk, offset, skip):
                    skip = record.end - base
                    yield record
                offset += len(chunk)
        finally:
            file.close()
