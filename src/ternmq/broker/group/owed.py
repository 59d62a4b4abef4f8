"""Rows that are owed to a group: leased, ready, waiting for a retry, or dead.

Before retention removes a segment, it looks for owed rows whose content, or whose known failures,
are stored there: both must outlive the segment.
"""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.group.failedrows import SHARD_BITS, SHARD_ROWS
from ternmq.broker.group.progress import Progress


class Owed(NamedTuple):
    """A row that is owed to a group."""

    offset: int
    position: int
    """Position of the record that describes its newest failure; 0 if it never failed."""
    attempt: int
    deliveries: int
    when_us: int


def owed_in(progress: Progress, key: int, below: int, told_below: int) -> list[Owed]:
    """Return the owed rows of a shard that are affected when a segment is removed.

    These are rows with an offset below ``below``, and rows whose newest failure is described in a
    record below ``told_below``.
    """
    base = key << SHARD_BITS
    end = base + SHARD_ROWS
    found: list[Owed] = []
    for rows in (progress.failures.waiting.get(key), progress.failures.dead.get(key)):
        if rows is not None and (base < below or rows.oldest_told() < told_below):
            found += [
                Owed(row.offset, row.position, row.attempt, row.deliveries, row.when_us)
                for row in rows
                if row.offset < below or row.position < told_below
            ]
    history = progress.failures.history
    if base < below or history:
        runs = [run for run, _ in progress.leases_by_shard().get(key, ())]
        runs += progress.ready.inside(base, end)
        for start, stop, attempt, deliveries in sorted(runs):
            for offset in range(max(start, base), min(stop, end)):
                position = history.get(offset, 0)
                if offset < below or 0 < position < told_below:
                    found.append(Owed(offset, position, attempt, deliveries, 0))
    return found


def owed_row(progress: Progress, offset: int) -> Owed | None:
    """Return the row if it is owed."""
    row = progress.failures.failure(offset) or progress.failures.dead_letter(offset)
    if row is not None:
        return Owed(offset, row.position, row.attempt, row.deliveries, row.when_us)
    told = progress.failures.history.get(offset, 0)
    for lease in progress.leases.values():
        for start, stop, attempt, deliveries in lease.runs:
            if start <= offset < stop:
                return Owed(offset, told, attempt, deliveries, 0)
    run = progress.ready.find(offset)
    if run is not None:
        _, _, attempt, deliveries = run
        return Owed(offset, told, attempt, deliveries, 0)
    return None


def told_row(progress: Progress, offset: int) -> Owed | None:
    """Return the row if it is owed and has failed before. Cheap if it has not failed."""
    failures = progress.failures
    row = failures.failure(offset) or failures.dead_letter(offset)
    if row is None and offset not in failures.history:
        return None
    owed = owed_row(progress, offset)
    return owed if owed is not None and owed.position else None
