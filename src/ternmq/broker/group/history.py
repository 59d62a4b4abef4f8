"""The failures of an owed row, read from the records that contain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ternmq.broker.group.progress import Progress
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.record.fact import moved
from ternmq.record.fact.facts import LeasedRun, Settled, failing, unpack_settled
from ternmq.record.fact.header import HEADER_BYTES, Kind, kind_of, time_us_of
from ternmq.record.fact.moved import MAX_HISTORY, FailureEntry
from ternmq.record.fact.transactions import unpack_resolved


class Records(Protocol):
    """A reader of records: the store, or a wrapper that counts."""

    def get(self, position: int) -> bytes:
        """Return the whole record at a position; raises as ``RecordStore.get``."""
        ...


def failure_entries(
    store: Records, progress: Progress, offset: int, position: int, first: int
) -> list[FailureEntry]:
    """Return the newest failures of a row, at most ``MAX_HISTORY``, oldest first.

    Args:
        store: Reads records.
        progress: The group queue.
        offset: The row.
        position: Position of the record of the newest failure.
        first: Where the journal begins; older records of failures are gone.

    Raises:
        WouldBlock: bytes must be read first.
    """
    entries: list[FailureEntry] = []
    while first <= position and position and len(entries) < MAX_HISTORY:
        record = store.get(position)
        body = record[HEADER_BYTES:]
        if kind_of(record) == Kind.MOVED:
            for failure in moved.unpack(body).failures:
                if failure.group == progress.group and failure.offset == offset:
                    entries += reversed(failure.entries)
                    break
            break
        found = _entry(progress, offset, time_us_of(record), _settled_in(record))
        if found is None:
            break
        entry, position = found
        entries.append(entry)
    entries.reverse()
    return entries[-MAX_HISTORY:]


def _entry(
    progress: Progress, offset: int, time_us: int, settled: Sequence[Settled]
) -> tuple[FailureEntry, int] | None:
    for fact in settled:
        if (fact.group, fact.topic, fact.queue) != (progress.group, progress.topic, progress.queue):
            continue
        if not failing(fact.outcome):
            continue
        for (start, stop, attempt, _), previous in zip(fact.runs, fact.previous, strict=True):
            if start <= offset < stop:
                entry = FailureEntry(
                    time_us, fact.session, attempt, fact.outcome, fact.cause, fact.reason
                )
                return entry, previous
    return None


def _settled_in(record: bytes) -> Sequence[Settled]:
    """Return the facts of a SETTLED or ENDED, or those that a RESOLVED has."""
    body = record[HEADER_BYTES:]
    if kind_of(record) == Kind.RESOLVED:
        return unpack_resolved(body).settles
    return unpack_settled(body)


class LastFailures:
    """Finds the newest failure of each row that a pull handed out.

    Results are kept when ``find`` raises ``WouldBlock``, so that rows that failed long ago, each in
    another record, are found one after the other.

    Args:
        store: Reads records.
        progress: The group queue.
        runs: Runs that were handed out. Of rows in their first attempt, only redriven ones have
            failures.
        first: Where the journal begins; older records of failures are gone.
    """

    def __init__(
        self, store: RecordStore, progress: Progress, runs: Sequence[LeasedRun], first: int
    ) -> None:
        self._store = store
        self._progress = progress
        history = progress.failures.history
        rows = [
            (history[offset], offset)
            for start, stop, _, deliveries in runs
            if deliveries > 1 and history
            for offset in range(start, stop)
            if history.get(offset, 0) >= max(first, 1)
        ]
        self._left = sorted(rows, reverse=True)
        self._found: dict[int, tuple[int, bytes]] = {}

    def find(self) -> list[tuple[int, int, int, bytes]]:
        """Return (first offset, rows, cause, reason), by offset, of rows with a failure.

        Raises:
            WouldBlock: bytes must be read first.
        """
        left, found = self._left, self._found
        while left:
            position = left[-1][0]
            try:
                told = _told(self._store.get(position), self._progress)
            except (MessageNotFound, CorruptJournal, DiskReadError):
                told = {}  # removed or unreadable: the message is delivered without it
            while left and left[-1][0] == position:
                _, offset = left.pop()
                if offset in told:
                    found[offset] = told[offset]
        merged: list[tuple[int, int, int, bytes]] = []
        for offset in sorted(found):
            cause, reason = found[offset]
            if merged:
                start, rows, *alike = merged[-1]
                if start + rows == offset and alike == [cause, reason]:
                    merged[-1] = (start, rows + 1, cause, reason)
                    continue
            merged.append((offset, 1, cause, reason))
        return merged


def _told(record: bytes, progress: Progress) -> dict[int, tuple[int, bytes]]:
    """Return offset -> (cause, reason) of the newest failure of each row in a record."""
    body = record[HEADER_BYTES:]
    if kind_of(record) == Kind.MOVED:
        return {
            failure.offset: (int(failure.entries[-1].cause), failure.entries[-1].reason)
            for failure in moved.unpack(body).failures
            if failure.group == progress.group and failure.entries
        }
    return {
        offset: (int(fact.cause), fact.reason)
        for fact in _settled_in(record)
        if failing(fact.outcome)
        and (fact.group, fact.topic, fact.queue) == (progress.group, progress.topic, progress.queue)
        for start, stop, _, _ in fact.runs
        for offset in range(start, stop)
    }
