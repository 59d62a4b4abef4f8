"""When a message is due: the arguments ``deliver_after`` and ``deliver_at``."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from ternmq.client.content.broker_time import BrokerTime
from ternmq.client.content.validation import real, time_us, whole
from ternmq.model.errors import DueTooFar, InvalidRequest
from ternmq.model.types import DAY_US

LONGEST_US: Final = 731 * DAY_US
"""Longest delay that a broker accepts."""
_FAR_S: Final = 1e15
"""Seconds; far beyond what is accepted, and their microseconds are still floats."""
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEVELS: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200,
)  # fmt: skip
"""Seconds of RocketMQ's delay levels 1 to 18."""


class Due:
    """When messages are due; messages of one call with the same delay share one.

    A delay begins when the application asks for it. Broker time at that moment is known only when
    there is a connection.
    """

    __slots__ = ("_after_us", "_asked_us", "_at_us")

    def __init__(self, at_us: int, after_us: int = 0, asked_us: int = 0) -> None:
        self._at_us = at_us
        """Broker time; 0: not known yet."""
        self._after_us = after_us
        self._asked_us = asked_us
        """Moment at which the delay began."""

    def settle(self, broker_time: BrokerTime) -> int:
        """Return the time in µs, in broker time, which does not change any more."""
        if not self._at_us:
            self._at_us = broker_time.at(self._asked_us) + self._after_us
        return self._at_us

    def ahead_us(self, broker_time: BrokerTime) -> int:
        """Return how far it is ahead, in µs, seen from when it was asked for; below 0: past."""
        return self._at_us - _now_us(broker_time) if self._at_us else self._after_us

    def arguments(self) -> tuple[timedelta | None, datetime | None]:
        """Return ``deliver_after`` and ``deliver_at`` with which the message can be sent again."""
        if self._at_us:
            return None, at(self._at_us)
        return timedelta(microseconds=self._after_us), None


def due_of(
    deliver_after: object,
    deliver_at: object,
    broker_time: BrokerTime,
    asked_us: int | None = None,
) -> Due | None:
    """Return when a message is due; None: at once.

    Args:
        deliver_after: Seconds or a timedelta; None: not given.
        deliver_at: An aware datetime; None: not given.
        broker_time: The broker's clock.
        asked_us: Moment (``BrokerTime.moment_us``) at which the delay begins; None: now.

    Raises:
        DueTooFar: That is in more than 731 days.
        InvalidRequest: A value is not a time, or both are given.
    """
    if deliver_after is not None:
        if deliver_at is not None:
            raise InvalidRequest("give either deliver_after= or deliver_at=, not both")
        after_us = _after_us(deliver_after)
        if after_us <= 0:
            return None
        if after_us > LONGEST_US:
            raise _too_far("deliver_after", after_us)
        return Due(0, after_us, broker_time.moment_us() if asked_us is None else asked_us)
    if deliver_at is None:
        return None
    at_us = time_us("deliver_at", deliver_at)
    ahead_us = at_us - _now_us(broker_time)
    if ahead_us > LONGEST_US:
        raise _too_far("deliver_at", ahead_us)
    return Due(at_us) if at_us > 0 else None


def _after_us(delay: object) -> int:
    """Return the µs of a delay, rounded up: a message is never early."""
    if isinstance(delay, timedelta):
        return delay // _MICROSECOND
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        kind = type(delay).__name__
        raise InvalidRequest(f"deliver_after is a number of seconds or a timedelta, not {kind}")
    seconds = real("deliver_after", delay)
    if isinstance(seconds, int):
        return seconds * 1_000_000
    if not math.isfinite(seconds):
        raise InvalidRequest(f"deliver_after must be a finite number of seconds, not {seconds}")
    return math.ceil(seconds * 1e6) if abs(seconds) < _FAR_S else round(seconds) * 1_000_000


def _now_us(broker_time: BrokerTime) -> int:
    if broker_time.known:
        return broker_time.at(broker_time.moment_us())
    return time.time_ns() // 1000  # the broker checks it again by its own clock


def _too_far(what: str, ahead_us: int) -> DueTooFar:
    tenths = -(-ahead_us * 10 // DAY_US)  # rounded up: 731.0 is allowed
    days = f"{tenths / 10:,.1f}" if ahead_us < 1_000_000 * DAY_US else "over a million"
    return DueTooFar(f"{what}: the message would be due in {days} days")


def at(due_us: int) -> datetime:
    """Return a due time as a datetime."""
    return _EPOCH + timedelta(microseconds=due_us)


def delay_level(level: int) -> timedelta:
    """Return the delay of one of RocketMQ's 18 levels, for ``deliver_after``.

    1 to 18 are 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h, 2 h.

    Raises:
        InvalidRequest: There is no such level.
    """
    if not 1 <= whole("a delay level", level) <= len(_LEVELS):
        raise InvalidRequest(f"a delay level is a number from 1 to {len(_LEVELS)}, not {level}")
    return timedelta(seconds=_LEVELS[level - 1])
