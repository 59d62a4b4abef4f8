"""The rows of files of a table, as batches of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.source.choosing import Choice
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.table import completed

BATCH_ROWS = 50_000
"""Most rows of a batch: as Spark's own setting in ``ternmq.spark.session``."""


def batches(choice: Choice, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of files, file by file; one batch is in memory at a time.

    Raises:
        TableError: A file was removed: it left the table, and was cleaned up.
    """
    folder = choice.tables.inside(choice.spec.name)
    for one in files:
        # The columns of the partition are not in the file, and whole files were chosen by them.
        filtered = {
            name: pa.array(values, choice.spec.schema.field(name).type)
            for name, values in choice.selected.items()
            if name not in one.partition
        }
        stored = [name for name in choice.columns if name not in one.partition]
        needed = [*stored, *[name for name in filtered if name not in stored]]
        with folder.open(one.path) as source:
            for read in pq.ParquetFile(source).iter_batches(BATCH_ROWS, columns=needed):
                batch = read
                for name, values in filtered.items():
                    batch = batch.filter(pc.is_in(batch.column(name), values))
                yield from completed(batch, one, choice.spec, choice.schema).to_batches()
