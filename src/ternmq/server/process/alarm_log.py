"""Logs alarms when they are raised and cleared; `clock_watch` logs that of the clock."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ternmq.broker.catalog.alarms import AlarmKey
from ternmq.broker.ledger.alarms import CLOCK
from ternmq.record.fact.control import Alarm

AT_ONCE: Final = 20
"""Most lines of one look; another line counts the rest."""

log = logging.getLogger("ternmq.server")


class AlarmLog:
    """Compares the open alarms with those that it saw before, once a second.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self) -> None:
        self._seen: dict[AlarmKey, Alarm] = {}

    def look(self, open_: Mapping[AlarmKey, Alarm]) -> None:
        """Log what was raised and what was cleared since the last call; the first logs all."""
        if open_ == self._seen:
            return
        lines = [
            f"alarm {_named(key)}: {one.text}"
            for key, one in open_.items()
            if self._seen.get(key) != one and key.name != CLOCK
        ]
        lines += [
            f"alarm {_named(key)} is cleared"
            for key in self._seen
            if key not in open_ and key.name != CLOCK
        ]
        self._seen = dict(open_)
        for line in lines[:AT_ONCE]:
            log.warning("%s", line)
        if len(lines) > AT_ONCE:
            log.warning("%d more alarms were raised or cleared: `ternmq alarm list` shows those"
                        " that are open", len(lines) - AT_ONCE)  # fmt: skip


def _named(key: AlarmKey) -> str:
    return f"{key.name} ({key.subject})" if key.subject else key.name
