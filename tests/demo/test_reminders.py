"""The plan of the reminders, and their judge on made-up records with faults planted in them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Self

from ternmq.demo.clocks import MINUTES_PER_DAY
from ternmq.demo.flights import Flight, Kind, Period, read
from ternmq.demo.judge.evidence import Kills, Occurrence
from ternmq.demo.judge.reminders import RemindersJudge
from ternmq.demo.judge.verdict import Fault, GroupVerdict
from ternmq.demo.plan import GATE, GROUPS, REMINDERS, Run, topic_of
from ternmq.demo.records import Acked, AnyRecord, CancelAnswered, Handled, Scheduled
from ternmq.demo.reminders import BEFORE, plan, reminder_of


class All(Run, frozen=True):
    """Each flight has a reminder."""

    def reminded(self, key: str) -> bool:
        return True


FLIGHTS = [
    Flight("UA", number, "N1", "EWR", "IAH", 0, number * 100, None, None) for number in range(1, 5)
]
ONE, TWO, THREE, FOUR = map(reminder_of, FLIGHTS)


@dataclass
class Files:
    """What the producer and the gate wrote."""

    sent: list[AnyRecord] = field(default_factory=list)
    lines: list[Occurrence] = field(default_factory=list)
    kills: dict[str, list[int]] = field(default_factory=dict)

    def scheduled(self, due_us: int = 1_000_000) -> Self:
        self.sent += [Scheduled(reminder_of(one).id, due_us) for one in FLIGHTS]
        return self

    def cancelled(self, *names: str, cancelled: bool = True) -> Self:
        self.sent += [CancelAnswered(name, cancelled, 500) for name in names]
        return self

    def did(self, *flights: Flight, at_us: int = 1_000_100, **other: object) -> Self:
        for flight in flights:
            event = reminder_of(flight)
            told = {
                "event": event.id, "checksum": zlib.crc32(event.body), "topic": REMINDERS,
                "queue": 0, "offset": FLIGHTS.index(flight), "attempt": 1, "deliveries": 1,
                "suspect": False, "begun_us": at_us, "ended_us": at_us + 5, "latency_us": 9_999,
                "failed": False,
            } | other  # fmt: skip
            self.lines.append(Occurrence("gate-1", Handled(**told)))  # type: ignore[arg-type]
        return self

    def acked(self, flight: Flight) -> Self:
        record = Acked(REMINDERS, 0, FLIGHTS.index(flight), 1_000_200)
        self.lines.append(Occurrence("gate-1", record))
        return self

    def judged(self) -> tuple[RemindersJudge, GroupVerdict]:
        judge = RemindersJudge(FLIGHTS, All(), self.sent, Kills(self.kills))
        return judge, judge.judge(self.lines, [])

    def faults(self) -> list[tuple[Fault, str]]:
        judge, _ = self.judged()
        return [(one.fault, one.event) for one in judge.findings]


def test_all_is_well():
    judge, verdict = Files().scheduled().did(*FLIGHTS).judged()
    assert judge.findings == []
    assert (verdict.name, verdict.owed, verdict.delivered) == ("gate", 4, 4)
    assert verdict.worst_ms == 0.1  # from the due time
    assert (judge.reminders.scheduled, judge.reminders.cancelled) == (4, 0)


def test_one_that_is_early_is_found():
    assert Files().scheduled().did(*FLIGHTS, at_us=989_000).faults() == [
        (Fault.EARLY, one.id) for one in (ONE, TWO, THREE, FOUR)
    ]
    assert Files().scheduled().did(*FLIGHTS, at_us=995_000).faults() == []  # clocks may differ


def test_one_that_is_lost_is_found():
    assert Files().scheduled().did(*FLIGHTS[1:]).faults() == [(Fault.LOSS, ONE.id)]
    # Also if the producer does not say that it was to be sent.
    assert Files().did(*FLIGHTS[1:]).faults() == [(Fault.LOSS, ONE.id)]


def test_a_cancelled_one_is_not_delivered():
    files = Files().scheduled().cancelled(ONE.id)
    judge, verdict = files.did(*FLIGHTS[1:]).judged()
    assert judge.findings == []
    assert (verdict.owed, judge.reminders.cancelled, judge.reminders.too_late) == (3, 1, 0)
    assert files.did(FLIGHTS[0]).faults() == [(Fault.CANCELLED, ONE.id)]


def test_one_whose_cancel_came_too_late_is_delivered():
    files = Files().scheduled().cancelled(ONE.id, cancelled=False)
    assert files.did(*FLIGHTS[1:]).faults() == [(Fault.LOSS, ONE.id)]
    judge, _ = files.did(FLIGHTS[0]).judged()
    assert (judge.findings, judge.reminders.too_late) == ([], 1)


def test_one_that_comes_twice_needs_a_cause():
    files = Files().scheduled().did(*FLIGHTS)
    assert files.faults() == []
    twice = Files(files.sent, [*files.lines]).did(FLIGHTS[0], at_us=1_000_300, offset=9)
    assert twice.faults() == [(Fault.DUPLICATE, ONE.id)]  # stored twice
    again = {"at_us": 1_000_300, "deliveries": 2}
    files.did(FLIGHTS[0], **again)
    assert files.faults() == [(Fault.DUPLICATE, ONE.id)]
    files.kills["broker"] = [1_000_200]
    assert files.faults() == []
    acked = Files(files.sent, kills=files.kills).did(*FLIGHTS).acked(FLIGHTS[0])
    assert acked.did(FLIGHTS[0], **again).faults() == [(Fault.DUPLICATE, ONE.id)]


def test_bodies_and_names_are_compared():
    assert Files().scheduled().did(*FLIGHTS, checksum=7).faults() == [
        (Fault.DAMAGED, one.id) for one in (ONE, TWO, THREE, FOUR)
    ]
    files = Files().scheduled().did(*FLIGHTS)
    assert files.did(FLIGHTS[0], event="UA-1/departed").faults() == [
        (Fault.STRANGER, "UA-1/departed")
    ]


def test_the_plan():
    run = Run(days=5)
    flights = read(Period(1, 5))
    first = min(one.departed or one.scheduled for one in flights)
    reminders = plan(flights, run, first)
    assert len(flights) / 12 < len(reminders) < len(flights) / 8
    cancelled = [one for one in reminders if one.cancelled is not None]
    assert len(reminders) / 7 < len(cancelled) < len(reminders) / 4
    assert [one.sent for one in reminders] == sorted(one.sent for one in reminders)
    for one in reminders:
        assert first <= one.sent
        assert one.due - one.sent <= 2 * MINUTES_PER_DAY
        assert one.due == one.flight.scheduled - BEFORE
        assert one.due < (one.flight.departed or one.flight.scheduled)
        if one.cancelled is not None:
            assert min(one.sent, one.due) <= one.cancelled <= max(one.sent, one.due)
    event = reminders[0].event
    assert (event.kind, topic_of(event)) == (Kind.REMINDER, REMINDERS)
    assert GATE.wants(event)
    assert not any(group.wants(event) for group in GROUPS)
    assert len({one.event.id for one in reminders}) == len(reminders)
