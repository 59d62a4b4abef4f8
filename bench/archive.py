"""Measures the archive without a broker: files written, messages looked up among ten million.

    python bench/archive.py             what `make bench-large` keeps
    python bench/archive.py --quick     a smoke run, nothing is written

Bodies are of 100 bytes, half of them text that repeats; keys are random. Wants the extra ``spark``.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from core_kit import Figures, Measurement, Settings, Target, folder
from runner import Suite, run

from ternmq.client.content.message import message_id
from ternmq.pipeline.archive.columns import TAKEN
from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.archive.lookup import Lookup
from ternmq.pipeline.archive.ranges import Range, write_range
from ternmq.pipeline.tables.folder import Folder

QUEUES = 4
PRODUCER = 0x1234567 << 20
NOON = 1_795_262_400_000_000
INSTANT = pa.timestamp("us", tz="UTC")
TEXT = b'{"carrier":"UA","flight":1545,"from":"EWR","to":"IA'
BATCH = 25_000
LOOKS = 40


def fixed(rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return rows of bytes of one length as an Arrow array."""
    count, size = rows.shape
    offsets = (np.arange(count + 1) * size).astype(np.int32)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), data])


def made(start: int, count: int, queue: int, chance: np.random.Generator) -> pa.RecordBatch:
    """Return rows as they come from a broker."""
    offsets = np.arange(start, start + count)
    stored = NOON + offsets * 4000
    bodies = np.empty((count, 100), np.uint8)
    bodies[:, :50] = np.frombuffer(TEXT, np.uint8)[:50]
    bodies[:, 50:] = chance.integers(0, 256, (count, 50), dtype=np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    columns = {
        "queue": pa.array(np.full(count, queue, np.int32)),
        "offset": pa.array(offsets),
        "stored_time": pa.array(stored, INSTANT),
        "position": pa.array(offsets * 120),
        "producer_id": pa.array(np.full(count, PRODUCER + queue)),
        "sequence": pa.array(offsets + 1),
        "born_time": pa.array(stored - 3000, INSTANT),
        "key": fixed(digits[chance.integers(0, 16, (count, 12))], pa.string()),
        "tag": pa.array([f"t{n}" for n in range(8)]).take(pa.array(offsets % 8)),
        "headers": pa.nulls(count, pa.binary()),
        "body": fixed(bodies, pa.binary()),
    }
    absent = pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([columns.get(n, absent) for n in TAKEN], names=list(TAKEN))


def filled(tables: Folder, rows: int) -> Figures:
    """Write an archive; return what that took."""
    archive = Archive(tables)
    chance = np.random.default_rng(1)
    written, cpu, wall = [], 0.0, 0.0
    each = rows // QUEUES

    def batches(queue: int) -> Iterator[pa.RecordBatch]:
        nonlocal cpu, wall
        for at in range(0, each, BATCH):
            c, w = time.process_time(), time.perf_counter()
            batch = made(at, min(BATCH, each - at), queue, chance)
            cpu -= time.process_time() - c  # making them is not part of it
            wall -= time.perf_counter() - w
            yield batch

    for queue in range(QUEUES):
        c, w = time.process_time(), time.perf_counter()
        span = Range("flights", 3, queue, 0, each)
        written.append(write_range(archive.table.folder, span, batches(queue)))
        cpu += time.process_time() - c
        wall += time.perf_counter() - w
    c = time.perf_counter()
    archive.commit(written, NOON)
    size = sum(one.size for one in archive.table.files())
    return {
        "rows_per_cpu_s": rows / cpu,
        "mb_per_cpu_s": rows * 100 / cpu / 1e6,
        "mb_per_s": rows * 100 / wall / 1e6,
        "commit_ms": 1000 * (time.perf_counter() - c),
        "bytes_per_row": size / rows,
    }


def timed(ask: Callable[[int], object]) -> tuple[float, float]:
    """Return median and largest wall time of many look-ups, in ms."""
    took = []
    for number in range(LOOKS):
        began = time.perf_counter()
        found = ask(number)
        took.append(1000 * (time.perf_counter() - began))
        assert found not in (None, [])
    return statistics.median(took), max(took)


def large(settings: Settings) -> Figures:
    """One round."""
    rows = settings.scaled(10_000_000, 100_000)
    chance = random.Random(3)
    with folder(settings) as path:
        tables = Folder(str(path / "tables"))
        found = filled(tables, rows)
        began = time.perf_counter()
        lookup = Lookup(tables)
        found["open_ms"] = 1000 * (time.perf_counter() - began)
        places = [
            (chance.randrange(QUEUES), chance.randrange(rows // QUEUES)) for _ in range(LOOKS)
        ]
        asked: dict[str, Callable[[int], object]] = {
            "place": lambda n: lookup.at("flights", *places[n]),
            "id": lambda n: lookup.by_id(message_id(PRODUCER + places[n][0], places[n][1] + 1)),
        }
        keys = [str(one.key) for n in range(LOOKS) if (one := lookup.at("flights", *places[n]))]
        asked["key"] = lambda n: lookup.by_key(keys[n])
        for name, ask in asked.items():
            found[f"{name}_ms"], found[f"{name}_longest_ms"] = timed(ask)
        lookup.close()
    return found


SUITE = Suite(
    script=Path(__file__),
    about=__doc__ or "",
    measurements=[
        Measurement(
            "archive-10m",
            "an archive of 10 M messages of 100 bytes: writes on one core, then look-ups",
            large,
            targets=(
                Target("place_ms", 100),
                Target("id_ms", 100),
                Target("key_ms", 100),
                Target("mb_per_cpu_s", 60, at_least=True),
            ),
            options={"rows": 10_000_000, "body_bytes": 100, "queues": QUEUES, "look_ups": LOOKS},
            rounds=3,
        )
    ],
    versions=lambda: {name: version(name) for name in ("pyarrow", "deltalake", "duckdb")},
)

if __name__ == "__main__":
    sys.exit(run(SUITE))
