"""The bookings of the demo, a cashier's answers, and the judge on records with planted faults."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pytest

from ternmq import Decision
from ternmq.demo.bookings import KINDS, booked, booking_of, message_of
from ternmq.demo.cashier import Books, Cashier
from ternmq.demo.flights import Flight, Kind, Period, read
from ternmq.demo.judge.bookings import BookingsJudge
from ternmq.demo.judge.evidence import Kills, Occurrence
from ternmq.demo.judge.verdict import Fault, GroupVerdict
from ternmq.demo.plan import GROUPS, PAYMENTS, TICKETS, TILL, Run, topic_of
from ternmq.demo.records import AnyRecord, Handled, Paid, Paying, Refused


class All(Run, frozen=True):
    """Each flight has a booking; the card of the last one is refused."""

    def booked(self, key: str) -> bool:
        return True

    def refused(self, key: str) -> bool:
        return key == FLIGHTS[-1].key


FLIGHTS = read(Period(1, 1))[:4]
ONE, TWO, THREE, NEVER = FLIGHTS


@dataclass
class Files:
    """The records of cashiers and of a consumer."""

    paid: list[AnyRecord] = field(default_factory=list)
    lines: list[Occurrence] = field(default_factory=list)

    def pays(self, *flights: Flight, by_checker: bool = False) -> Self:
        for flight in flights:
            self.paid.append(Paying(flight.key, "t-1"))
            self.paid.append(Paid(flight.key, "t-1", by_checker, 5))
        return self

    def did(self, *flights: Flight, kinds: tuple[Kind, ...] = KINDS, **other: Any) -> Self:
        for flight in flights:
            for kind in kinds:
                event = booking_of(flight, kind)
                told = {
                    "event": event.id, "checksum": zlib.crc32(event.body),
                    "topic": topic_of(event), "queue": 0, "offset": FLIGHTS.index(flight),
                    "attempt": 1, "deliveries": 1, "suspect": False, "begun_us": 100,
                    "ended_us": 105, "latency_us": 9, "failed": False,
                } | other  # fmt: skip
                self.lines.append(Occurrence("till-1", Handled(**told)))  # type: ignore[arg-type]
        return self

    def judged(self) -> tuple[BookingsJudge, GroupVerdict]:
        judge = BookingsJudge(FLIGHTS, All(), self.paid, Kills({}))
        return judge, judge.judge(self.lines, [])

    def faults(self) -> list[tuple[Fault, str]]:
        judge, _ = self.judged()
        return [(one.fault, one.event) for one in judge.findings]


def healthy() -> Files:
    return Files().pays(ONE, TWO, THREE).did(ONE, TWO, THREE)


def test_all_is_well():
    files = healthy()
    files.paid.insert(0, Paying(ONE.key, "t-0"))
    files.paid += [Paying(NEVER.key, "t-9"), Refused(NEVER.key, 7)]
    judge, verdict = files.judged()
    assert judge.findings == []
    assert (verdict.name, verdict.owed, verdict.delivered) == ("till", 6, 6)
    counts = judge.bookings
    assert (counts.paid, counts.finished, counts.again, counts.refused) == (3, 0, 1, 1)


def test_half_of_a_booking_is_found():
    files = Files().pays(ONE, TWO, THREE).did(ONE, TWO).did(THREE, kinds=(Kind.PAYMENT,))
    assert sorted(files.faults()) == [
        (Fault.HALF, THREE.key), (Fault.LOSS, booking_of(THREE, Kind.TICKET).id)
    ]  # fmt: skip


def test_one_that_was_refused_and_came_is_found():
    assert healthy().did(NEVER).faults() == [(Fault.HALF, NEVER.key)]
    assert healthy().pays(NEVER).faults() == [(Fault.HALF, NEVER.key)]


def test_one_that_is_not_paid_or_that_nobody_got_is_found():
    assert Files().pays(ONE, TWO).did(ONE, TWO, THREE).faults() == [(Fault.HALF, THREE.key)]
    assert Files().pays(ONE, TWO, THREE).did(ONE, TWO).faults() == [
        (Fault.LOSS, booking_of(THREE, kind).id) for kind in KINDS
    ]


def test_one_that_was_sent_twice_is_found():
    files = healthy().did(TWO, kinds=(Kind.TICKET,), offset=9)
    assert files.faults() == [(Fault.DUPLICATE, booking_of(TWO, Kind.TICKET).id)]


def test_what_a_checker_finished_is_counted():
    files = Files().pays(ONE, TWO).pays(THREE, by_checker=True).did(ONE, TWO, THREE)
    judge, _ = files.judged()
    assert (judge.findings, judge.bookings.paid, judge.bookings.finished) == ([], 3, 1)


def test_the_plan():
    run = Run(days=5)
    flights = read(Period(1, 5))
    found = booked(flights, run)
    assert len(flights) / 50 < len(found) < len(flights) / 30
    refused = [one for one in found if run.refused(one.key)]
    assert len(found) / 25 < len(refused) < len(found) / 5
    assert [one.scheduled for one in found] == sorted(one.scheduled for one in found)
    ticket, payment = (booking_of(found[0], kind) for kind in KINDS)
    assert (topic_of(ticket), topic_of(payment)) == (TICKETS, PAYMENTS)
    assert TILL.wants(ticket)
    assert not any(group.wants(payment) for group in GROUPS)
    assert message_of(found[0], Kind.TICKET).body == ticket.body


# -- a cashier's answers


class Written:
    """A file that notes what is written."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []

    async def write(self, record: AnyRecord) -> None:
        self.records.append(record)


