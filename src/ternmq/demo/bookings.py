"""Bookings: paid in transactions of two messages, a ticket and a payment.

Every fortieth flight has one. A cashier sends both messages, charges the card, which it writes down
in its own file, and commits. Of every tenth booking, the card is refused, and the transaction is
rolled back. A consumer gets both messages of a booking, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import ternmq
from ternmq.demo.flights import Event, Flight, Kind
from ternmq.demo.plan import Run

BEFORE: Final = 90
"""Minutes before the scheduled departure at which a booking is paid."""
KINDS: Final = (Kind.TICKET, Kind.PAYMENT)
"""The messages of a booking."""


def booked(flights: Iterable[Flight], run: Run) -> list[Flight]:
    """Return the flights with a booking, in the order in which the bookings are paid."""
    found = [one for one in flights if run.booked(one.key)]
    return sorted(found, key=lambda one: (one.scheduled, one.key))


def booking_of(flight: Flight, kind: Kind) -> Event:
    """Return what a message of a booking tells, as an event at the time of the booking."""
    return Event(kind, flight.scheduled - BEFORE, flight)


def message_of(flight: Flight, kind: Kind) -> ternmq.Message:
    """Return a message of a booking."""
    return ternmq.Message(
        booking_of(flight, kind).body,
        key=flight.key,
        tag=flight.carrier,
        content_type="application/json",
    )
