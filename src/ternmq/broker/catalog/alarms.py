"""The open alarms: what needs a person, by name and subject, until it is cleared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from ternmq.record.fact.control import Alarm

MOST_OPEN: Final = 1000
"""Most open alarms; beyond it the oldest is forgotten."""


class AlarmKey(NamedTuple):
    """What an alarm is about."""

    name: str
    subject: str


class OpenAlarms:
    """The open alarms, those raised first in front. Deterministic.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("changed", "forgotten", "open")

    def __init__(self) -> None:
        self.open: dict[AlarmKey, Alarm] = {}
        self.changed = 0
        """Position of the newest record that raised or cleared one."""
        self.forgotten = 0
        """Open alarms that were forgotten since the start, because there were too many."""

    def apply_alarm(self, position: int, time_us: int, alarm: Alarm) -> None:
        """Apply ALARM: open an alarm, or clear one that is open."""
        self.changed = position
        key = AlarmKey(alarm.name, alarm.subject)
        if not alarm.raised:
            self.open.pop(key, None)
            return
        if not alarm.since_us:
            alarm = msgspec.structs.replace(alarm, since_us=time_us)
        self.open[key] = alarm
        if len(self.open) > MOST_OPEN:
            del self.open[next(iter(self.open))]
            self.forgotten += 1

    def load(self, position: int, alarms: Iterable[Alarm]) -> None:
        """Take the alarms of STATE over."""
        self.changed = position
        self.open = {AlarmKey(one.name, one.subject): one for one in alarms}

    def finish(self) -> None:
        """Begin to count, once everything is replayed."""
        self.forgotten = 0
