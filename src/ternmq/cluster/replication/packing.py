"""Which pieces of a stream are worth compressing.

Messages are often compressed by their producers already, or do not shrink. A piece that did not
shrink says so of the next ones.
"""

from __future__ import annotations

from typing import Final

LEAST_BYTES: Final = 512
"""A smaller piece is sent as it is: the frames around it are not much smaller."""
SKIPPED: Final = 15
"""So many pieces are sent as they are behind one that did not shrink."""


class Packing:
    """Decides piece by piece. Not thread-safe; no clock, no I/O."""

    __slots__ = ("_skip",)

    def __init__(self) -> None:
        self._skip = 0

    def wants(self, raw_bytes: int) -> bool:
        """Return whether the next piece, which has so many bytes, is to be compressed."""
        if raw_bytes < LEAST_BYTES:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def shrank(self, raw_bytes: int, packed_bytes: int) -> bool:
        """Note what became of a piece; return whether it is to be sent compressed."""
        if packed_bytes * 16 <= raw_bytes * 15:
            return True
        self._skip = SKIPPED
        return False
