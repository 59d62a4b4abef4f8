"""Rows that are answered and not written down: when that is due, and what order rests on.

The order is shown over any course of two compensators that lead in turns, are frozen, die, and meet
a database that is away, with any answers of the broker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

import ternmq
from ternmq.reliable.outbox.backlog import NOTE_ROWS, NOTE_S, Answered, Backlog, Change, Fate
from ternmq.reliable.outbox.rows import Row
from tests.unit.reliable.outbox.test_backlog import STORED, row


def changes(*rows: Row, fate: Fate = Fate.SENT, frees: bool = False) -> list[Change]:
    return [Change(one, fate, frees=frees) for one in rows]


def test_rows_are_written_down_by_age_and_by_number() -> None:
    it = Answered()
    assert not it.is_due(100)
    it.add(changes(row(1)), 100)
    assert not it.is_due(100 + NOTE_S / 2)
    it.add(changes(row(2)), 100 + NOTE_S / 2)
    assert it.is_due(100 + NOTE_S)  # by the age of the first one
    it.written()
    assert not it.is_due(200)
    it.add(changes(*[row(seq) for seq in range(NOTE_ROWS - 1)]), 200)
    assert not it.is_due(200)
    it.add(changes(row(NOTE_ROWS)), 200)
    assert it.is_due(200)
    it.written()
    assert not it.is_due(300)


def test_what_another_compensator_must_find_is_written_down_at_once() -> None:
    for fate, frees in ((Fate.REFUSED, False), (Fate.FAILED, False), (Fate.SENT, True)):
        it = Answered()
        it.add(changes(row(1)), 0)
        assert not it.is_due(0)
        it.add(changes(row(2, "a"), fate=fate, frees=frees), 0)
        assert it.is_due(0)
        it.written()
        it.add(changes(row(3)), 0)
        assert not it.is_due(0)


def test_what_could_not_be_written_is_kept_if_it_is_stored() -> None:
    it = Answered()
    it.add(changes(row(1)), 0)
    it.add(changes(row(2), fate=Fate.FAILED), 0)
    it.not_written()
    assert [one.row.seq for one in it.changes] == [1]
    assert it.is_due(0)


def test_a_row_that_was_refused_frees_those_behind_it() -> None:
    it = Backlog()
    it.answered(row(1, "a"), ternmq.Forbidden("no"), 0)
    assert it.answered(row(1, "a", tries=1), STORED, 0).frees
    assert not it.answered(row(2, "a"), STORED, 0).frees
    assert not it.answered(row(3, tries=1), STORED, 0).frees  # it has no key


@dataclass
class Table:
    """The table as all see it, and what arrived at the broker."""

    rows: dict[int, Row] = field(default_factory=dict)
    state: dict[int, str] = field(default_factory=dict)
    next_s: dict[int, float] = field(default_factory=dict)
    leader: Compensator | None = None
    arrived: list[int] = field(default_factory=list)
    now: float = 0.0

    def insert(self, key: str) -> None:
        seq = len(self.rows)
        self.rows[seq] = row(seq, key)
        self.state[seq] = "sending"
        self.next_s[seq] = 0.0

    def release(self, chosen: Callable[[Row], bool]) -> None:
        for seq, state in self.state.items():
            if state == "held" and chosen(self.rows[seq]):
                self.state[seq] = "sending"

    def page(self) -> list[Row]:
        return [
            row(seq, self.rows[seq].ordering_key, tries=self.rows[seq].tries)
            for seq, state in self.state.items()
            if state == "sending" and self.next_s[seq] <= self.now
        ]


class Compensator:
    """What ``relay.Compensator`` does, a step at a time, with a table in memory."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.backlog = Backlog(attempts=2, chance=random.Random(1))
        self.answered = Answered()
        self.waves: list[list[Row]] = []
        self.believes = False

    def lead(self) -> None:
        table = self.table
        took = table.leader is not self
        table.leader, self.believes = self, True
        if took:
            self.write_down()
            table.release(lambda one: True)
            blocked: dict[str, int] = {}
            for seq, state in table.state.items():
                one = table.rows[seq]
                if one.ordering_key and (state == "failed" or (state == "sending" and one.tries)):
                    blocked.setdefault(one.ordering_key, seq)
            self.backlog.take_over([("orders", key, seq) for key, seq in blocked.items()])

    def read(self) -> None:
        """Read a page, unless one is in hand."""
        table, now = self.table, self.table.now
        if not self.believes or self.waves:
            return
        self.write_down()
        for topic in self.backlog.to_release(now):
            table.release(lambda one, topic=topic: one.topic == topic)  # type: ignore[misc]
        plan = self.backlog.plan(table.page() if table.leader is self else [], now)
        if plan.hold:
            if table.leader is not self:
                return
            for ref in plan.hold:
                if table.state.get(ref.seq) == "sending":
                    table.state[ref.seq] = "held"
        if plan.doubtful:
            found = [
                seq for seq in plan.doubtful
                if table.state.get(seq) == "failed"
                or (table.state.get(seq) == "sending" and table.rows[seq].tries)
            ]  # fmt: skip
            for _, key in self.backlog.still_blocking(plan.doubtful, found):
                table.release(lambda one, key=key: one.ordering_key == key)  # type: ignore[misc]
        self.waves = plan.waves

    def send(self, answer: Callable[[], ternmq.Receipt | Exception]) -> None:
        """Send a wave of the page in hand."""
        now = self.table.now
        if not self.waves:
            return
        wave = self.waves.pop(0)
        rows = [one for one in wave if not self.backlog.is_waiting(one, now)]
        for one in rows:
            outcome = answer()
            if outcome is STORED or isinstance(outcome, ternmq.SendTimeout):
                self.table.arrived.append(one.seq)  # the answer may be what was lost
            self.answered.add([self.backlog.answered(one, outcome, now)], now)
        if self.answered.is_due(now):
            self.write_down()

    def write_down(self) -> None:
        table = self.table
        for change in self.answered.changes:
            seq = change.row.seq
            if change.fate is Fate.SENT:
                table.state.pop(seq, None)
                if change.frees:
                    key = change.row.ordering_key
                    table.release(lambda one, key=key: one.ordering_key == key)  # type: ignore[misc]
            elif change.fate in {Fate.REFUSED, Fate.FAILED} and self._may_refuse(seq):
                table.rows[seq].tries = change.tries
                table.state[seq] = "failed" if change.fate is Fate.FAILED else "sending"
                table.next_s[seq] = table.now + change.wait_s
        self.answered.written()

    def _may_refuse(self, seq: int) -> bool:
        return self.table.leader is self and self.table.state.get(seq) == "sending"

    def database_away(self) -> None:
        if self.answered.changes:
            self.answered.not_written()
            self.waves = []