def cashier(books: Books) -> tuple[Cashier, Written]:
    client: Any = SimpleNamespace(checker=lambda group: lambda function: function)
    file: Any = Written()
    return Cashier(client, file, All(), books, stops=False), file


def answer(one: Cashier, question: Any) -> Decision:
    return asyncio.run(one.check(question))


def asked(flight: Flight, id_: str, *topics: str) -> Any:
    return SimpleNamespace(query_id=flight.key, id=id_, topics=topics)


@pytest.mark.parametrize(
    ("question", "decision"),
    [
        (asked(ONE, "t-1", TICKETS, PAYMENTS), Decision.COMMIT),
        (asked(ONE, "t-2", TICKETS, PAYMENTS), Decision.ROLLBACK),  # paid in another one
        (asked(TWO, "t-3", TICKETS), Decision.ROLLBACK),  # a message is missing
        (asked(NEVER, "t-4", TICKETS, PAYMENTS), Decision.ROLLBACK),
        (asked(TWO, "t-5"), Decision.ROLLBACK),
    ],
)
def test_a_checker_looks_what_is_done(question, decision):
    books = Books()
    books.add(Paid(ONE.key, "t-1", by_checker=False, at_us=1))
    one, file = cashier(books)
    assert answer(one, question) is decision
    assert file.records == []


def test_a_checker_finishes_the_work_that_is_left():
    one, file = cashier(Books())
    assert answer(one, asked(TWO, "t-3", PAYMENTS, TICKETS)) is Decision.COMMIT
    (paid,) = file.records
    assert isinstance(paid, Paid)
    assert (paid.flight, paid.transaction, paid.by_checker) == (TWO.key, "t-3", True)
    assert answer(one, asked(TWO, "t-3", PAYMENTS, TICKETS)) is Decision.COMMIT
    assert len(file.records) == 1, "once"
    assert answer(one, asked(TWO, "t-4", PAYMENTS, TICKETS)) is Decision.ROLLBACK


def test_a_checker_does_not_know_what_it_does_itself():
    one, file = cashier(Books())
    one._open[TWO.key] = "t-3"
    assert answer(one, asked(TWO, "t-3", TICKETS, PAYMENTS)) is Decision.UNKNOWN
    assert answer(one, asked(TWO, "t-2", TICKETS, PAYMENTS)) is Decision.ROLLBACK
    assert file.records == []
