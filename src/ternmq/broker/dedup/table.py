"""Many deduplication entries as a numpy table, for a start with a full window.

A million entries take some 0.1 s; as rows (``runs.rows_of``) they would take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from ternmq.broker.dedup.runs import (
    ENTRY_WORDS,
    FIRST,
    META,
    POSITION,
    PRODUCER,
    TIME,
    Content,
)
from ternmq.model.types import SECOND_US

Table: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.uint64]]"
"""Entries as rows of u64: producer, first sequence, position, rows << 32 | crc, time."""


def table_of(runs: Sequence[Content], horizon: int) -> Table:
    """Return the entries of the runs from the horizon on, in the order of the journal."""
    tables = [_table(run) for run in runs if run.entries]
    if not tables:
        return np.zeros((0, ENTRY_WORDS), dtype=np.uint64)
    tables.sort(key=lambda table: int(table[0, POSITION]))
    table = np.concatenate(tables)
    del tables
    positions = table[:, POSITION]
    if (positions[1:] < positions[:-1]).any():
        table = table[np.argsort(positions, kind="stable")]
    return table[int(np.searchsorted(table[:, POSITION], np.uint64(horizon))) :]


def _table(run: Content) -> Table:
    table = np.zeros((run.entries, ENTRY_WORDS), dtype=np.uint64)
    long = np.frombuffer(run.columns, dtype="<u8", count=4 * run.entries).reshape(4, run.entries)
    table[:, PRODUCER] = long[0]
    for row, word in enumerate((FIRST, POSITION, TIME), 1):
        table[:, word] = np.cumsum(long[row], dtype=np.uint64)
    rows = np.frombuffer(run.columns, dtype="<u4", offset=32 * run.entries).astype(np.uint64)
    crcs = np.frombuffer(run.crcs, dtype="<u4")
    table[:, META] = rows << np.uint64(32) | crcs
    return table


class Bucket(NamedTuple):
    """Entries of one second of record time."""

    second: int
    position: int
    """Position of its first entry."""
    entries: int


def buckets(table: Table) -> list[Bucket]:
    """Return the buckets of a table that is not empty."""
    seconds = table[:, TIME] // np.uint64(SECOND_US)
    starts = np.concatenate(([0], np.flatnonzero(seconds[1:] != seconds[:-1]) + 1))
    counts = np.diff(np.concatenate((starts, [len(seconds)])))
    return [
        Bucket(int(seconds[start]), int(table[start, POSITION]), count)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]


class Stretch(NamedTuple):
    """The entries of one producer, in the order of the journal."""

    producer: int
    rows: Table
    mixed: bool
    """Their order differs from the order of their sequences."""
    columns: tuple[bytes, bytes, bytes]
    """FIRST, POSITION and META, as u64."""


def stretches(table: Table, idle_us: int) -> Iterator[Stretch]:
    """Yield the entries of each producer of a table that is not empty.

    Those before a pause of more than ``idle_us`` are left out: the producer was forgotten in it.
    """
    table = _since_pauses(table[np.argsort(table[:, PRODUCER], kind="stable")], idle_us)
    owners, firsts, metas = table[:, PRODUCER], table[:, FIRST], table[:, META]
    same = owners[1:] == owners[:-1]
    mixed = same & (firsts[1:] < firsts[:-1] + (metas[:-1] >> np.uint64(32)))
    mixed_owners = set(owners[1:][mixed].tolist())
    starts = [0, *(np.flatnonzero(~same) + 1).tolist()]
    stops = [*starts[1:], len(table)]
    one, two, three = [table[:, word].tobytes() for word in (FIRST, POSITION, META)]
    for owner, start, stop in zip(owners[starts].tolist(), starts, stops, strict=True):
        cut = slice(8 * start, 8 * stop)
        columns = one[cut], two[cut], three[cut]
        yield Stretch(owner, table[start:stop], owner in mixed_owners, columns)


def _since_pauses(table: Table, idle_us: int) -> Table:
    """Return the entries since each producer's last pause; the table is sorted by producer."""
    owners, times = table[:, PRODUCER], table[:, TIME]
    same = owners[1:] == owners[:-1]
    pauses = np.flatnonzero(same & (times[1:] > times[:-1] + np.uint64(idle_us))) + 1
    if not len(pauses):
        return table
    begins = np.concatenate(([0], np.flatnonzero(~same) + 1))
    keep = np.ones(len(table), dtype=bool)
    for pause in pauses.tolist():
        keep[begins[np.searchsorted(begins, pause, side="right") - 1] : pause] = False
    return table[keep]
