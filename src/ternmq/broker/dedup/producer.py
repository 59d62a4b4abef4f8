"""What deduplication remembers of one producer: its batches, by sequence.

Stored in columns of 24 bytes a batch, since there may be a million. Sequences and positions usually
ascend together, so everything below a position is forgotten with one cut. A producer whose batches
came in another order is *mixed*: all of its batches are examined instead.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


class Producer:
    """The remembered batches of one producer; the columns are sorted by first sequence."""

    __slots__ = ("firsts", "forgotten", "last_us", "metas", "mixed", "next", "positions")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.positions = array("Q")
        self.metas = array("Q")
        self.next = 0
        """One above the highest sequence seen."""
        self.forgotten = 0
        """One above the highest sequence forgotten."""
        self.last_us = 0
        self.mixed = False
        """Batches came in another order than their sequences: the positions may not ascend."""

    def put(self, first: int, count: int, crc: int, position: int, time_us: int) -> None:
        """Remember a batch."""
        if first >= self.next:
            self.firsts.append(first)
            self.positions.append(position)
            self.metas.append(count << 32 | crc)
            self.next = first + count
        else:
            at = bisect_left(self.firsts, first)
            self.firsts.insert(at, first)
            self.positions.insert(at, position)
            self.metas.insert(at, count << 32 | crc)
            self.mixed = True
        self.last_us = time_us

    def begin_again(self) -> None:
        """Let go the batches: it was idle for so long that a running broker forgot it."""
        del self.firsts[:], self.positions[:], self.metas[:]
        self.next = self.forgotten
        self.mixed = False

    def trim(self, horizon: int) -> None:
        """Forget the batches whose record is below the horizon. O(log n) if there are none."""
        positions = self.positions
        if self.mixed:
            self._trim_mixed(horizon)
        elif positions and positions[0] < horizon:
            stop = bisect_left(positions, horizon)
            end = self.firsts[stop - 1] + (self.metas[stop - 1] >> 32)
            if end > self.forgotten:
                self.forgotten = end
            del self.firsts[:stop], positions[:stop], self.metas[:stop]

    def _trim_mixed(self, horizon: int) -> None:
        import numpy as np  # imported late: see `server.telemetry.late_imports`

        positions = np.array(self.positions, dtype=np.uint64)
        keep = positions >= np.uint64(horizon)
        if not keep.all():
            firsts = np.array(self.firsts, dtype=np.uint64)
            metas = np.array(self.metas, dtype=np.uint64)
            ends = firsts[~keep] + (metas[~keep] >> np.uint64(32))
            self.forgotten = max(self.forgotten, int(ends.max()))
            self.firsts = array("Q", firsts[keep].tobytes())
            self.metas = array("Q", metas[keep].tobytes())
            positions = positions[keep]
            self.positions = array("Q", positions.tobytes())
        self.mixed = bool((positions[1:] < positions[:-1]).any())
