"""When rows failed last: the times of the records of their failures.

A row in memory has the position of the record of its newest failure. Positions ascend in time, so
a binary search over them finds the rows of a span with few reads. A row that was copied (MOVED)
refers to its copy, which is newer than the failure: such rows are read one by one. Those are the
rows that the index knows a copy of, or some of them.

A copy contains the messages too, so the reads are bounded: an answer tells of the first rows only,
if the others would need more than ``MOST_COPIES`` or ``COPY_BYTES``. What a command reads has to
fit into the cache, or the command would read for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from ternmq.broker.group.progress import Progress
from ternmq.broker.query.held import Held
from ternmq.journal.store.store import CHUNK_BYTES
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.record.fact import moved
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of, time_us_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_COPIES: Final = 64
"""Records of copied rows after which ``within`` and ``latest`` end: each can have 64 rows."""
COPY_BYTES: Final = 8 << 20
"""Likewise, bytes of these records: one can have a large message."""
MOST_CHUNKS: Final = 256
"""Chunks of the journal that ``latest`` reads for the rows that were not copied: 16 MiB."""


class FailureTimes:
    """The times of the failures of a group queue; what was read is kept for the next question.

    Every method raises ``WouldBlock`` if bytes must be read first: call again after that.
    """

    __slots__ = ("_bytes", "_copied_us", "_held", "_progress", "_record_us", "_records")

    def __init__(self, held: Held, progress: Progress) -> None:
        self._held = held
        self._progress = progress
        self._record_us: dict[int, int] = {}
        """Position -> time of the record there."""
        self._copied_us: dict[int, dict[int, int]] = {}
        """Position of a MOVED record -> offset -> time of its newest failure."""
        self._records = 0
        """Number of whole records that were read."""
        self._bytes = 0
        """Bytes of these records."""

    def of(self, offset: int, position: int) -> int:
        """Return when a row failed last that is not dead; 0: that is not known any more.

        Args:
            offset: The row.
            position: Position of the record of its newest failure, or of a copy.
        """
        known = self._record_us.get(position)
        if known is not None:
            return known
        copied = self._copied_us.get(position)
        if copied is None:
            record = self._read(position)
            if record is None or kind_of(record) != Kind.MOVED:
                time_us = time_us_of(record) if record is not None else 0
                self._record_us[position] = time_us
                return time_us
            copied = self._copied_us[position] = {
                one.offset: one.entries[-1].time_us
                for one in moved.unpack(record[HEADER_BYTES:]).failures
                if one.group == self._progress.group and one.entries
            }
        return copied.get(offset, 0)

    def forget_unknown(self) -> None:
        """Ask again for times that could not be read: later, the disk may return them."""
        self._record_us = {
            position: time_us for position, time_us in self._record_us.items() if time_us
        }

    def within(
        self,
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
        since_us: int,
        until_us: int,
    ) -> NDArray[np.bool_]:
        """Return of the first rows whether they failed last at or after a time, before another."""
        import numpy as np

        copied = self._copied(offsets)
        there: list[int] = np.unique(positions[~copied]).tolist()
        low = bisect_left(there, since_us, key=self._time_us)
        high = bisect_left(there, until_us, lo=low, key=self._time_us)
        first, last = (there[low], there[high - 1]) if low < high else (1, 0)
        mask: NDArray[np.bool_] = ~copied & (positions >= first) & (positions <= last)
        for at in np.flatnonzero(copied).tolist():
            if not self._may_read(int(positions[at])):
                return mask[:at]
            mask[at] = since_us <= self.of(int(offsets[at]), int(positions[at])) < until_us
        return mask

    def latest(
        self, offsets: NDArray[np.int64], positions: NDArray[np.int64], limit: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Return (time, offset) of those of the first rows that failed last, and maybe of others.

        They are in any order. The number is how many rows those first ones are.
        """
        import numpy as np

        copied = self._copied(offsets)
        plain = np.flatnonzero(~copied)
        plain = plain[np.lexsort((offsets[plain], positions[plain]))][-limit:]
        if len(plain) == limit:  # a row failed before its copy was made: older ones do not matter
            copied &= positions >= positions[plain[0]]
        stop = _chunks_end(positions, np.sort(plain))
        found: list[tuple[int, int]] = []
        for at in np.flatnonzero(copied[:stop]).tolist():
            if not self._may_read(int(positions[at])):
                stop = at
                break
            offset = int(offsets[at])
            found.append((self.of(offset, int(positions[at])), offset))
        for at in plain[plain < stop].tolist():
            found.append((self._time_us(int(positions[at])), int(offsets[at])))
        return found, stop

    def _may_read(self, position: int) -> bool:
        """Return whether the whole record there is known, or may be read too."""
        if position in self._record_us or position in self._copied_us:
            return True
        return self._records < MOST_COPIES and self._bytes < COPY_BYTES

    def _copied(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows, of ascending offsets, may refer to a copy."""
        import numpy as np

        progress = self._progress
        known: set[int] = set()
        if len(offsets):
            known = self._held.index.copied(
                progress.topic, progress.queue, int(offsets[0]), int(offsets[-1]) + 1
            )
        if not known:
            return np.zeros(len(offsets), dtype=bool)
        mask: NDArray[np.bool_] = np.isin(offsets, np.fromiter(known, np.int64, len(known)))
        return mask

    def _time_us(self, position: int) -> int:
        known = self._record_us.get(position)
        if known is None:
            known = self._record_us[position] = self._stored_us(position)
        return known

    def _stored_us(self, position: int) -> int:
        if position < self._held.journal.first:
            return 0
        try:
            return self._held.store.time_us(position)
        except (MessageNotFound, CorruptJournal, DiskReadError):
            return 0

    def _read(self, position: int) -> bytes | None:
        if not position or position < self._held.journal.first:
            return None
        try:
            record = self._held.store.get(position)
        except (MessageNotFound, CorruptJournal, DiskReadError):
            self._records += 1
            return None  # removed or unreadable: the row is shown without it
        self._records += 1
        self._bytes += len(record)
        return record


def _chunks_end(positions: NDArray[np.int64], rows: NDArray[np.int64]) -> int:
    """Return how many rows come before the one that needs one chunk too many.

    Args:
        positions: Of the records of all rows.
        rows: Numbers of the rows whose records are read, ascending.
    """
    chunks: set[int] = set()
    for at, position in zip(rows.tolist(), positions[rows].tolist(), strict=True):
        chunks.add(position // CHUNK_BYTES)
        if len(chunks) > MOST_CHUNKS:
            return int(at)
    return len(positions)
