"""The one timer store: what the passing of time will end or let go.

It serves lease ends, retries, session ends and whatever comes later (due messages, check-backs) as
sorted (time, place) entries. Entries are derived from the views and rebuilt at start; each owner
has at most one armed time per kind, so that settled leases leave nothing behind.
"""

from __future__ import annotations

import enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from ternmq.model.types import SECOND_US

if TYPE_CHECKING:
    from ternmq.broker.drains import Drain
    from ternmq.broker.groupqueue import GroupQueue
    from ternmq.broker.sessions import Session

_Owner: TypeAlias = "GroupQueue | Session | Drain | None"

FULL_RETRY_US: Final = SECOND_US // 10
"""When to try again what found no segment ready."""


class Timer(enum.IntEnum):
    """What a timer is for."""

    LEASES = 0
    DUE = 1
    SESSION = 2
    HOUSEKEEPING = 3
    PASSED = 4
    """Rows without a match are behind a group, and no record says so yet."""
    DRAIN = 5
    """Leases of a session are being given back."""
    FREE = 6
    """Memory is given back: see ``Discarded``."""


class TimerStore:
    """Sorted due times. Equal times fire in the order in which they were set."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer, _Owner]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, when_us: int, kind: Timer, owner: _Owner = None) -> None:
        """Let ``pop`` return (kind, owner) once the time has come."""
        self._number += 1
        heappush(self._heap, (when_us, self._number, kind, owner))

    def arm_leases(self, held: GroupQueue, when_us: int) -> None:
        """Leases of it are to be looked at, at that time."""
        held.lease_armed_us = when_us
        self.set(when_us, Timer.LEASES, held)

    def arm_due(self, held: GroupQueue, when_us: int) -> None:
        """A waiting row of it comes due at that time."""
        held.due_armed_us = when_us
        self.set(when_us, Timer.DUE, held)

    def arm_again(self, held: GroupQueue) -> None:
        """Set the timer of its waiting rows anew after they changed wholesale."""
        due = held.failures.next_due_us()
        if due is not None and due < held.due_armed_us:
            self.arm_due(held, due)

    def next_us(self) -> int | None:
        """Return the earliest time set, or None."""
        return self._heap[0][0] if self._heap else None

    def next_but_housekeeping_us(self) -> int | None:
        """Return the earliest time set for something that has to happen just then, or None."""
        if not self._heap or self._heap[0][2] is not Timer.HOUSEKEEPING:
            return self.next_us()
        # There is one entry of housekeeping, and behind the first of a heap comes its second or
        # third.
        return min([one[0] for one in self._heap[1:3]], default=None)

    def pop(self, now_us: int) -> tuple[int, Timer, _Owner] | None:
        """Return the earliest entry whose time has come, or None."""
        if self._heap and self._heap[0][0] <= now_us:
            when_us, _, kind, owner = heappop(self._heap)
            return when_us, kind, owner
        return None
