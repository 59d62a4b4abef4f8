"""Logs that broker time does not follow the wall clock, and when it does again."""

from __future__ import annotations

import logging
from typing import Final

from ternmq.journal.recovery.recovery import RecoveryReport
from ternmq.model.units import write_duration
from ternmq.model.words import lasting
from ternmq.server.engine.engine import Core

CALM_S: Final = 10.0
"""How long the gap must be closed before this is logged: a gap about as large as the limit would
fill the log otherwise."""
_REMEDY: Final = (
    "Compare the two with `ternmq clock`. If the wall clock is right, run `ternmq clock accept`;"
    " if it is wrong, set it"
)

log = logging.getLogger("ternmq.server")


class ClockWatch:
    """Compares broker time with the wall clock once a second.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told = False
        self._followed_since: float | None = None

    def started(self, report: RecoveryReport, jump_us: int) -> None:
        """Log at a start that the wall clock was not believed.

        Args:
            report: What the start found.
            jump_us: How far ahead the wall clock would have been believed.
        """
        if report.disbelieved_us:
            self._told = True
            log.warning(
                "the wall clock is %s ahead of the last record in the journal, which is more than"
                " start_jump = %s: broker time continues from the last record. %s",
                lasting(report.disbelieved_us), write_duration(jump_us), _REMEDY,
            )  # fmt: skip

    def look(self, now_s: float) -> None:
        """Log a gap that is too large to be followed, once, and its end.

        Args:
            now_s: Time of the loop's clock.
        """
        gap_us = self._core.clock_gap_us()
        if self._core.clock.alarmed:
            self._followed_since = None
            if not self._told:
                self._told = True
                log.warning(
                    "the wall clock is %s %s broker time, which does not follow it. %s",
                    lasting(abs(gap_us)), "ahead of" if gap_us > 0 else "behind", _REMEDY,
                )  # fmt: skip
        elif self._told:
            if self._followed_since is None:
                self._followed_since = now_s
            elif now_s - self._followed_since >= CALM_S:
                self._told, self._followed_since = False, None
                log.warning("broker time follows the wall clock again")
