"""Judges the reminders: each is delivered once and never early, or its cancel was answered.

Which flights have a reminder, and when it is due, follows from the flights file. The producer's
records say at which real time each is due, and which cancels the broker answered. The rest (losses,
duplicates, bodies) is judged as for every group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ternmq.demo.flights import Event, Flight, Kind
from ternmq.demo.judge.evidence import Expectation, GroupJudge, Kills, Occurrence
from ternmq.demo.judge.verdict import Fault, Finding, GroupVerdict, RemindersVerdict
from ternmq.demo.plan import GATE, Run
from ternmq.demo.records import AnyRecord, CancelAnswered, DeadLetter, Handled, Scheduled
from ternmq.demo.reminders import reminder_of

_CLOCKS_US: Final = 10_000
"""By how much the machine's wall clock and its monotonic clock may move apart in a run."""


class Reminded(Expectation):
    """The reminders that are to be delivered.

    Args:
        flights: The flights.
        run: The options of the run.
        cancelled: Names of the reminders whose cancel was answered.
    """

    def __init__(self, flights: list[Flight], run: Run, cancelled: set[str]) -> None:
        super().__init__(flights)
        self._run = run
        self._cancelled = cancelled

    def find(self, event_id: str) -> tuple[int, Event] | None:
        """Return (number, event) of a reminder; None: there is none of this name."""
        key, _, word = event_id.partition("/")
        row = self.row_of(key)
        if row is None or word != Kind.REMINDER.word or not self._run.reminded(key):
            return None
        return row, reminder_of(self.flights[row])

    def event(self, number: int) -> Event | None:
        """Return the reminder with a number, if it is to be delivered."""
        flight = self.flights[number]
        if not self._run.reminded(flight.key):
            return None
        event = reminder_of(flight)
        return None if event.id in self._cancelled else event

    @property
    def size(self) -> int:
        """One more than the largest number."""
        return len(self.flights)


class RemindersJudge:
    """Judges the group of the reminders.

    Args:
        flights: The flights.
        run: The options of the run.
        sent: The producer's records.
        kills: When processes were killed.
    """

    def __init__(
        self, flights: list[Flight], run: Run, sent: Iterable[AnyRecord], kills: Kills
    ) -> None:
        self._due: dict[str, int] = {}
        self._cancelled: dict[str, int] = {}
        self.reminders = RemindersVerdict()
        for record in sent:
            if isinstance(record, Scheduled):
                self._due[record.event] = record.due_us
            elif isinstance(record, CancelAnswered) and record.cancelled:
                self._cancelled[record.event] = record.at_us
            elif isinstance(record, CancelAnswered):
                self.reminders.too_late += 1
        self.reminders.scheduled = len(self._due)
        self.reminders.cancelled = len(self._cancelled)
        expected = Reminded(flights, run, set(self._cancelled))
        self._judge = GroupJudge(GATE, expected, run, kills)

    @property
    def findings(self) -> list[Finding]:
        """The faults that were found."""
        return self._judge.findings

    @property
    def verdict(self) -> GroupVerdict:
        """The verdict on the group, so far."""
        return self._judge.verdict

    def judge(self, occurrences: Iterable[Occurrence], dead: Iterable[DeadLetter]) -> GroupVerdict:
        """Return the verdict on the group; see ``GroupJudge.judge``."""
        return self._judge.judge(self._checked(occurrences), dead)

    def find(self, fault: Fault, event: str, detail: str) -> None:
        """Record a fault."""
        self._judge.find(fault, event, detail)

    def _checked(self, occurrences: Iterable[Occurrence]) -> Iterator[Occurrence]:
        """Check each delivery; yield it with the time since it was due as its latency."""
        for one in occurrences:
            record = one.record
            if isinstance(record, Handled):
                due_us = self._due.get(record.event, record.begun_us)
                late_us = record.begun_us - due_us
                if late_us < -_CLOCKS_US:
                    told = f"was delivered {-late_us / 1e6:.3f} s before it was due"
                    self.find(Fault.EARLY, record.event, told)
                if record.event in self._cancelled:
                    told = "was delivered, although its cancel was answered"
                    self.find(Fault.CANCELLED, record.event, told)
                record = msgspec.structs.replace(record, latency_us=max(0, late_us))
                yield Occurrence(one.process, record)
            else:
                yield one
