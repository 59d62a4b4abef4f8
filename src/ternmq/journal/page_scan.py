"""Reading records in order, many at a time: pages of those that prove themselves.

The rules are those of ``scan``, tried for all records of a stretch at once. What does not pass, and
what is rare (the first and the last record of a segment, a record larger than a stretch, the end),
is left to ``Scanner``, one record at a time: it has the last word, here as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ternmq.journal.disk import Disk
from ternmq.journal.scan import CHUNK_BYTES, FIRST_CHUNK_BYTES, RawRecord, Scanner
from ternmq.journal.segment import segment_name
from ternmq.model.errors import FileMissing
from ternmq.record.frames import Frames
from ternmq.record.header import HEADER_BYTES, KNOWN_KINDS, MAGIC, VERSION, Kind

_KNOWN: Final = np.array(
    [kind in KNOWN_KINDS - {Kind.SEGMENT, Kind.PAD} for kind in range(256)], np.bool_
)
"""Kinds that stand anywhere in a segment, and that this version knows."""


class PageScanner:
    """Iterates over pages of the valid records from a position on; is iterated once.

    Args:
        disk: Where the journal lies.
        position: Where a record begins.
        segment_size: As the journal was made.

    Attributes:
        position: Where the record behind those that were yielded begins, or would.
        durable: The most that a record says was durable.
        fault: Why the iteration ended, as of ``Scanner``.
    """

    def __init__(self, disk: Disk, position: int, *, segment_size: int) -> None:
        self.position = position
        self.durable = 0
        self.fault = ""
        self._disk = disk
        self._size = segment_size
        self._last: tuple[int, int] | None = None
        """CRC and epoch of the record before; None: the first record is believed."""

    def __iter__(self) -> Iterator[Frames]:
        """Yield page after page; SEGMENT and PAD are not in them.

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
        """Return records that pass all the rules at once; None: look at the next one alone."""
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
        # The last start is the end of the record before.
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
        """Return the next record, by the word of ``Scanner``; an empty page for one of segments."""
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
    """Return where the records that are whole in a chunk begin, and where the last of them ends."""
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
        starts.append(at)  # else the last is cut: it begins where those before end
    return starts
