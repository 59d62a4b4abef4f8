"""Bloom filters of run files: one small read shows that a file cannot hold a hash.

Blocked filters (Putze, Sanders, Singler 2007): an entry sets all its bits within one line of 64
bytes, so a look-up reads one line. With 10 bits for each entry, 7 of them set, about 1 in 80
look-ups returns "perhaps" although the entry is not there; "no" is always right.

The file holds lines and nothing else, so the functions below are part of the format:
``docs/format/index.md``.
"""

from __future__ import annotations

from typing import Final

LINE_BYTES: Final = 64
LINE_BITS: Final = 8 * LINE_BYTES
BITS_SET: Final = 7

_MASK: Final = 2**64 - 1
TOPIC: Final = 0x9E3779B97F4A7C15
SECOND: Final = 0xD6E8FEB86659FD93
MIX_1: Final = 0xBF58476D1CE4E5B9
MIX_2: Final = 0x94D049BB133111EB


def mix(value: int) -> int:
    """Return the u64 with its bits spread (the finalizer of SplitMix64)."""
    value = ((value ^ (value >> 30)) * MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * MIX_2) & _MASK
    return value ^ (value >> 31)


def entry(topic: int, value: int) -> int:
    """Return the entry of a filter for a hash under a topic (producers: topic 0)."""
    return mix(value ^ (topic * TOPIC & _MASK))


def line_of(hashed: int, lines: int) -> int:
    """Return the number of the line that would hold the entry; ``lines`` is above 0."""
    return hashed % lines


def may_hold(line: bytes, hashed: int) -> bool:
    """Return False if the filter does not hold the entry; ``line`` is its line by ``line_of``."""
    bits = int.from_bytes(line, "little")
    within = mix(hashed ^ SECOND)
    return all(bits >> (within >> 9 * index & 511) & 1 for index in range(BITS_SET))
