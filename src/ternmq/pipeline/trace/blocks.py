"""How rows of a queue are laid out in its files, and which files a change replaces.

A file has rows of one queue, of one hour and of one block of offsets; small queues share files
(``sharing``). Rows that are over and rows
that are open have files of their own, the open ones for smaller blocks: a row that is over hardly
ever changes again, and a file is written anew only if one of its rows changed. So about as many
rows are written as changed. If rounds are short, a block collects small files; they are joined
before there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.tables.datafile import DataFile, int_of, parts
from ternmq.pipeline.tables.numbers import Numbers, numbers
from ternmq.pipeline.tables.table import Table

BLOCK_BITS = 16
"""A file has rows of at most 2^16 offsets. Versions before had 2^18, and one file for all rows of a
block: these files stay until one of their rows changes."""
OPEN_BITS = 14
"""A file of open rows has at most 2^14 offsets."""
SMALL_ROWS: Final = 4096
MOST_SMALL: Final = 16
"""So many files with fewer than ``SMALL_ROWS`` rows that are over are joined."""
_SAME: Final = frozenset({"topic", "topic_number", "queue", "offset", "group_number"})
"""Columns in which rows of one key and queue cannot differ."""


def blocks_of(file: DataFile) -> tuple[int, int]:
    """Return the first and the last block of a file."""
    return int_of(file.low["offset"]) >> BLOCK_BITS, int_of(file.high["offset"]) >> BLOCK_BITS


def is_open(file: DataFile) -> bool:
    """Return whether a file has open rows."""
    return int_of(file.high["open"]) > 0


@dataclass(slots=True)
class Layer:
    """Rows that become a file.

    Attributes:
        rows: The rows.
        replaces: Files whose rows are among them.
    """

    rows: pa.Table
    replaces: Sequence[DataFile] = ()


def layers(table: Table, rows: pa.Table, kept: Iterable[DataFile]) -> Iterable[Layer]:
    """Yield the files that rows of one queue become.

    Args:
        table: The trace.
        rows: The rows.
        kept: Files of the queue that stay; small ones are joined with the rows if they are many.
    """
    kept = list(kept)
    for hour, block, part in _laid_out(rows):
        if block is not None and (small := _small(kept, hour, block)):
            yield Layer(pa.concat_tables([part, table.read_files(small)]), small)
        else:
            yield Layer(part)


@dataclass(slots=True)
class Change:
    """What a fold changed in the files of a queue.

    Attributes:
        rows: The rows to be written.
        files: Which files they replace, or, of a shared file, replace the queue's rows of.
    """

    rows: pa.Table
    files: npt.NDArray[np.bool_]


def change(file: Numbers, count: int, before: pa.Table, after: pa.Table) -> Change:
    """Return what must be written after a fold: all rows of a file, if one of them changed.

    Args:
        file: Number of the file of each row before the fold.
        count: How many files there are.
        before: The rows before the fold.
        after: All rows after it.
    """
    differ, at = _different(before, after)
    changed = np.bincount(file, weights=differ, minlength=count) > 0
    wanted = np.ones(len(after), bool)
    wanted[at[~changed[file]]] = False
    return Change(after.filter(pa.array(wanted)), changed)


def _different(before: pa.Table, after: pa.Table) -> tuple[npt.NDArray[np.bool_], Numbers]:
    """Return which rows are not the same after a fold, and where each of them is then."""
    if not len(before):
        return np.zeros(0, bool), np.zeros(0, np.int64)
    at = _places(before, after)
    there = np.flatnonzero(at >= 0)
    differ = at < 0
    differ[there] = _differ(before.take(pa.array(there)), after.take(pa.array(at[there])))
    return differ, at


def _places(before: pa.Table, after: pa.Table) -> Numbers:
    """Return where each row is among other rows, by offset and group; -1: it is not there."""
    offset, group = (
        np.concatenate([numbers(before[name], -1), numbers(after[name], -1)])
        for name in ("offset", "group_number")
    )
    order = np.lexsort((group, offset))  # stable: of two equal ones, that of ``before`` is first
    first, second = order[:-1], order[1:]
    same = (offset[first] == offset[second]) & (group[first] == group[second])
    found = np.full(len(before), -1)
    found[first[same]] = second[same] - len(before)
    return found


def _differ(one: pa.Table, other: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows of two tables of the same rows are not equal."""
    found = np.zeros(len(one), bool)
    for name in one.schema.names:
        if name in _SAME:
            continue
        a, b = one[name].combine_chunks(), other[name].combine_chunks()
        if pa.types.is_list(a.type):
            found |= _lists_differ(a, b)
        else:
            found |= _values_differ(a, b)
    return found


def _values_differ(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    unequal = pc.fill_null(pc.not_equal(a, b), False)
    found: npt.NDArray[np.bool_] = pc.or_(unequal, pc.xor(pc.is_null(a), pc.is_null(b))).to_numpy(
        zero_copy_only=False
    )
    return found


def _lists_differ(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which lists of structs are not equal."""
    found = _values_differ(pc.list_value_length(a), pc.list_value_length(b))
    alike = pa.array(np.flatnonzero(~found))
    a, b = a.take(alike), b.take(alike)
    parent = pc.list_parent_indices(a).to_numpy(zero_copy_only=False)
    flat_a, flat_b = a.flatten(), b.flatten()
    for one in flat_a.type:
        differ = _values_differ(flat_a.field(one.name), flat_b.field(one.name))
        found[alike.to_numpy()[parent[differ]]] = True
    return found


def _laid_out(rows: pa.Table) -> Iterable[tuple[str, int | None, pa.Table]]:
    """Split rows into those of files; yield their hour, and their block if they are over."""
    for partition, part in parts(rows, ("hour",)):
        offset, still = numbers(part["offset"]), numbers(part["open"]) > 0
        key = np.where(still, offset >> OPEN_BITS << 1 | 1, offset >> BLOCK_BITS << 1)
        order = np.argsort(key, kind="stable")
        keys, begins = np.unique(key[order], return_index=True)
        sorted_ = part.take(pa.array(order))
        ends = [*begins.tolist(), len(order)][1:]
        for one, begin, end in zip(keys.tolist(), begins.tolist(), ends, strict=True):
            block = None if one & 1 else one >> 1
            yield partition["hour"], block, sorted_.slice(begin, end - begin)


def _small(files: Iterable[DataFile], hour: str, block: int) -> list[DataFile]:
    """Return the small files of a block with rows that are over, if they are too many."""
    found = [
        one
        for one in files
        if one.partition["hour"] == hour
        and one.rows < SMALL_ROWS
        and not is_open(one)
        and blocks_of(one) == (block, block)
    ]
    return found if len(found) >= MOST_SMALL - 1 else []
