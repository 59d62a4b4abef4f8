"""Arrow record batches of a few megabytes, made from many stored batches, even of one row each.

``Coalescer`` takes pages of MESSAGES records from a broker or the journal, and yields record
batches. Work is done for whole columns of all records at once: a record costs a few microseconds,
a row of a large batch some hundredths of one. The columns, of which the requested ones are made;
every field may be null except those marked *never*::

    topic           string                the name given to ``add``
    queue           int32         never
    offset          int64         never
    stored_time     timestamp[us] never   broker time at which the record was stored
    position        int64         never   of the record in the journal
    producer_id     int64         never   the u64's bits: Spark has no unsigned numbers
    sequence        int64         never   producer_id and sequence are the message's id
    born_time       timestamp[us] never
    key             string
    ordering_key    string
    tag             string
    headers         binary                msgpack map of str to str
    content_type    string
    due_time        timestamp[us]
    expiry_time     timestamp[us]
    priority        int16         never   0 when the batch has none
    application_id  string
    body            binary                null only if the record was sent without bodies
    body_bytes      int64         never   length of the body, even if the body is null

``key_bytes`` and ``ordering_key_bytes`` are the texts as binary. Empty texts and zero times are
null, as in ``record.arrow``. Records are not checked, since a broker has verified them; call
``check`` first to compare their checksums.

pyarrow is an extra (``pip install 'ternmq[arrow]'``) and is imported when a coalescer is made.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from google_crc32c import value as crc32c

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ternmq.record.fact.messages import PREFIX_BYTES
from ternmq.record.page.columns import BINARIES, TEXTS, TIMES, Page
from ternmq.record.page.pieces import extent, pieces, starts_of

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_TARGET_BYTES: Final = 4 << 20
DEFAULT_TARGET_ROWS: Final = 100_000

_MESSAGES: Final = int(Kind.MESSAGES)
_HEAD: Final = struct.Struct("<IIIBBHQQqII" + "IIQIHHII")  # of record and MESSAGES body
_BATCH: Final = struct.Struct("<IIIBBHIIQQq")
_BATCH_AT: Final = HEADER_BYTES + PREFIX_BYTES

COLUMNS: Final = (
    "topic",
    "queue",
    "offset",
    "stored_time",
    "position",
    "producer_id",
    "sequence",
    "born_time",
    "key",
    "ordering_key",
    "tag",
    "headers",
    "content_type",
    "due_time",
    "expiry_time",
    "priority",
    "application_id",
    "body",
    "body_bytes",
    "key_bytes",
    "ordering_key_bytes",
)
"""The columns that may be requested; the result has them in the order of the request."""


class _Page(NamedTuple):
    """A page of records, of which rows are to be taken."""

    records: bytes
    starts: list[int]
    """Where its records begin."""
    start: int
    """First offset to take."""
    stop: int
    """Offset after the last one to take."""


class Coalescer:
    """Gathers rows of records and yields record batches of about the target size.

    Args:
        columns: Names from ``COLUMNS``, in the order of the result.
        target_bytes: A batch is yielded as soon as it has this many bytes of records,
        target_rows: or this many rows.

    Attributes:
        schema: Schema of the record batches.
        rows: Number of rows yielded so far, over all batches.

    Raises:
        InvalidRequest: A column name is unknown.
        ImportError: pyarrow is not installed.
    """

    def __init__(
        self,
        columns: Sequence[str] = COLUMNS[:18],
        *,
        target_bytes: int = DEFAULT_TARGET_BYTES,
        target_rows: int = DEFAULT_TARGET_ROWS,
    ) -> None:
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise InvalidRequest(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
        self.schema = schema(columns)
        self.rows = 0
        self._target_bytes = target_bytes
        self._target_rows = target_rows
        self._made: list[pa.RecordBatch] = []
        self._pages: list[_Page] = []
        self._topic = ""
        self._bytes = 0
        self._rows = 0

    def add(
        self, records: bytes, start: int = 0, stop: int = 1 << 62, *, topic: str = ""
    ) -> Iterator[pa.RecordBatch]:
        """Take a page of records; yield the batches that are full now.

        Args:
            records: Whole records, back to back; kinds other than MESSAGES are ignored.
            start: First offset to take.
            stop: Offset after the last one to take.
            topic: Value of the column ``topic``.

        Raises:
            ProtocolError: The bytes are not records.
            BatchError: Compressed bodies are damaged.
        """
        starts = starts_of(records)
        rows, compressed = extent(records, starts)
        if not rows:
            return
        if self._pages and (topic != self._topic or compressed):
            self._make()
        self._topic = topic
        self._pages.append(_Page(records, starts, start, stop))
        self._rows += min(rows, max(0, stop - start))
        self._bytes += len(records)
        if compressed:
            # Bodies may be far larger than their records: pages are not gathered before.
            self._make()
        if self._bytes >= self._target_bytes or self._rows >= self._target_rows:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if there are any."""
        import pyarrow as pa

        if self._pages:
            self._make()
        made, self._made = self._made, []
        self._bytes = self._rows = 0
        if len(made) == 1:
            yield made[0]
        elif made:
            table = pa.Table.from_batches(made).combine_chunks()
            yield from table.to_batches()

    def _make(self) -> None:
        """Make a record batch of the pages gathered so far, all of one topic."""
        pages, self._pages = self._pages, []
        counts = [len(page.starts) for page in pages]
        sizes = [len(page.records) for page in pages]
        shifts = np.cumsum([0, *sizes[:-1]])
        at = np.concatenate([page.starts for page in pages]).astype(np.int64)
        at += np.repeat(shifts, counts)
        start = np.repeat(np.array([page.start for page in pages], np.int64), counts)
        stop = np.repeat(np.array([page.stop for page in pages], np.int64), counts)
        records = pages[0].records if len(pages) == 1 else b"".join(page.records for page in pages)
        page = Page(records, pieces(records, at, start, stop))
        if page.rows:
            self._made.append(page.record_batch(self.schema, self._topic))
            self.rows += page.rows


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns, by their names in ``COLUMNS``."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    kinds = {
        "topic": pa.string(),
        "queue": pa.int32(),
        "tag": pa.string(),
        "priority": pa.int16(),
        "stored_time": instant,
        "born_time": instant,
        "body": pa.binary(),
        **dict.fromkeys(TEXTS, pa.string()),
        **dict.fromkeys(BINARIES, pa.binary()),
        **dict.fromkeys(TIMES, instant),
    }
    return pa.schema([(name, kinds.get(name, pa.int64())) for name in columns])


def check(records: bytes) -> None:
    """Check the frame of every record of a page: length, magic, checksum.

    Raises:
        ProtocolError: A record is damaged, or the page ends within it.
    """
    at, end = 0, len(records)
    while at < end:
        if end - at < HEADER_BYTES:
            raise ProtocolError(f"a record is cut short at byte {at}")
        crc, magic, length = HEADER.unpack_from(records, at)[:3]
        if magic != MAGIC or not HEADER_BYTES <= length <= end - at:
            raise ProtocolError(f"no record at byte {at}")
        if crc32c(records[at + 4 : at + length]) != crc:
            raise ProtocolError(f"the record at byte {at} is damaged")
        at += length
