"""Records of messages as Arrow batches of a few megabytes, however small the stored ones are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from google_crc32c import value as crc32c

from ternmq.model.errors import ProtocolError
from ternmq.record import arrow as columnar
from ternmq.record import messages
from ternmq.record.batch import Batch, BatchError
from ternmq.record.header import HEADER, HEADER_BYTES, Kind
from ternmq.spark import schema

if TYPE_CHECKING:
    import pyarrow as pa

_PREFIX_END: Final = HEADER_BYTES + messages.PREFIX_BYTES
_MESSAGES: Final = int(Kind.MESSAGES)
_FEW: Final = 16
"""Rows of a record from which arrays are made of it; below, values are gathered one by one."""


class Rows:
    """Rows ``[row, row + count)`` of a stored batch; their offsets begin at ``offset``."""

    __slots__ = ("_arrow", "batch", "count", "offset", "queue", "row", "stored_us", "topic")

    def __init__(
        self, topic: str, queue: int, batch: Batch, row: int, count: int, offset: int,
        stored_us: int,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.queue = queue
        self.batch = batch
        self.row = row
        self.count = count
        self.offset = offset
        self.stored_us = stored_us
        self._arrow: pa.RecordBatch | None = None

    def cut(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return what belongs to these rows, of the values of a whole batch."""
        if self.count == len(values):
            return values
        return values[self.row : self.row + self.count]

    def column(self, name: str) -> pa.Array:
        """Return a column of ``record.arrow``, of these rows."""
        if self._arrow is None:
            self._arrow = columnar.to_arrow(self.batch)
        return self._arrow.column(name).slice(self.row, self.count)


def _message_ids(rows: Rows) -> list[str]:
    producer, first = rows.batch.producer_id, rows.batch.first_sequence + rows.row
    return [f"{producer:016x}:{first + one:x}" for one in range(rows.count)]


def _tags(rows: Rows) -> Sequence[str | None]:
    codes, texts = rows.batch.tags()
    return [texts[code] or None for code in rows.cut(codes)]


def _header_lists(rows: Rows) -> list[list[dict[str, object]] | None]:
    return [
        [{"key": key, "value": value.encode()} for key, value in one.items()] or None
        for one in rows.cut(rows.batch.headers())
    ]


def _none(rows: Rows) -> list[None]:
    return [None] * rows.count


def _or_none(values: Sequence[Any]) -> list[Any]:
    return [value or None for value in values]


_VALUES: Final[dict[str, Callable[[Rows], Sequence[Any]]]] = {
    "key": lambda r: _or_none(r.cut(r.batch.keys())),
    "value": lambda r: r.cut(r.batch.bodies()),
    "topic": lambda r: [r.topic] * r.count,
    "partition": lambda r: [r.queue] * r.count,
    "offset": lambda r: range(r.offset, r.offset + r.count),
    "timestamp": lambda r: [r.stored_us] * r.count,
    "headers": _header_lists,
    "message_id": _message_ids,
    "born_timestamp": lambda r: [r.batch.born_us] * r.count,
    "tags": _tags,
    "producer": lambda r: [f"{r.batch.producer_id:016x}"] * r.count,
    "delay_until": lambda r: _or_none(r.cut(r.batch.due_times_us())),
    "attempt": _none,
    "txn_id": _none,
    "crc": lambda r: [crc32c(body) for body in r.cut(r.batch.bodies())],
    "order_key": lambda r: _or_none(r.cut(r.batch.ordering_keys())),
    "content_type": lambda r: _or_none(r.cut(r.batch.content_types())),
    "application_id": lambda r: _or_none(r.cut(r.batch.application_id_texts())),
    "priority": lambda r: r.cut(r.batch.priorities()),
    "expires_at": lambda r: _or_none(r.cut(r.batch.expiry_times_us())),
}
"""What a column holds, as values: for records of few rows, and what has no array."""
_ARRAYS: Final = {
    "key": "key",
    "value": "body",
    "born_timestamp": "born_time",
    "tags": "tag",
    "delay_until": "due_time",
    "order_key": "ordering_key",
    "content_type": "content_type",
    "application_id": "application_id",
    "priority": "priority",
    "expires_at": "expiry_time",
}
"""Columns that ``record.arrow`` has, and how it calls them."""


class Decoder:
    """Gathers records; gives Arrow batches. One queue.

    Args:
        topic: Its name.
        queue: Its number.
        columns: The columns wanted, with their types in Spark's words.
        rows: A batch is given when it has so many ...
        size: ... or its bodies and keys have so many bytes.
    """

    def __init__(
        self, topic: str, queue: int, columns: Mapping[str, str], rows: int, size: int
    ) -> None:
        self._topic = topic
        self._queue = queue
        self._columns = dict(columns)
        self._schema = schema.arrow(columns)
        self._most_rows = rows
        self._most_bytes = size
        self._values: dict[str, list[Any]] = {name: [] for name in columns}
        self._arrays: dict[str, list[pa.Array]] = {name: [] for name in columns}
        self._few = self._rows = self._bytes = 0

    def feed(self, records: bytes, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Take the rows ``[start, stop)`` out of records; yield what is full.

        Raises:
            ProtocolError: The records are damaged.
        """
        at, end = 0, len(records)
        try:
            while at < end:
                crc, _, length, _, kind, _, _, _, stored_us, _, _ = HEADER.unpack_from(records, at)
                if length < _PREFIX_END or at + length > end or kind != _MESSAGES:
                    raise ProtocolError("the broker's records are damaged")
                if crc32c(records[at + 4 : at + length]) != crc:
                    raise ProtocolError("the checksum of a record of the broker is wrong")
                self._take(records, at, stored_us, start, stop)
                at += length
                if self._rows >= self._most_rows or self._bytes >= self._most_bytes:
                    yield from self.flush()
        except (struct.error, BatchError) as error:
            raise ProtocolError(f"the broker's records are damaged: {error}") from error

    def _take(self, records: bytes, at: int, stored_us: int, start: int, stop: int) -> None:
        _, _, first, count, run_count, _, size, _ = messages.PREFIX.unpack_from(
            records, at + HEADER_BYTES
        )
        if first >= stop or first + count <= start:
            return
        begin = at + _PREFIX_END + messages.RUN.size * run_count
        batch = Batch(records[begin : begin + size])
        runs = list(messages.RUN.iter_unpack(records[at + _PREFIX_END : begin])) or [(0, count)]
        for low, high in runs:
            here, there = max(start, first), min(stop, first + high - low)
            if here < there:
                self._add(
                    Rows(
                        self._topic, self._queue, batch, low + here - first, there - here, here,
                        stored_us,
                    ),
                    size * (there - here) // batch.count,
                )  # fmt: skip
            first += high - low

    def _add(self, rows: Rows, size: int) -> None:
        self._rows += rows.count
        self._bytes += size
        if rows.count < _FEW:
            self._few += rows.count
            for name, values in self._values.items():
                values.extend(_VALUES[name](rows))
            return
        self._settle()
        for name, arrays in self._arrays.items():
            arrays.append(self._array(name, rows))

    def _settle(self) -> None:
        """Make arrays of the values that were gathered one by one."""
        if not self._few:
            return
        self._few = 0
        for name, values in self._values.items():
            self._arrays[name].append(self._made(name, values))
            self._values[name] = []

    def _array(self, name: str, rows: Rows) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        kind = self._schema.field(name).type
        source = _ARRAYS.get(name)
        if source is not None:
            found = rows.column(source)
            return found if found.type == kind else self._cast(found, kind)
        match name:
            case "topic":
                return pa.repeat(pa.scalar(rows.topic, kind), rows.count)
            case "partition":
                return pa.repeat(pa.scalar(rows.queue, kind), rows.count)
            case "offset":
                return pa.array(np.arange(rows.offset, rows.offset + rows.count, dtype=np.int64))
            case "timestamp":
                return pa.repeat(pa.scalar(rows.stored_us, kind), rows.count)
            case "attempt" | "txn_id":
                return pa.nulls(rows.count, kind)
        return self._made(name, _VALUES[name](rows))

    def _made(self, name: str, values: Sequence[Any]) -> pa.Array:
        import pyarrow as pa

        kind = self._schema.field(name).type
        if name == "key" and kind == pa.binary():
            return pa.array(values, pa.string()).cast(kind)
        if name == "value" and kind == pa.string():
            return self._cast(pa.array(values, pa.binary()), kind)
        return pa.array(values, kind)

    @staticmethod
    def _cast(found: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return an array as another type; bytes that are no UTF-8 become replacement marks."""
        import pyarrow as pa

        try:
            return found.cast(kind)
        except pa.ArrowInvalid:
            return pa.array(
                [None if one is None else one.decode(errors="replace") for one in
                 found.to_pylist()], kind,
            )  # fmt: skip

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what was gathered, in batches of about the size that is wanted."""
        import pyarrow as pa

        self._settle()
        if not self._rows:
            return
        total = self._rows
        arrays = [
            found[0] if len(found) == 1 else pa.concat_arrays(found)
            for found in self._arrays.values()
        ]
        self._arrays = {name: [] for name in self._columns}
        self._rows = self._bytes = 0
        whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else None
        if whole is None:  # no column is wanted: only how many rows there are
            whole = pa.RecordBatch.from_struct_array(pa.array([{}] * total, pa.struct([])))
        pieces = max(1, round(total / self._most_rows))
        for piece in range(pieces):
            low, high = total * piece // pieces, total * (piece + 1) // pieces
            yield whole.slice(low, high - low)
