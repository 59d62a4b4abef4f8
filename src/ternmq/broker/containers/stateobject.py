"""What the owner of a type of STATE objects does: it names, encodes and loads them.

The owner is beside the data. ``start`` registers it; `ledger.objects` has the table of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position

ALWAYS: Final = 1 << 63
"""``changed`` of an object that every set writes again."""
LOADED: Final = 0
"""``changed`` of an object that has not changed since it was loaded from its chunk."""


class StateType(Protocol):
    """The owner of a type of STATE objects. Not thread-safe: call it from the broker's loop."""

    def keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the keys of all objects lazily; called at BEGIN of a set, which is at ``begin``."""
        ...

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object as it was at ``stamp``."""
        ...

    def encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        ...

    def changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        ...

    def written(self, key: StateKey) -> None:
        """Note that the object, as encoded last, is stored in a chunk; usually of no interest."""
        del key
