"""Compressed bodies: blocks, lies about them, bombs."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc

import lz4.block
import pytest
import zstandard

from ternmq.record.batch import compress
from ternmq.record.batch.batch import Batch, BatchError, Compression, Row, verify
from ternmq.record.batch.compress import BLOCK_BYTES, MAX_INFLATED_BYTES, CompressionError
from tests.unit.record.batch.test_batch import SEED, pack
from tests.unit.record.batch.test_verify import changed, reason, sealed

both = pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])


def noise(size: int) -> bytes:
    return bytes(hashlib.shake_128(b"noise").digest(size))


def squeezed(bodies, compression) -> bytes:
    data: bytes = pack([Row(body) for body in bodies], compression=compression)
    assert Batch(data).compression is compression
    return data


def blocks(data: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """(where the blocks begin, where the table begins, its entries)."""
    batch = Batch(data)
    first = batch.start(14) + 4 * (batch.count + 1)
    table = batch.start(15)
    count, zero = struct.unpack_from("<II", data, table)
    assert zero == 0
    return first, table, [struct.unpack_from("<II", data, table + 8 + 8 * n) for n in range(count)]


def with_block(compression: Compression, block: bytes, size: int) -> bytes:
    """A batch of one body of ``size`` bytes whose only block is ``block``."""
    padded = block + bytes(-(8 + len(block)) & 7)
    body = struct.pack("<ii", 0, size) + padded
    head = struct.pack(
        "<IIIBBHIIQQqII",
        0x31424D54,
        0,
        0,
        1,
        compression,
        2,
        0xC000,
        1,
        1,
        1,
        1,
        56,
        56 + len(body),
    )
    return sealed(head + body + struct.pack("<IIII", 1, 0, len(block), size))


def shrink(compression: Compression, plain: bytes) -> bytes:
    if compression is Compression.LZ4:
        return bytes(lz4.block.compress(plain, store_size=False))
    return zstandard.ZstdCompressor().compress(plain)


@both
@pytest.mark.parametrize(
    "sizes",
    [
        [BLOCK_BYTES],
        [BLOCK_BYTES - 1],
        [BLOCK_BYTES + 1],
        [200_000],
        [10, 0, 70_000, 65_000, 0],
        [100] * 2000,
        [BLOCK_BYTES] * 3,
    ],
)
def test_bodies_come_back_and_are_cut_into_blocks(compression, sizes):
    bodies = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]
    data = squeezed(bodies, compression)
    verify(data, SEED)
    assert Batch(data).bodies() == bodies
    assert [Batch(data).body(row) for row in range(len(bodies))][-50:] == bodies[-50:]
    assert Batch(data).row(0) == Row(bodies[0])
    total = sum(sizes)
    _, _, entries = blocks(data)
    assert [size for _, size in entries] == [
        min(BLOCK_BYTES, total - start) for start in range(0, total, BLOCK_BYTES)
    ]


@both
def test_a_block_that_does_not_shrink_is_stored_as_it_is(compression):
    bodies = [b"a" * BLOCK_BYTES, noise(BLOCK_BYTES), b"b" * 100]
    data = squeezed(bodies, compression)
    _, _, entries = blocks(data)
    assert entries[1] == (BLOCK_BYTES, BLOCK_BYTES)
    assert entries[0][0] < 1000
    assert noise(BLOCK_BYTES) in data
    verify(data, SEED)
    assert Batch(data).bodies() == bodies


@both
@pytest.mark.parametrize("body", [b"", b"short", noise(5000)])
def test_bodies_that_do_not_shrink_make_an_uncompressed_batch(compression, body):
    assert pack([Row(body)] * 1, compression=compression) == pack([Row(body)])


@both
def test_more_than_the_limit_is_not_compressed(compression):
    with pytest.raises(ValueError, match="at most"):
        compress.compress_blocks(bytes(MAX_INFLATED_BYTES + 1), compression)


def test_blocks_need_a_named_compression():
    with pytest.raises(ValueError, match="named"):
        compress.compress_blocks(b"x", Compression.NONE)
    with pytest.raises(CompressionError):
        compress.decompress_blocks(b"x", 0, [], Compression.NONE, 10)


@both
def test_the_cap_of_the_reader_holds(compression):
    data = squeezed([b"a" * 100_000], compression)
    assert len(Batch(data, output_cap=100_000).body(0)) == 100_000
    with pytest.raises(BatchError, match="cap") as caught:
        Batch(data, output_cap=99_999).body(0)
    assert caught.value.reason == "blocks"


@both
def test_lies_in_the_block_table_are_refused(compression):
    data = squeezed([b"a" * 150_000], compression)
    _, table, entries = blocks(data)
    assert len(entries) == 3
    for at, value in (
        (table, 2),
        (table, 4),
        (table, 2**32 - 1),
        (table + 4, 1),
        (table + 8, 0),
        (table + 8, 2**32 - 1),
        (table + 8, BLOCK_BYTES + 1),
        (table + 12, BLOCK_BYTES - 1),
        (table + 12, 2**32 - 1),
        (table + 28, 150_000 - 2 * BLOCK_BYTES + 1),
    ):
        assert reason(changed(data, at, "I", value)) == "blocks"
    assert reason(changed(data, table + 8, "I", entries[0][0] + 8)) == "columns"
    for total in (149_999, 2**31 - 1):
        assert reason(changed(data, Batch(data).start(14) + 4, "i", total)) == "blocks"
    for start in (0, table - 8, table + 8, 2**32 - 8):
        assert reason(changed(data, 52, "I", start)) in {"columns", "blocks"}


@both
def test_a_block_of_another_length_than_declared_is_refused(compression):
    for declared, real in ((1000, 999), (1000, 1001), (1000, BLOCK_BYTES), (BLOCK_BYTES, 10)):
        lie = with_block(compression, shrink(compression, b"a" * real), declared)
        verify(lie, SEED)  # the broker does not inflate
        with pytest.raises(BatchError) as caught:
            Batch(lie).bodies()
        assert caught.value.reason == "blocks"


@both
def test_garbage_for_a_block_is_refused(compression):
    for garbage in (b"\0", noise(100), b"\xff" * 999, b"\x28\xb5\x2f\xfd" + noise(60)):
        lie = with_block(compression, garbage, 1000)
        verify(lie, SEED)
        with pytest.raises(BatchError):
            Batch(lie).bodies()


@both
def test_a_bomb_takes_no_more_memory_than_it_declares(compression):
    # 200,000 bytes in one block that says 1,000; zstd frames state their own size on top.
    block = shrink(compression, bytes(200_000))
    assert len(block) < 1000
    bomb = with_block(compression, block, 1000)
    verify(bomb, SEED)
    batch = Batch(bomb)
    tracemalloc.start()
    try:
        with pytest.raises(BatchError):
            batch.bodies()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 1024


def test_a_zstd_frame_that_claims_gigabytes_is_refused_before_it_is_inflated():
    # Magic, a descriptor with an 8-byte content size in a single segment, and the size.
    frame = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\0\0"
    with pytest.raises(BatchError, match="declared length"):
        Batch(with_block(Compression.ZSTD, frame, 1000)).bodies()


def test_a_zstd_frame_without_its_size_is_refused():
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * 1000)
    with pytest.raises(BatchError, match="declared length"):
        Batch(with_block(Compression.ZSTD, frame, 1000)).bodies()


def test_a_second_zstd_frame_behind_the_first_is_refused():
    frame = zstandard.ZstdCompressor().compress(b"a" * 1000)
    with pytest.raises(BatchError):
        Batch(with_block(Compression.ZSTD, frame + frame, 1000)).bodies()


@both
def test_every_truncation_of_a_block_is_refused(compression):
    block = shrink(compression, bytes(range(256)) * 4 + b"a" * 1000)
    for length in range(1, len(block)):
        with pytest.raises(BatchError):
            Batch(with_block(compression, block[:length], 2024)).bodies()
