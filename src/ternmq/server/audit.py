"""Who was refused, and who changed something: one record each on the logger ``ternmq.audit``.

A record says app, client address, command, topic, group and outcome, as text and as fields of
their own (``extra``); never a token or a message. Changes are always told: whoever makes one has
the right to. Refusals are bounded, since anybody can cause them: the same one (app, host, command,
topic, group, outcome) is told at most once a minute, and all together at most ``A_SECOND`` a
second; the next record says how many were left out before it. Loop only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ternmq.model.errors import Forbidden, Unauthenticated
from ternmq.server.counters import Counters
from ternmq.wire.commands import Command

log = logging.getLogger("ternmq.audit")

A_SECOND: Final = 20
"""Refusals told within a second, whoever causes them."""
AGAIN_S: Final = 60.0
"""The same refusal is told again after so long."""
REMEMBERED: Final = 1024
"""Refusals told lately that are kept; beyond, it begins anew."""
_SHOWN: Final = 130
"""Of a name that came from outside; the longest allowed has 127."""

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
        Command.APP_PUT,
        Command.APP_DELETE,
        Command.HOLD_DELETE,
    }
)
"""Commands that are told whenever they were carried out; topics and groups made by use as well."""

Refusal = tuple[str, str, Command, str, str, str]


class Audit:
    """Writes the records.

    Args:
        counters: ``audit_left_out`` says how many refusals were not told, all in all.
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
        """Tell of a change that was recorded; ``more`` are other names that it is about."""
        self._write(logging.INFO, app, address, command, topic, group, DONE, more)

    def denied(
        self, app: str, address: str, command: Command, error: Unauthenticated | Forbidden
    ) -> None:
        """Tell of a request that was refused for who asked, unless there were too many."""
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
