"""The plan of a pull: what it will deliver. Making a plan changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ternmq.broker.group.failedrows import Failure
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError
from ternmq.record.fact.facts import LeasedRun, Span

MAX_COUNT: Final = 0xFFFF


class RowsUnreadable(Exception):
    """The next rows of a plan cannot be read, and nothing in the plan comes before them.

    Attributes:
        start: The first of the rows.
        stop: After the last.
        error: Why.
    """

    def __init__(self, start: int, stop: int, error: CorruptJournal | DiskReadError) -> None:
        super().__init__(f"rows {start} to {stop} cannot be read")
        self.start = start
        self.stop = stop
        self.error = error


class Plan:
    """Runs to lease, rows to skip and to park, and where their batches are stored."""

    __slots__ = ("cursor", "hashes", "parked", "places", "runs", "skipped")
    sweeps: ClassVar[bool] = False
    """Whether it is a ``SweepPlan``."""

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.runs: list[LeasedRun] = []
        self.places: list[Places] = []
        self.skipped: list[Span] = []
        self.parked: list[Span] = []
        self.hashes: list[int] = []

    def lease_row(self, offset: int, attempt: int, deliveries: int) -> None:
        """Add one row after the others."""
        if self.runs:
            start, stop, tries, given = self.runs[-1]
            if stop == offset and tries == attempt and given == deliveries:
                self.runs[-1] = (start, offset + 1, attempt, deliveries)
                return
        self.runs.append((offset, offset + 1, attempt, deliveries))

    def skip_between(self, start: int, stop: int) -> None:
        """Add what lies between the fresh runs in ``[start, stop)`` to the skipped spans."""
        at = start
        for low, high, _, _ in sorted(self.runs):
            if low < start:
                continue
            if low >= stop:
                break  # owed rows beyond
            if at < low:
                self.skipped.append((at, low))
            at = high
        if at < stop:
            self.skipped.append((at, stop))

    def park(self, rows: Sequence[tuple[int, int]]) -> None:
        """Add rows that wait behind their keys, with their hashes."""
        for offset, hash_ in rows:
            if self.parked and self.parked[-1][1] == offset:
                self.parked[-1] = (self.parked[-1][0], offset + 1)
            else:
                self.parked.append((offset, offset + 1))
            self.hashes.append(hash_)


class SweepPlan(Plan):
    """A plan of new rows, which will not be handed out but judged.

    So neither rows that are owed nor a full failure store keep them back.
    """

    __slots__ = ()
    sweeps: ClassVar[bool] = True


class Budget:
    """Bytes that a pull may still take. A record counts once; the first always fits."""

    __slots__ = ("_taken", "left")

    def __init__(self, max_bytes: int) -> None:
        self.left = max_bytes
        self._taken: set[int] = set()

    def takes(self, position: int, length: int) -> bool:
        """Return whether the record fits, and count it if it does."""
        if position in self._taken:
            return True
        if self._taken and length > self.left:
            return False
        self._taken.add(position)
        self.left -= length
        return True

    def takes_all(self, places: Places) -> bool:
        """Return whether all these records fit, and count them if they do."""
        taken = self._taken
        size = 0
        for position, length in zip(places.positions, places.lengths, strict=True):
            if position not in taken:
                size += length
        if taken and size > self.left:
            return False
        taken.update(places.positions)
        self.left -= size
        return True


def run_again(row: Failure) -> LeasedRun:
    """Return the run with which a failed row is delivered again."""
    return row.offset, row.offset + 1, once_more(row.attempt), once_more(row.deliveries)


def once_more(count: int) -> int:
    """Return the next count of attempts or deliveries; records can store at most 65,535."""
    return count + 1 if count < MAX_COUNT else MAX_COUNT


def one_place(places: Places, at: int, stop: int) -> Places:
    """Return one batch of several as places of its own."""
    return Places(
        places.first_offsets[at : at + 1],
        places.positions[at : at + 1],
        places.lengths[at : at + 1],
        stop,
        None if places.masks is None else places.masks[at : at + 1],
        None if places.resolved is None else places.resolved[at : at + 1],
    )


def end_of_batch(places: Places, at: int) -> int:
    """Return the offset after the last row of one of several batches."""
    firsts = places.first_offsets
    return firsts[at + 1] if at + 1 < len(firsts) else places.stop
