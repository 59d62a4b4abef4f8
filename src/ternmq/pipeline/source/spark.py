"""``format("ternmq.table")``: passes Spark's calls to ``choosing`` and ``reading``.

Spark's filters are not taken over: Spark 4.2 and 4.3 keep the filters of one query of a DataFrame
for its next one, even if that has none, and rows would be missing. The options select files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ternmq.pipeline.source.choosing import Choice, choose, tasks
from ternmq.pipeline.source.reading import batches
from ternmq.pipeline.tables.datafile import DataFile

if TYPE_CHECKING:
    import pyarrow as pa


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
        return Reader(choose(self.options))


@dataclass
class _Files(InputPartition):  # type: ignore[misc]
    """The files of a task."""

    files: tuple[DataFile, ...]


class Reader(DataSourceReader):  # type: ignore[misc]
    """Reads the chosen columns of a table."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; without any, Spark would call ``read`` with None."""
        return [_Files(files) for files in tasks(self._choice)] or [_Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, _Files)
        return batches(self._choice, partition.files)
