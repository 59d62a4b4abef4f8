"""Containers that are no longer used, until their memory is freed, a piece in each turn.

Freeing a million small objects takes as long as creating them. So a command that forgets very many
at once puts their containers here, and ticks empty them piece by piece.
"""

from __future__ import annotations

from typing import Any


class Discarded:
    """Containers that are to be emptied.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_containers",)

    def __init__(self) -> None:
        self._containers: list[list[Any] | dict[Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._containers)

    def put(self, *containers: list[Any] | dict[Any, Any]) -> None:
        """Take over containers; the caller must not use them any more."""
        self._containers += [one for one in containers if one]

    def free(self, most: int) -> bool:
        """Free at most ``most`` of their elements; return whether there are more."""
        while self._containers and most > 0:
            one = self._containers[-1]
            size = len(one)
            if size <= most:
                self._containers.pop()
            elif isinstance(one, list):
                del one[-most:]
            else:
                for _ in range(most):
                    one.popitem()
            most -= size
        return bool(self._containers)
