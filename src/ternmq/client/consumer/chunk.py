"""Rows of a PULL or READ answer: ranges of rows in the batches in which they were sent.

Columns are decoded at first use, each once for all rows of its batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from google_crc32c import value as crc32c

from ternmq.client.content.codecs import Codecs
from ternmq.client.content.message import message_id
from ternmq.client.process import pickling
from ternmq.model.errors import ProtocolError
from ternmq.record.batch.batch import Batch, BatchError, Column
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from ternmq.wire.bodies import Run

T = TypeVar("T")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIX: Final = messages.PREFIX
_PREFIX_END: Final = HEADER_BYTES + messages.PREFIX_BYTES
_ROW_RUN: Final = messages.RUN
_MESSAGES: Final = int(Kind.MESSAGES)
_HEADERS: Final = 1 << Column.HEADERS
_CONTENT_TYPE: Final = 1 << Column.CONTENT_TYPE
Origin = tuple[int, int, int]
"""Queue, producer, and the difference between the sequences of its messages and their offsets."""
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Chunk:
    """Rows ``[row, row + count)`` of a batch, with the offsets from ``offset`` on.

    Attributes:
        attempt: Attempt number of all of them; 1 is the first.
        deliveries: Number of deliveries, including this one.
        suspect: Whether they may have been delivered before a power cut.
        anew: Whether this is their first delivery since a reset or a replay.
        stored_us: Broker time at which they were stored.
        origin: Their origin; together with an offset it identifies one message.
    """

    __slots__ = (
        "_bodies", "_content_types", "_due_times", "_headers", "_ids", "_keys", "_ordering_keys",
        "_priorities", "_tags", "anew", "attempt", "batch", "count", "deliveries", "offset",
        "origin", "queue", "row", "stored_us", "suspect",
    )  # fmt: skip

    def __init__(
        self,
        queue: int,
        batch: Batch,
        row: int,
        count: int,
        offset: int,
        attempt: int,
        deliveries: int,
        stored_us: int,
        *,
        suspect: bool,
        anew: bool,
    ) -> None:
        self.queue = queue
        self.batch = batch
        self.row = row
        self.count = count
        self.offset = offset
        self.attempt = attempt
        self.deliveries = deliveries
        self.stored_us = stored_us
        self.suspect = suspect
        self.anew = anew
        self.origin: Origin = (queue, batch.producer_id, batch.first_sequence + row - offset)
        self._bodies: list[bytes] | None = None
        self._keys: list[str] | None = None
        self._ordering_keys: list[str] | None = None
        self._tags: list[str] | None = None
        self._headers: list[dict[str, str]] | None = None
        self._content_types: list[str] | None = None
        self._ids: list[str] | None = None
        self._due_times: Sequence[int] | None = None
        self._priorities: bytes | None = None

    def bodies(self) -> list[bytes]:
        """Return the bodies of its rows."""
        found = self._bodies
        if found is None:
            batch = self.batch
            if self.count == batch.count:
                found = batch.bodies()
            elif self.count == 1:
                found = [batch.body(self.row)]
            else:
                found = batch.bodies()[self.row : self.row + self.count]
            self._bodies = found
        return found

    def _cut(self, values: list[str]) -> list[str]:
        return values if self.count == len(values) else values[self.row : self.row + self.count]

    def key(self, index: int) -> str:
        """Return the key of its ``index``-th row."""
        if not self.batch.has(Column.KEY):
            return ""
        if self._keys is None:
            self._keys = self._cut(self.batch.keys())
        return self._keys[index]

    def ordering_key(self, index: int) -> str:
        """Return the ordering key of its ``index``-th row."""
        if not self.batch.has(Column.ORDERING_KEY):
            return ""
        if self._ordering_keys is None:
            self._ordering_keys = self._cut(self.batch.ordering_keys())
        return self._ordering_keys[index]

    def tag(self, index: int) -> str:
        """Return the tag of its ``index``-th row."""
        if not self.batch.has(Column.TAG_CODES):
            return ""
        if self._tags is None:
            codes, dictionary = self.batch.tags()
            self._tags = self._cut([dictionary[code] for code in codes])
        return self._tags[index]

    def headers(self, index: int) -> Mapping[str, str]:
        """Return the headers of its ``index``-th row."""
        if not self.batch.flags & _HEADERS:  # called for every message that a handler gets
            return _NO_HEADERS
        if self._headers is None:
            self._headers = self.batch.headers()[self.row : self.row + self.count]
        return self._headers[index]

    def content_type(self, index: int) -> str:
        """Return the content type of its ``index``-th row."""
        if not self.batch.flags & _CONTENT_TYPE:
            return ""
        if self._content_types is None:
            self._content_types = self._cut(self.batch.content_types())
        return self._content_types[index]

    def application_id(self, index: int) -> str:
        """Return the application's own id of its ``index``-th row."""
        if not self.batch.has(Column.APPLICATION_ID):
            return ""
        if self._ids is None:
            self._ids = self._cut(self.batch.application_id_texts())
        return self._ids[index]

    def due_us(self, index: int) -> int:
        """Return when its ``index``-th row was due, in broker time; 0: it had no due time."""
        if not self.batch.has(Column.DUE_US):
            return 0
        if self._due_times is None:
            self._due_times = self.batch.due_times_us()
        return self._due_times[self.row + index]

    def priority(self, index: int) -> int:
        """Return the priority of its ``index``-th row."""
        if not self.batch.has(Column.PRIORITY):
            return 0
        if self._priorities is None:
            self._priorities = self.batch.priorities()
        return self._priorities[self.row + index]


