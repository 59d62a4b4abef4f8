"""Columns of tables as arrays of numbers, and back.

Null is ``NULL``, or another number that a column never has, such as -1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

NULL: Final = int(np.iinfo(np.int64).min)


def numbers(column: pa.Array | pa.ChunkedArray, null: int = NULL) -> Numbers:
    """Return a column of numbers or times as an array."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    plain = whole.cast(pa.int64())
    filled = pc.fill_null(plain, null) if plain.null_count else plain
    found: Numbers = filled.to_numpy(zero_copy_only=False)
    return found


def from_position(events: pa.Table, position: int) -> pa.Table:
    """Return the events at or after a position; they are in the order of the journal."""
    return events.slice(int(np.searchsorted(numbers(events["position"]), position)))


def column(values: Numbers | Codes, kind: pa.DataType, null: int = NULL) -> pa.Array:
    """Return an array of numbers or times as a column."""
    missing = values == null
    made = pa.array(values, mask=missing if missing.any() else None)
    return made.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else made.cast(kind)


def member(texts: pa.Array | pa.ChunkedArray, of: tuple[str, ...]) -> Codes:
    """Return the index of each text in ``of``; -1: it is not there."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    found = pc.index_in(whole, value_set=pa.array(of, pa.string()))
    made: Codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
    return made


def ints(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """Return a column of numbers, times or truth values as integers; null is -1."""
    return numbers(column, -1)
