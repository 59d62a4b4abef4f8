"""The order in which the scheduled rows of one topic come due.

A row's **key** is ``due_us << 64 | entry``: rows become messages in ascending order of their keys.
The topic's **cursor** is the key of the last row that did. A row that is scheduled later has a
higher entry and a due time that is not before its record, so its key is always above the cursor.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from ternmq.model.types import HOUR_US

ENTRY_BITS: Final = 64
ENTRY_MASK: Final = (1 << ENTRY_BITS) - 1
NEVER: Final = 1 << 63


class TopicSchedule:
    """What is scheduled for one topic.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        topic: Number of the topic.
        cursor: Key of the last row that became a message; 0: none did.
        rows: Number of pending rows.
        hours: Hour (due time in µs // an hour) -> number of pending rows that are due in it.
        armed_us: Time of the timer that was set for it; ``NEVER``: none was.
        stuck: Number of times in a row that its next row could not be read.
    """

    __slots__ = ("_near", "armed_us", "cursor", "hours", "rows", "stuck", "topic")

    def __init__(self, topic: int) -> None:
        self.topic = topic
        self.cursor = 0
        self.rows = 0
        self.hours: dict[int, int] = {}
        self.armed_us = NEVER
        self.stuck = 0
        self._near: list[int] = []
        """A heap of the keys of all pending rows that are due before the horizon. Keys of rows that
        were cancelled stay in it, and a key may be in it twice: see ``Schedule.due``."""

    @property
    def near(self) -> int:
        """Number of keys in memory in the order of their due times."""
        return len(self._near)

    def count(self, due_us: int, rows: int) -> None:
        """Add rows (negative: remove them) that are due at a time."""
        self.rows += rows
        hour = due_us // HOUR_US
        left = self.hours.get(hour, 0) + rows
        if left:
            self.hours[hour] = left
        else:
            del self.hours[hour]

    def push(self, key: int) -> None:
        """Add a key."""
        heappush(self._near, key)

    def push_all(self, keys: list[int]) -> None:
        """Add many keys."""
        if len(keys) > len(self._near):
            self._near += keys
            heapify(self._near)
        else:
            for key in keys:
                heappush(self._near, key)

    def first(self) -> int | None:
        """Return the lowest key; None if there is none."""
        return self._near[0] if self._near else None

    def pop(self) -> int:
        """Remove and return the lowest key; there is one."""
        return heappop(self._near)
