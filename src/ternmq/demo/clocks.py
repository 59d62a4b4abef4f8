"""Clocks of airports, in whole minutes since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

MINUTES_PER_DAY: Final = 24 * 60
_YEAR: Final = 2013
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE: Final = timedelta(minutes=1)


class Clock:
    """The local time of one time zone."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._hours: dict[tuple[int, int, int], int] = {}
        self._offsets: dict[int, int] = {}

    def minute_of_date(self, month: int, day: int, hour: int, minute: int) -> int:
        """Return the minute of a local time in 2013; the first of two if the clock was set back."""
        place = (month, day, hour)
        start = self._hours.get(place)
        if start is None:
            start = _minutes(datetime(_YEAR, month, day, hour, tzinfo=self._zone))
            self._hours[place] = start
        return start + minute

    def first_showing(self, shown: int, *, after: int) -> int:
        """Return the first minute after ``after`` at which the clock shows a time of day.

        Args:
            shown: Minutes since midnight, 0 to 1439.
            after: A minute, UTC.

        Raises:
            ValueError: The clock does not show it within two days.
        """
        first = after + 1
        ahead = (shown - first - self._offset(first)) % MINUTES_PER_DAY
        if self._offset(first + ahead) == self._offset(first) == self._offset(first + 60):
            return first + ahead
        for candidate in range(first, first + 2 * MINUTES_PER_DAY):  # the clock changes on the way
            offset, before = self._offset(candidate), self._offset(candidate - 60)
            if (candidate + offset) % MINUTES_PER_DAY == shown:
                return candidate
            # In the hour that is skipped when the clock is set forward, a clock that was not set
            # shows a time that does not exist. (One flight: B6 35 of 9 March.)
            if before < offset and (candidate + before) % MINUTES_PER_DAY == shown:
                return candidate
        raise ValueError(f"no clock in {self._zone} shows {shown // 60}:{shown % 60:02} then")

    def _offset(self, minute: int) -> int:
        """Return the minutes by which it is ahead of UTC; changes happen at whole hours only."""
        hour = minute // 60
        offset = self._offsets.get(hour)
        if offset is None:
            there = (_EPOCH + timedelta(hours=hour)).astimezone(self._zone).utcoffset()
            offset = self._offsets[hour] = (there or timedelta()) // _MINUTE
        return offset


def text_of(minute: int) -> str:
    """Return a minute as text, such as ``2013-01-31T09:05Z``."""
    day, rest = divmod(minute, MINUTES_PER_DAY)
    return f"{_date_of(day)}T{rest // 60:02}:{rest % 60:02}Z"


@cache
def _date_of(day: int) -> str:
    return f"{_EPOCH + timedelta(days=day):%Y-%m-%d}"


@cache
def minute_of(text: str) -> int:
    """Return the minute of a text such as ``2013-01-31T09:00:00Z``."""
    return _minutes(datetime.fromisoformat(text))


def _minutes(time: datetime) -> int:
    return (time - _EPOCH) // _MINUTE
