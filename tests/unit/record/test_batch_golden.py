"""Batches of released versions stay readable, and this version still writes the same bytes.

``python -m tests.unit.record.test_batch_golden`` writes the files that are missing. A file that is
there is never written again: it is what a released version wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq.record.batch import compress
from ternmq.record.batch.batch import (
    Batch,
    Column,
    Compression,
    Row,
    encode,
    slice_batch,
    topic_seed,
    verify,
)

FOLDER = Path(__file__).parents[2] / "golden"
TOPIC = "orders"
SEED = topic_seed(TOPIC)


def _encode(
    rows: list[Row], compression: Compression = Compression.NONE, *, keyed: bool = False
) -> bytes:
    return encode(
        rows,
        topic_seed=SEED,
        producer_id=0x0123_4567_89AB_CDEF,
        first_sequence=1000,
        born_us=1_700_000_000_000_001,
        compression=compression,
        keyed=keyed,
    )


PLAIN = [Row(b"hello"), Row(b""), Row(b"a longer body, with \0 and \xff")]
FULL = [
    Row(
        body=b"body %d" % number,
        key=f"order-{number}" if number != 2 else "",
        ordering_key=f"straße-{number % 2}",
        tag=("paid", "", "refunded")[number % 3],
        headers={"trace": f"t{number}", "ü": "é"} if number % 2 else {},
        content_type="application/json" if number else "",
        due_us=1_700_000_060_000_000 + number if number % 3 else 0,
        expiry_us=1_800_000_000_000_000 if number == 1 else 0,
        priority=number * 50,
        application_id=f"id-{number}" if number != 3 else "",
    )
    for number in range(5)
]
CONSTANT = [
    Row(b"%d" % number, "key", "order", "tag", {"a": "b"}, "text/plain", 7, 8, 9)
    for number in range(20)
]
SQUEEZED = [
    Row(b"0123456789" * 6_000, "k1"),
    Row(b"ab" * 2_768, "k2"),
    Row(hashlib.shake_128(b"a block that does not shrink").digest(60)),
]  # 65,536 bytes and then 60 that are stored as they are

MAKERS: dict[str, Callable[[], bytes]] = {
    "one": lambda: _encode([Row(b"hello", "order-7", "", "paid")]),
    "plain": lambda: _encode(PLAIN),
    "full": lambda: _encode(FULL, keyed=True),
    "constant": lambda: _encode(CONSTANT, keyed=True),
    "lz4": lambda: _encode(SQUEEZED, Compression.LZ4),
    "zstd": lambda: _encode(SQUEEZED, Compression.ZSTD),
    "slice": lambda: slice_batch(_encode(FULL, keyed=True), 1, 4, SEED),
}
ROWS = {
    "one": [Row(b"hello", "order-7", "", "paid")],
    "plain": PLAIN,
    "full": FULL,
    "constant": CONSTANT,
    "lz4": SQUEEZED,
    "zstd": SQUEEZED,
    "slice": FULL[1:4],
}


def golden(name: str) -> bytes:
    return (FOLDER / f"batch_v1_{name}.bin").read_bytes()


def test_every_golden_file_is_known():
    assert {path.name for path in FOLDER.glob("batch_v1_*.bin")} == {
        f"batch_v1_{name}.bin" for name in MAKERS
    }


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_written_is_read(name):
    data = golden(name)
    verify(data, SEED)
    batch = Batch(data)
    assert batch.rows() == ROWS[name]
    assert batch.producer_id == 0x0123_4567_89AB_CDEF
    assert batch.first_sequence == (1001 if name == "slice" else 1000)
    assert batch.born_us == 1_700_000_000_000_001


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in {"lz4", "zstd"}])
def test_the_same_rows_make_the_same_bytes(name):
    assert MAKERS[name]() == golden(name)


@pytest.mark.parametrize("name", ["lz4", "zstd"])
def test_the_same_blocks_make_the_same_bytes(name, monkeypatch):
    # What a block shrinks to is up to the library's version; everything around it is ours.
    data = golden(name)
    batch = Batch(data)
    first = batch.start(Column.BODIES) + 4 * (batch.count + 1)
    start = batch.start(Column.BLOCK_TABLE)
    entries = compress.read_table(data, start, sum(len(row.body) for row in SQUEEZED))
    assert entries[1] == (60, 60)
    stored = data[first : first + sum(size for size, _ in entries)]
    monkeypatch.setattr(compress, "compress_blocks", lambda *_: (stored, data[start:]))
    assert MAKERS[name]() == data


if __name__ == "__main__":
    for _name, _make in MAKERS.items():
        _path = FOLDER / f"batch_v1_{_name}.bin"
        if not _path.exists():
            _path.write_bytes(_make())
            print(f"wrote {_path}")
