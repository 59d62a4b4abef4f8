"""Segments: the fixed-size files that the journal consists of, and the bodies of its own records.

A segment file is named by the position of its first byte, ``journal/%020d.seg``. All files have
the same size, a multiple of 4096, so one division turns a position into a file and a byte in it.
Before its first use a file is all zeros and durable. Bodies (little-endian)::

    SEGMENT   0 u64 base      8 u64 segment size
             16 u64 position of the BEGIN of the newest complete STATE set, 2**64-1 for none
             24 u64 position of that set's END, 2**64-1 for none
    EPOCH     0 u32 epoch     4 u32 flags (bit 0: the reign before ended cleanly; bit 1: first)
              8 u64 end of the valid records that recovery found
             16 u64 durable position that recovery found (D)
    MARK      0 u64 durable position
    PAD       nothing; what follows its header up to the segment's end is not covered
"""

from __future__ import annotations

from typing import Final

from ternmq.journal.disk.port import Disk
from ternmq.model.errors import InvalidRequest
from ternmq.model.types import Position
from ternmq.record.fact.control import SEGMENT
from ternmq.record.fact.header import HEADER_BYTES

FOLDER: Final = "journal"
PAGE_BYTES: Final = 4096
DEFAULT_SEGMENT_BYTES: Final = 256 << 20

SEGMENT_RECORD_BYTES: Final = HEADER_BYTES + SEGMENT.size


def segment_name(base: int) -> str:
    """Return the file name of the segment that begins at ``base``."""
    return f"{FOLDER}/{base:020d}.seg"


def segment_bases(disk: Disk) -> list[Position]:
    """Return the bases of all segment files, ascending, spares included."""
    bases: list[Position] = []
    for name in disk.names(FOLDER):
        if len(name) == 24 and name.endswith(".seg") and name[:20].isdecimal():
            bases.append(Position(int(name[:20])))
    return bases


def check_segment_size(size: int) -> None:
    """Check the size of a journal's segments.

    Raises:
        InvalidRequest: The size is not a positive multiple of 4096.
    """
    if size < PAGE_BYTES or size % PAGE_BYTES:
        raise InvalidRequest(f"segment size {size} is not a multiple of {PAGE_BYTES}")


def file_size(disk: Disk, base: Position) -> int:
    """Return the size in bytes of the file of the segment at ``base``."""
    file = disk.open(segment_name(base))
    try:
        return file.size()
    finally:
        file.close()