def chunks_of(
    queue: int, records: bytes, runs: Sequence[Run], suspect_below: int = 0, anew: int = 0
) -> list[Chunk]:
    """Return the rows of runs from the records of an answer, sorted by offset.

    Args:
        queue: Number of the queue.
        records: The records of the answer.
        runs: Its runs.
        suspect_below: Position below which rows may have been delivered before a power cut.
        anew: Bit i: run i is delivered for the first time since a reset or a replay.

    Raises:
        ProtocolError: The records are damaged.
    """
    found: list[Chunk] = []
    again = {run.start for place, run in enumerate(runs[:32]) if anew >> place & 1} if anew else ()
    at, end = 0, len(records)
    try:
        while at < end:
            crc, _, length, _, kind, _, position, _, stored_us, _, _ = HEADER.unpack_from(
                records, at
            )
            if length < _PREFIX_END or at + length > end or kind != _MESSAGES:
                raise ProtocolError("the answer's records are damaged")
            if crc32c(records[at + 4 : at + length]) != crc:
                raise ProtocolError("the checksum of a record is wrong")
            _, _, first, count, run_count, _, size, _ = _PREFIX.unpack_from(
                records, at + HEADER_BYTES
            )
            begin = at + _PREFIX_END + _ROW_RUN.size * run_count
            batch = Batch(records[begin : begin + size])
            rows = (
                list(_ROW_RUN.iter_unpack(records[at + _PREFIX_END : begin]))
                if run_count
                else [(0, count)]
            )
            for begin_of, start, stop, attempt, deliveries in _within(runs, first, first + count):
                suspect = deliveries == 1 and position < suspect_below
                for row, rows_here, offset in _rows(rows, first, start, stop):
                    found.append(
                        Chunk(
                            queue, batch, row, rows_here, offset, attempt, deliveries,
                            stored_us, suspect=suspect, anew=begin_of in again,
                        )
                    )  # fmt: skip
            at += length
    except (struct.error, BatchError) as error:
        raise ProtocolError(f"the answer's records are damaged: {error}") from error
    found.sort(key=_offset)
    return found


def _offset(chunk: Chunk) -> int:
    return chunk.offset


def _within(runs: Sequence[Run], first: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the start of each run and its part within ``[first, end)``."""
    for start, rows, attempt, deliveries in runs:
        low = max(start, first)
        high = min(start + rows, end)
        if low < high:
            yield start, low, high, attempt, deliveries


def _rows(
    rows: Sequence[tuple[int, int]], first: int, start: int, stop: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (row, count, offset) of the offsets ``[start, stop)`` of a record."""
    offset = first
    for low, high in rows:
        here, there = max(start, offset), min(stop, offset + high - low)
        if here < there:
            yield low + here - offset, there - here, here
        offset += high - low


class StoredMessage(pickling.NotPickled):
    """A row of a chunk: what a delivery and a prepared message have in common."""

    __slots__ = ("_chunk", "_codecs", "_index", "_topic")

    _topic: str
    _chunk: Chunk
    _index: int
    _codecs: Codecs

    @property
    def id(self) -> str:
        """Its id, as in the receipt."""
        batch = self._chunk.batch
        row = self._chunk.row + self._index
        return message_id(batch.producer_id, batch.first_sequence + row)

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._topic

    @property
    def queue(self) -> int:
        """The number of its queue."""
        return self._chunk.queue

    @property
    def key(self) -> str:
        """Its key, "" without one."""
        return self._chunk.key(self._index)

    @property
    def ordering_key(self) -> str:
        """Its ordering key, "" without one."""
        return self._chunk.ordering_key(self._index)

    @property
    def tag(self) -> str:
        """Its tag, "" without one."""
        return self._chunk.tag(self._index)

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._chunk.headers(self._index)

    @property
    def content_type(self) -> str:
        """Its content type, "" for bare bytes."""
        return self._chunk.content_type(self._index)

    @property
    def priority(self) -> int:
        """Its priority, 0 without one."""
        return self._chunk.priority(self._index)

    @property
    def body(self) -> bytes:
        """Its body, as it was sent."""
        return self._chunk.bodies()[self._index]

    @property
    def value(self) -> Any:
        """Its body, decoded according to its content type; bare bytes stay bytes.

        Raises:
            DecodeError: The body cannot be decoded.
        """
        return self.decode(Any)

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type.

        Raises:
            DecodeError: The body cannot be decoded as that type.
            TypeError: No body can be: it is not a type, or no codec knows it.
        """
        value: T = self._codecs.decode(self.body, self.content_type, kind)
        return value

    @property
    def born_at(self) -> datetime:
        """When its sender sent it."""
        return _EPOCH + timedelta(microseconds=self._chunk.batch.born_us)

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return _EPOCH + timedelta(microseconds=self._chunk.stored_us)

    @property
    def due_at(self) -> datetime | None:
        """Its due time, which may be before it was sent; None: it was sent without one."""
        due_us = self._chunk.due_us(self._index)
        return _EPOCH + timedelta(microseconds=due_us) if due_us else None
