"""Time that moves only when a test advances it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count
from typing import Final

from ternmq.client.content.validation import real
from ternmq.model.errors import InvalidRequest

START_US: Final = 1_767_225_600_000_000
"""2026-01-01 00:00 UTC: the start of time, so that runs are alike."""
_LAST_US: Final = 253_370_764_800_000_000
"""9999-01-01 00:00 UTC: a datetime can show no time much later."""
_MICROSECOND: Final = timedelta(microseconds=1)


class ManualClock:
    """Both clocks of a broker; they stop between calls of ``advance``.

    Any thread may read and advance them; what comes due runs in the broker's loop.
    """

    def __init__(self, start_us: int = START_US) -> None:
        self._start_us = start_us
        self._passed_us = 0
        self._jumped_us = 0
        self._calls: list[tuple[int, int, Callable[[], None] | None]] = []
        self._gone: set[int] = set()
        self._count = count()
        self._lock = threading.Lock()
        self._settle: Callable[[int], None] = self._alone

    def _alone(self, target_us: int) -> None:
        self._passed_us = target_us

    # -- for the broker ---------------------------------------------------------------------------

    def monotonic_us(self) -> int:
        """Return µs since the clock was made."""
        return self._passed_us

    def wall_us(self) -> int:
        """Return µs since the epoch."""
        return self._start_us + self._passed_us + self._jumped_us

    def call_at(self, monotonic_us: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function when the clock reaches a time; return a function that cancels it."""
        with self._lock:
            number = next(self._count)
            heappush(self._calls, (monotonic_us, number, call))
        return lambda: self._gone.add(number)

    # -- for the broker's host --------------------------------------------------------------------

    def settle_with(self, settle: Callable[[int], None]) -> None:
        """Have the host do ``advance``: it moves the clock in its loop, by ``step`` or ``leap``."""
        self._settle = settle

    def step(self, target_us: int) -> Callable[[], None] | None:
        """Move to the next call due by ``target_us`` and return it; else move there, and None."""
        with self._lock:
            while self._calls and self._calls[0][0] <= target_us:
                when_us, number, call = heappop(self._calls)
                if number in self._gone:
                    self._gone.discard(number)
                    continue
                self._passed_us = max(self._passed_us, when_us)
                return call
            self._passed_us = max(self._passed_us, target_us)
        return None

    def leap(self, target_us: int) -> list[Callable[[], None]]:
        """Move to a time at once; return the calls that came due on the way, in their order."""
        found: list[Callable[[], None]] = []
        with self._lock:
            while self._calls and self._calls[0][0] <= target_us:
                _, number, call = heappop(self._calls)
                if number in self._gone:
                    self._gone.discard(number)
                elif call is not None:
                    found.append(call)
            self._passed_us = max(self._passed_us, target_us)
        return found

    # -- for a test -------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """The time of the wall clock, µs since the epoch."""
        return self.wall_us()

    def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass; returns when everything that came due is done.

        That is: every retry, lease and scheduled message that was due was processed at its time,
        the messages that the broker then delivered to connected consumers are settled, and checkers
        have answered the broker's questions about transactions. The call waits for consumers and
        checkers for at most two seconds of real time, because a handler may rightly hold a message
        for longer. Do not call it in the client's own event loop while its consumers must work:
        ``await asyncio.to_thread(clock.advance, hours=2)``.

        Delays (``deliver_after``) of clients in this process count by this clock; those of clients
        in other processes by their own.

        If nothing is due, the clock leaps: 400 days take about as long as an hour. Periodic checks
        (retention, dead letters that are too old, pulls whose wait is over) run some dozens of
        times on the way, and at the end.

        Args:
            delta: Duration, added to the others.
            days: As named.
            hours: As named.
            minutes: As named.
            seconds: As named.
            milliseconds: As named.

        Raises:
            InvalidRequest: A value is not a duration; the total is negative, since time does not go
                back, or the time would be beyond the year 9998.
        """
        us = _us_of(delta, days, hours, minutes, seconds, milliseconds)
        if us < 0:
            raise InvalidRequest("the total is negative: time does not go back")
        if self.wall_us() + us > _LAST_US:
            raise InvalidRequest("the clock cannot go beyond the year 9998")
        self._settle(self._passed_us + us)

    def jump_wall(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Set the machine's wall clock ahead, or back, while no time passes.

        A running broker does not follow a jump of more than five seconds: nothing comes due early
        or late. ``ternmq clock accept`` (``client.admin.accept_clock``) lets it follow. At its
        start, the broker accepts a wall clock that is up to 90 days ahead of the last record
        (setting ``start_jump``). Returns when the broker has read the clock.

        Args:
            delta: How far ahead, added to the others; negative: back.
            days: As named.
            hours: As named.
            minutes: As named.
            seconds: As named.
            milliseconds: As named.

        Raises:
            InvalidRequest: A value is not a duration; the wall clock would be before 1970, or
                beyond the year 9998.
        """
        us = _us_of(delta, days, hours, minutes, seconds, milliseconds)
        if not 0 <= self.wall_us() + us <= _LAST_US:
            raise InvalidRequest("the wall clock cannot go beyond the years 1970 to 9998")
        self._jumped_us += us
        self._settle(self._passed_us)


def _us_of(
    delta: timedelta | None,
    days: float,
    hours: float,
    minutes: float,
    seconds: float,
    milliseconds: float,
) -> int:
    """Return the sum of durations in µs.

    Raises:
        InvalidRequest: A value is not a duration.
    """
    given: object = delta
    if given is not None and not isinstance(given, timedelta):
        kind = type(given).__name__
        raise InvalidRequest(f"delta is a timedelta, not {kind}; a number has a unit: hours=2")
    us = 0 if delta is None else delta // _MICROSECOND
    for what, length, unit_us in (
        ("days", days, 86_400_000_000),
        ("hours", hours, 3_600_000_000),
        ("minutes", minutes, 60_000_000),
        ("seconds", seconds, 1_000_000),
        ("milliseconds", milliseconds, 1_000),
    ):
        if not -_LAST_US < real(what, length) * unit_us < _LAST_US:  # NaN is not
            raise InvalidRequest(
                f"{what} must be a finite time, and end before the year 9999; it is {length:g}"
            )
        us += round(length * unit_us)
    return us
