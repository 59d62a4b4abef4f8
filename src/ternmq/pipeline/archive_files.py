"""A range of a queue as files of the archive.

Made where the rows are fetched, in a worker or not; what it returns (``Written``) is small, and
travels to whoever commits it. A file holds rows of one queue and one day, in order of offset; its
name says which, and is never used twice, so that a second attempt at a range, or two at once,
replaces nothing that may already belong to the table.
"""

from __future__ import annotations

import itertools
import posixpath
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.model.errors import DataLoss
from ternmq.pipeline.columns import archived, days
from ternmq.pipeline.files import DataFile, Value, bounds
from ternmq.pipeline.folder import TEMPORARY, Folder
from ternmq.pipeline.schemas import ARCHIVE
from ternmq.pipeline.table import COMPRESSION

_DICTIONARY: Final = [
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
    """How large the parts of the archive become.

    Attributes:
        group_rows: Most rows of a row group: what a look-up reads one of.
        group_bytes: ... or so many bytes of columns.
        file_rows: A file ends when it has so many rows ...
        file_bytes: ... or was made of so many bytes of columns.
    """

    group_rows: int = 65_536
    group_bytes: int = 64 << 20
    file_rows: int = 4_000_000
    file_bytes: int = 1 << 30


class Range(msgspec.Struct, frozen=True):
    """Rows ``[start, stop)`` of a queue."""

    topic: str
    topic_number: int
    queue: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"rows {self.start} to {self.stop - 1} of queue {self.queue} of {self.topic!r}"


class Missing(msgspec.Struct, frozen=True):
    """Rows ``[start, stop)`` of a range that were not there to be read."""

    start: int
    stop: int


class Written(msgspec.Struct, frozen=True):
    """What became of a range: files that a commit may add, and what is missing between them."""

    span: Range
    files: tuple[DataFile, ...] = ()
    missing: tuple[Missing, ...] = ()

    def to_json(self) -> str:
        """Return it as text, to travel in a row."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of_json(text: str) -> Written:
        """Return what ``to_json`` gave."""
        return msgspec.json.decode(text, type=Written)


def file_name(topic: str, queue: int, first: int, last: int) -> str:
    """Return a new name for a file of these rows."""
    return f"{topic}-{queue}-{first:020d}-{last:020d}-{secrets.token_hex(4)}.parquet"


def named_rows(path: str) -> Range | None:
    """Return what the name of a file says, temporary ones included; None if it is no such name.

    The number of the topic is not in it, and is 0.
    """
    name = posixpath.basename(path).removeprefix(TEMPORARY).removesuffix(".parquet")
    parts = name.rsplit("-", 4)
    if len(parts) != 5 or not all(one.isdecimal() for one in parts[1:4]):
        return None
    return Range(parts[0], 0, int(parts[1]), int(parts[2]), int(parts[3]) + 1)


@dataclass(slots=True)
class _File:
    """A file that is being written."""

    day: int
    first: int
    sink: BinaryIO
    writer: pq.ParquetWriter
    path: str
    stop: int = 0
    rows: int = 0
    made_of: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    low: dict[str, Value] = field(default_factory=dict)
    high: dict[str, Value] = field(default_factory=dict)


class RangeWriter:
    """Writes one range; see the module.

    Args:
        folder: Of the table.
        span: The range.
        sizes: How large files become.
        lenient: Rows may be missing; they are noted. Otherwise that is an error.
        durable: On this machine, have files on the disk before they have their names.
    """

    def __init__(
        self,
        folder: Folder,
        span: Range,
        sizes: Sizes | None = None,
        *,
        lenient: bool = False,
        durable: bool = True,
    ) -> None:
        self._folder = folder
        self._span = span
        self._sizes = sizes or Sizes()
        self._lenient = lenient
        self._durable = durable
        self._next = span.start
        self._open: _File | None = None
        self._done: list[DataFile] = []
        self._missing: list[Missing] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows as ``record.coalesce`` gives them, in order; what is outside the range is left.

        Raises:
            DataLoss: Rows between these and those before are missing, and that is not allowed.
        """
        offsets = rows.column("offset").to_numpy()
        low = int(np.searchsorted(offsets, self._next))
        high = int(np.searchsorted(offsets, self._span.stop))
        if low >= high:
            return
        rows, offsets = rows.slice(low, high - low), offsets[low:high]
        self._note(offsets)
        made = archived(rows, self._span.topic_number)
        dates = days(rows.column("stored_time"))
        edges = [0, *(np.flatnonzero(np.diff(dates)) + 1).tolist(), len(dates)]
        for begin, end in itertools.pairwise(edges):
            self._add(made.slice(begin, end - begin), int(dates[begin]))

    def _note(self, offsets: np.ndarray) -> None:
        """See what is missing before and between rows."""
        before = np.concatenate(([self._next - 1], offsets[:-1]))
        for index in np.flatnonzero(offsets != before + 1).tolist():
            self._miss(int(before[index]) + 1, int(offsets[index]))
        self._next = int(offsets[-1]) + 1

    def _miss(self, start: int, stop: int) -> None:
        if not self._lenient or stop < start:
            raise DataLoss(
                f"rows {start} to {stop - 1} of queue {self._span.queue} of {self._span.topic!r} "
                "did not come"
            )
        self._missing.append(Missing(start, stop))

    def _add(self, rows: pa.RecordBatch, day: int) -> None:
        """Gather rows of one day; write a row group of them when it is large enough."""
        while rows.num_rows:
            file = self._open
            if file is not None and (file.day != day or self._full(file)):
                self._finish(file)
                file = None
            if file is None:
                file = self._open = self._begin(day, rows.column("offset")[0].as_py())
            room = self._sizes.group_rows - file.waiting_rows
            size = max(1, rows.nbytes // rows.num_rows)
            room = max(1, min(room, (self._sizes.group_bytes - file.waiting_bytes) // size + 1))
            taken = rows.slice(0, room)
            file.waiting.append(taken)
            file.waiting_rows += taken.num_rows
            file.waiting_bytes += size * taken.num_rows
            file.made_of += size * taken.num_rows
            if (
                file.waiting_rows >= self._sizes.group_rows
                or file.waiting_bytes >= self._sizes.group_bytes
            ):
                self._flush(file)
            rows = rows.slice(taken.num_rows)

    def _full(self, file: _File) -> bool:
        return (
            file.rows + file.waiting_rows >= self._sizes.file_rows
            or file.made_of >= self._sizes.file_bytes
        )

    def _begin(self, day: int, first: int) -> _File:
        date = datetime.fromtimestamp(day * 86_400, UTC).date()
        # How far it will go is not known yet; a rename can still say it (see ``_finish``).
        name = file_name(self._span.topic, self._span.queue, first, self._span.stop - 1)
        path = f"topic={self._span.topic}/day={date}/{name}"
        sink = self._folder.begin(path)
        return _File(day, first, sink, parquet_writer(sink, self._sizes), path)

    def _flush(self, file: _File) -> None:
        """Write what waits as one row group."""
        if not file.waiting_rows:
            return
        rows = pa.Table.from_batches(file.waiting, _STORED)
        file.writer.write_table(rows, row_group_size=len(rows))
        low, high = bounds(rows, ARCHIVE.bounds)
        for name in ARCHIVE.bounds:
            file.low[name] = _least(file.low.get(name), low[name])
            file.high[name] = _most(file.high.get(name), high[name])
        file.rows += len(rows)
        file.stop = rows.column("offset")[-1].as_py() + 1
        file.waiting.clear()
        file.waiting_rows = file.waiting_bytes = 0

    def _finish(self, file: _File) -> None:
        self._flush(file)
        file.writer.close()
        file.sink.close()
        place = posixpath.dirname(file.path)
        name = file_name(self._span.topic, self._span.queue, file.first, file.stop - 1)
        done = self._folder.finish(file.path, f"{place}/{name}", durable=self._durable)
        partition = {"topic": self._span.topic, "day": place.rpartition("=")[2]}
        self._done.append(
            DataFile(done.path, done.size, file.rows, partition, dict(file.low), dict(file.high))
        )
        self._open = None

    def finish(self) -> Written:
        """Return what was written, all of it under its final names.

        Raises:
            DataLoss: The range was not written to its end, and that is not allowed.
        """
        if self._next < self._span.stop:
            self._miss(self._next, self._span.stop)
            self._next = self._span.stop
        if self._open is not None:
            self._finish(self._open)
        return Written(self._span, tuple(self._done), tuple(self._missing))

    def abandon(self) -> None:
        """Remove what was written; after an error."""
        if self._open is not None:
            self._open.writer.close()
            self._open.sink.close()
            self._folder.abandon(self._open.path)
            self._open = None
        self._folder.remove(one.path for one in self._done)
        self._done.clear()


def parquet_writer(sink: BinaryIO, sizes: Sizes) -> pq.ParquetWriter:
    """Return a writer of files of the archive."""
    return pq.ParquetWriter(
        sink,
        _STORED,
        **COMPRESSION,
        use_dictionary=_DICTIONARY,
        column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        write_page_index=True,
        bloom_filter_options={
            name: {"ndv": sizes.group_rows, "fpp": _FALSE_POSITIVES} for name in _LOOKED_UP
        },
    )


def write_range(
    folder: Folder,
    span: Range,
    batches: Iterable[pa.RecordBatch],
    sizes: Sizes | None = None,
    *,
    lenient: bool = False,
    durable: bool = True,
) -> Written:
    """Write a range, whole or not at all.

    Args:
        folder: Of the table.
        span: The range.
        batches: Its rows, as ``record.coalesce`` gives them; closed when done.
        sizes: How large files become.
        lenient: Rows may be missing.
        durable: See ``RangeWriter``.
    """
    writer = RangeWriter(folder, span, sizes, lenient=lenient, durable=durable)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


def _least(one: Value, other: Value) -> Value:
    return other if one is None else one if other is None else min(one, other)


def _most(one: Value, other: Value) -> Value:
    return other if one is None else one if other is None else max(one, other)
