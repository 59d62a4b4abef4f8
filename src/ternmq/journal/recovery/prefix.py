"""The beginning of a journal, up to a position, for views of it that are made while it grows.

``find_end`` says where a journal ends that nobody writes to. Here the end is given: a follower
knows that everything below its commit mark is valid and stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.scan import Scanner, record_at
from ternmq.journal.log.segment import segment_bases, segment_name
from ternmq.journal.recovery.ending import Ending, stated_sets
from ternmq.journal.state.sets import begin_of_end
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import Kind

_STATE: Final = int(Kind.STATE)


def prefix(
    disk: Disk,
    *,
    segment_size: int,
    first: Position,
    end: Position,
    hint: Position | None = None,
    look: Callable[[], None] = lambda: None,
) -> Ending:
    """Return the beginning of a journal as if it ended at a position; changes nothing. Blocks.

    The records are read from a STATE set on that is complete below the end, or else from the first
    segment on. Records behind the end may be written meanwhile, but none may be removed.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        end: Where a record ends.
        hint: BEGIN of a STATE set that the index names.
        look: Called for every record; may raise, which ends the walk.

    Raises:
        CorruptJournal: The records do not reach the end.
        UnknownRecordKind: A newer version wrote the journal.
        DiskError: The disk could not read.
    """
    bases = [base for base in segment_bases(disk) if first <= base < end]
    stated = list(stated_sets(disk, bases))
    begins = {*stated, *(() if hint is None else (hint,))}
    for begin in sorted(begins, reverse=True):
        if first < begin < end and _is_state(disk, begin, segment_size):
            found = _walk(disk, segment_size, first, begin, end, look)
            if found.sets:
                return found
    return _walk(disk, segment_size, first, first, end, look)


def _is_state(disk: Disk, position: Position, segment_size: int) -> bool:
    record = record_at(disk, position, segment_size)
    return record is not None and record.kind == _STATE


def _walk(
    disk: Disk,
    segment_size: int,
    first: Position,
    start: Position,
    end: Position,
    look: Callable[[], None],
) -> Ending:
    scanner = Scanner(
        disk, start, segment_size=segment_size, prev_crc=None if start else 0, stop=end
    )
    sets: list[tuple[Position, Position]] = []
    record, count, time_us = None, 0, 0
    for record in scanner:
        look()
        count += 1
        time_us = max(time_us, record.time_us)
        if record.kind == _STATE:
            begin = begin_of_end(record)
            if begin is not None and begin >= start:
                sets.append((begin, record.position))
    if scanner.position != end:
        at = scanner.position
        raise CorruptJournal(
            f"position {at} cannot be read: {scanner.fault or 'the record is blank'}",
            file=segment_name(Position(at - at % segment_size)),
            byte=at % segment_size,
        )
    return Ending(
        first=first,
        segment_size=segment_size,
        start=start,
        valid_end=end,
        durable=end,
        epoch=Epoch(0 if record is None else record.epoch),
        last=(
            None if record is None else Checkpoint(record.position, Epoch(record.epoch), record.crc)
        ),
        epochs=(),
        last_time_us=time_us,
        clean=False,
        record_count=count,
        sets=tuple(sets),
        fault="",
        dirt=(),
        copy=None,
    )
