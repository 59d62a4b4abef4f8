"""What nobody refers to any more, until its memory is given back, some of it in a turn.

To free a million small objects takes as long as to make them. So a command that forgets very many
at once puts the containers here, and ticks empty them piece by piece.
"""

from __future__ import annotations

from typing import Any


class Discarded:
    """Containers that are to be emptied. Loop only."""

    __slots__ = ("_containers",)

    def __init__(self) -> None:
        self._containers: list[list[Any] | dict[Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._containers)

    def put(self, *containers: list[Any] | dict[Any, Any]) -> None:
        """Take containers over: nobody else may look at them from now on."""
        self._containers += [one for one in containers if one]

    def free(self, most: int) -> bool:
        """Free at most so many of what they contain; return whether there is more."""
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
