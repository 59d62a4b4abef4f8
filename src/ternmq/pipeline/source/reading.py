"""The rows of files of a table, as batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.source.choosing import Choice
from ternmq.pipeline.tables.datafile import DataFile

BATCH_ROWS = 50_000
"""Most rows of a batch: as Spark's own setting in ``ternmq.spark.session``."""


def batches(choice: Choice, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of files, file by file; one batch is in memory at a time.

    Raises:
        TableError: A file was removed: it left the table, and was cleaned up.
    """
    spec, columns = choice.spec, choice.columns
    folder = choice.tables.inside(spec.name)
    filtered = {
        name: pa.array(values, spec.schema.field(name).type)
        for name, values in choice.selected.items()
        if name not in spec.partition_by  # whole files were chosen by those
    }
    stored = [name for name in columns if name not in spec.partition_by]
    needed = [*stored, *[name for name in filtered if name not in stored]]
    for one in files:
        constants = {
            name: pa.scalar(one.partition[name]).cast(spec.schema.field(name).type)
            for name in columns
            if name in spec.partition_by
        }
        with folder.open(one.path) as source:
            for read in pq.ParquetFile(source).iter_batches(BATCH_ROWS, columns=needed):
                batch = read
                for name, values in filtered.items():
                    batch = batch.filter(pc.is_in(batch.column(name), values))
                arrays = [
                    pa.repeat(constants[name], batch.num_rows)
                    if name in constants
                    else batch.column(name)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns)).cast(choice.schema)
