"""Which numbers of topics, and which reserves, were given.

Each topic has a sequence of numbers, which clients get in blocks. The sequence of a topic is
deleted with it. A sequence begins above all numbers of deleted topics, so a topic that is deleted
and created again never repeats a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ternmq.broker.catalog.catalog import PAGE_BITS
from ternmq.broker.containers.stateobject import LOADED
from ternmq.record.fact import numbers, state

_FIRST: Final = 1
"""The first number of the first sequence: 0 is often taken for "none"."""


class GivenNumbers:
    """The sequences of all topics, and the next reserve. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        sequences: Topic number -> its next number.
        begin: The first number of a sequence that begins now.
        changed: Page of topics -> position of the newest record that changed it.
        next_reserve: Ordinal of the next reserve.
    """

    __slots__ = ("_floors", "begin", "changed", "next_reserve", "sequences")

    def __init__(self) -> None:
        self.sequences: dict[int, int] = {}
        self.begin = _FIRST
        self.changed: dict[int, int] = {}
        self.next_reserve = 0
        self._floors: dict[int, int] = {}
        """Page of topics -> one above the highest number of those that are deleted."""

    def next_of(self, topic: int) -> int:
        """Return the next number of a topic."""
        return self.sequences.get(topic, self.begin)

    def apply_given(self, position: int, given: numbers.Numbers) -> None:
        """Apply a NUMBERS record to the sequence of its topic."""
        self.sequences[given.topic] = given.stop
        self.changed[given.topic >> PAGE_BITS] = position

    def note_reserve(self, ordinal: int | None) -> None:
        """Apply the reserve of a NUMBERS record."""
        if ordinal is not None:
            self.next_reserve = max(self.next_reserve, ordinal + 1)

    def drop_topic(self, position: int, topic: int) -> None:
        """End the sequence of a topic that is deleted."""
        stop = self.sequences.pop(topic, 0)
        if stop:
            page = topic >> PAGE_BITS
            self._raise_floor(page, stop)
            self.changed[page] = position

    def _raise_floor(self, page: int, stop: int) -> None:
        self._floors[page] = max(self._floors.get(page, 0), stop)
        self.begin = max(self.begin, stop)

    # -- STATE ------------------------------------------------------------------------------------

    def pages(self) -> Iterator[int]:
        """Yield the pages that are needed, the lowest first; forget the others.

        Of pages without a sequence, one with the highest floor is needed.
        """
        filled = {topic >> PAGE_BITS for topic in self.sequences}
        for page in sorted(self.changed):
            if page in filled or self._floors.get(page, 0) == self.begin:
                yield page
            else:
                self._floors.pop(page, None)
                self.changed.pop(page, None)

    def encode(self, page: int) -> bytes:
        """Return a page for STATE: the floor of its deleted topics, then its sequences."""
        topics = range(page << PAGE_BITS, (page + 1) << PAGE_BITS)
        rows = [
            state.NUMBERS_ENTRY.pack(topic, self.sequences[topic])
            for topic in topics
            if topic in self.sequences
        ]
        return state.NUMBERS_HEAD.pack(self._floors.get(page, 0)) + b"".join(rows)

    def load(self, page: int, payload: bytes) -> None:
        """Load a page."""
        head = state.NUMBERS_HEAD
        (floor,) = head.unpack_from(payload)
        if floor:
            self._raise_floor(page, floor)
        self.sequences.update(state.NUMBERS_ENTRY.iter_unpack(payload[head.size :]))
        self.changed[page] = LOADED
