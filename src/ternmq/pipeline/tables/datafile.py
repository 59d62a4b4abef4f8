"""Descriptions of the files of a table, independent of how they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc

Value = bool | int | str | None
"""A bound; a time is µs since 1970."""


@dataclass(slots=True, frozen=True)
class DataFile:
    """A file that belongs to a table, or can be added to it.

    Attributes:
        path: Path relative to the table.
        size: Bytes.
        rows: Number of rows.
        partition: Value of each partition column, as text.
        low: Smallest values of the columns of ``TableSpec.bounds``; times are µs since 1970.
        high: Largest ones.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str] = field(default_factory=dict)
    low: Mapping[str, Value] = field(default_factory=dict)
    high: Mapping[str, Value] = field(default_factory=dict)


def bounds(
    rows: pa.Table | pa.RecordBatch, names: Iterable[str]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the smallest and the largest values of columns."""
    low: dict[str, Value] = {}
    high: dict[str, Value] = {}
    for name in names:
        column = rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        found = pc.min_max(column)
        low[name], high[name] = found["min"].as_py(), found["max"].as_py()
    return low, high


def parts(rows: pa.Table, names: Sequence[str]) -> Iterable[tuple[dict[str, str], pa.Table]]:
    """Split rows by partition; yield the partition's values as text, and its rows."""
    if not names:
        if len(rows):
            yield {}, rows
        return
    keys = rows.select(list(names)).group_by(list(names)).aggregate([]).to_pylist()
    if len(keys) == 1:
        yield {name: text(value) for name, value in keys[0].items()}, rows
        return
    for key in keys:
        chosen = None
        for name, value in key.items():
            same = pc.equal(rows.column(name), pa.scalar(value, rows.column(name).type))
            chosen = same if chosen is None else pc.and_(chosen, same)
        yield {name: text(value) for name, value in key.items()}, rows.filter(chosen)


def text(value: object) -> str:
    """Return a value of a partition column as the log stores it."""
    return value.isoformat() if isinstance(value, date) else str(value)


def plain(value: object) -> Value:
    """Return a bound as a number or text."""
    if isinstance(value, datetime):
        seconds = int(value.replace(microsecond=0).timestamp())
        return seconds * 1_000_000 + value.microsecond
    assert value is None or isinstance(value, int | str)
    return value


def int_of(value: Value) -> int:
    """Return a bound that is a number."""
    assert isinstance(value, int)
    return value
