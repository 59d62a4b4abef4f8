"""The rows of files of a table, as batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.pipeline.tables.datafile import DataFile, TableSpec
from ternmq.pipeline.tables.folder import Folder

BATCH_ROWS = 50_000
"""Most rows of a batch: as Spark's own setting in ``ternmq.spark.session``."""


def batches(
    tables: Folder, spec: TableSpec, columns: Sequence[str], files: Iterable[DataFile]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a table, file by file; one batch is in memory at a time.

    Args:
        tables: The folder of all tables.
        spec: The table.
        columns: Names of the columns, in their order; those of the partition may be among them.
        files: The files.

    Raises:
        TableError: A file was removed: it left the table, and was cleaned up.
    """
    folder = tables.inside(spec.name)
    schema = pa.schema([spec.schema.field(name) for name in columns])
    stored = [name for name in columns if name not in spec.partition_by]
    for one in files:
        constants = {
            name: pa.scalar(one.partition[name]).cast(spec.schema.field(name).type)
            for name in columns
            if name in spec.partition_by
        }
        with folder.open(one.path) as source:
            for batch in pq.ParquetFile(source).iter_batches(BATCH_ROWS, columns=stored):
                arrays = [
                    pa.repeat(constants[name], batch.num_rows)
                    if name in constants
                    else batch.column(name)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns)).cast(schema)
