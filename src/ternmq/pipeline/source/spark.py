"""``format("ternmq.table")``: passes Spark's calls to ``choosing`` and ``reading``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ternmq.pipeline.source.choosing import Choice, Condition, choose, plain, tasks
from ternmq.pipeline.source.reading import batches
from ternmq.pipeline.tables.datafile import DataFile

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARISONS: Final = {
    EqualTo: "==",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


class TableSource(DataSource):  # type: ignore[misc]
    """``format("ternmq.table")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ternmq.table"

    def schema(self) -> StructType:
        """Return the columns that the options select."""
        return from_arrow_schema(choose(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours
        """Return a reader."""
        choice = choose(self.options)
        return FilteredReader(choice) if choice.pushdown else Reader(choice)


@dataclass
class _Files(InputPartition):  # type: ignore[misc]
    """The files of a task."""

    files: tuple[DataFile, ...]


class Reader(DataSourceReader):  # type: ignore[misc]
    """Reads the chosen columns of a table."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; without any, Spark would call ``read`` with None."""
        return [_Files(files) for files in tasks(self._choice, self._conditions)] or [_Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        choice = self._choice
        assert isinstance(partition, _Files)
        return batches(choice.tables, choice.spec, choice.columns, partition.files)


class FilteredReader(Reader):
    """Leaves out files that have no row that passes the filters.

    A class of its own: Spark refuses one with ``pushFilters`` if its own setting is off.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters that show which files are needed; Spark applies all of them again."""
        for one in filters:
            if isinstance(one, In):
                values = tuple(plain(value) for value in one.value)
                self._take(Condition(one.attribute[0], "in", values), one.attribute)
            elif type(one) in _COMPARISONS:
                compare = _COMPARISONS[type(one)]
                self._take(Condition(one.attribute[0], compare, (plain(one.value),)), one.attribute)
        return filters

    def _take(self, condition: Condition, attribute: tuple[str, ...]) -> None:
        if len(attribute) == 1:  # of a nested column nothing is known
            self._conditions.append(condition)
