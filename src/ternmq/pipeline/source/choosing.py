"""Which files of a table a query reads, and how they are divided among tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from ternmq.model.errors import OptionError
from ternmq.model.words import nearest
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.datafile import DataFile, TableSpec
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

TABLES: Final = "TERNMQ_TABLES"
_TASK_BYTES: Final = 32 << 20
"""Bytes of Parquet that a task reads at least, unless there are fewer."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OPTIONS: Final = ("path", "tables", "columns", "pushdownfilters")
"""As Spark passes them: in lower case."""


@dataclass(slots=True, frozen=True)
class Choice:
    """What the options of a query select.

    Attributes:
        tables: The folder of all tables.
        spec: The table.
        columns: Names of its columns, in their order.
        pushdown: Whether Spark passes the query's filters on.
    """

    tables: Folder
    spec: TableSpec
    columns: tuple[str, ...]
    pushdown: bool

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns."""
        return pa.schema([self.spec.schema.field(name) for name in self.columns])


@dataclass(slots=True, frozen=True)
class Condition:
    """A comparison of a column with values, which a row has to pass.

    Attributes:
        column: Its name.
        compare: ``==``, ``<``, ``<=``, ``>``, ``>=`` or ``in``.
        values: The values: one, or for ``in`` any number.
    """

    column: str
    compare: str
    values: tuple[Any, ...]

    def may_pass(self, low: Any, high: Any) -> bool:  # noqa: ANN401 - of the column's type
        """Return whether a value between two bounds, both included, may pass."""
        try:
            return any(self._may_pass(low, high, value) for value in self.values)
        except TypeError:  # types that cannot be compared: Spark decides
            return True

    def _may_pass(self, low: Any, high: Any, value: Any) -> bool:  # noqa: ANN401
        match self.compare:
            case "<":
                return bool(low < value)
            case "<=":
                return bool(low <= value)
            case ">":
                return bool(high > value)
            case ">=":
                return bool(high >= value)
            case _:
                return bool(low <= value <= high)


def choose(options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Choice:
    """Return what the options of a query select.

    Args:
        options: ``path`` (the table, as given to ``load``), ``tables``, ``columns``,
            ``pushdownFilters``; names in any case.
        environ: Where the folder is looked up if ``tables`` is not given.

    Raises:
        OptionError: An option is unknown, missing or not valid.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - set(_OPTIONS):
        known = nearest(name, ("tables", "columns", "pushdownFilters"))
        hint = f"; did you mean {known}?" if known else ""
        raise OptionError(f"there is no option {name!r} of ternmq.table{hint}")
    folder = given.get("tables") or environ.get(TABLES)
    if not folder:
        raise OptionError(f"option tables: the folder of the tables; or set {TABLES}")
    specs = {one.name: one for one in all_tables()}
    name = given.get("path", "")
    if name not in specs:
        told = "load() needs the name of a table" if not name else f"there is no table {name!r}"
        raise OptionError(f"{told}; there are: {', '.join(sorted(specs))}")
    spec = specs[name]
    return Choice(Folder(folder), spec, _columns(given, spec), _flag(given))


def _columns(given: Mapping[str, str], spec: TableSpec) -> tuple[str, ...]:
    if "columns" not in given:
        return tuple(spec.schema.names)
    names = tuple(dict.fromkeys(one.strip() for one in given["columns"].split(",")))
    for name in names:
        if name not in spec.schema.names:
            raise OptionError(
                f"option columns: the table {spec.name} has no column {name!r}; it has: "
                f"{', '.join(spec.schema.names)}"
            )
    return names


def _flag(given: Mapping[str, str]) -> bool:
    text = given.get("pushdownfilters", "true").lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option pushdownFilters: {text!r} is neither true nor false")
    return text == "true"


def tasks(choice: Choice, conditions: Sequence[Condition]) -> list[tuple[DataFile, ...]]:
    """Return the files that each task reads, of the newest version of the table.

    Files none of whose rows can pass are left out. Small files share a task.

    Raises:
        TableError: There is no such table, or it is not one of ours.
    """
    table = Table.open(choice.tables, choice.spec, create=False)
    return _divided(one for one in table.files() if may_have(one, choice.spec, conditions))


def may_have(file: DataFile, spec: TableSpec, conditions: Sequence[Condition]) -> bool:
    """Return whether a file may have rows that pass all conditions."""
    for one in conditions:
        bounds = _bounds(file, spec, one.column)
        if bounds is not None and not one.may_pass(*bounds):
            return False
    return True


def _bounds(file: DataFile, spec: TableSpec, column: str) -> tuple[object, object] | None:
    """Return the least and greatest value of a column of a file; None if they are not known."""
    kind = spec.schema.field(column).type if column in spec.schema.names else None
    if column in spec.partition_by:
        value = pa.scalar(file.partition[column]).cast(kind).as_py()
        return value, value
    low, high = file.low.get(column), file.high.get(column)
    if low is None or high is None:
        return None
    return low, high


def plain(value: object) -> object:
    """Return a value of a filter as bounds are: times as µs since 1970."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        passed = value - _EPOCH
        return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return value


def _divided(files: Iterable[DataFile]) -> list[tuple[DataFile, ...]]:
    found: list[tuple[DataFile, ...]] = []
    some: list[DataFile] = []
    size = 0
    for one in files:
        some.append(one)
        size += one.size
        if size >= _TASK_BYTES:
            found.append(tuple(some))
            some, size = [], 0
    return [*found, tuple(some)] if some else found
