"""The plan of a run: the topics, the groups, and the messages on which one group fails.

Consumers follow it, and the judge compares their records with it.
"""

from __future__ import annotations

import zlib
from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

import ternmq
from ternmq.demo.clocks import text_of
from ternmq.demo.flights import Event, Flight, Kind, Period, Timetable

FLIGHTS: Final = "flights"
"""Ordered: the ordering key is the tail number."""
WITHOUT_AIRCRAFT: Final = "flights-without-aircraft"
"""Not ordered: flights without a tail number, all of them cancelled."""
AGAIN: Final = "flights-again"
"""Ordered: one carrier's day, sent again from the archive."""
REMINDERS: Final = "reminders"
"""Not ordered: scheduled messages, see ``reminders``."""
TICKETS: Final = "tickets"
PAYMENTS: Final = "payments"
"""Not ordered: each booking sends a message to both, see ``bookings``."""
CARRIER: Final = "UA"
_AGAIN_DAY: Final = 15

ATTEMPTS: Final = 3
"""Attempts of the group that fails on some messages."""
FIRST_RETRY_US: Final = 200_000
ONE_IN: Final = 500
"""One message in this many cannot be handled."""
_REMINDED: Final = 10
"""One flight in this many has a reminder."""
_REBOOKED: Final = 5
"""One reminder in this many is cancelled."""
_BOOKED: Final = 40
"""One flight in this many has a booking."""
_REFUSED: Final = 10
"""The card of one booking in this many is refused."""
REASON: Final = "there is no booking for this flight"


class Consumers(msgspec.Struct, frozen=True):
    """A consumer group.

    Attributes:
        name: The group.
        about: What it demonstrates.
        processes: Number of its processes at a time.
        tags: The tags that the broker filters by; "": everything.
        topics: The topics it consumes.
        fails: It fails on some messages until they are dead letters.
        killed: Its first process is killed, and another one replaces it.
        in_order: It keeps the order of each aircraft; a group that filters does not.
    """

    name: str
    about: str
    processes: int = 1
    tags: str = ""
    topics: tuple[str, ...] = (FLIGHTS, WITHOUT_AIRCRAFT)
    fails: bool = False
    killed: bool = False
    in_order: bool = True

    def mode(self, topic: str) -> ternmq.Mode:
        """Return the mode in which it consumes a topic."""
        ordered = self.in_order and topic == FLIGHTS
        return ternmq.Mode.ORDERED if ordered else ternmq.Mode.SHARED

    def wants(self, event: Event) -> bool:
        """Return whether the group receives an event."""
        return topic_of(event) in self.topics and self.tags in {"", event.flight.carrier}


GROUPS: Final = (
    Consumers("logbook", "three processes, in order per aircraft", 3, topics=(FLIGHTS,)),
    Consumers("united", "one carrier, filtered by the broker", tags="UA", in_order=False),
    Consumers("board", "killed in the middle, taken over", killed=True),
    Consumers("claims", "fails on some, to dead letters", fails=True),
)

"""The groups that receive the events of the flights."""
GATE: Final = Consumers(
    "gate", "reminders: delivered when they are due", topics=(REMINDERS,), in_order=False
)
TILL: Final = Consumers(
    "till", "bookings: paid in transactions", topics=(TICKETS, PAYMENTS), in_order=False
)
EVERYBODY: Final = (*GROUPS, GATE, TILL)


class Sabotage(StrEnum):
    """A fault that the producer plants, for the judge to find."""

    LOSS = "loss"
    """Leaves out one message."""
    DUPLICATE = "duplicate"
    """Sends one message twice, with two ids."""
    ORDER = "order"
    """Sends a departure after the landing."""
    EARLY = "early"
    """Schedules a reminder for an earlier time than it records."""


