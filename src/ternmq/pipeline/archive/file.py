"""One Parquet file of the archive while it is written, and the format of its name."""

from __future__ import annotations

import posixpath
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.tables.datafile import DataFile, Value, bounds
from ternmq.pipeline.tables.folder import TEMPORARY, Folder
from ternmq.pipeline.tables.table import COMPRESSION

_DICTIONARY: Final = [
    "topic",
    "topic_number",
    "queue",
    "producer_id",
    "tag",
    "content_type",
    "schema_version",
]
_DELTA: Final = ("offset", "sequence", "born_time", "stored_time", "position")
_LOOKED_UP: Final = ("message_id", "key", "application_id")
_FALSE_POSITIVES: Final = 0.01
_STORED: Final = ARCHIVE.stored


@dataclass(slots=True, frozen=True)
class Sizes:
    """Size limits of the parts of the archive.

    Attributes:
        group_rows: Most rows of a row group; a look-up reads a whole one.
        group_bytes: Most bytes of columns in a row group.
        file_rows: A file ends when it has this many rows ...
        file_bytes: ... or was made of this many bytes of columns.
    """

    group_rows: int = 65_536
    group_bytes: int = 64 << 20
    file_rows: int = 4_000_000
    file_bytes: int = 1 << 30


class Named(NamedTuple):
    """The content of a file as its name gives it: rows ``[start, stop)`` of a queue."""

    topic: str
    topic_number: int
    queue: int
    start: int
    stop: int


_SEVERAL: Final = "several-"


def file_name(named: Named) -> str:
    """Return a new name for a file of these rows."""
    place = f"{named.topic}-{named.topic_number}-{named.queue}"
    rows = f"{named.start:020d}-{named.stop - 1:020d}"
    return f"{place}-{rows}-{secrets.token_hex(4)}.parquet"


def named_rows(path: str) -> Named | None:
    """Parse the name of a file; None if it is not the name of a file with rows of one queue.

    The name of a file still being written (``is_temporary``) does not contain its end yet, and that
    of an object in a store never does: ``stop`` is one above the first row.
    """
    name = posixpath.basename(path).removeprefix(TEMPORARY).removesuffix(".parquet")
    parts = name.rsplit("-", 5)
    if len(parts) != 6 or not all(one.isdecimal() for one in parts[1:5]):
        return None
    number, queue, first, last = map(int, parts[1:5])
    return Named(parts[0], number, queue, first, last + 1)


def names_several(path: str) -> bool:
    """Return whether this is the name of a file with rows of several queues."""
    name = posixpath.basename(path).removeprefix(TEMPORARY)
    return name.startswith(_SEVERAL) and named_rows(path) is None


class ArchiveFile:
    """A file that is being written: rows of one day, ordered by queue and offset.

    Args:
        folder: Folder of the table.
        place: Topic, its number, and queue of all rows; None: the rows are of several queues.
        day: The day, in days since 1970.
        sizes: Size limits.
    """

    def __init__(
        self, folder: Folder, place: tuple[str, int, int] | None, day: int, sizes: Sizes
    ) -> None:
        self._folder = folder
        self._place = place
        self._sizes = sizes
        self._date = datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
        self._path = ""
        self._first = self._stop = self._rows = self._bytes = 0
        self._sink: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._low: dict[str, Value] = {}
        self._high: dict[str, Value] = {}

    @property
    def full(self) -> bool:
        """Whether it is large enough."""
        return (
            self._rows + self._waiting_rows >= self._sizes.file_rows
            or self._bytes >= self._sizes.file_bytes
        )

    def add(self, rows: pa.RecordBatch) -> int:
        """Take rows from the beginning of the batch, at least one; return their number."""
        if self._writer is None:
            self._begin(rows.column("offset")[0].as_py())
        size = max(1, rows.nbytes // rows.num_rows)
        room = self._sizes.group_rows - self._waiting_rows
        fitting = (self._sizes.group_bytes - self._waiting_bytes) // size + 1
        taken = rows.slice(0, max(1, min(room, fitting)))
        self._waiting.append(taken)
        self._waiting_rows += taken.num_rows
        self._waiting_bytes += size * taken.num_rows
        self._bytes += size * taken.num_rows
        enough = self._waiting_rows >= self._sizes.group_rows
        if enough or self._waiting_bytes >= self._sizes.group_bytes:
            self._flush()
        return int(taken.num_rows)

    def _begin(self, first: int) -> None:
        # The end is not known yet; the rename in ``finish`` puts it into the name.
        self._first = first
        self._path = self._named(first + 1)
        self._sink = self._folder.begin(self._path)
        self._writer = pq.ParquetWriter(
            self._sink,
            _STORED,
            **COMPRESSION,
            use_dictionary=_DICTIONARY,
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
            write_page_index=True,
            bloom_filter_options={
                name: {"ndv": self._sizes.group_rows, "fpp": _FALSE_POSITIVES}
                for name in _LOOKED_UP
            },
        )

    def _named(self, stop: int) -> str:
        if self._place is None:
            name = f"{_SEVERAL}{secrets.token_hex(8)}.parquet"
        else:
            name = file_name(Named(*self._place, self._first, stop))
        return f"day={self._date}/{name}"

    def _flush(self) -> None:
        """Write the waiting rows as one row group."""
        if not self._waiting_rows:
            return
        assert self._writer is not None
        rows = pa.Table.from_batches(self._waiting, _STORED)
        ARCHIVE.check(rows)
        self._writer.write_table(rows, row_group_size=len(rows))
        low, high = bounds(rows, ARCHIVE.bounds)
        for name in ARCHIVE.bounds:
            self._low[name] = _least(self._low.get(name), low[name])
            self._high[name] = _most(self._high.get(name), high[name])
        self._rows += len(rows)
        self._stop = rows.column("offset")[-1].as_py() + 1
        self._waiting.clear()
        self._waiting_rows = self._waiting_bytes = 0

    def finish(self, *, durable: bool = True) -> DataFile:
        """Write the waiting rows, give the file its final name, and return it for a commit."""
        assert self._writer is not None
        assert self._sink is not None
        self._flush()
        self._writer.close()
        self._sink.close()
        name = self._path if self._place is None else self._named(self._stop)
        done = self._folder.finish(self._path, name, durable=durable)
        partition = {"day": self._date}
        return DataFile(done.path, done.size, self._rows, partition, self._low, self._high)

    def abandon(self) -> None:
        """Drop the file, after an error."""
        if self._writer is None or self._sink is None:
            return
        self._writer.close()
        self._sink.close()
        self._folder.abandon(self._path)


def _least(one: Value, other: Value) -> Value:
    return other if one is None else one if other is None else min(one, other)


def _most(one: Value, other: Value) -> Value:
    return other if one is None else one if other is None else max(one, other)
