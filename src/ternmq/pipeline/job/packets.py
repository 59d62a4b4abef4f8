"""What the tasks of a job in Spark hand to each other: packets of rows, by bucket.

A task that scans yields packets; ``repartitionById`` brings those of a bucket to one task. A packet
is one row for Spark, so facts are never rows of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

PACKETS: Final = "bucket int, stretch bigint, number int, facts binary"
"""The columns of packets: the bucket; begin of the stretch that was scanned, and the number of the
packet in it; the rows."""
_PACKETS: Final = pa.schema(
    [
        ("bucket", pa.int32()), ("stretch", pa.int64()), ("number", pa.int32()),
        ("facts", pa.binary()),
    ]
)  # fmt: skip
_SHARES: Final = 4
"""Buckets for each core: a core whose buckets are small takes another one."""
_TASK_BYTES: Final = 32 << 20
_LEAST_BYTES: Final = 1 << 20


def buckets(cores: int) -> int:
    """Return the number of buckets for a number of cores."""
    return _SHARES * cores


def task_bytes(size: int, cores: int) -> int:
    """Return how many bytes of a journal a task scans: so few that each core gets some."""
    return min(_TASK_BYTES, max(_LEAST_BYTES, -(-size // (2 * cores))))


def packet(bucket: int, stretch: int, number: int, facts: pa.Table) -> pa.RecordBatch:
    """Return a packet as a row."""
    row = [[bucket], [stretch], [number], [packed(facts)]]
    arrays = [pa.array(one, kind.type) for one, kind in zip(row, _PACKETS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PACKETS)


def received(
    batches: Iterable[pa.RecordBatch], or_else: tuple[int, pa.Table] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the buckets of a partition, in general one, with their facts in the order of scans.

    Args:
        batches: The packets of a partition.
        or_else: What to yield if there are none.
    """
    found: dict[int, list[tuple[int, int, pa.Table]]] = {}
    for batch in batches:
        bucket, stretch, number, facts = (column.to_pylist() for column in batch.columns)
        for at, one in enumerate(bucket):
            told = stretch[at], number[at], unpacked(facts[at])
            found.setdefault(one, []).append(told)
    if not found and or_else is not None:
        yield or_else
    for one in sorted(found):
        packets = sorted(found.pop(one), key=lambda told: told[:2])
        yield one, pa.concat_tables([told[2] for told in packets]).combine_chunks()


def packed(rows: pa.Table) -> bytes:
    """Return rows as bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: bytes) -> pa.Table:
    """Return the rows of bytes."""
    return pa.ipc.open_stream(data).read_all()
