"""Due times of the rows that writers prepared, as long as their transactions are undecided.

A commit needs them: it says when each row is due, so that it can be applied without a PREPARED. Few
batches have due times, so these are beside ``undecided``, and objects of their own in STATE.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_NONE: Final[Mapping[int, Times]] = {}


class Times(NamedTuple):
    """The due times of a prepared batch.

    Attributes:
        position: Position of its PREPARED.
        due_us: Due time of each row, as its producer gave it.
    """

    position: int
    due_us: array[int]


class DueTimes:
    """The due times of all undecided transactions of writers. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        rows: Number of a transaction -> number of its rows with due times.
        all_rows: Their sum.
    """

    __slots__ = ("_by_number", "all_rows", "rows")

    def __init__(self) -> None:
        self._by_number: dict[int, dict[int, Times]] = {}
        self.rows: Counter[int] = Counter()
        self.all_rows = 0

    def of(self, number: int) -> Mapping[int, Times]:
        """Return the due times of a transaction, by ordinal of the PREPARED."""
        return self._by_number.get(number, _NONE)

    # -- facts ------------------------------------------------------------------------------------

    def add(self, number: int, ordinal: int, times: Times) -> None:
        """Add a batch of a transaction; nothing changes if it is there."""
        known = self._by_number.setdefault(number, {})
        if ordinal not in known:
            known[ordinal] = times
            self.rows[number] += len(times.due_us)
            self.all_rows += len(times.due_us)

    def drop(self, number: int) -> None:
        """Forget a transaction that was decided."""
        self._by_number.pop(number, None)
        self.all_rows -= self.rows.pop(number, 0)

    # -- STATE ------------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield (number, ordinal) of all batches, sorted."""
        for number, known in sorted(self._by_number.items()):
            for ordinal in sorted(known):
                yield number, ordinal

    def encode(self, number: int, ordinal: int) -> bytes:
        """Return the due times of a batch for STATE; empty if its transaction is decided."""
        times = self.of(number).get(ordinal)
        return b"" if times is None else times.due_us.tobytes()

    def load(self, number: int, ordinal: int, payload: bytes, stamp: int) -> None:
        """Load the due times of a batch as they were at ``stamp``."""
        if payload:
            self.add(number, ordinal, Times(stamp, array("q", payload)))
