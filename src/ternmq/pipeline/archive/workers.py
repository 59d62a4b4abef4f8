"""The archive's part on a Spark worker: rows of ranges become files, descriptions are returned.

Bodies go from the broker to the file in one worker, and never enter the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pyarrow as pa

from ternmq.client.bulk import Bulk, RangesAsk
from ternmq.pipeline.archive.archive import PAGE_BYTES, rows_of
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import Range, Written, write_range
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.bulk_port import reach
from ternmq.spark.broker.connecting import Broker

T = TypeVar("T")

MANIFEST: Final = "written string"
_MANIFEST: Final = pa.schema([("written", pa.string())])


@dataclass(frozen=True)
class RangeWriter:
    """Writes ranges; is sent to workers.

    Attributes:
        tables: The folder of all tables, as every worker reaches it.
        broker: The broker from which to read.
        lenient: Rows may be missing.
        sizes: Size limits of files.
    """

    tables: str
    broker: Broker
    lenient: bool = False
    sizes: Sizes = field(default_factory=Sizes)

    def manifests(
        self, parts: Iterable[T], write: Callable[[Bulk, T], Written | None]
    ) -> Iterator[pa.RecordBatch]:
        """Write each part over one connection, opened for the first; yield rows of ``MANIFEST``."""
        bulk: Bulk | None = None
        try:
            for part in parts:
                bulk = bulk or reach(self.broker, PAGE_BYTES)
                written = write(bulk, part)
                if written is not None:
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([written.to_json()])], schema=_MANIFEST
                    )
        finally:
            if bulk is not None:
                bulk.close()

    def write(self, bulk: Bulk, span: Range) -> Written:
        """Write a range."""
        folder = Folder(self.tables).inside(ARCHIVE.name)
        with closing(rows_of(bulk, span, lenient=self.lenient)) as batches:  # type: ignore[type-var]
            return write_range(folder, span, batches, self.sizes, lenient=self.lenient)


def topic_number(bulk: Bulk, topic: str) -> int:
    """Return the current number of a topic; 0 if it is gone."""
    (found,) = bulk.ranges([RangesAsk(topic=topic)])
    return found.number
