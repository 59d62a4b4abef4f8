"""Reading records in order, many at a time, as pages of valid records.

The rules are those of ``scan``, checked for all records of a stretch at once. Records that do not
pass, and rare cases (the first and the last record of a segment, a record larger than a stretch,
the end), are read by ``Scanner``, one at a time: it always decides what is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.scan import CHUNK_BYTES, FIRST_CHUNK_BYTES, RawRecord, Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import FileMissing
from ternmq.record.fact.header import HEADER_BYTES, KNOWN_KINDS, MAGIC, VERSION, Kind
from ternmq.record.page.frames import Frames

_KNOWN: Final = np.array(
    [kind in KNOWN_KINDS - {Kind.SEGMENT, Kind.PAD} for kind in range(256)], np.bool_
)
"""Kinds that this version knows and that may be anywhere in a segment."""


class PageScanner:
    """Iterates over pages of the valid records from a position on. It is iterated once.

    Args:
        disk: The data root.
        position: Position at which a record begins.
        segment_size: Bytes of every segment file.

    Attributes:
        position: End of the records yielded so far.
        durable: Largest durable position that a record read so far states.
        fault: Why the iteration ended, as ``Scanner.fault``.
    """

    def __init__(self, disk: Disk, position: int, *, segment_size: int) -> None:
        self.position = position
        self.durable = 0
        self.fault = ""
        self._disk = disk
        self._size = segment_size
        self._last: tuple[int, int] | None = None
        """CRC and epoch of the record before; None does not check the first record's chain."""

    def __iter__(self) -> Iterator[Frames]:
        """Yield page after page, without SEGMENT and PAD records.

        Raises:
            UnknownRecordKind: A valid record of a newer version.
            DiskError: The disk could not read.
        """
        want = FIRST_CHUNK_BYTES
        while True:
            page = self._several(want)
            want = min(4 * want, CHUNK_BYTES)
            if page is None:
                page = self._one()
                if page is None:
                    return
            if len(page):
                yield page

    def _several(self, want: int) -> Frames | None:
        """Return records that all pass the rules; None: the next one must be read by itself."""
        base = self.position - self.position % self._size
        offset = self.position - base
        try:
            file = self._disk.open(segment_name(base))
        except FileMissing:
            return None
        try:
            chunk = file.pread(min(want, self._size - offset), offset)
        finally:
            file.close()
        starts = _starts(chunk)
        if len(starts) < 2:
            return None
        # The last element is where the last whole record ends.
        page = Frames(chunk[: starts[-1]], np.array(starts[:-1], np.int64))
        good = self._good(page)
        if not good:
            return None
        if good < len(page):
            page = Frames(page.records[: int(page.at[good])], page.at[:good])
        self._past(page)
        return page

    def _good(self, page: Frames) -> int:
        """Return how many records, from the first on, are valid."""
        word = page.at >> 2
        own = page.u4[word]
        before = page.u4[word + 11]
        epochs = page.u4[word + 10]
        chained, risen = np.ones(len(page), np.bool_), np.ones(len(page), np.bool_)
        chained[1:] = before[1:] == own[:-1]
        risen[1:] = epochs[1:] >= epochs[:-1]
        if self._last is not None:
            crc, epoch = self._last
            chained[0] = before[0] == crc
            risen[0] = epochs[0] >= epoch
        left = self._size - (self.position % self._size + page.end)
        passed: npt.NDArray[Any] = (
            ((left == 0) | (left >= HEADER_BYTES))
            & (page.u1[page.at + 12] == VERSION)
            & _KNOWN[page.kinds]
            & (page.positions() == self.position + page.at)
            & chained
            & risen
            & (page.sums() == own)
        )
        return len(page) if passed.all() else int(np.argmin(passed))

    def _past(self, page: Frames) -> None:
        last = int(page.at[-1]) >> 2
        self._last = int(page.u4[last]), int(page.u4[last + 10])
        self.durable = max(self.durable, int(page.i8[(page.at >> 3) + 3].max()))
        self.position += len(page.records)

    def _one(self) -> Frames | None:
        """Return the next record, as ``Scanner`` reads it; an empty page for SEGMENT or PAD."""
        crc, epoch = self._last or (None, 0)
        scanner = Scanner(
            self._disk, self.position, segment_size=self._size, prev_crc=crc, epoch=epoch
        )
        record: RawRecord | None = next(iter(scanner), None)
        if record is None:
            self.fault = scanner.fault
            return None
        if record.kind in {Kind.SEGMENT, Kind.PAD}:
            whole = b""
        else:
            base = record.position - record.position % self._size
            file = self._disk.open(segment_name(base))
            try:
                whole = file.pread(record.length, record.position - base)
            finally:
                file.close()
        self._last = record.crc, record.epoch
        self.durable = max(self.durable, record.durable)
        self.position = record.end
        return Frames(whole)


def _starts(chunk: bytes) -> list[int]:
    """Return the starts of the whole records in a chunk, and where the last of them ends."""
    words = memoryview(chunk)[: len(chunk) & ~7].cast("I")
    end = len(chunk) - HEADER_BYTES
    starts: list[int] = []
    at = 0
    while at <= end and words[(at >> 2) + 1] == MAGIC:
        length = words[(at >> 2) + 2]
        if length < HEADER_BYTES or length & 7:
            break
        starts.append(at)
        at += length
    if starts and at <= len(chunk):
        starts.append(at)  # else the last record is cut off: its start is the end of those before
    return starts
