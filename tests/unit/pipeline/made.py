"""Rows as they come from a broker, made."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa

from ternmq.pipeline.archive.columns import TAKEN
from ternmq.pipeline.archive.ranges import Range

INSTANT = pa.timestamp("us", tz="UTC")
NOON = 1_795_262_400_000_000
"""2026-11-21 12:00 UTC."""
DAY = 86_400_000_000
KINDS = {
    "queue": pa.int32(),
    "offset": pa.int64(),
    "stored_time": INSTANT,
    "position": pa.int64(),
    "producer_id": pa.int64(),
    "sequence": pa.int64(),
    "born_time": INSTANT,
    "key": pa.string(),
    "ordering_key": pa.string(),
    "tag": pa.string(),
    "headers": pa.binary(),
    "content_type": pa.string(),
    "application_id": pa.string(),
    "body": pa.binary(),
}
assert tuple(KINDS) == TAKEN


def span(start, stop, queue=0, topic="orders", number=7):
    return Range(topic, number, queue, start, stop)


def body(offset, queue=0):
    return f"body {queue}/{offset} ".encode() * 4


def rows(start, stop, queue=0, *, stored=NOON, step=1000, producer=0x1234, **given):
    """Return rows with these offsets; ``given``: whole columns."""
    offsets = range(start, stop)
    columns = {
        "queue": [queue] * len(offsets),
        "offset": list(offsets),
        "stored_time": [stored + step * one for one in offsets],
        "position": [4096 + 100 * one for one in offsets],
        "producer_id": [producer] * len(offsets),
        "sequence": [one + 1 for one in offsets],
        "born_time": [stored + step * one - 5000 for one in offsets],
        "key": [f"key-{one % 10}" for one in offsets],
        "ordering_key": [None] * len(offsets),
        "tag": [("a", "b", None)[one % 3] for one in offsets],
        "headers": [
            msgspec.msgpack.encode({"n": str(one)}) if one % 2 else None for one in offsets
        ],
        "content_type": ["text/plain"] * len(offsets),
        "application_id": [f"app-{queue}-{one}" for one in offsets],
        "body": [body(one, queue) for one in offsets],
    }
    columns |= given
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name], kind) for name, kind in KINDS.items()], schema=pa.schema(KINDS)
    )


def in_batches(start, stop, queue=0, size=100, **given):
    """Yield rows a few at a time."""
    for at in range(start, stop, size):
        yield rows(at, min(at + size, stop), queue, **given)


def older(found, micros):
    """Return a file as it was found, written so much earlier."""
    return replace(found, changed_us=found.changed_us - micros)
