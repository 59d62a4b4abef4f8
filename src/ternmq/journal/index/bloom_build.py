"""Building the Bloom filters of a run file from whole columns (``bloom``).

Worker threads only: it needs numpy.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ternmq.journal.index.bloom import BITS_SET, LINE_BITS, MIX_1, MIX_2, SECOND, TOPIC

_BITS_PER_ENTRY: Final = 10

U64 = npt.NDArray[np.uint64]


def _mix_all(values: U64) -> U64:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


def entries(topics: npt.NDArray[np.uint32], values: U64) -> U64:
    """Return ``bloom.entry`` of every row."""
    return _mix_all(values ^ (topics.astype(np.uint64) * np.uint64(TOPIC)))


def build(hashed: U64) -> bytes:
    """Return the lines of a filter that holds these entries; empty if there are none."""
    if not len(hashed):
        return b""
    lines = -(-len(hashed) * _BITS_PER_ENTRY // LINE_BITS)
    first_bit = (hashed % np.uint64(lines)) * np.uint64(LINE_BITS)
    within = _mix_all(hashed ^ np.uint64(SECOND))
    bits = np.zeros(lines * LINE_BITS, dtype=np.uint8)
    for index in range(BITS_SET):
        bits[first_bit + ((within >> np.uint64(9 * index)) & np.uint64(511))] = 1
    return np.packbits(bits, bitorder="little").tobytes()
