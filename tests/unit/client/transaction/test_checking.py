"""Offers of checkers, and answers to questions, as a broker gets them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

import ternmq
from ternmq.model.errors import Busy, ProducerGroupTaken, TernMQError
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.record.fact import messages
from ternmq.wire import bodies, control, frames
from ternmq.wire.commands import Command
from ternmq.wire.session import Request
from tests.asynchronous import until
from tests.unit.client.fake import FakeBroker, Told

Check = Callable[[ternmq.PreparedTransaction], Awaitable[Any]]


class Asker:
    """Notes offers and decisions, asks questions, and has rows."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.offers: list[str] = []
        self.decisions: list[control.TransactionDecide] = []
        self.refuse: list[TernMQError] = []
        self.pages: list[bytes] = []
        self.reads: list[bodies.TransactionRead] = []
        broker.on[Command.CHECKER_OFFER] = self.offer
        broker.on[Command.TRANSACTION_DECIDE] = self.decide
        broker.on[Command.TRANSACTION_READ] = self.read

    def offer(self, request: Request) -> Told:
        self.offers += control.decode(request.body, control.CheckerOffer).groups
        return self.refuse.pop() if self.refuse else control.encode(control.Nothing())

    def decide(self, request: Request) -> Told:
        self.decisions.append(control.decode(request.body, control.TransactionDecide))
        return control.encode(control.TransactionDone())

    def read(self, request: Request) -> Told:
        asked = bodies.unpack_transaction_read(request.body)
        self.reads.append(asked)
        return self.pages[asked.after]

    def ask(self, number: int = 7, *, group: str = "g", attempt: int = 1, rows: int = 0) -> None:
        asked = control.TransactionCheck(
            transaction=number, group=group, query_id="q", attempt=attempt, topics=["t"], rows=rows
        )
        push = frames.pack(Command.TRANSACTION_CHECK, frames.PUSH, 0, control.encode(asked))
        self.broker.connections[-1].write(push)

    @property
    def said(self) -> list[tuple[int | None, bool | None, int]]:
        return [(one.transaction, one.commit, one.attempt) for one in self.decisions]


def page(next_: int, *rows: tuple[int, str, bytes]) -> bytes:
    """Return a page of records, each of one row: number and name of its topic, its body."""
    records = []
    for number, topic, body in rows:
        batch = encode(
            [Row(body)], topic_seed=topic_seed(topic), producer_id=1, first_sequence=1, born_us=1
        )
        fact = messages.pack(number, 3, bodies.NO_OFFSET, 1, batch, ())
        records.append(messages.made(bytes(64), fact, 8, 5))
    names = sorted({(number, topic) for number, topic, _ in rows})
    return bodies.transaction_rows_head(next_, names) + b"".join(records)


def declared(client: ternmq.Client, check: Any, group: str = "g") -> None:
    client.checker(group)(check)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (ternmq.Decision.COMMIT, True),
        (ternmq.Decision.ROLLBACK, False),
        (ternmq.Decision.UNKNOWN, None),
    ],
)
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_decision(decision: ternmq.Decision, said: bool | None, *, threaded: bool) -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)

        async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
            return decision

        declared(client, (lambda tx: decision) if threaded else check)
        async with client:
            asker.ask(attempt=3)
            await until(lambda: bool(asker.decisions))
            assert asker.said == [(7, said, 3)]
            assert asker.reads == []  # it has no rows


@pytest.mark.parametrize("wrong", [None, True, "commit", 7, ValueError("x"), KeyboardInterrupt()])
@pytest.mark.parametrize("threaded", [False, True])
async def test_what_is_no_decision_is_unknown_and_logged(
    wrong: object, caplog: pytest.LogCaptureFixture, *, threaded: bool
) -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)

        def check(tx: object) -> object:
            if isinstance(wrong, BaseException):
                raise wrong
            return wrong

        async def check_async(tx: object) -> object:
            return check(tx)

        declared(client, check if threaded else check_async)
        declared(client, lambda tx: ternmq.Decision.COMMIT, "other")
        async with client:
            asker.ask()
            asker.ask(8, group="other")
            await until(lambda: len(asker.decisions) == 2)
        assert sorted(asker.said, key=str) == [(7, None, 1), (8, True, 1)]
        (error,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert "t-7 of g" in error.getMessage()


async def test_a_function_that_returns_a_coroutine(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)

        async def check(tx: object) -> ternmq.Decision:
            return ternmq.Decision.COMMIT

        declared(client, lambda tx: check(tx))  # noqa: PLW0108 - the lambda is what is tested
        async with client:
            asker.ask()
            await until(lambda: bool(asker.decisions))
        assert asker.said == [(7, None, 1)]
        assert "returned a coroutine" in caplog.text


async def test_its_messages_and_more_of_them() -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)
        asker.pages = [page(1, (2, "a", b"1"), (5, "b", b"2")), page(0, (5, "b", b"3"))]
        found: list[Any] = []

        async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
            found.append(([(one.topic, one.queue, one.body) for one in tx.messages],
                          [one.body async for one in tx.read()], tx.rows, tx.topics, tx.query_id,
                          tx.id, tx.group))  # fmt: skip
            return ternmq.Decision.COMMIT

        declared(client, check)
        async with client:
            asker.ask(rows=3)
            await until(lambda: bool(asker.decisions))
        first, every, *rest = found[0]
        assert first == [("a", 3, b"1"), ("b", 3, b"2")]
        assert every == [b"1", b"2", b"3"]
        assert rest == [3, ["t"], "q", "t-7", "g"]
        assert [(one.after, one.max_bytes) for one in asker.reads] == [(0, 4 << 20), (0, 0), (1, 0)]


async def test_offers_come_again_after_a_reconnect() -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)
        declared(client, lambda tx: ternmq.Decision.COMMIT, "one")
        async with client:
            assert asker.offers == ["one"]
            declared(client, lambda tx: ternmq.Decision.COMMIT, "two")
            await until(lambda: asker.offers == ["one", "two"])
            broker.cut()
            await until(lambda: asker.offers == ["one", "two"] * 2)
            asker.ask(group="two")
            await until(lambda: bool(asker.decisions))


async def test_an_offer_that_is_refused() -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)
        declared(client, lambda tx: ternmq.Decision.COMMIT)
        asker.refuse = [ProducerGroupTaken("of another app")]
        with pytest.raises(ProducerGroupTaken):
            await client.connect()
        await client.close()


async def test_an_offer_that_is_refused_for_now_comes_again() -> None:
    async with FakeBroker() as broker:
        asker = Asker(broker)
        options = replace(ternmq.connect(broker.url).options, longest_backoff=0.05)
        client = ternmq.connect(options=options)
        declared(client, lambda tx: ternmq.Decision.COMMIT)
        asker.refuse = [Busy("later")]
        async with client:
            assert asker.offers == ["g", "g"]


async def test_one_question_at_a_time_about_a_transaction() -> None:
    async with FakeBroker() as broker:
        asker, client = Asker(broker), ternmq.connect(broker.url)
        calls: list[int] = []

        async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
            calls.append(tx.attempt)
            await until(lambda: going_on)
            return ternmq.Decision.COMMIT

        going_on = False
        declared(client, check)
        async with client:
            asker.ask(attempt=1)
            asker.ask(attempt=2)
            asker.ask(9, group="none here")
            await until(lambda: bool(asker.decisions))
            going_on = True
            await until(lambda: len(asker.decisions) == 2)
        assert asker.said == [(9, None, 1), (7, True, 1)]
        assert calls == [1]
