"""Reminders: scheduled two days before their due time, some cancelled before it.

Every tenth flight has one: a message to the gate, due an hour before the scheduled departure. For
every fifth of these, the producer cancels it half way. A day of 2013 takes a second of real time,
so reminders wait for up to two seconds, and some wait while the broker is killed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import ternmq
from ternmq.demo.clocks import MINUTES_PER_DAY
from ternmq.demo.flights import Event, Flight, Kind
from ternmq.demo.plan import REMINDERS, Run, Sabotage
from ternmq.demo.records import CancelAnswered, Planted, Scheduled, SyncedFile, now_us

log: Final = logging.getLogger("ternmq.demo")

BEFORE: Final = 60
"""Minutes before the scheduled departure at which a reminder is due."""
AHEAD: Final = 2 * MINUTES_PER_DAY
"""Minutes before its due time at which it is sent."""
_MOST: Final = 200
"""Most reminders of one send_many, and most cancels at a time."""
_EARLIER: Final = timedelta(seconds=1)
"""By how much the planted reminder is early."""


class Reminder(NamedTuple):
    """A reminder; times are minutes since 1970, UTC."""

    sent: int
    due: int
    cancelled: int | None
    """When it is cancelled; None: never."""
    flight: Flight

    @property
    def event(self) -> Event:
        """What it tells."""
        return reminder_of(self.flight)


def reminder_of(flight: Flight) -> Event:
    """Return the reminder of a flight, as an event at its due time."""
    return Event(Kind.REMINDER, flight.scheduled - BEFORE, flight)


def plan(flights: Sequence[Flight], run: Run, first: int) -> list[Reminder]:
    """Return the reminders of flights, in the order in which they are sent.

    Args:
        flights: The flights.
        run: The options of the run.
        first: The minute at which the run begins.
    """
    found: list[Reminder] = []
    for flight in flights:
        if run.reminded(flight.key):
            due = flight.scheduled - BEFORE
            sent = max(first, due - AHEAD)
            cancelled = (sent + due) // 2 if run.rebooked(flight.key) else None
            found.append(Reminder(sent, due, cancelled, flight))
    return sorted(found, key=lambda one: (one.sent, one.due, one.flight.key))


class Reminding:
    """Sends and cancels reminders as time goes on. Not thread-safe: for one event loop."""

    def __init__(
        self, client: ternmq.Client, file: SyncedFile, run: Run, reminders: list[Reminder]
    ) -> None:
        self._client = client
        self._file = file
        self._minutes_per_s = (run.speed or 1.0) * MINUTES_PER_DAY
        self._to_send = reminders
        self._to_cancel = sorted(
            [one for one in reminders if one.cancelled is not None],
            key=lambda one: one.cancelled or 0,
        )
        self._sent = self._cancelled = 0
        self._early: str | None = None
        """The reminder that is planted with a due time that is too early."""
        if run.sabotage is Sabotage.EARLY:
            kept = [one for one in reminders if one.cancelled is None]
            self._early = max(kept, key=lambda one: one.due).event.id

    async def go_on(self, minute: int) -> None:
        """Send and cancel all that is to be sent or cancelled up to a minute."""
        while self._sent < len(self._to_send) and self._to_send[self._sent].sent <= minute:
            some = [one for one in self._to_send[self._sent : self._sent + _MOST]
                    if one.sent <= minute]  # fmt: skip
            self._sent += len(some)
            await self._send(some, minute)
        while self._cancelled < len(self._to_cancel):
            some = [one for one in self._to_cancel[self._cancelled : self._cancelled + _MOST]
                    if (one.cancelled or 0) <= minute]  # fmt: skip
            if not some:
                return
            self._cancelled += len(some)
            await asyncio.gather(*[self._cancel(one) for one in some])

    async def _send(self, some: list[Reminder], minute: int) -> None:
        messages = [self._message(one, minute) for one in some]
        while True:
            try:
                await self._client.send_many(REMINDERS, messages)
            except (
                ternmq.CannotConnect,
                ternmq.SendTimeout,
                ternmq.PartialSendError,
                ternmq.ConnectionLost,
            ) as error:
                log.warning("reminders are sent again, with the same ids: %s", error)
                continue
            return

    def _message(self, one: Reminder, minute: int) -> ternmq.Message:
        """Return the message; when it is due is on record before it is sent."""
        event = one.event
        delay_us = round((one.due - minute) / self._minutes_per_s * 1e6)
        at = datetime.fromtimestamp(time.time(), UTC) + timedelta(microseconds=delay_us)
        self._file.note(Scheduled(event.id, now_us() + delay_us))
        if event.id == self._early:
            at -= _EARLIER
            self._file.note(Planted(Sabotage.EARLY.value, event.id))
        return ternmq.Message(
            event.body,
            key=event.flight.key,
            tag=event.flight.carrier,
            content_type="application/json",
            id=event.id,
            deliver_at=at,
        )

    async def _cancel(self, one: Reminder) -> None:
        event_id = one.event.id
        while True:
            try:
                await self._client.cancel(REMINDERS, event_id)
            except ternmq.AlreadyDelivered:
                self._file.note(CancelAnswered(event_id, cancelled=False, at_us=now_us()))
                return
            except ternmq.TernMQError as error:
                if not error.retriable:
                    raise
                log.warning("cancelled again: %s", error)
                continue
            self._file.note(CancelAnswered(event_id, cancelled=True, at_us=now_us()))
            return
