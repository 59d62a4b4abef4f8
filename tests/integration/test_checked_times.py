"""When checkers are asked, how often, and what becomes of transactions that nobody decides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.client_shapes import API

GROUP = "order-service"


class Said:
    """A checker that says what a test sets, and notes what it was asked."""

    def __init__(self, decision: Decision = Decision.UNKNOWN) -> None:
        self.decision = decision
        self.attempts: list[int] = []

    def __call__(self, tx: ternmq.sync.PreparedTransaction) -> Decision:
        self.attempts.append(tx.attempt)
        return self.decision


async def left(client: Any, body: bytes = b"1", **settings: Any) -> str:
    """Leave a transaction with a message to its checker; return its id."""
    tx = client.transaction(GROUP, on_error="check", **settings)

    async def fails() -> None:
        async with tx:
            await tx.send("t", body)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    id_: str = tx.id
    return id_


async def advance(broker: InProcessBroker, **time_: Any) -> None:
    await asyncio.to_thread(lambda: broker.clock.advance(**time_))


async def bodies(client: Any, topic: str = "t") -> list[bytes]:
    found: list[bytes] = []
    while deliveries := await client.pull(topic, group="g", wait=0):
        for delivery in deliveries:
            found.append(delivery.body)
            await delivery.ack()
    return found


def connected(api: API, url: str, checker: Callable[..., Any] | None, **settings: Any) -> Any:
    client = api.connect(url, **settings)
    if checker is not None:
        client.checker(GROUP)(checker)
    return client


@pytest.mark.row("J0c")
async def test_the_first_question_comes_after_a_minute(api: API, timed: InProcessBroker) -> None:
    said = Said(Decision.COMMIT)
    async with connected(api, timed.url, said) as client:
        id_ = await left(client)
        await advance(timed, seconds=53)
        assert said.attempts == []
        assert await bodies(client) == []
        await advance(timed, seconds=14)  # 60 s, with a tenth by chance
        assert said.attempts == [1]
        assert await client.transaction_outcome(id_) is Decision.COMMIT
        assert await bodies(client) == [b"1"]
        assert (await client.admin.transaction(id_)).why == "checker"


async def test_the_first_question_when_the_transaction_says(
    api: API, timed: InProcessBroker
) -> None:
    said = Said(Decision.ROLLBACK)
    async with connected(api, timed.url, said) as client:
        id_ = await left(client, check_after=timedelta(minutes=30))
        await advance(timed, minutes=26)
        assert said.attempts == []
        await advance(timed, minutes=8)
        assert said.attempts == [1]
        assert await client.transaction_outcome(id_) is Decision.ROLLBACK


@pytest.mark.row("J0e")
@pytest.mark.parametrize("then", ["park", "roll-back", "commit"])
async def test_after_the_last_question(then: str, api: API, timed: InProcessBroker) -> None:
    said = Said()
    async with connected(api, timed.url, said) as client:
        await client.admin.put_producer_group(
            GROUP, first=1, factor=2, cap=4, jitter=0, attempts=4, then=then
        )
        id_ = await left(client)
        for seconds, attempts in ((0.9, 0), (0.2, 1), (2, 2), (4, 3), (4, 4)):
            await advance(timed, seconds=seconds)
            assert len(said.attempts) == attempts
        await advance(timed, seconds=10)
        assert said.attempts == [1, 2, 3, 4]
        state = await client.admin.transaction(id_)
        if then != "park":
            outcome = "committed" if then == "commit" else "rolled-back"
            assert (state.state, state.why) == (outcome, "policy")
            assert await bodies(client) == ([b"1"] if then == "commit" else [])
            return
        assert (state.state, state.attempt, state.next) == ("parked", 4, None)
        (alarm,) = await client.admin.alarms()
        assert id_ in alarm.subject or GROUP in alarm.subject
        await advance(timed, days=30)  # it is kept
        (known,) = await client.admin.checked_transactions(GROUP)
        assert (known.id, known.state) == (id_, "parked")
        said.decision = Decision.COMMIT
        await client.admin.check_transaction(id_)
        await until(lambda: len(said.attempts) == 5)
        await advance(timed, seconds=1)
        assert await client.transaction_outcome(id_) is Decision.COMMIT
        assert await bodies(client) == [b"1"]
        for _ in range(3):
            await advance(timed, seconds=11)
        assert await client.admin.alarms() == []


async def test_an_operator_decides_one_that_is_parked(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, Said()) as client:
        await client.admin.put_producer_group(GROUP, first=1, cap=1, attempts=1, jitter=0)
        id_ = await left(client, query_id="order-7")
        await advance(timed, seconds=5)
        assert (await client.admin.transaction(id_)).state == "parked"
        (found,) = await client.admin.checked_transactions(query_id="order-7")
        assert found.id == id_
        assert await client.admin.checked_transactions(query_id="order-8") == []
        assert await client.admin.resolve_transaction(id_, commit=True)
        assert await bodies(client) == [b"1"]
        assert await client.admin.checked_transactions() == []


@pytest.mark.row("J0d")
async def test_a_question_that_nobody_gets_does_not_count(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, Said()) as client:
        id_ = await left(client)
    async with connected(api, timed.url, None) as client:
        await advance(timed, hours=2)
        state = await client.admin.transaction(id_)
        assert (state.state, state.attempt) == ("undecided", 0)
    said = Said(Decision.COMMIT)
    async with connected(api, timed.url, said) as client:  # one that has just been started
        await until(lambda: said.attempts == [1])
        await advance(timed, seconds=1)
        assert await client.transaction_outcome(id_) is Decision.COMMIT
        assert await bodies(client) == [b"1"]


@pytest.mark.row("J0d")
async def test_who_opened_it_is_asked_first(api: API, timed: InProcessBroker) -> None:
    saids = [Said() for _ in range(4)]
    clients = [await connected(api, timed.url, one) for one in saids]
    id_ = await left(clients[2])
    await advance(timed, seconds=67)
    assert [len(one.attempts) for one in saids] == [0, 0, 1, 0]
    await clients[2].close()
    await advance(timed, minutes=3)
    assert sum(len(one.attempts) for one in saids) == 2
    saids[0].decision = saids[1].decision = saids[3].decision = Decision.ROLLBACK
    await advance(timed, minutes=10)
    assert await clients[0].transaction_outcome(id_) is Decision.ROLLBACK
    for client in clients:
        await client.close()


async def test_questions_go_on_after_a_restart(api: API, timed: InProcessBroker) -> None:
    said = Said()
    async with connected(api, timed.url, said) as client:
        await client.admin.put_producer_group(GROUP, first=10, factor=1, cap=10, jitter=0)
        id_ = await left(client)
        await advance(timed, seconds=11)
        assert said.attempts == [1]
        await asyncio.to_thread(timed.restart, clean=False)
        assert (await client.admin.transaction(id_)).attempt == 1
        said.decision = Decision.COMMIT
        await advance(timed, seconds=11)
        assert said.attempts == [1, 2]
        assert await client.transaction_outcome(id_) is Decision.COMMIT


async def test_advance_right_after_a_restart_waits_for_the_checkers(
    api: API, timed: InProcessBroker
) -> None:
    said = Said(Decision.COMMIT)
    async with connected(api, timed.url, said) as client:
        id_ = await left(client, check_after=5)

        def restarted() -> None:  # in one go: no call of the client in between
            timed.restart(clean=False)
            timed.clock.advance(seconds=10)

        await asyncio.to_thread(restarted)
        assert said.attempts == [1]
        assert await client.transaction_outcome(id_) is Decision.COMMIT


async def test_a_policy_changes_for_open_transactions(api: API, timed: InProcessBroker) -> None:
    said = Said()
    async with connected(api, timed.url, said) as client:
        id_ = await left(client)
        await client.admin.put_producer_group(GROUP, attempts=1, then="roll-back")
        (group,) = await client.admin.producer_groups()
        assert (group.group, group.attempts, group.then) == (GROUP, 1, "roll-back")
        assert (group.first_us, group.checkers, group.undecided) == (60_000_000, 1, 1)
        await advance(timed, minutes=10)
        assert said.attempts == [1]
        assert await client.transaction_outcome(id_) is Decision.ROLLBACK


async def test_producer_groups(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, None) as client:
        assert await client.admin.producer_groups() == []
        await client.admin.put_producer_group("a", first=2, cap=20)
        await client.admin.put_producer_group("b", without_checker=True)
        found = await client.admin.producer_groups()
        assert [(one.group, one.first_us, one.cap_us, one.without_checker) for one in found] == [
            ("a", 2_000_000, 20_000_000, False), ("b", 60_000_000, 600_000_000, True),
        ]  # fmt: skip
        async with client.transaction("b") as tx:
            await tx.send("t", b"1")
        assert await bodies(client) == [b"1"]
        await client.admin.delete_producer_group("a")
        with pytest.raises(ternmq.UnknownProducerGroup):
            await client.admin.delete_producer_group("a")
        assert [one.group for one in await client.admin.producer_groups()] == ["b"]
        for wrong in ({"first": 0.5}, {"attempts": 0}, {"then": "x"}, {"jitter": 2}, {"factor": 0}):
            with pytest.raises(ternmq.InvalidRequest):
                await client.admin.put_producer_group("c", **wrong)


async def test_many_transactions_are_asked_about(api: API, timed: InProcessBroker) -> None:
    said = Said(Decision.COMMIT)
    async with connected(api, timed.url, said) as client:
        for number in range(150):
            await left(client, b"%d" % number)
        began = time.monotonic()
        await advance(timed, seconds=90)
        assert len(said.attempts) == 150
        assert len(await bodies(client)) == 150
        assert time.monotonic() - began < 20


async def test_messages_with_due_times(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, Said()) as client:
        async with client.transaction(GROUP) as tx:
            later = await tx.send("t", b"later", deliver_after=60)
            await tx.send("t", b"now")
        assert later.due_at is not None
        assert await bodies(client) == [b"now"]
        await advance(timed, seconds=59)
        assert await bodies(client) == []
        await advance(timed, seconds=1)
        assert await bodies(client) == [b"later"]
        async with client.transaction(GROUP) as tx:
            await tx.send("t", b"past", deliver_after=5)
            await advance(timed, seconds=10)
        await advance(timed, seconds=1)
        assert await bodies(client) == [b"past"]


async def test_more_than_four_megabytes(api: API, timed: InProcessBroker) -> None:
    found: list[tuple[int, int, int]] = []

    def check(tx: ternmq.sync.PreparedTransaction) -> Decision:
        first, every = tx.messages, list(tx.read())
        found.append((len(first), len(every), tx.rows))
        assert [one.body[:3] for one in every] == [b"%03d" % number for number in range(20)]
        return Decision.COMMIT

    async with connected(api, timed.url, check) as client:
        tx = client.transaction(GROUP, on_error="check")

        async def fails() -> None:
            async with tx:
                for number in range(20):
                    await tx.send("t", b"%03d" % number + bytes(500_000))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails()
        await advance(timed, seconds=67)
        await until(lambda: bool(found))
        ((first, every, rows),) = found
        assert (every, rows) == (20, 20)
        assert 1 <= first < 20


async def test_rows_of_an_ordered_group_wait_for_the_decision(
    api: API, timed: InProcessBroker
) -> None:
    said = Said()
    async with connected(api, timed.url, said) as client:
        await client.admin.create_topic("in", ordered=True)
        for body in (b"1", b"2"):
            await client.send("in", body, ordering_key="k")
        (one,) = await client.pull("in", group="g", mode="ordered", max_messages=1, wait=5)
        tx = client.transaction(GROUP, on_error="check")

        async def fails() -> None:
            async with tx:
                await tx.ack(one)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails()
        await advance(timed, minutes=5)  # longer than any lease
        assert not await client.pull("in", group="g", wait=0)
        await client.admin.resolve_transaction(tx.id, commit=False)
        (again,) = await client.pull("in", group="g", max_messages=1, wait=5)
        assert (again.body, again.attempt) == (b"1", 1)
        await again.ack()
        assert await bodies(client, "in") == [b"2"]


async def test_nobody_else_gets_what_it_settles(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, Said()) as client:
        await client.send("in", b"x")
        (delivery,) = await client.pull("in", group="g", wait=5)
        async with client.transaction(GROUP) as tx:
            await tx.ack(delivery)
            await advance(timed, minutes=20)
            async with api.connect(timed.url) as other:
                assert not await other.pull("in", group="g", wait=0)
        assert await bodies(client, "in") == []
        info = await client.admin.group("in", "g")
        assert (info.queues[0].leased, info.queues[0].floor) == (0, 1)


async def test_offsets_move_at_the_commit(api: API, timed: InProcessBroker) -> None:
    async with connected(api, timed.url, Said()) as client:
        await client.send_many("in", [b"0", b"1", b"2", b"3"])
        await client.admin.create_group("in", "g")
        tx = client.transaction(GROUP)
        async with tx:
            await tx.commit_offset("in", "g", 0, 2)
            assert (await client.admin.group("in", "g")).queues[0].cursor == 0
        assert await bodies(client, "in") == [b"2", b"3"]
