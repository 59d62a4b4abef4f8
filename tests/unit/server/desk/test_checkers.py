"""Offers belong to connections; questions go to the connection that offers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq.broker.checkback.questions import Question
from ternmq.broker.gate.replies import DoneReply
from ternmq.model.errors import ProducerGroupTaken
from ternmq.server.desk.checkers import MOST_OPEN, Checkers
from ternmq.wire import control
from ternmq.wire.commands import Command


class Core:
    """Notes what the core is told."""

    def __init__(self) -> None:
        self.broker = SimpleNamespace(checking=self)
        self.offers: dict[int, list[str]] = {}
        self.taken: set[str] = set()

    def now_us(self) -> int:
        return 5

    def offered(self, now_us: int, app: str, session: int, groups: list[str]) -> DoneReply:
        if self.taken & set(groups):
            raise ProducerGroupTaken("of another app")
        self.offers[session] = groups
        return DoneReply(77)

    def withdrawn(self, session: int) -> None:
        del self.offers[session]


class Caller:
    """A connection of a session."""

    def __init__(self, session: int) -> None:
        self.app = "shop"
        self.session = session
        self.closed = False
        self.pushed: list[control.TransactionCheck] = []

    def push(self, command: int, body: bytes) -> None:
        assert command == Command.TRANSACTION_CHECK
        self.pushed.append(control.decode_answer(body, control.TransactionCheck))


def question(number: int = 7) -> Question:
    return Question(number, "g", "q", 2, 1000, ("a", "b"), 3, 640)


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def checkers(core: Core) -> Checkers:
    return Checkers(cast("Any", core))


def test_offers_add_up(core: Core, checkers: Checkers) -> None:
    one: Any = Caller(1)
    checkers.offer(one, ["b"])
    checkers.offer(one, ["a", "b"])
    assert core.offers == {1: ["a", "b"]}
    core.taken = {"c"}
    with pytest.raises(ProducerGroupTaken):
        checkers.offer(one, ["c"])
    assert core.offers == {1: ["a", "b"]}
    checkers.offer(cast("Any", Caller(2)), ["a"])
    assert checkers.groups() == {"a": 2, "b": 1}
    assert len(checkers) == 2


def test_the_end_of_an_old_connection_withdraws_nothing(core: Core, checkers: Checkers) -> None:
    old: Any = Caller(1)
    new: Any = Caller(1)
    assert checkers.offer(old, ["a", "b"]) == 77
    checkers.offer(new, ["a"])  # its client came back: "b" is not offered again
    assert core.offers == {1: ["a"]}
    checkers.gone(old)
    assert core.offers == {1: ["a"]}
    checkers.ask(1, question())
    assert (len(old.pushed), len(new.pushed)) == (0, 1)
    checkers.gone(new)
    assert core.offers == {}
    checkers.gone(new)


def test_one_that_offers_nothing_may_go(core: Core, checkers: Checkers) -> None:
    checkers.gone(cast("Any", Caller(1)))
    assert core.offers == {}


def test_a_question(core: Core, checkers: Checkers) -> None:
    one: Any = Caller(1)
    checkers.offer(one, ["g"])
    checkers.ask(1, question())
    (asked,) = one.pushed
    assert (asked.transaction, asked.group, asked.query_id, asked.attempt) == (7, "g", "q", 2)
    assert (asked.opened_us, asked.topics, asked.rows, asked.bytes) == (1000, ["a", "b"], 3, 640)
    assert (checkers.asked, list(checkers.open)) == (1, [(1, 7)])
    checkers.answered(1, 7)
    checkers.answered(1, 7)
    assert not checkers.open


def test_nobody_is_there(core: Core, checkers: Checkers) -> None:
    one: Any = Caller(1)
    checkers.ask(1, question())
    checkers.offer(one, ["g"])
    one.closed = True
    checkers.ask(1, question())
    assert (one.pushed, checkers.asked, len(checkers.open)) == ([], 0, 0)


def test_open_questions_are_bounded_and_end_with_the_connection(
    core: Core, checkers: Checkers
) -> None:
    one: Any = Caller(1)
    two: Any = Caller(2)
    for caller in (one, two):
        checkers.offer(caller, ["g"])
    for number in range(1, MOST_OPEN + 10):
        checkers.ask(1, question(number))
    checkers.ask(2, question(5))
    assert len(checkers.open) == MOST_OPEN
    checkers.gone(one)
    assert list(checkers.open) == [(2, 5)]