class Run(msgspec.Struct, frozen=True):
    """The options of a run; every process of the demo reads them from the folder.

    Attributes:
        month: 1 to 12; None: the year.
        days: Number of days; None: all.
        seed: Determines the messages to fail on, and when processes are killed.
        speed: Days of 2013 per second; 0: as fast as possible.
        sabotage: A fault to plant.
        tables: Whether to make tables at the end.
    """

    month: int | None = 1
    days: int | None = None
    seed: int = 2013
    speed: float = 1.0
    sabotage: Sabotage | None = None
    tables: bool = False

    @property
    def again_day(self) -> str:
        """The day, in UTC, of which one carrier's messages are sent again."""
        return f"2013-{self.month or 1:02}-{min(_AGAIN_DAY, self.days or _AGAIN_DAY):02}"

    @property
    def again_where(self) -> str:
        """The SQL condition that selects these messages in the archive."""
        return f"""tag = '{CARRIER}' and text like '%"at":"{self.again_day}T%'"""

    def again(self, event: Event) -> bool:
        """Return whether an event is one of these messages."""
        if topic_of(event) != FLIGHTS or event.flight.carrier != CARRIER:
            return False
        return text_of(event.minute).startswith(f"{self.again_day}T")

    @property
    def period(self) -> Period:
        """The period of its flights."""
        return Period(self.month, self.days)

    def doomed(self, event_id: str) -> bool:
        """Return whether an event cannot be handled."""
        return zlib.crc32(f"{self.seed}:{event_id}".encode()) % ONE_IN == 0

    def reminded(self, key: str) -> bool:
        """Return whether a flight has a reminder."""
        return zlib.crc32(f"{self.seed}/reminder/{key}".encode()) % _REMINDED == 0

    def rebooked(self, key: str) -> bool:
        """Return whether the reminder of a flight is cancelled."""
        return zlib.crc32(f"{self.seed}/rebooked/{key}".encode()) % _REBOOKED == 0

    def booked(self, key: str) -> bool:
        """Return whether a flight has a booking."""
        return self._booking(key) % _BOOKED == 0

    def refused(self, key: str) -> bool:
        """Return whether the card that is to pay the booking of a flight is refused."""
        return self._booking(key) // _BOOKED % _REFUSED == 0

    def _booking(self, key: str) -> int:
        return zlib.crc32(f"{self.seed}/booking/{key}".encode())

    def chance(self, what: str) -> float:
        """Return a number from 0 to below 1 that depends only on the seed and ``what``."""
        return zlib.crc32(f"{self.seed}/{what}".encode()) / 2**32


_TOPICS: Final = {Kind.REMINDER: REMINDERS, Kind.TICKET: TICKETS, Kind.PAYMENT: PAYMENTS}
"""Topics of what is no event of the flights file."""


def topic_of(event: Event) -> str:
    """Return the topic of an event."""
    if event.kind in _TOPICS:
        return _TOPICS[event.kind]
    return FLIGHTS if event.flight.tail else WITHOUT_AIRCRAFT


def owed(flights: list[Flight]) -> dict[str, int]:
    """Return the number of messages that each group is to receive."""
    counts: Counter[tuple[str, str]] = Counter()
    for flight in flights:
        topic = FLIGHTS if flight.tail else WITHOUT_AIRCRAFT
        counts[topic, flight.carrier] += flight.events
    return {
        group.name: sum(
            count
            for (topic, carrier), count in counts.items()
            if topic in group.topics and group.tags in {"", carrier}
        )
        for group in GROUPS
    }


def group_named(name: str) -> Consumers:
    """Return a group of ``EVERYBODY``."""
    (found,) = [group for group in EVERYBODY if group.name == name]
    return found


def target_of(timetable: Timetable, run: Run) -> tuple[int, int]:
    """Return the places of the departure and the landing for sabotage.

    Every group receives both and can handle them, and no event of the aircraft is between them.
    """
    flying: dict[str, int] = {}
    middle = len(timetable) // 2
    for place in range(middle, len(timetable)):
        event = timetable[place]
        tail, before = event.flight.tail, flying.pop(event.flight.tail, None)
        if not tail or run.doomed(event.id):
            continue
        if event.kind is Kind.DEPARTED and event.flight.carrier == "UA":
            flying[tail] = place
        elif before is not None and timetable[before].flight is event.flight:
            return before, place
    raise LookupError("no flight of United left and landed in the second half of the period")
