"""A batch as Arrow columns that are views of the batch's own memory.

The columns, in this order (``schema`` returns it); the schema allows null in every field::

    topic           string                only when a topic's name is given
    producer_id     int64                 the u64's bits: Spark has no unsigned numbers
    sequence        int64                 producer_id and sequence are the message's id
    born_time       timestamp[us, UTC]
    key             string       view
    ordering_key    string       view
    tag             string
    headers         binary       view     msgpack map of str to str
    content_type    string       view
    due_time        timestamp    view
    expiry_time     timestamp    view
    priority        int16                 0 when the batch has none
    application_id  string       view
    body            binary       view     never null

Columns marked *view* share the batch's memory, unless constant, absent, or (body) compressed; only
validity bitmaps are made. Empty texts and zero times are null. Constant columns are repeated, since
Spark reads neither run-end-encoded nor dictionary arrays.

pyarrow is an extra (``pip install 'ternmq[arrow]'``) and is imported at the first call.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

import numpy as np

from ternmq.record.batch.batch import Batch, Column

if TYPE_CHECKING:
    import pyarrow as pa


@functools.cache
def schema(*, topic: bool = False) -> pa.Schema:
    """Return the schema of ``to_arrow``'s record batches."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    fields = [
        ("producer_id", pa.int64()),
        ("sequence", pa.int64()),
        ("born_time", instant),
        ("key", pa.string()),
        ("ordering_key", pa.string()),
        ("tag", pa.string()),
        ("headers", pa.binary()),
        ("content_type", pa.string()),
        ("due_time", instant),
        ("expiry_time", instant),
        ("priority", pa.int16()),
        ("application_id", pa.string()),
        ("body", pa.binary()),
    ]
    return pa.schema([("topic", pa.string()), *fields] if topic else fields)


def to_arrow(batch: bytes | Batch, *, topic: str | None = None) -> pa.RecordBatch:
    """Return a batch's rows as Arrow columns, as the module describes.

    The result keeps the batch's bytes alive. ``verify`` must have accepted the batch: Arrow does
    not check offsets and text.

    Args:
        batch: The batch's bytes, or a reader of them (its output cap limits compressed bodies).
        topic: If given, the first column repeats it.

    Raises:
        BatchError: The header is not sound, or compressed bodies are damaged or exceed the cap.
    """
    import pyarrow as pa

    reader = batch if isinstance(batch, Batch) else Batch(batch)
    memory = pa.py_buffer(reader.data)
    names = schema(topic=topic is not None)
    instant = names.field("born_time").type
    count = reader.count
    arrays = [
        pa.repeat(pa.scalar(_signed(reader.producer_id), pa.int64()), count),
        _sequences(reader),
        pa.repeat(pa.scalar(reader.born_us, instant), count),
        _binary(reader, memory, Column.KEY, pa.string()),
        _binary(reader, memory, Column.ORDERING_KEY, pa.string()),
        _tags(reader),
        _binary(reader, memory, Column.HEADERS, pa.binary()),
        _binary(reader, memory, Column.CONTENT_TYPE, pa.string()),
        _times(reader, memory, Column.DUE_US),
        _times(reader, memory, Column.EXPIRY_US),
        pa.array(np.frombuffer(reader.priorities(), np.uint8).astype(np.int16)),
        _binary(reader, memory, Column.APPLICATION_ID, pa.string()),
        _bodies(reader, memory),
    ]
    if topic is not None:
        arrays.insert(0, pa.repeat(pa.scalar(topic, pa.string()), count))
    return pa.RecordBatch.from_arrays(arrays, schema=names)


def _signed(number: int) -> int:
    """Return the i64 with the bits of a u64."""
    signed: int = struct.unpack("<q", struct.pack("<Q", number))[0]
    return signed


def _sequences(reader: Batch) -> pa.Array:
    import pyarrow as pa

    # Added as u64, which wraps: a sequence may pass 2**63.
    first = np.uint64(reader.first_sequence)
    return pa.array((np.arange(reader.count, dtype=np.uint64) + first).view(np.int64))


def _binary(reader: Batch, memory: pa.Buffer, column: int, kind: pa.DataType) -> pa.Array:
    """Return a text or binary column; empty entries are null."""
    import pyarrow as pa

    count = reader.count
    if not reader.has(column):
        return pa.nulls(count, kind)
    start = reader.start(column)
    if reader.is_constant(column):
        (size,) = struct.unpack_from("<i", reader.data, start + 4)
        value = reader.data[start + 8 : start + 8 + size]
        return pa.repeat(pa.scalar(value or None, pa.binary()).cast(kind), count)
    offsets = np.frombuffer(reader.data, "<i4", count + 1, start)
    validity, nulls = _validity(offsets[1:] != offsets[:-1])
    return pa.Array.from_buffers(
        kind, count, [validity, *_cut(memory, start, offsets)], null_count=nulls
    )


def _bodies(reader: Batch, memory: pa.Buffer) -> pa.Array:
    import pyarrow as pa

    count = reader.count
    if reader.compression:
        return pa.array(reader.bodies(), pa.binary())
    start = reader.start(Column.BODIES)
    offsets = np.frombuffer(reader.data, "<i4", count + 1, start)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, *_cut(memory, start, offsets)], null_count=0
    )


def _cut(memory: pa.Buffer, start: int, offsets: np.ndarray) -> list[pa.Buffer]:
    base = start + 4 * len(offsets)
    return [memory.slice(start, 4 * len(offsets)), memory.slice(base, int(offsets[-1]))]


def _times(reader: Batch, memory: pa.Buffer, column: int) -> pa.Array:
    """Return a column of times; 0 is null."""
    import pyarrow as pa

    count = reader.count
    instant = pa.timestamp("us", tz="UTC")
    if not reader.has(column):
        return pa.nulls(count, instant)
    start = reader.start(column)
    if reader.is_constant(column):
        (value,) = struct.unpack_from("<q", reader.data, start)
        return pa.repeat(pa.scalar(value or None, instant), count)
    validity, nulls = _validity(np.frombuffer(reader.data, "<i8", count, start) != 0)
    return pa.Array.from_buffers(
        instant, count, [validity, memory.slice(start, 8 * count)], null_count=nulls
    )


def _tags(reader: Batch) -> pa.Array:
    import pyarrow as pa

    if not reader.has(Column.TAG_CODES):
        return pa.nulls(reader.count, pa.string())
    codes, (_, *tags) = reader.tags()
    entries = pa.array([None, *tags], pa.string())
    return entries.take(pa.array(np.frombuffer(codes, np.uint16)))


def _validity(valid: np.ndarray) -> tuple[pa.Buffer | None, int]:
    """Return (bitmap, number of nulls); no bitmap when nothing is null."""
    import pyarrow as pa

    nulls = len(valid) - int(np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls
