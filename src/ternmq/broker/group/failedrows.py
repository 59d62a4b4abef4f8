"""Failed rows in few bytes each: those that wait for their due time, and dead letters.

The details of a failure (reason, time, session) stay on disk, in the SETTLED records; a row here
has the position of the newest one. In memory a row takes 20 bytes (2 offset, 8 time, 8 position and
attempt, 2 deliveries), so that a million pending retries take 20 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from ternmq.record.fact.state import SHARD_FAILED

SHARD_BITS: Final = 10
SHARD_ROWS: Final = 1 << SHARD_BITS
"""Offsets that one shard of a (group, queue) covers: part of the STATE format, never changed."""
HELD_US: Final = 1 << 62
"""Due time of a held row, which only an operator can free."""
_NUMPY_FROM: Final = 16
_NUMPY_MIN_FROM: Final = 64


class Failure(NamedTuple):
    """A row that waits or is dead."""

    offset: int
    when_us: int
    """Due time of a waiting row; time at which a dead row became dead."""
    attempt: int
    """Number of attempts made."""
    deliveries: int
    position: int
    """Position of the record of its newest failure."""


class FailureRows:
    """Failed rows of one shard, sorted by offset."""

    __slots__ = ("base", "deliveries", "due", "due_us", "references", "relative", "when")

    def __init__(self, base: int) -> None:
        self.base = base
        self.relative = array("H")
        self.when = array("q")
        self.references = array("Q")  # position << 16 | attempt
        self.deliveries = array("H")
        self.due = 0
        """Rows found to be due: those whose time is not after ``due_us``. Kept by the store."""
        self.due_us = -1
        """When the rows were last searched for those that are due; -1: never."""

    def __len__(self) -> int:
        return len(self.relative)

    def put(self, row: Failure) -> bool:
        """Store a row, or replace the one of its offset; return whether it is new."""
        relative = row.offset - self.base
        reference = row.position << 16 | min(row.attempt, 0xFFFF)
        deliveries = min(row.deliveries, 0xFFFF)
        if not self.relative or relative > self.relative[-1]:  # as the rows of most facts
            self.relative.append(relative)
            self.when.append(row.when_us)
            self.references.append(reference)
            self.deliveries.append(deliveries)
            return True
        at = bisect_left(self.relative, relative)
        if at < len(self.relative) and self.relative[at] == relative:
            self.when[at] = row.when_us
            self.references[at] = reference
            self.deliveries[at] = deliveries
            return False
        self.relative.insert(at, relative)
        self.when.insert(at, row.when_us)
        self.references.insert(at, reference)
        self.deliveries.insert(at, deliveries)
        return True

    def remove(self, start: int, stop: int) -> int:
        """Remove the rows with offsets in ``[start, stop)``; return their number."""
        low, high = self._bounds(start, stop)
        if low == high:
            return 0
        for column in (self.relative, self.when, self.references, self.deliveries):
            del column[low:high]
        return high - low

    def due_in(self, start: int, stop: int) -> int:
        """Return how many of the rows found to be due have offsets in ``[start, stop)``."""
        low, high = self._bounds(start, stop)
        return sum([when <= self.due_us for when in self.when[low:high]])

    def held_in(self, start: int, stop: int) -> int:
        """Return how many rows with offsets in ``[start, stop)`` are held."""
        low, high = self._bounds(start, stop)
        return self.when[low:high].count(HELD_US)

    def held(self) -> int:
        """Return how many rows are held."""
        if len(self.when) < _NUMPY_MIN_FROM:
            return self.when.count(HELD_US)
        import numpy as np  # not before: see `server.telemetry.late_imports`

        return int(np.count_nonzero(np.frombuffer(self.when, dtype=np.int64) == HELD_US))

    def get(self, offset: int) -> Failure | None:
        """Return the row of an offset, or None."""
        relative = offset - self.base
        at = bisect_left(self.relative, relative)
        if at < len(self.relative) and self.relative[at] == relative:
            return self._row(at)
        return None

    def span(self, start: int, stop: int) -> Iterator[Failure]:
        """Yield the rows with offsets in ``[start, stop)``; do not change the object meanwhile."""
        low, high = self._bounds(start, stop)
        for at in range(low, high):
            yield self._row(at)

    def positions_in(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return offsets in ``[start, stop)`` and positions of their failures' records."""
        low, high = self._bounds(start, stop)
        base = self.base
        offsets = [base + relative for relative in self.relative[low:high]]
        return zip(offsets, [one >> 16 for one in self.references[low:high]], strict=True)

    def deliveries_in(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return offsets in ``[start, stop)`` and how often their rows were delivered."""
        low, high = self._bounds(start, stop)
        base = self.base
        offsets = [base + relative for relative in self.relative[low:high]]
        return zip(offsets, self.deliveries[low:high], strict=True)

    def offsets_from(self, start: int, limit: int) -> list[int]:
        """Return the offsets from ``start`` on, at most ``limit``."""
        low = bisect_left(self.relative, max(start - self.base, 0))
        base = self.base
        return [base + relative for relative in self.relative[low : low + limit]]

    def __iter__(self) -> Iterator[Failure]:
        for at in range(len(self.relative)):
            yield self._row(at)

    def first_us(self) -> int:
        """Return the smallest time; the object must not be empty."""
        if len(self.when) < _NUMPY_MIN_FROM:
            return int(min(self.when))
        import numpy as np  # not before: see `server.telemetry.late_imports`

        return int(np.frombuffer(self.when, dtype=np.int64).min())

    def until(self, now_us: int) -> list[int]:
        """Return the offsets of the rows whose time is not after ``now_us``, in order of offset."""
        if len(self.when) < _NUMPY_FROM:
            return [
                self.base + relative
                for relative, when in zip(self.relative, self.when, strict=True)
                if when <= now_us
            ]
        import numpy as np  # not before: see `server.telemetry.late_imports`

        hits = np.flatnonzero(np.frombuffer(self.when, dtype=np.int64) <= now_us)
        relative = np.frombuffer(self.relative, dtype=np.uint16)[hits]
        return [self.base + row for row in relative.tolist()]

    def later_us(self, now_us: int) -> int | None:
        """Return the smallest time after ``now_us``, or None."""
        if len(self.when) < _NUMPY_FROM:
            later = [when for when in self.when if when > now_us]
            return min(later) if later else None
        import numpy as np  # not before: see `server.telemetry.late_imports`

        when = np.frombuffer(self.when, dtype=np.int64)
        after = when[when > now_us]
        return int(after.min()) if len(after) else None

    def oldest_told(self) -> int:
        """Return the smallest position of a failure's record; the object must not be empty."""
        return int(min(self.references)) >> 16

    def refer(self, offset: int, position: int) -> None:
        """Set the record of a row's failures, now a MOVED record; unknown rows: no effect."""
        relative = offset - self.base
        at = bisect_left(self.relative, relative)
        if at < len(self.relative) and self.relative[at] == relative:
            self.references[at] = position << 16 | self.references[at] & 0xFFFF

    def encode(self) -> bytes:
        """Return the rows as stored in STATE: a count and the four columns, padded to 8."""
        count = len(self.relative)
        parts = [
            SHARD_FAILED.pack(count, 0),
            self.when.tobytes(),
            self.references.tobytes(),
            self.relative.tobytes(),
            bytes(-2 * count % 8),
            self.deliveries.tobytes(),
            bytes(-2 * count % 8),
        ]
        return b"".join(parts)

    def decode(self, data: bytes, at: int) -> int:
        """Load the rows encoded at ``at`` into an empty object; return where they end."""
        count, _ = SHARD_FAILED.unpack_from(data, at)
        at += SHARD_FAILED.size
        if not count:
            return at  # nearly every shard has no dead rows
        self.when = array("q", data[at : at + 8 * count])
        at += 8 * count
        self.references = array("Q", data[at : at + 8 * count])
        at += 8 * count
        padded = 2 * count + -2 * count % 8
        self.relative = array("H", data[at : at + 2 * count])
        at += padded
        self.deliveries = array("H", data[at : at + 2 * count])
        return int(at + padded)

    def _bounds(self, start: int, stop: int) -> tuple[int, int]:
        low = bisect_left(self.relative, max(start - self.base, 0))
        return low, bisect_left(self.relative, max(stop - self.base, 0), low)

    def _row(self, at: int) -> Failure:
        reference = self.references[at]
        return Failure(
            self.base + self.relative[at],
            self.when[at],
            reference & 0xFFFF,
            self.deliveries[at],
            reference >> 16,
        )
