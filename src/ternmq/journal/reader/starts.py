"""Where records begin: the first one at or after any byte of the journal.

A record's header holds its own position, so most bytes that look like the beginning of a record
are one. But the body of a message may hold a copy of records, made for the very place where it is
stored, with checksums that fit. So a segment is walked from its beginning, which is a record's,
from length to length; nothing inside a record is looked at, and of large records only the header is
read. What a walk passes is remembered, one place in each ``STEP`` bytes, so that the next walk is
short.

numpy is imported when a walk begins: a broker that only listens does not need it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.segment import segment_name
from ternmq.model.errors import CorruptJournal, FileMissing
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, MAGIC

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

STEP: Final = 1 << 20
PIECE: Final = 4 << 20
"""Most bytes that one ``walk`` passes, beyond a record: some 20 ms for the smallest records."""
SEGMENTS: Final = 1024
"""Most segments whose places are remembered: 2 MB for segments of 256 MiB."""
_FIRST_BYTES: Final = 4 << 10
_MOST_BYTES: Final = 1 << 20


class RecordStarts:
    """Finds where records begin.

    Not thread-safe, and its calls wait for the disk: call it from one thread that may.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.

    Attributes:
        oldest: The oldest position that the journal keeps; any thread may set it. What was
            remembered of older segments is forgotten when the next segment is begun.
    """

    def __init__(self, disk: Disk, segment_size: int) -> None:
        self._disk = disk
        self._size = segment_size
        self._passed: dict[int, array[int]] = {}
        """By the position of a segment: offsets in it at which records begin, ascending."""
        self.oldest = 0

    def at_or_after(self, byte: int, end: int) -> Position:
        """Return the position of the first record at or after a byte; ``end`` if that is not below.

        Args and Raises: As of ``walk``.
        """
        while (found := self.walk(byte, end)) is None:
            pass
        return found

    def walk(self, byte: int, end: int) -> Position | None:
        """Return what ``at_or_after`` returns, or walk a piece of the way: then call again.

        Args:
            byte: A byte that the journal keeps.
            end: Any byte; every record that begins below is written.

        Raises:
            FileMissing: The segment is not there any more.
            CorruptJournal: A header is damaged.
            DiskError: The disk could not read.
        """
        if byte >= end:
            return Position(end)
        base = byte - byte % self._size
        if byte == base:
            return Position(base)
        try:
            file = self._disk.open(segment_name(Position(base)))
        except FileMissing:
            self._passed.pop(base, None)
            raise
        passed = self._passed.get(base) or self._begun(base)
        try:
            limit = min(end - base, self._size)
            wanted = min(byte - base, limit)
            offset = self._pass(file, base, passed, wanted, limit)
        finally:
            file.close()
        return Position(base + min(offset, limit)) if offset >= wanted else None

    def _begun(self, base: int) -> array[int]:
        """Return the offsets of a segment of which nothing is remembered yet."""
        for gone in [one for one in self._passed if one < self.oldest]:
            del self._passed[gone]
        if len(self._passed) == SEGMENTS:
            del self._passed[next(iter(self._passed))]
        passed = self._passed[base] = array("Q", [0])
        return passed

    def _pass(self, file: File, base: int, passed: array[int], wanted: int, end: int) -> int:
        """Walk towards ``wanted``, ``PIECE`` bytes at most; return where the walk is.

        Adds to ``passed`` what the walk passes beyond its last offset.
        """
        import numpy as np  # imported here: see the head of this file

        at = passed[bisect_right(passed, wanted) - 1]
        want, stop = _FIRST_BYTES, min(wanted, at + PIECE)
        while at < stop:
            chunk = file.pread(max(HEADER_BYTES, min(want, end - at)), at)
            if len(chunk) < HEADER_BYTES:
                raise CorruptJournal("the file ends", file=file.name, byte=at)
            starts, behind = _followed(chunk, stop - at)
            _check(chunk, starts, file.name, base, at)
            next_ = int(np.searchsorted(starts, passed[-1] + STEP - at))
            while next_ < len(starts):
                passed.append(at + int(starts[next_]))
                next_ = int(np.searchsorted(starts, passed[-1] + STEP - at))
            # Many records fit in a piece, or the next one is far away.
            want = min(4 * want, _MOST_BYTES) if behind <= len(chunk) else _FIRST_BYTES
            at += behind
        if passed[-1] + STEP <= at < end:
            passed.append(at)  # where the next piece of the walk begins
        return at


def _followed(chunk: bytes, stop: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return where records begin in a chunk that begins with one, and where the next one begins.

    Only lengths are looked at. Ends at ``stop``, or where a whole header does not fit.
    """
    import numpy as np  # imported here: see the head of this file

    lengths = memoryview(chunk)[: len(chunk) & ~3].cast("I")
    last = min(stop - 1, len(chunk) - HEADER_BYTES)
    starts: list[int] = []
    at = 0
    add = starts.append
    while at <= last:
        add(at)
        length = lengths[(at >> 2) + 2]
        if length < HEADER_BYTES or length & 7:
            break  # `_check` refuses it
        at += length
    return np.array(starts, np.int64), at


def _check(chunk: bytes, starts: npt.NDArray[np.int64], name: str, base: int, offset: int) -> None:
    """Check magic, length and position of the headers at ``starts``.

    Raises:
        CorruptJournal: One of them is wrong.
    """
    import numpy as np  # imported here: see the head of this file

    words = np.frombuffer(chunk, "<u4", len(chunk) >> 2)
    word = starts >> 2
    lengths = words[word + 2]
    own = words[word + 4].astype(np.int64) | words[word + 5].astype(np.int64) << 32
    right = (
        (words[word + 1] == MAGIC)
        & (lengths >= HEADER_BYTES)
        & (lengths & 7 == 0)
        & (own == starts + (base + offset))
    )
    if not right.all():
        byte = offset + int(starts[int(np.argmin(right))])
        raise CorruptJournal(f"no valid record at position {base + byte}", file=name, byte=byte)
