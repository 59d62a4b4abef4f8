"""Bytes of a file of which the disk cannot read all: zeros take the place of what is missing."""

from __future__ import annotations

from typing import Final

from ternmq.journal.disk.port import File
from ternmq.model.errors import DiskReadError

_PAGE_BYTES: Final = 4096
"""The smallest piece that is read alone: most disks lose whole sectors of this size."""


def readable(file: File, length: int, offset: int) -> bytes:
    """Return ``length`` bytes at ``offset``, with zeros for pages that the disk cannot read.

    Fewer are returned only at the end of the file. Blocks; slow where the disk fails.
    """
    try:
        return file.pread(length, offset)
    except DiskReadError:
        pass  # read page by page below: the caller wants what there is
    parts: list[bytes] = []
    at, end = offset, min(offset + length, file.size())
    while at < end:
        size = min(_PAGE_BYTES - at % _PAGE_BYTES, end - at)
        try:
            parts.append(file.pread(size, at))
        except DiskReadError:
            parts.append(bytes(size))
        at += size
    return b"".join(parts)
