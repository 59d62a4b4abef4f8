"""The group modes: what the mode of a consumer group decides, one row for each mode.

The rows are in the room `delivery`, each beside its planner; `delivery.modes` is the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ternmq.broker.group.order import Order
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Mode


@dataclass(slots=True, frozen=True, eq=False, kw_only=True)
class GroupMode:
    """A row of the table, as far as the rows of a group queue and its settings depend on it."""

    name: Mode
    number: int
    """Number of the mode in STATE (HELD). It is never changed or used again."""
    new_order: Callable[[], Order]
    """Returns the order of an empty group queue. An order decides which rows wait for which, and
    which rows a failure or the end of a lease gives back."""
    straight: bool
    """Whether a pull may deliver the next rows in the order of their offsets, without a plan, if
    no row is ready or waits and, in a mode that locks, no lease of the queue is open."""
    confirmed: bool
    """Whether a pull is answered only when its PULLED record is durable. If so, no lease is lost in
    a power cut, and no settle of a lost lease is accepted."""
    blocks: bool
    """Whether rows may wait for one another: the order is not ``UNORDERED``."""
    keyed: bool
    """Whether PULLED and REPLAY contain the ordering hash of each row. Only the order of such a
    mode stores something of its own."""
    parks: bool
    """Whether a pull may park rows. A parked row is ready, but waits for another row. Such a mode
    is keyed."""
    holds: bool
    """Whether ``exhausted = hold`` applies: a row that failed for good waits for an operator."""
    filters: bool
    """Whether a group may have a filter, by tags or headers."""
    ordered_topics_only: bool
    """Whether only a topic that is ordered allows the mode."""
    locks: bool = False
    """Whether nobody gets rows of a queue while a lease of it is open."""
    assigns: bool = False
    """Whether each queue belongs to one member of the group, which alone gets its rows."""
    retries: bool = True
    """Whether a row that fails is tried again, and is dead at last. If not, it is done at once, and
    its reason is recorded; and a lease that ends without a settle counts as no attempt."""
    keeps_journal: bool = True
    """Whether the journal keeps rows that the group has not read, on a topic that keeps them until
    all groups have."""


class GroupModes:
    """The table of modes, by name and by number."""

    __slots__ = ("_by_name", "_by_number")

    def __init__(self, modes: Iterable[GroupMode]) -> None:
        self._by_name: dict[Mode, GroupMode] = {}
        self._by_number: dict[int, GroupMode] = {}
        for mode in modes:
            if mode.name in self._by_name or mode.number in self._by_number:
                raise ValueError(f"group mode {mode.name.value} or its number is registered twice")
            self._by_name[mode.name] = self._by_number[mode.number] = mode

    def __iter__(self) -> Iterator[GroupMode]:
        return iter(self._by_name.values())

    def __getitem__(self, name: Mode) -> GroupMode:
        """Return the mode of that name."""
        return self._by_name[name]

    def numbered(self, number: int) -> GroupMode:
        """Return the mode with a number of STATE.

        Raises:
            CorruptJournal: There is none.
        """
        mode = self._by_number.get(number)
        if mode is None:
            raise CorruptJournal(f"unknown group mode in STATE: {number}")
        return mode
