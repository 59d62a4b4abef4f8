"""MurmurHash3 of many texts at once: x64, 128 bits, by A. Appleby (public domain).

Texts of the same length are hashed together, so that numpy does each step for all of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Words = npt.NDArray[np.uint64]

SEED: Final = 9001
"""The seed of Apache DataSketches."""
_AT_ONCE_BYTES: Final = 1 << 20
"""Texts that are hashed together; numpy needs some ten times as much memory."""
_BLOCK: Final = 16
_ONE: Final = np.uint64(0x87C37B91114253D5)
_TWO: Final = np.uint64(0x4CF5AD432745937F)


def hashes(texts: pa.Array) -> tuple[Words, Words]:
    """Return the first and the second half of the hash of each text, in UTF-8; none may be null."""
    plain = texts.cast(pa.large_binary())
    _, places, content = plain.buffers()
    first, second = np.zeros(len(plain), np.uint64), np.zeros(len(plain), np.uint64)
    if not len(plain):
        return first, second
    offsets = np.frombuffer(places, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    data = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    sizes = np.diff(offsets)
    order = np.argsort(sizes, kind="stable")
    lengths, starts = np.unique(sizes[order], return_index=True)
    for length, some in zip(lengths.tolist(), np.split(order, starts[1:]), strict=True):
        rows = max(1, _AT_ONCE_BYTES // max(1, length))
        for start in range(0, len(some), rows):
            which = some[start : start + rows]
            blocks = np.zeros((len(which), (length // _BLOCK + 1) * _BLOCK), np.uint8)
            blocks[:, :length] = data[offsets[which][:, None] + np.arange(length)]
            first[which], second[which] = _hashed(blocks.view("<u8").astype(np.uint64), length)
    return first, second


def _hashed(words: Words, length: int) -> tuple[Words, Words]:
    """Return the hashes of texts of one length; the last block of each ends with zeros."""
    h1, h2 = (np.full(len(words), SEED, np.uint64) for _ in range(2))
    last = words.shape[1] - 2
    for at in range(0, last, 2):
        h1 ^= _first(words[:, at])
        h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _second(words[:, at + 1])
        h2 = (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    size = np.uint64(length)
    h1 ^= _first(words[:, last]) ^ size
    h2 ^= _second(words[:, last + 1]) ^ size
    h1 = h1 + h2
    h2 = h2 + h1
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 = h1 + h2
    return h1, h2 + h1


def _first(word: Words) -> Words:
    return _rotated(word * _ONE, 31) * _TWO


def _second(word: Words) -> Words:
    return _rotated(word * _TWO, 33) * _ONE


def _rotated(word: Words, by: int) -> Words:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


def _mixed(word: Words) -> Words:
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> np.uint64(33))
