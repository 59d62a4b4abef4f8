"""Values by number, oldest first, in pieces, so that no single step takes long.

A dict that grows, or replaces old keys by new ones, now and then moves all its entries: with 50,000
parked pulls this takes 3.5 ms, and every other command waits. Here, numbers given out in turn are
stored in pieces of 256.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

_PIECE_BITS: Final = 8

T = TypeVar("T")


class Tokens(Generic[T]):
    """Values by token. Tokens are added in increasing order.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_newest", "_pieces", "count")

    def __init__(self) -> None:
        self._pieces: dict[int, dict[int, T]] = {}
        """By the upper bits of their tokens, oldest first; only the newest may be empty."""
        self._newest = 0
        self.count = 0
        """Number of values: reading it costs one call less than ``len``."""

    def __len__(self) -> int:
        return self.count

    def __contains__(self, token: int) -> bool:
        piece = self._pieces.get(token >> _PIECE_BITS)
        return piece is not None and token in piece

    def __iter__(self) -> Iterator[int]:
        """Yield the tokens, oldest first."""
        for piece in self._pieces.values():
            yield from piece

    def values(self) -> Iterator[T]:
        """Yield the values, oldest first."""
        for piece in self._pieces.values():
            yield from piece.values()

    def first(self) -> T:
        """Return the oldest value; there must be one."""
        return next(iter(next(iter(self._pieces.values())).values()))

    def get(self, token: int) -> T | None:
        """Return a value, or None."""
        piece = self._pieces.get(token >> _PIECE_BITS)
        return None if piece is None else piece.get(token)

    def add(self, token: int, value: T) -> None:
        """Add a value under a token above all that were added before."""
        number = token >> _PIECE_BITS
        pieces = self._pieces
        piece = pieces.get(number)
        if piece is None:
            if self._newest in pieces and not pieces[self._newest]:
                del pieces[self._newest]
            piece = pieces[number] = {}
            self._newest = number
        piece[token] = value
        self.count += 1

    def pop(self, token: int) -> T:
        """Remove a value and return it.

        Raises:
            KeyError: It is not there.
        """
        number = token >> _PIECE_BITS
        piece = self._pieces[number]
        value = piece.pop(token)
        if not piece and number != self._newest:
            del self._pieces[number]
        self.count -= 1
        return value
