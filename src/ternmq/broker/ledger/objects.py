"""The table of STATE objects: who names, encodes and loads the objects of each type.

The owners are beside the data (``stateobjects`` in the rooms `catalog`, `transaction` and `dedup`;
`heldobjects` and `viewobjects` here); `start` registers them. Bytes and meanings are in
``docs/format/state.md``.

While a journal is replayed, each loaded object is stored with its *stamp*, the position at which it
is valid: records before the stamp are contained in the object already.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ternmq.broker.containers.stateobject import StateType
from ternmq.journal.state.sets import StateKey
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position


class StateObjects:
    """The views as objects of STATE (`journal.state.sets.StateSource`).

    Not thread-safe: call it from the broker's loop.

    Attributes:
        table: Type of object -> its owner, in the order in which sets are written.
    """

    __slots__ = ("_stamps", "table")

    def __init__(self) -> None:
        self._stamps: dict[StateKey, int] = {}
        self.table: dict[int, StateType] = {}

    def register(self, type_: int, owner: StateType) -> None:
        """Add a row to the table; sets are written in the order of these calls."""
        if type_ in self.table:
            raise ValueError(f"type {type_} of STATE objects is registered already")
        self.table[type_] = owner

    # -- writing a set ----------------------------------------------------------------------------

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the objects lazily; the owners are told of BEGIN in this call."""
        return chain.from_iterable([owner.keys(begin) for owner in self.table.values()])

    def state_changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        return self.table[key.type].changed(key)

    def state_encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        return self.table[key.type].encode(key)

    def state_written(self, key: StateKey) -> None:
        """Note that the object is stored in a chunk now."""
        self.table[key.type].written(key)

    # -- loading a set ----------------------------------------------------------------------------

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object of a STATE set."""
        owner = self.table.get(key.type)
        if owner is None:
            raise CorruptJournal(f"unknown type of STATE object: {key.type}", byte=stamp)
        self._stamps[key] = stamp
        owner.load(key, payload, stamp)

    def stamp(self, type_: int, a: int, b: int = 0, c: int = 0, d: int = 0) -> int:
        """Return the position at which an object was loaded, 0 if it was not."""
        return self._stamps.get(StateKey(type_, a, b, c, d), 0) if self._stamps else 0

    def finish(self) -> None:
        """Forget the stamps, once everything is replayed."""
        self._stamps.clear()
