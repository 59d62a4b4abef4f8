"""Which files of a table a query reads, and how they are divided among tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ternmq.model.errors import OptionError
from ternmq.model.words import nearest
from ternmq.pipeline.running.jobs import all_tables
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table

TABLES: Final = "TERNMQ_TABLES"
_TASK_BYTES: Final = 32 << 20
"""Bytes of Parquet that a task reads at least, unless there are fewer."""
OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "path": ("", "name of the table; usually given to `load`"),
    "tables": (
        f"`${TABLES}`",
        "absolute path of the folder of the tables, or its URL in an object store",
    ),
    "columns": ("all", "only these columns, in this order"),
    "topic": ("all", "only rows of these topics, such as `orders,payments`"),
    "day, hour, month": (
        "all",
        (
            "only rows of these days, hours or months, such as `2026-11-26,2026-11-27`; the table "
            "must have this column"
        ),
    ),
}
"""Name -> default, and what it does. Spark passes names in lower case."""
_SELECTED: Final = ("topic", "day", "hour", "month")
_PLAIN: Final = ("path", "tables", "columns")


@dataclass(slots=True, frozen=True)
class Choice:
    """What the options of a query select.

    Attributes:
        tables: The folder of all tables.
        spec: The table.
        columns: Names of its columns, in their order.
        selected: Column -> the values that its rows have to have.
    """

    tables: Folder
    spec: TableSpec
    columns: tuple[str, ...]
    selected: Mapping[str, tuple[Any, ...]]

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns."""
        return pa.schema([self.spec.schema.field(name) for name in self.columns])


def choose(options: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Choice:
    """Return what the options of a query select.

    Args:
        options: Those of ``OPTIONS``; names in any case.
        environ: Where the folder is looked up if ``tables`` is not given.

    Raises:
        OptionError: An option is unknown, missing or not valid.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - {*_PLAIN, *_SELECTED}:
        known = nearest(name, (*_PLAIN, *_SELECTED))
        hint = f"; did you mean {known}?" if known else ""
        raise OptionError(f"there is no option {name!r} of ternmq.table{hint}")
    folder = given.get("tables") or environ.get(TABLES)
    if not folder:
        raise OptionError(f"option tables: the folder of the tables; or set {TABLES}")
    if "://" not in folder and not os.path.isabs(folder):  # noqa: PTH117 - it need not be here
        raise OptionError(
            f"option tables: {folder!r} is not an absolute path, and Spark's processes may run in "
            "another folder"
        )
    specs = {one.name: one for one in all_tables()}
    name = given.get("path", "")
    if name not in specs:
        told = "load() needs the name of a table" if not name else f"there is no table {name!r}"
        raise OptionError(f"{told}; there are: {', '.join(sorted(specs))}")
    spec = specs[name]
    selected: dict[str, tuple[Any, ...]] = {
        one: _values(one, given[one], spec) for one in _SELECTED if one in given
    }
    return Choice(Folder(folder), spec, _columns(given, spec), selected)


def _columns(given: Mapping[str, str], spec: TableSpec) -> tuple[str, ...]:
    if "columns" not in given:
        return tuple(spec.schema.names)
    names = tuple(dict.fromkeys(one.strip() for one in given["columns"].split(",")))
    for name in names:
        _check_column("columns", name, spec)
    return names


def _values(column: str, text: str, spec: TableSpec) -> tuple[Any, ...]:
    """Return the values that an option lists for a column."""
    _check_column(column, column, spec)
    kind = spec.schema.field(column).type
    try:
        return tuple(pa.scalar(one.strip()).cast(kind).as_py() for one in text.split(","))
    except pa.ArrowInvalid:
        raise OptionError(f"option {column}: {text!r} is no list such as 2026-11-26") from None


def _check_column(option: str, name: str, spec: TableSpec) -> None:
    if name not in spec.schema.names:
        raise OptionError(
            f"option {option}: the table {spec.name} has no column {name!r}; it has: "
            f"{', '.join(spec.schema.names)}"
        )


def tasks(choice: Choice) -> list[tuple[DataFile, ...]]:
    """Return the files that each task reads, of the newest version of the table.

    Files of other values of the partition are left out. Small files share a task.

    Raises:
        TableError: There is no such table, or it is not one of ours.
    """
    table = Table.open(choice.tables, choice.spec, create=False)
    return _divided(one for one in table.files() if _may_have(one, choice))


def _may_have(file: DataFile, choice: Choice) -> bool:
    """Return whether a file may have selected rows."""
    for column, values in choice.selected.items():
        if column in file.partition:
            kind = choice.spec.schema.field(column).type
            if pa.scalar(file.partition[column]).cast(kind).as_py() not in values:
                return False
        elif column in file.low:
            low, high = file.low[column], file.high[column]
            if low is not None and not any(low <= value <= high for value in values):
                return False
    return True


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
