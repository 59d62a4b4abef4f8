"""Bloom filters of run files: one small read tells that a file cannot hold what is sought.

Blocked filters (Putze, Sanders, Singler 2007): an entry sets all its bits within one line of 64
bytes, so a question reads one line. With 10 bits an entry and 7 bits set about 1 in 80 questions is
answered "perhaps" though nothing is there; "no" is always true.

The file holds lines and nothing else, so the functions below are part of the format:
``docs/format/index.md``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

LINE_BYTES: Final = 64
_LINE_BITS: Final = 8 * LINE_BYTES
_BITS_PER_ENTRY: Final = 10
_BITS_SET: Final = 7

_MASK: Final = 2**64 - 1
_TOPIC: Final = 0x9E3779B97F4A7C15
_SECOND: Final = 0xD6E8FEB86659FD93
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB

U64 = npt.NDArray[np.uint64]


def mix(value: int) -> int:
    """Return the u64 with its bits spread (the finalizer of SplitMix64)."""
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _mix_all(values: U64) -> U64:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX_2)
    return values ^ (values >> np.uint64(31))


def entry(topic: int, value: int) -> int:
    """Return what a filter holds for a hash under a topic (producers: topic 0)."""
    return mix(value ^ (topic * _TOPIC & _MASK))


def entries(topics: npt.NDArray[np.uint32], values: U64) -> U64:
    """Return ``entry`` of every row."""
    return _mix_all(values ^ (topics.astype(np.uint64) * np.uint64(_TOPIC)))


def build(hashed: U64) -> bytes:
    """Return the lines of a filter that holds these entries; empty if there are none."""
    if not len(hashed):
        return b""
    lines = -(-len(hashed) * _BITS_PER_ENTRY // _LINE_BITS)
    first_bit = (hashed % np.uint64(lines)) * np.uint64(_LINE_BITS)
    within = _mix_all(hashed ^ np.uint64(_SECOND))
    bits = np.zeros(lines * _LINE_BITS, dtype=np.uint8)
    for index in range(_BITS_SET):
        bits[first_bit + ((within >> np.uint64(9 * index)) & np.uint64(511))] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def line_of(hashed: int, lines: int) -> int:
    """Return the number of the line that would hold the entry; ``lines`` is above 0."""
    return hashed % lines


def may_hold(line: bytes, hashed: int) -> bool:
    """Return False if the entry is not in the filter that this line, of ``line_of``, is from."""
    bits = int.from_bytes(line, "little")
    within = mix(hashed ^ _SECOND)
    return all(bits >> (within >> 9 * index & 511) & 1 for index in range(_BITS_SET))