ANSWERS = (STORED, STORED, STORED, ternmq.Busy("later"), ternmq.Forbidden("no"),
           ternmq.SendTimeout("lost"))  # fmt: skip
STEPS = ("lead", "read", "read", "send", "send", "send", "write", "away", "die", "insert")


@pytest.mark.parametrize("part", range(4))
def test_the_first_copies_of_a_key_arrive_in_order_whoever_dies_before_it_deletes(part) -> None:
    for seed in range(part * 500, part * 500 + 500):
        check_course(seed)


def check_course(seed: int) -> None:
    chance = random.Random(seed)
    table = Table()
    for _ in range(chance.randint(1, 6)):
        table.insert(chance.choice(("", "a", "a", "b")))
    both = [Compensator(table), Compensator(table)]
    for _ in range(60):
        table.now += chance.choice((0.01, 0.2, 5.0))
        which = chance.randrange(2)
        one = both[which]
        match chance.choice(STEPS):
            case "lead":
                one.lead()
            case "read":
                one.read()
            case "send":
                one.send(lambda: chance.choice(ANSWERS))
            case "write":
                one.write_down()
            case "away":
                one.database_away()
            case "die":
                both[which] = Compensator(table)
            case "insert":
                table.insert(chance.choice(("", "a", "a", "b")))
    assert {seq for seq in table.rows if seq not in table.state} <= set(table.arrived), seed
    last = Compensator(table)  # all others are dead, and everything works
    for _ in range(10):
        table.now += 100
        last.lead()
        last.read()
        while last.waves:
            last.send(lambda: STORED)
        last.write_down()
    assert "sending" not in table.state.values(), seed
    for key in "ab":
        of_key = [seq for seq, one in table.rows.items() if one.ordering_key == key]
        arrived = [seq for seq in dict.fromkeys(table.arrived) if seq in of_key]
        assert arrived == sorted(arrived), seed
        failed = [seq for seq in of_key if table.state.get(seq) == "failed"]
        held = [seq for seq in of_key if table.state.get(seq) == "held"]
        assert all(failed and seq > failed[0] for seq in held), seed
