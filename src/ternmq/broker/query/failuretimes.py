"""When rows failed last: the times of the records of their failures.

A row in memory has the position of the record of its newest failure. Positions ascend in time, so
a binary search over them finds the rows of a span with few reads. A row that was copied (MOVED)
refers to its copy, which is newer than the failure: such rows are read one by one. Those are the
rows that the index knows a copy of, or some of them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.record.fact import moved
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of, time_us_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FailureTimes:
    """The times of the failures of a group queue; what was read is kept for the next question.

    Every method raises ``WouldBlock`` if bytes must be read first: call again after that.
    """

    __slots__ = ("_copied_us", "_ledger", "_progress", "_record_us")

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger = ledger
        self._progress = progress
        self._record_us: dict[int, int] = {}
        """Position -> time of the record there."""
        self._copied_us: dict[int, dict[int, int]] = {}
        """Position of a MOVED record -> offset -> time of its newest failure."""

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

    def within(
        self,
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
        since_us: int,
        until_us: int,
    ) -> NDArray[np.bool_]:
        """Return of each row whether it failed last at or after a time, and before another."""
        import numpy as np

        copied = self._copied(offsets)
        there: list[int] = np.unique(positions[~copied]).tolist()
        low = bisect_left(there, since_us, key=self._time_us)
        high = bisect_left(there, until_us, lo=low, key=self._time_us)
        first, last = (there[low], there[high - 1]) if low < high else (1, 0)
        mask: NDArray[np.bool_] = ~copied & (positions >= first) & (positions <= last)
        for at in np.flatnonzero(copied).tolist():
            mask[at] = since_us <= self.of(int(offsets[at]), int(positions[at])) < until_us
        return mask

    def latest(
        self, offsets: NDArray[np.int64], positions: NDArray[np.int64], limit: int
    ) -> list[tuple[int, int]]:
        """Return (time, offset) of the rows that failed last, in any order, and of copied rows."""
        import numpy as np

        copied = self._copied(offsets)
        plain = np.flatnonzero(~copied)
        plain = plain[np.lexsort((offsets[plain], positions[plain]))][-limit:]
        chosen = [*plain.tolist(), *np.flatnonzero(copied).tolist()]
        rows = [(int(offsets[at]), int(positions[at])) for at in chosen]
        return [(self.of(offset, position), offset) for offset, position in rows]

    def _copied(self, offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows, of ascending offsets, may refer to a copy."""
        import numpy as np

        progress = self._progress
        known: set[int] = set()
        if len(offsets):
            known = self._ledger.index.copied(
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
        if position < self._ledger.journal.first:
            return 0
        try:
            return self._ledger.store.time_us(position)
        except (MessageNotFound, CorruptJournal, DiskReadError):
            return 0

    def _read(self, position: int) -> bytes | None:
        if not position or position < self._ledger.journal.first:
            return None
        try:
            return self._ledger.store.get(position)
        except (MessageNotFound, CorruptJournal, DiskReadError):
            return None  # removed or unreadable: the row is shown without it
