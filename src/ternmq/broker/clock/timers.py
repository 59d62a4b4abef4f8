"""Timers of the broker: their times in one heap, and what each kind of timer does in one table.

Entries are derived from the views and rebuilt at start. Each owner has at most one armed time per
kind, so that settled leases leave nothing behind. The part that knows what to do registers a
handler for its kind of timer (``on``); the owner of an entry is known to that part only.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Protocol

from ternmq.model.types import SECOND_US

NEVER_US: Final = 1 << 62
"""Times from here on do not come."""
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
    FULFIL = 7
    """Scheduled rows of a topic come due."""
    LOAD = 8
    """The horizon of scheduled rows is to be moved."""
    CHECK = 9
    """The next question about a transaction is due."""
    ASSIGN = 10
    """Members of a group came or went: its queues are assigned again."""
    INSTANCES = 11
    """The sessions of broadcast instances have ended."""


_PERIODIC: Final = frozenset({Timer.HOUSEKEEPING, Timer.LOAD})
"""Timers that go off again and again, whether there is something to do or not."""


class _Failures(Protocol):
    def next_due_us(self) -> int | None: ...


class Rows(Protocol):
    """Rows that timers are armed for: a group queue."""

    lease_armed_us: int
    """Time of the timer that checks its leases; a timer for any other time is out of date."""
    due_armed_us: int
    """Likewise, for its waiting rows."""

    @property
    def failures(self) -> _Failures:
        """Knows when the next waiting row comes due."""
        ...


class Scheduled(Protocol):
    """What is scheduled for a topic."""

    armed_us: int
    """Time of the timer that was set for it; a timer for any other time is out of date."""


class Row(NamedTuple):
    """A row of the table: what a kind of timer does."""

    fire: Callable[[int, int, Any, int], int]
    """Called with broker time, the time that was set, the owner and a budget of work units; returns
    the work units it took. It may raise ``JournalFull``, if nothing was recorded."""
    again: Callable[[Any, int], None]
    """Called with the owner and a time: sets the timer again after ``JournalFull``."""


class TimerStore:
    """Due times in a heap. Equal times fire in the order in which they were set.

    Attributes:
        table: Kind of timer -> what it does.
    """

    __slots__ = ("_heap", "_number", "table")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer, Any]] = []
        self._number = 0
        self.table: dict[Timer, Row] = {}

    def on(
        self,
        kind: Timer,
        fire: Callable[[int, int, Any, int], int],
        again: Callable[[Any, int], None] | None = None,
    ) -> None:
        """Register what a kind of timer does; see ``Row``. Without ``again``, ``set`` is used."""
        if kind in self.table:
            raise ValueError(f"timer {kind.name} is registered already")
        self.table[kind] = Row(fire, again or (lambda owner, at_us: self.set(at_us, kind, owner)))

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, when_us: int, kind: Timer, owner: object = None) -> None:
        """Set a timer: from that time on ``pop`` returns (kind, owner)."""
        self._number += 1
        heappush(self._heap, (when_us, self._number, kind, owner))

    def arm_leases(self, progress: Rows, when_us: int) -> None:
        """Set the time at which leases of the group queue must be checked.

        Nothing is set for leases that never end by time: from `NEVER_US` on.
        """
        if when_us < NEVER_US:
            progress.lease_armed_us = when_us
            self.set(when_us, Timer.LEASES, progress)

    def arm_due(self, progress: Rows, when_us: int) -> None:
        """Set the time at which a waiting row of the group queue comes due."""
        progress.due_armed_us = when_us
        self.set(when_us, Timer.DUE, progress)

    def arm_again(self, progress: Rows) -> None:
        """Set the timer for waiting rows again after many of them changed at once."""
        due = progress.failures.next_due_us()
        if due is not None and due < progress.due_armed_us:
            self.arm_due(progress, due)

    def arm_scheduled(self, topic: Scheduled, when_us: int) -> None:
        """Set the time at which a scheduled row of the topic comes due."""
        topic.armed_us = when_us
        self.set(when_us, Timer.FULFIL, topic)

    def next_us(self) -> int | None:
        """Return the earliest time set, or None."""
        return self._heap[0][0] if self._heap else None

    def next_event_us(self) -> int | None:
        """Return the earliest time set for anything but housekeeping and the horizon, or None."""
        # Each of the two has at most one entry. In a heap, an entry that only these two may precede
        # is one of the first seven.
        first = [one for one in self._heap[:7] if one[2] not in _PERIODIC]
        return min([one[0] for one in first], default=None)

    def pop(self, now_us: int) -> tuple[int, Timer, Any] | None:
        """Return the earliest entry whose time has come, or None."""
        if self._heap and self._heap[0][0] <= now_us:
            when_us, _, kind, owner = heappop(self._heap)
            return when_us, kind, owner
        return None
