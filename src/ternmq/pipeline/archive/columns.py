"""Columns of stored batches as columns of the archive, without an object per message."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from ternmq.pipeline.archive.schema import ARCHIVE

TAKEN: Final = (
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
    "application_id",
    "body",
)
"""The columns requested from ``record.coalesce``."""

_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEADERS: Final = msgspec.msgpack.Decoder(dict[str, str])
_MADE: Final = {"topic", "topic_number", "message_id", "body_crc", "schema_version"}
_STORED: Final = ARCHIVE.stored


def archived(rows: pa.RecordBatch, topic: str, topic_number: int) -> pa.RecordBatch:
    """Return rows as the archive's files store them.

    Args:
        rows: Rows with the columns ``TAKEN``.
        topic: Name of the topic.
        topic_number: Its number.
    """
    count = rows.num_rows
    columns: dict[str, pa.Array] = {
        name: rows.column(name) for name in _STORED.names if name not in _MADE
    }
    columns["topic"] = pa.repeat(pa.scalar(topic, pa.string()), count)
    columns["topic_number"] = pa.repeat(pa.scalar(topic_number, pa.int64()), count)
    columns["message_id"] = message_ids(columns["producer_id"], columns["sequence"])
    columns["headers"] = header_maps(columns["headers"])
    columns["body_crc"] = checksums(columns["body"])
    columns["schema_version"] = pa.repeat(pa.scalar(ARCHIVE.version, pa.int32()), count)
    columns["queue"] = columns["queue"].cast(pa.int32())
    return pa.RecordBatch.from_arrays([columns[name] for name in _STORED.names], schema=_STORED)


def message_ids(producers: pa.Array, sequences: pa.Array) -> pa.Array:
    """Return ids as ``ternmq.client.content.message.message_id`` writes them."""
    count = len(producers)
    if not count:
        return pa.array([], pa.string())
    text = np.empty((count, 33), np.uint8)
    text[:, :16] = _digits(producers)
    text[:, 16] = ord(":")
    text[:, 17:] = digits = _digits(sequences)
    significant = digits != _HEX[0]
    significant[:, -1] = True
    zeros = significant.argmax(axis=1)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(33 - zeros, out=offsets[1:])
    most = int(zeros.max())
    if most == zeros.min():
        kept = np.delete(text, np.s_[17 : 17 + most], axis=1)
    else:
        kept = text[np.arange(33) >= np.where(np.arange(33) < 17, 0, 17 + zeros[:, None])]
    data = np.ascontiguousarray(kept)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _digits(numbers: pa.Array) -> np.ndarray:
    """Return the 16 hexadecimal digits of each number's 64 bits, as bytes."""
    values = numbers.to_numpy(zero_copy_only=False)
    octets = values.astype(">i8").view(np.uint8).reshape(-1, 8)
    found = np.empty((len(values), 16), np.uint8)
    found[:, 0::2] = _HEX[octets >> 4]
    found[:, 1::2] = _HEX[octets & 15]
    return found


def header_maps(packed: pa.Array) -> pa.Array:
    """Return msgpack maps as Arrow maps; equal ones are decoded once."""
    kind = ARCHIVE.schema.field("headers").type
    if packed.null_count == len(packed):
        return pa.nulls(len(packed), kind)
    distinct = packed.dictionary_encode()
    decoded = [
        list(_HEADERS.decode(one).items()) or None for one in distinct.dictionary.to_pylist()
    ]
    return pa.array(decoded, kind).take(distinct.indices)


def checksums(bodies: pa.Array) -> pa.Array:
    """Return the CRC32C of each body."""
    return pa.array(map(crc32c, bodies.to_pylist()), pa.int64(), size=len(bodies))


def days(times: pa.Array) -> np.ndarray:
    """Return the UTC day of each time, in days since 1970."""
    micros = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
    found: np.ndarray = np.floor_divide(micros, 86_400_000_000)
    return found
