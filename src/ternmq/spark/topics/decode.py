"""Records of messages as Arrow batches of a few megabytes, even if the stored ones are small."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from google_crc32c import value as crc32c

from ternmq.model.errors import ProtocolError
from ternmq.record.batch.batch import BatchError
from ternmq.record.coalesce import Coalescer, check
from ternmq.spark import schema

if TYPE_CHECKING:
    import pyarrow as pa

_LOW_64: Final = 2**64 - 1
_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "key": ("key_bytes",),
    "value": ("body",),
    "topic": ("topic",),
    "partition": ("queue",),
    "offset": ("offset",),
    "timestamp": ("stored_time",),
    "headers": ("headers",),
    "message_id": ("producer_id", "sequence"),
    "born_timestamp": ("born_time",),
    "tags": ("tag",),
    "producer": ("producer_id",),
    "delay_until": ("due_time",),
    "attempt": (),
    "txn_id": (),
    "crc": ("body",),
    "order_key": ("ordering_key",),
    "content_type": ("content_type",),
    "application_id": ("application_id",),
    "priority": ("priority",),
    "expires_at": ("expiry_time",),
}
_SOURCES.update({alias: _SOURCES[name] for alias, name in schema.ALIASES.items()})
"""Sources of each column; names of columns of ``record.coalesce``."""


class Decoder:
    """Collects records of one queue; yields Arrow batches.

    Args:
        topic: Name of the topic.
        columns: The columns to return, with their types as Spark writes them.
        rows: A batch is complete with this many rows ...
        size: ... or with this many bytes of records.
    """

    def __init__(self, topic: str, columns: Mapping[str, str], rows: int, size: int) -> None:
        self._topic = topic
        self._most_rows = rows
        self._schema = schema.arrow(columns)
        sources = {source: None for name in columns for source in _sources(name, columns[name])}
        # Without any column, Spark still needs the number of rows.
        self._coalescer = Coalescer(
            list(sources) or ["offset"], target_bytes=size, target_rows=rows
        )

    def feed(self, records: bytes, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Take the rows ``[start, stop)`` of records; yield complete batches.

        Raises:
            ProtocolError: The records are damaged.
        """
        check(records)
        try:
            for batch in self._coalescer.add(records, start, stop, topic=self._topic):
                yield from self._cut(batch)
        except BatchError as error:
            raise ProtocolError(f"the broker's records are damaged: {error}") from error

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        for batch in self._coalescer.finish():
            yield from self._cut(batch)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch into pieces of about ``rows`` rows, without copying."""
        made = self._made(batch)
        rows = batch.num_rows
        pieces = max(1, round(rows / self._most_rows))
        for piece in range(pieces):
            low, high = rows * piece // pieces, rows * (piece + 1) // pieces
            yield made if pieces == 1 else made.slice(low, high - low)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        if not self._schema.names:
            return batch.select([])
        arrays = [_column(batch, one.name, one.type) for one in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _sources(name: str, kind: str) -> tuple[str, ...]:
    return ("key",) if name == "key" and kind == "string" else _SOURCES[name]


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return a column with exactly the type that Spark expects."""
    import pyarrow as pa

    make = _DERIVED.get(name)
    if make is not None:
        return make(batch, kind)
    sources = _SOURCES[name]
    if not sources:
        return pa.nulls(batch.num_rows, kind)
    source = "key" if name == "key" and kind == pa.string() else sources[0]
    found = batch.column(source)
    return found if found.type == kind else _cast(found, kind)


def _cast(found: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array; bytes that are not UTF-8 become replacement characters."""
    import pyarrow as pa

    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        texts = [None if one is None else one.decode(errors="replace") for one in found.to_pylist()]
        return pa.array(texts, kind)


def _message_ids(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    producers = batch.column("producer_id").to_pylist()
    sequences = batch.column("sequence").to_pylist()
    return pa.array(
        [
            f"{producer & _LOW_64:016x}:{sequence & _LOW_64:x}"
            for producer, sequence in zip(producers, sequences, strict=True)
        ],
        kind,
    )


def _producers(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    coded = batch.column("producer_id").dictionary_encode()
    texts = pa.array([f"{one & _LOW_64:016x}" for one in coded.dictionary.to_pylist()], kind)
    return texts.take(coded.indices)


def _headers(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    rows: list[list[tuple[str, bytes | str]] | None] = []
    texts = pa.types.is_map(kind)
    try:
        for packed in batch.column("headers").to_pylist():
            pairs = _unpack(packed) if packed else {}
            row = [(key, value if texts else value.encode()) for key, value in pairs.items()]
            rows.append(row or None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"headers of a message are no map of texts: {error}") from error
    return pa.array(rows, kind)


def _checksums(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.array([crc32c(body) for body in batch.column("body").to_pylist()], kind)


_unpack: Final = msgspec.msgpack.Decoder(dict[str, str]).decode
_DERIVED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "message_id": _message_ids,
    "producer": _producers,
    "headers": _headers,
    "crc": _checksums,
}
"""Columns that are computed."""
