"""Checkpoints: records by which two journals of a group find out up to where they are the same.

An epoch has one writer, which never goes back. So if two journals have a record of the same epoch
and the same CRC at the same position, all records before it are the same, too.
"""

from __future__ import annotations

from typing import NamedTuple

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.scan import Scanner, record_at
from ternmq.model.types import Epoch, Position


class Checkpoint(NamedTuple):
    """A record of a journal.

    Attributes:
        position: Where it begins.
        epoch: The epoch that its header states.
        crc: Its CRC.
    """

    position: Position
    epoch: Epoch
    crc: int


def end_if_held(
    disk: Disk, checkpoint: Checkpoint, *, first: Position, end: Position, segment_size: int
) -> Position | None:
    """Return the end of a checkpoint's record if this journal has the same record, else None.

    Blocks. If the record is the same, its segment is read from the beginning up to it: bytes that
    look like the record may be part of a message, which may contain a copy of a journal.

    Args:
        disk: The data root.
        checkpoint: What the other journal has.
        first: Base of this journal's oldest segment.
        end: End of this journal.
        segment_size: Bytes of every segment file.

    Raises:
        UnknownRecordKind: A newer version wrote this journal.
        DiskError: The disk could not read.
    """
    position = checkpoint.position
    if not first <= position < end or position % 8:
        return None
    record = record_at(disk, position, segment_size)
    if record is None or (record.epoch, record.crc) != (checkpoint.epoch, checkpoint.crc):
        return None
    base = position - position % segment_size
    scanner = Scanner(disk, base, segment_size=segment_size, stop=position, only=frozenset())
    list(scanner)  # empty: no kind is asked for
    return record.end if scanner.position == position and record.end <= end else None
