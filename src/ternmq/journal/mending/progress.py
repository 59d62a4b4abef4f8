"""The file SCRUB: how far the journal was read again, so that a restart does not begin anew.

A page of 4 KiB, written in place and never synced: a hint. Ruler (little-endian)::

     0  u32 crc32c     of bytes 4..4096
     4  u32 magic      0x31434D54, "TMC1"
     8  u64 position   base of the segment at which the round goes on
    16  i64 completed_us   when the last round ended, by the wall clock; 0: none did
    24  u32 count      of the segments that are to be read first, at most 64
    32  u64 base       of each of them, then zeros
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk
from ternmq.model.errors import DiskReadError, FileMissing

FILE: Final = "SCRUB"
_PAGE_BYTES: Final = 4096
_MAGIC: Final = 0x31434D54
_HEAD: Final = Struct("<IIQqII")
_CRC: Final = Struct("<I")
MOST_SUSPECTS: Final = 64


@dataclass(slots=True, frozen=True)
class Progress:
    """How far the rounds have come.

    Attributes:
        position: Base of the segment at which the round goes on.
        completed_us: When the last round ended, µs since the Unix epoch; 0: none did.
        suspects: Bases of segments that are to be read first, at most 64.
    """

    position: int = 0
    completed_us: int = 0
    suspects: Sequence[int] = field(default=())


def load(disk: Disk) -> Progress | None:
    """Return what SCRUB says; None if it is damaged. Without the file, nothing was read yet."""
    try:
        file = disk.open(FILE)
    except FileMissing:
        return Progress()
    try:
        page = file.pread(_PAGE_BYTES, 0)
    except DiskReadError:
        return None
    finally:
        file.close()
    if len(page) < _PAGE_BYTES or _CRC.unpack_from(page)[0] != crc32c(page[4:]):
        return None
    _, magic, position, completed_us, count, _ = _HEAD.unpack_from(page)
    if magic != _MAGIC or count > MOST_SUSPECTS:
        return None
    return Progress(position, completed_us, Struct(f"<{count}Q").unpack_from(page, _HEAD.size))


class Save:
    """A job that writes SCRUB; ``run`` blocks, in any thread. A crash may lose or tear it."""

    def __init__(self, disk: Disk, progress: Progress) -> None:
        self._disk = disk
        self._progress = progress

    def run(self) -> None:
        """Write it.

        Raises:
            DiskError: The disk refuses it.
        """
        one = self._progress
        suspects = list(one.suspects)[:MOST_SUSPECTS]
        page = bytearray(_PAGE_BYTES)
        _HEAD.pack_into(page, 0, 0, _MAGIC, one.position, one.completed_us, len(suspects), 0)
        Struct(f"<{len(suspects)}Q").pack_into(page, _HEAD.size, *suspects)
        _CRC.pack_into(page, 0, crc32c(bytes(page[4:])))
        file = self._disk.open(FILE, create=True)
        try:
            file.pwrite(bytes(page), 0)
        finally:
            file.close()
