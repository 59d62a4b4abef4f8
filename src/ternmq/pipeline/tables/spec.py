"""Descriptions of tables, independent of how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from ternmq.model.errors import TableError

INSTANT: Final = pa.timestamp("us", tz="UTC")


@dataclass(slots=True, frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        type: Its type.
        about: What it contains, for the table's log and the reference page.
        null: Whether a row may have no value.
        renew: Makes values that any earlier version of the table wrote those of this version, when
            they are read; None: they are the same. It leaves values of this version alone, and is
            quick if all are of this version.
    """

    name: str
    type: pa.DataType
    about: str
    null: bool = False
    renew: Callable[[pa.Array], pa.Array] | None = field(default=None, compare=False)


VERSION: Final = Column(
    "schema_version", pa.int32(), "version of this table's schema that wrote the row"
)
"""The last column of every table."""


def unsigned(name: str, what: str, *, null: bool = False) -> Column:
    """Return a column with the bits of an unsigned number of 64 bits."""
    return Column(
        name, pa.int64(), f"{what}; an unsigned number of 64 bits in a signed column", null=null
    )


@dataclass(slots=True, frozen=True)
class TableSpec:
    """Description of a table.

    Attributes:
        name: Name of the table and of its folder.
        version: Version of the schema; stored in the table's properties and in each row. Tables of
            every earlier version can be read; ``migration`` brings them to this one.
        columns: All columns, including those of the partition.
        partition_by: Columns whose values are in the names of folders, not in the files.
        bounds: Columns whose smallest and largest value the log keeps for each file. Never one
            with a user's content: the log would keep it longer than the file does.
        schema: The columns as Arrow's schema, for rows in memory: all of them may be null.
    """

    name: str
    version: int
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    schema: pa.Schema = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        told = pa.schema([(one.name, one.type) for one in self.columns])
        object.__setattr__(self, "schema", told)

    @property
    def stored(self) -> pa.Schema:
        """The columns that are in the files."""
        return pa.schema([one for one in self.schema if one.name not in self.partition_by])

    @property
    def declared(self) -> pa.Schema:
        """The columns as the log describes them: with comments, and whether they may be null."""
        return pa.schema(
            [
                pa.field(
                    one.name,
                    one.type,
                    nullable=one.null,
                    metadata={"comment": one.about.replace("`", "")},
                )
                for one in self.columns
            ]
        )

    def check(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Check that columns which may not be null are not.

        Raises:
            TableError: One is: this is an error of the program.
        """
        for name in self.required(rows.schema.names):
            if rows.column(name).null_count:
                raise TableError(f"a row for the table {self.name} has no {name}")

    def required(self, names: Iterable[str]) -> list[str]:
        """Return those of the columns that may not be null."""
        never = {one.name for one in self.columns if not one.null}
        return [name for name in names if name in never]
