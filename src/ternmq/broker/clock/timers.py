"""Timers of the broker in one heap: lease ends, retries, session grace, housekeeping.

Entries are derived from the views and rebuilt at start. Each owner has at most one armed time per
kind, so that settled leases leave nothing behind.
"""

from __future__ import annotations

import enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from ternmq.model.types import SECOND_US

if TYPE_CHECKING:
    from ternmq.broker.catalog.sessions import Session
    from ternmq.broker.group.progress import GroupQueue
    from ternmq.broker.operation.drains import Drain

_Owner: TypeAlias = "GroupQueue | Session | Drain | None"

FULL_RETRY_US: Final = SECOND_US // 10
"""Time until work that found no segment ready is tried again."""


class Timer(enum.IntEnum):
    """What a timer is for."""

    LEASES = 0
    DUE = 1
    SESSION = 2
    HOUSEKEEPING = 3
    PASSED = 4
    """A group's filter passed over rows, and this is not recorded yet."""
    DRAIN = 5
    """Leases of a session are being given back."""
    FREE = 6
    """Memory is freed: see ``Discarded``."""


class TimerStore:
    """Due times in a heap. Equal times fire in the order in which they were set."""

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer, _Owner]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, when_us: int, kind: Timer, owner: _Owner = None) -> None:
        """Set a timer: from that time on ``pop`` returns (kind, owner)."""
        self._number += 1
        heappush(self._heap, (when_us, self._number, kind, owner))

    def arm_leases(self, held: GroupQueue, when_us: int) -> None:
        """Set the time at which leases of the group queue must be checked."""
        held.lease_armed_us = when_us
        self.set(when_us, Timer.LEASES, held)

    def arm_due(self, held: GroupQueue, when_us: int) -> None:
        """Set the time at which a waiting row of the group queue comes due."""
        held.due_armed_us = when_us
        self.set(when_us, Timer.DUE, held)

    def arm_again(self, held: GroupQueue) -> None:
        """Set the timer for waiting rows again after many of them changed at once."""
        due = held.failures.next_due_us()
        if due is not None and due < held.due_armed_us:
            self.arm_due(held, due)

    def next_us(self) -> int | None:
        """Return the earliest time set, or None."""
        return self._heap[0][0] if self._heap else None

    def next_but_housekeeping_us(self) -> int | None:
        """Return the earliest time set for anything but housekeeping, or None."""
        if not self._heap or self._heap[0][2] is not Timer.HOUSEKEEPING:
            return self.next_us()
        # Housekeeping has one entry. If that is the first of the heap, the next one is the second
        # or the third.
        return min([one[0] for one in self._heap[1:3]], default=None)

    def pop(self, now_us: int) -> tuple[int, Timer, _Owner] | None:
        """Return the earliest entry whose time has come, or None."""
        if self._heap and self._heap[0][0] <= now_us:
            when_us, _, kind, owner = heappop(self._heap)
            return when_us, kind, owner
        return None
