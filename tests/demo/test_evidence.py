"""The judge, on made-up files of consumers with faults planted in them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Self

import pytest

from ternmq.demo.flights import Event, Flight, Timetable
from ternmq.demo.judge.evidence import Expectation, GroupJudge, Kills, Occurrence
from ternmq.demo.judge.verdict import Fault, GroupVerdict
from ternmq.demo.plan import ATTEMPTS, FLIGHTS, Consumers, Run, topic_of
from ternmq.demo.records import Acked, DeadLetter, Handled, Unanswered

ORDERED = Consumers("logbook", "", topics=(FLIGHTS,))
BOARD = Consumers("board", "")
UNITED = Consumers("united", "", tags="UA", in_order=False)
CLAIMS = Consumers("claims", "", fails=True)
FIRST = Flight("UA", 1, "N1", "EWR", "IAH", 0, 0, 10, 100)
SECOND = Flight("AA", 2, "N1", "EWR", "IAH", 120, 120, 130, 200)
OTHER = Flight("UA", 3, "N2", "EWR", "IAH", 0, 0, 20, None)
CANCELLED = Flight("UA", 4, "", "EWR", "IAH", 60, 60, None, None)
FLOWN = Timetable([FIRST, SECOND, OTHER, CANCELLED])
LEFT, OTHER_LEFT, GONE, LANDED, LEFT_AGAIN, LANDED_AGAIN = FLOWN


class NoneDoomed(Run, frozen=True):
    """No message fails."""

    def doomed(self, event_id: str) -> bool:
        return False


class OneDoomed(Run, frozen=True):
    """The first landing fails."""

    def doomed(self, event_id: str) -> bool:
        return event_id == LANDED.id


@dataclass
class Files:
    """What the processes of a group wrote; time goes on with each line."""

    group: Consumers
    run: Run = field(default_factory=NoneDoomed)
    now: int = 1000
    lines: list[Occurrence] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    kills: dict[str, list[int]] = field(default_factory=dict)

    def did(self, event: Event, process: str = "one", *, name: str = "", **other: object) -> Self:
        """A process worked on a message."""
        self.now += 10
        told = {
            "event": name or event.id, "checksum": zlib.crc32(event.body), "topic": topic_of(event),
            "queue": 0, "offset": list(FLOWN).index(event) if event in FLOWN else 99,
            "attempt": 1, "deliveries": 1, "suspect": False,
            "begun_us": self.now, "ended_us": self.now + 5, "latency_us": 7, "failed": False,
        } | other  # fmt: skip
        self.lines.append(Occurrence(process, Handled(**told)))  # type: ignore[arg-type]
        return self

    def acked(self, event: Event, process: str = "one") -> Self:
        """An ack of it was answered."""
        self.now += 10
        record = Acked(topic_of(event), 0, list(FLOWN).index(event), self.now)
        self.lines.append(Occurrence(process, record))
        return self

    def unanswered(self, event: Event, process: str = "one") -> Self:
        """An ack of it was not."""
        self.now += 10
        record = Unanswered(topic_of(event), 0, list(FLOWN).index(event), self.now, "lost")
        self.lines.append(Occurrence(process, record))
        return self

    def killed(self, process: str) -> Self:
        """A process was killed."""
        self.now += 10
        self.kills.setdefault(process, []).append(self.now)
        return self

    def gave_up(self, event: Event, attempts: int = ATTEMPTS) -> Self:
        """It is a dead letter."""
        letter = DeadLetter(self.group.name, topic_of(event), event.id, attempts, "no")
        self.dead.append(letter)
        return self

    def all_of(self, *events: Event) -> Self:
        """A process worked on these, and acked them."""
        for event in events:
            self.did(event).acked(event)
        return self

    def judged(self) -> tuple[GroupVerdict, list[tuple[Fault, str]]]:
        expected = Expectation(FLOWN.flights)
        judge = GroupJudge(self.group, expected, self.run, Kills(self.kills))
        verdict = judge.judge(self.lines, self.dead)
        return verdict, [(finding.fault, finding.event) for finding in judge.findings]

    def faults(self) -> list[tuple[Fault, str]]:
        return self.judged()[1]


ALL = tuple(FLOWN)
OF_LOGBOOK = tuple(event for event in FLOWN if event.flight.tail)


def test_all_is_well():
    verdict, faults = Files(BOARD).all_of(*ALL).judged()
    assert faults == []
    assert (verdict.owed, verdict.delivered, verdict.acked, verdict.redelivered) == (6, 6, 6, 0)
    assert verdict.p50_ms == 0.0


def test_a_group_is_owed_what_it_wants_only():
    verdict, faults = Files(ORDERED).all_of(*OF_LOGBOOK).judged()
    assert faults == []
    assert verdict.owed == 5
    verdict, faults = Files(UNITED).all_of(LEFT, OTHER_LEFT, GONE, LANDED).judged()
    assert faults == []
    assert verdict.owed == 4


# -- losses


def test_what_never_came_is_lost():
    verdict, faults = Files(BOARD).all_of(*[one for one in ALL if one != LANDED]).judged()
    assert faults == [(Fault.LOSS, LANDED.id)]
    assert verdict.losses == 1


def test_what_only_failed_is_lost():
    files = Files(CLAIMS, OneDoomed()).all_of(LEFT, OTHER_LEFT, GONE)
    for attempt in range(1, ATTEMPTS + 1):
        files.did(LANDED, attempt=attempt, deliveries=attempt, failed=True)
    files.all_of(LEFT_AGAIN, LANDED_AGAIN)
    assert files.faults() == [(Fault.LOSS, LANDED.id)]
    assert files.gave_up(LANDED).faults() == []


# -- what may come again


def test_a_message_whose_consumer_was_killed_may_come_again():
    files = Files(BOARD).did(LEFT).killed("one").did(LEFT, "two", deliveries=2, attempt=2)
    verdict, faults = files.all_of(*ALL[1:]).judged()
    assert faults == []
    assert (verdict.repeated, verdict.redelivered, verdict.duplicates) == (1, 1, 0)


def test_a_message_whose_broker_was_killed_may_come_again():
    files = Files(BOARD).did(LEFT).killed("broker").did(LEFT, suspect=True)
    verdict, faults = files.all_of(*ALL[1:]).judged()
    assert faults == []
    assert (verdict.repeated, verdict.acked, verdict.unanswered) == (1, 5, 1)


def test_an_ack_that_the_dead_broker_did_not_answer_explains_it():
    files = Files(BOARD).killed("broker").did(LEFT).unanswered(LEFT).did(LEFT, suspect=True)
    assert files.all_of(*ALL[1:]).faults() == []


def test_an_ack_that_is_refused_since_another_had_it_by_then():
    """The broker came back, and the process did not in time: its session was over."""
    files = Files(BOARD).killed("broker").did(LEFT).did(LEFT, "two", deliveries=2)
    verdict, faults = files.acked(LEFT, "two").unanswered(LEFT).all_of(*ALL[1:]).judged()
    assert faults == []
    assert (verdict.repeated, verdict.acked, verdict.unanswered) == (1, 6, 0)


def test_the_unanswered_ack_of_another_process_explains_nothing():
    files = Files(BOARD).killed("broker").did(LEFT).did(LEFT, "two", deliveries=2)
    files.unanswered(LEFT, "two").all_of(*ALL[1:])
    assert files.faults() == [(Fault.DUPLICATE, LEFT.id)]


@pytest.mark.parametrize("killed", ["two", None])
def test_without_a_kill_of_its_process_nothing_explains_it(killed):
    files = Files(BOARD).did(LEFT)
    if killed is not None:
        files.killed(killed)
    files.did(LEFT, "two", deliveries=2).all_of(*ALL[1:])
    assert files.faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_a_kill_before_or_after_does_not_explain_it():
    files = Files(BOARD).killed("broker").did(LEFT).did(LEFT, suspect=True).killed("broker")
    assert files.all_of(*ALL[1:]).faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_an_ack_that_was_not_answered_explains_nothing_by_itself():
    files = Files(BOARD).did(LEFT).unanswered(LEFT).did(LEFT, deliveries=2)
    assert files.all_of(*ALL[1:]).faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_what_does_not_say_that_it_may_come_again_may_not():
    files = Files(BOARD).did(LEFT).killed("one").did(LEFT, "two")
    assert files.all_of(*ALL[1:]).faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_an_answered_ack_is_never_taken_back():
    files = Files(BOARD).did(LEFT).acked(LEFT).killed("one").killed("broker")
    files.did(LEFT, "two", deliveries=2, suspect=True).all_of(*ALL[1:])
    assert files.faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_stored_twice_is_not_come_again():
    files = Files(BOARD).did(LEFT).killed("one").did(LEFT, "two", deliveries=2, offset=77)
    assert files.all_of(*ALL[1:]).faults() == [(Fault.DUPLICATE, LEFT.id)]


def test_what_failed_comes_again():
    files = Files(CLAIMS, OneDoomed()).all_of(LEFT, OTHER_LEFT, GONE)
    files.did(LANDED, failed=True).did(LANDED, attempt=2, deliveries=2)
    verdict, faults = files.all_of(LEFT_AGAIN, LANDED_AGAIN).judged()
    assert faults == []
    assert (verdict.retried, verdict.repeated) == (1, 0)


# -- order


def test_another_order_of_one_aircraft():
    files = Files(ORDERED).all_of(OTHER_LEFT, LANDED, LEFT, LEFT_AGAIN, LANDED_AGAIN)
    verdict, faults = files.judged()
    assert faults == [(Fault.ORDER, LEFT.id)]
    assert verdict.order_violations == 1


def test_aircraft_do_not_wait_for_each_other():
    files = Files(ORDERED).all_of(LEFT, LANDED, LEFT_AGAIN, LANDED_AGAIN, OTHER_LEFT)
    assert files.faults() == []


def test_two_at_one_time():
    files = Files(ORDERED).did(LEFT, ended_us=5000).all_of(LANDED, LEFT_AGAIN, LANDED_AGAIN)
    assert files.did(OTHER_LEFT).faults() == [(Fault.ORDER, LANDED.id)]


def test_behind_one_that_failed_and_comes_again():
    files = Files(CLAIMS, OneDoomed()).all_of(LEFT, OTHER_LEFT, GONE)
    files.did(LANDED, failed=True).did(LEFT_AGAIN)
    files.did(LANDED, attempt=2, deliveries=2, failed=True)
    files.did(LANDED, attempt=3, deliveries=3, failed=True).did(LANDED_AGAIN).gave_up(LANDED)
    assert files.faults() == [(Fault.ORDER, LEFT_AGAIN.id)]


def test_what_comes_again_after_a_kill_goes_back_and_violates_nothing():
    files = Files(ORDERED).did(LEFT).did(LANDED).killed("one")
    files.did(LEFT, "two", deliveries=2).did(LANDED, "two", deliveries=2)
    assert files.all_of(LEFT_AGAIN, LANDED_AGAIN, OTHER_LEFT).faults() == []


def test_a_group_that_filters_keeps_no_order():
    assert Files(UNITED).all_of(LANDED, LEFT, OTHER_LEFT, GONE).faults() == []


# -- the rest


def test_another_body():
    files = Files(BOARD).did(LEFT, checksum=1).all_of(*ALL[1:])
    assert files.faults() == [(Fault.DAMAGED, LEFT.id)]


def test_what_is_not_its_own():
    files = Files(UNITED).all_of(LEFT, OTHER_LEFT, GONE, LANDED, LEFT_AGAIN)
    assert files.faults() == [(Fault.STRANGER, LEFT_AGAIN.id)]


@pytest.mark.parametrize("event", ["UA-9-1970-01-01T00:00Z/departed", f"{LEFT.flight.key}/eaten"])
def test_what_was_never_sent(event):
    files = Files(BOARD).all_of(*ALL).did(LEFT, name=event)
    assert files.faults() == [(Fault.STRANGER, event)]


def test_from_another_topic():
    files = Files(BOARD).all_of(*ALL[1:]).did(LEFT, topic="other")
    assert (Fault.STRANGER, LEFT.id) in files.faults()


def test_a_dead_letter_that_could_be_worked_on():
    files = Files(CLAIMS, OneDoomed()).all_of(*ALL).gave_up(LEFT)
    assert files.faults() == [(Fault.DEAD_LETTER, LEFT.id)]


def test_a_dead_letter_of_a_group_that_does_not_fail():
    files = Files(BOARD, OneDoomed()).all_of(*ALL).gave_up(LANDED)
    assert files.faults() == [(Fault.DEAD_LETTER, LANDED.id)]


def test_a_dead_letter_after_too_few_attempts():
    files = Files(CLAIMS, OneDoomed()).all_of(LEFT, OTHER_LEFT, GONE).did(LANDED, failed=True)
    files.did(LANDED, attempt=3, deliveries=3, failed=True)
    files.gave_up(LANDED, attempts=2).all_of(LEFT_AGAIN, LANDED_AGAIN)
    assert files.faults() == [(Fault.DEAD_LETTER, LANDED.id)]


def test_a_dead_letter_twice():
    files = Files(CLAIMS, OneDoomed()).all_of(LEFT, OTHER_LEFT, GONE)
    files.did(LANDED, attempt=3, deliveries=3, failed=True).all_of(LEFT_AGAIN, LANDED_AGAIN)
    assert files.gave_up(LANDED).gave_up(LANDED).faults() == [(Fault.DUPLICATE, LANDED.id)]


def test_many_findings_are_counted_and_some_are_told():
    files = Files(BOARD)
    for _ in range(100):
        files.did(LEFT, name="none/departed")
    verdict, faults = files.judged()
    assert verdict.other_faults == 100
    assert faults.count((Fault.STRANGER, "none/departed")) == 20
