"""The audit log: a record on the logger ``ternmq.audit`` for each change and each refusal.

A record contains app, client address, command, topic, group and outcome, as text and as fields of
their own (``extra``); never a token or a message. Changes are always logged: only apps with the
right can make them. Refusals are limited, since every client can cause them: the same refusal (app,
host, command, topic, group, outcome) is logged at most once a minute, and all together at most
``A_SECOND`` a second; the next record contains the number that was left out before it.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ternmq.model.errors import Forbidden, Unauthenticated
from ternmq.server.telemetry.counters import Counters
from ternmq.wire.commands import Command

log = logging.getLogger("ternmq.audit")

A_SECOND: Final = 20
"""Most refusals that are logged in a second, of all apps together."""
AGAIN_S: Final = 60.0
"""Seconds after which the same refusal is logged again."""
REMEMBERED: Final = 1024
"""Most logged refusals that are remembered; at this number all are forgotten."""
_SHOWN: Final = 130
"""Most characters that are logged of a name from a request; the longest allowed has 127."""

DONE: Final = "done"
CHANGES: Final = frozenset(
    {
        Command.TOPIC_CREATE,
        Command.TOPIC_CHANGE,
        Command.TOPIC_DELETE,
        Command.GROUP_CHANGE,
        Command.GROUP_DELETE,
        Command.GROUP_RESET,
        Command.GROUP_SKIP,
        Command.GROUP_REPLAY,
        Command.FAILED_RETRY,
        Command.FAILED_DELETE,
        Command.FAILED_REDRIVE,
        Command.CLOCK_ACCEPT,
        Command.APP_PUT,
        Command.APP_DELETE,
        Command.HOLD_DELETE,
        Command.ALARM_CLEAR,
        Command.PRODUCER_GROUP_PUT,
        Command.PRODUCER_GROUP_DELETE,
        Command.TRANSACTION_CHECK_AGAIN,
    }
)
"""Commands that are logged whenever they succeed. Topics and groups made by use are logged too."""

Refusal = tuple[str, str, Command, str, str, str]


class Audit:
    """Writes the records.

    Args:
        counters: ``audit_left_out`` counts the refusals that were not logged.
        now_s: Returns a time that never goes back.
    """

    def __init__(self, counters: Counters, now_s: Callable[[], float]) -> None:
        self._counters = counters
        self._now_s = now_s
        self._told: dict[Refusal, float] = {}
        self._second = 0
        self._in_second = 0
        self._left_out = 0

    def changed(
        self,
        app: str,
        address: str,
        command: Command,
        topic: str = "",
        group: str = "",
        **more: str,
    ) -> None:
        """Log a change that was recorded; ``more`` are other names that it is about."""
        self._write(logging.INFO, app, address, command, topic, group, DONE, more)

    def denied(
        self, app: str, address: str, command: Command, error: Unauthenticated | Forbidden
    ) -> None:
        """Log a request that was refused for lack of rights, unless there were too many."""
        app = app[:_SHOWN]
        topic, group = [(name or "")[:_SHOWN] for name in error.about]
        outcome = type(error).__name__
        now = self._now_s()
        key = (app, address.rpartition(":")[0], command, topic, group, outcome)
        told = self._told.get(key)
        if int(now) != self._second:
            self._second, self._in_second = int(now), 0
        if (told is not None and now - told < AGAIN_S) or self._in_second >= A_SECOND:
            self._left_out += 1
            self._counters.audit_left_out += 1
            return
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told[key] = now
        self._in_second += 1
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        self._write(logging.WARNING, app, address, command, topic, group, outcome, more)

    def _write(
        self,
        level: int,
        app: str,
        address: str,
        command: Command,
        topic: str,
        group: str,
        outcome: str,
        more: dict[str, str] | dict[str, int],
    ) -> None:
        told: dict[str, object] = {
            "app": app,
            "address": address,
            "command": command.name,
            "topic": topic,
            "group": group,
            "outcome": outcome,
            **more,
        }
        text = " ".join([f"{name}={value!r}" for name, value in told.items() if value != ""])
        log.log(level, "%s", text, extra=told)
