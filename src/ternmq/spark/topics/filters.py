"""Filters that Spark pushes down, applied while reading.

Only filters that can be applied exactly are accepted, because Spark does not check again. Filters
on offset, partition and topic also narrow the ranges that are fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ternmq.spark import schema
from ternmq.spark.broker.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARED: Final = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_TAKEN: Final[dict[str, type | tuple[type, ...]]] = {
    "offset": int,
    "partition": int,
    "timestamp": datetime,
    "topic": str,
    "key": (str, bytes),
}
_NUMBERS: Final = frozenset({"offset", "partition"})


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a column: a comparison (``pyarrow.compute``'s name), ``in`` or ``there``."""

    column: str
    compare: str
    value: Any

    def mask(self, values: pa.Array) -> pa.Array:
        """Return a mask of the rows that pass; false where the value is null."""
        import pyarrow as pa
        from pyarrow import compute

        if self.compare == "there":
            return values.is_valid()
        if self.compare == "in":
            found = compute.is_in(values, pa.array(self.value, values.type))
        else:
            found = getattr(compute, self.compare)(values, pa.scalar(self.value, values.type))
        return compute.fill_null(found, fill_value=False)

    def allows(self, value: object) -> bool:
        """Return whether a single value of ``topic`` or ``partition`` may pass."""
        if self.compare == "there":
            return True
        if self.compare == "in":
            return value in self.value
        answer = {
            "equal": lambda a, b: a == b,
            "less": lambda a, b: a < b,
            "less_equal": lambda a, b: a <= b,
            "greater": lambda a, b: a > b,
            "greater_equal": lambda a, b: a >= b,
        }[self.compare](value, self.value)
        return bool(answer)


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters that must all pass."""

    every: tuple[Filter, ...] = ()

    def columns(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Return the columns needed for filtering in addition to the chosen ones."""
        names = [one.column for one in self.every if one.column not in chosen]
        return schema.kinds(names)

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that pass."""
        for one in self.every:
            batch = batch.filter(one.mask(batch.column(one.column)))
        return batch

    def narrow(self, spans: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Reduce ranges to the parts that may hold rows that pass."""
        found: list[OffsetRange] = []
        for span in spans:
            start, stop = span.start, span.stop
            for one in self.every:
                if one.column == "offset":
                    low, high = _offsets(one)
                    start, stop = max(start, low), min(stop, high)
                elif not _allows(one, span):
                    stop = start
            if start < stop:
                found.append(span._replace(start=start, stop=stop))
        return found


def _allows(one: Filter, span: OffsetRange) -> bool:
    """Return whether a queue may hold rows that pass."""
    if one.column == "topic":
        return one.allows(span.topic)
    return one.column != "partition" or one.allows(span.queue)


def _offsets(one: Filter) -> tuple[int, int]:
    """Return the offsets ``[low, high)`` that may pass."""
    match one.compare:
        case "there":
            return 0, 2**63
        case "in":
            return (min(one.value), max(one.value) + 1) if one.value else (0, 0)
        case "equal":
            return one.value, one.value + 1
        case "less":
            return 0, one.value
        case "less_equal":
            return 0, one.value + 1
        case "greater":
            return one.value + 1, 2**63
        case _:
            return one.value, 2**63


def taken(filters: Sequence[Any], columns: Mapping[str, str]) -> tuple[Filters, list[Any]]:
    """Return the filters that can be applied, and Spark's filters that cannot.

    Args:
        filters: Spark's filters; each has ``attribute`` and ``value``.
        columns: The columns that are read, with their types.
    """
    found: list[Filter] = []
    left: list[Any] = []
    for one in filters:
        kind = type(one).__name__
        path: tuple[str, ...] = getattr(one, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        value = getattr(one, "value", None)
        if name not in _TAKEN:
            left.append(one)
        elif kind == "IsNotNull":
            found.append(Filter(name, "there", None))
        elif kind == "In" and value and all(_fits(name, each, columns) for each in value):
            found.append(Filter(name, "in", tuple(value)))
        elif kind in _COMPARED and _fits(name, value, columns):
            found.append(Filter(name, _COMPARED[kind], value))
        else:
            left.append(one)
    return Filters(tuple(found)), left


def _fits(name: str, value: object, columns: Mapping[str, str]) -> bool:
    if isinstance(value, bool) or not isinstance(value, _TAKEN[name]):
        return False
    if name in _NUMBERS:
        return True
    if isinstance(value, datetime):
        return value.tzinfo is not None
    if name == "key":
        wanted = str if columns.get("key") == "string" else bytes
        return isinstance(value, wanted)
    return True
