"""Compression of a batch's bodies in blocks, and the only place that decompresses.

Ruler of a compressed batch's last two columns (little-endian; the same text is in
``docs/format/batch.md``)::

    bodies       (count + 1) i32 offsets into the uncompressed bodies, the first is 0
                 the blocks, back to back
    block_table  u32 number of blocks
                 u32 0
                 then per block:
                   u32 stored length
                   u32 uncompressed length

The bodies, joined, are cut every 65,536 bytes; only the last block may be shorter. A block that
does not shrink is stored as it is: then its two lengths are equal. lz4 blocks are raw LZ4 blocks
without a size in front; zstd blocks are one frame each, which states its content size.

No length is trusted before it was compared with the bytes that are there: a block is inflated to at
most its declared length, declared lengths are at most 64 KiB, and their sum is checked against the
offsets and the caller's cap before the first block is inflated.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Final

import lz4.block
import zstandard

BLOCK_BYTES: Final = 64 * 1024
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a batch's compressed bodies when inflated: four times the largest body limit."""

_TABLE_HEAD: Final = struct.Struct("<II")
_TABLE_ENTRY: Final = struct.Struct("<II")
_ZSTD_LEVEL: Final = 1  # batches are small and short-lived; level 3 costs twice the time for ~4 %


class Compression(enum.IntEnum):
    """How the bodies of a batch are stored. Numbers are never reused."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class CompressionError(ValueError):
    """Compressed bodies differ from what their batch declares, or exceed the reader's cap."""


def compress_blocks(bodies: bytes, compression: Compression) -> tuple[bytes, bytes]:
    """Return (blocks back to back, block table) for joined bodies.

    Raises:
        ValueError: The bodies have more than ``MAX_INFLATED_BYTES``.
    """
    if len(bodies) > MAX_INFLATED_BYTES:
        raise ValueError(f"{len(bodies)} bytes of bodies, at most {MAX_INFLATED_BYTES} compressed")
    shrink = _compressor(compression)
    blocks: list[bytes] = []
    entries: list[bytes] = []
    for start in range(0, len(bodies), BLOCK_BYTES):
        block = bodies[start : start + BLOCK_BYTES]
        shrunk = shrink(block)
        stored = shrunk if len(shrunk) < len(block) else block
        blocks.append(stored)
        entries.append(_TABLE_ENTRY.pack(len(stored), len(block)))
    return b"".join(blocks), _TABLE_HEAD.pack(len(blocks), 0) + b"".join(entries)


def table_bytes(inflated: int) -> int:
    """Return the length of the block table for ``inflated`` bytes of bodies."""
    return _TABLE_HEAD.size + _TABLE_ENTRY.size * _block_count(inflated)


def read_table(data: bytes, start: int, inflated: int) -> list[tuple[int, int]]:
    """Return (stored length, uncompressed length) of each block, checked against ``inflated``.

    Args:
        data: The batch.
        start: Byte at which the block table begins.
        inflated: The last body offset: the sum of the uncompressed lengths.

    Raises:
        CompressionError: The table is cut short, or disagrees with ``inflated``.
    """
    if inflated > MAX_INFLATED_BYTES:
        raise CompressionError(f"declares {inflated} bytes of bodies, at most {MAX_INFLATED_BYTES}")
    if start + table_bytes(inflated) > len(data):
        raise CompressionError("the block table is cut short")
    count, zero = _TABLE_HEAD.unpack_from(data, start)
    if count != _block_count(inflated) or zero:
        raise CompressionError(f"{count} blocks declared for {inflated} bytes of bodies")
    first = start + _TABLE_HEAD.size
    table = data[first : first + _TABLE_ENTRY.size * count]
    entries: list[tuple[int, int]] = list(_TABLE_ENTRY.iter_unpack(table))
    left = inflated
    for stored, size in entries:
        if size != min(left, BLOCK_BYTES) or not 0 < stored <= size:
            raise CompressionError(f"a block of {stored} bytes declares {size}, {left} are left")
        left -= size
    return entries


def decompress_blocks(
    data: bytes, start: int, entries: list[tuple[int, int]], compression: Compression, cap: int
) -> bytes:
    """Return the joined bodies. They never take more than the declared length, nor than ``cap``.

    Args:
        data: The batch.
        start: Byte at which the first block begins.
        entries: Result of ``read_table``.
        compression: How the blocks were compressed.
        cap: Most bytes that the bodies may have.

    Raises:
        CompressionError: More than the cap is declared, or a block is damaged or of another length.
    """
    declared = sum(size for _, size in entries)
    if declared > cap:
        raise CompressionError(f"{declared} bytes of bodies are declared, the cap is {cap}")
    inflate = _decompressor(compression)
    blocks: list[bytes] = []
    for stored, size in entries:
        block = data[start : start + stored]
        start += stored
        if stored != size:
            block = inflate(block, size)
        if len(block) != size:
            raise CompressionError(f"a block came to {len(block)} bytes, {size} were declared")
        blocks.append(block)
    return b"".join(blocks)


def compress_frame(data: bytes) -> bytes:
    """Return one zstd frame that states its content size. Any thread; the GIL is released."""
    return _compressor(Compression.ZSTD)(data)


def inflate_frame(frame: bytes, size: int) -> bytes:
    """Return the content of a zstd frame, which takes no more than ``size`` bytes.

    Raises:
        CompressionError: The frame is damaged, or its content has another size.
    """
    found = _decompressor(Compression.ZSTD)(frame, size)
    if len(found) != size:
        raise CompressionError(f"a frame came to {len(found)} bytes, {size} were declared")
    return found


def _block_count(inflated: int) -> int:
    return -(-inflated // BLOCK_BYTES)


def _compressor(compression: Compression) -> Callable[[bytes], bytes]:
    # zstd contexts may not be shared between threads, so each batch has its own.
    if compression is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True).compress
    if compression is Compression.LZ4:
        return _compress_lz4
    raise ValueError("no compression was named")


def _compress_lz4(block: bytes) -> bytes:
    shrunk: bytes = lz4.block.compress(block, store_size=False)
    return shrunk


def _decompressor(compression: Compression) -> Callable[[bytes, int], bytes]:
    if compression is Compression.LZ4:
        return _inflate_lz4
    if compression is not Compression.ZSTD:
        raise CompressionError("the batch is not compressed")
    context = zstandard.ZstdDecompressor()

    def inflate(block: bytes, size: int) -> bytes:
        try:
            # A size stated in the frame overrides max_output_size, so it is compared first.
            if zstandard.frame_content_size(block) != size:
                raise CompressionError("a zstd frame does not state the declared length")
            return context.decompress(block, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CompressionError(f"a zstd block is damaged: {error}") from error

    return inflate


def _inflate_lz4(block: bytes, size: int) -> bytes:
    try:
        inflated: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise CompressionError(f"an lz4 block is damaged: {error}") from error
    return inflated
