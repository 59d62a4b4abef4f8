"""Transactions with check-back at a broker process that is killed, of producers that are killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq import Decision
from tests.asynchronous import pytest_pyfunc_call, until, until_true
from tests.black_box.process import BrokerProcess
from tests.integration.proxy import Proxy

__all__ = ["pytest_pyfunc_call"]

GROUP = "order-service"
PRODUCER = """
import asyncio, os, signal, sys
import ternmq

async def main() -> None:
    client = ternmq.connect(sys.argv[1])

    @client.checker(sys.argv[2])
    async def check(tx: ternmq.PreparedTransaction) -> ternmq.Decision:
        return ternmq.Decision.UNKNOWN

    async with client:
        (delivery,) = await client.pull("in", group="g", wait=10)
        async with client.transaction(sys.argv[2], query_id=sys.argv[3], check_after=1) as tx:
            await tx.send("out", b"of " + delivery.body)
            await tx.send("more", sys.argv[3])
            await tx.ack(delivery)
            print(tx.id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def checked(url: str, decision: Decision = Decision.UNKNOWN, **settings: Any) -> ternmq.Client:
    """Return a client with a checker that always says the same."""
    client = ternmq.connect(url, **settings)

    @client.checker(GROUP)
    async def check(tx: ternmq.PreparedTransaction) -> Decision:
        return decision

    return client


async def taken(client: ternmq.Client, topic: str, count: int = 1) -> list[bytes]:
    """Pull and settle, until so many messages came and no more are there."""
    found: list[bytes] = []
    while len(found) < count or not found:
        deliveries = await client.pull(topic, group="g", wait=10)
        assert deliveries, f"{len(found)} of {count} came"
        for delivery in deliveries:
            found.append(delivery.body)
            await delivery.ack()
    assert not await client.pull(topic, group="g", wait=0)
    return found


async def sends(tx: ternmq.Transaction) -> None:
    """Send a message."""
    await tx.send("t", b"1")


async def broken(
    tx: ternmq.Transaction, work: Callable[[ternmq.Transaction], Awaitable[None]]
) -> ternmq.Transaction:
    """Run a transaction whose application fails after some work."""

    async def fails() -> None:
        async with tx:
            await work(tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    return tx


async def outcome(client: ternmq.Client, id_: str) -> Decision:
    """Wait until a transaction is decided; return how."""

    async def known() -> bool:
        return await client.transaction_outcome(id_) is not Decision.UNKNOWN

    await until_true(known, "it is decided")
    return await client.transaction_outcome(id_)


@pytest.mark.row("J0f", "J0g")
async def test_a_broker_killed_between_prepare_and_commit(own: BrokerProcess) -> None:
    async with checked(own.url, timeout=60) as client:
        await client.send_many("in", [b"1", b"2"])
        one, two = await client.pull("in", group="g", wait=10)
        async with client.transaction(GROUP) as tx:
            await tx.send("out", b"a")
            await tx.ack(one)
            await asyncio.to_thread(own.restart, kill=True)
            await tx.send("more", b"b")
            await asyncio.to_thread(own.restart, kill=True)
        assert await taken(client, "out") == [b"a"]
        assert await taken(client, "more") == [b"b"]

        async def work(tx: ternmq.Transaction) -> None:
            await tx.send("out", b"c")
            await asyncio.to_thread(own.restart, kill=True)

        undone = await broken(client.transaction(GROUP), work)
        assert await client.transaction_outcome(undone.id) is Decision.ROLLBACK
        assert await client.transaction_outcome(tx.id) is Decision.COMMIT
        # The second delivery was lost with the broker or not: it is there once.
        if two.lost:
            assert await taken(client, "in") == [b"2"]
        else:
            await two.ack()
        assert (await client.admin.group("in", "g")).queues[0].floor == 2


@pytest.mark.row("J0f", "J0g")
async def test_a_broker_killed_between_commit_and_answer(own: BrokerProcess) -> None:
    async with Proxy(own.port) as proxy, checked(proxy.url, timeout=60) as client:
        tx = client.transaction(GROUP)
        async with tx:
            await tx.send("t", b"1")
            proxy.mute = True
            commit = asyncio.ensure_future(tx.commit())
            async with ternmq.connect(own.url) as other:
                assert await outcome(other, tx.id) is Decision.COMMIT
            await asyncio.to_thread(own.restart, kill=True)
            proxy.mute = False
            assert await commit == 1
        assert await taken(client, "t") == [b"1"]


async def test_a_broker_killed_between_a_settle_and_its_answer(own: BrokerProcess) -> None:
    async with Proxy(own.port) as proxy, checked(proxy.url, timeout=60) as client:
        await client.send("in", b"x")
        (delivery,) = await client.pull("in", group="g", wait=10)
        async with client.transaction(GROUP) as tx:
            await tx.open()
            proxy.mute = True
            ack = asyncio.ensure_future(tx.ack(delivery))
            async with ternmq.connect(own.url) as other:

                async def settled() -> bool:
                    return (await other.admin.transaction(tx.id)).settled_rows == 1

                await until_true(settled, "it holds the row")
            await asyncio.to_thread(own.restart, kill=True)
            proxy.mute = False
            await ack
        assert not await client.pull("in", group="g", wait=0)
        assert (await client.admin.group("in", "g")).queues[0].floor == 1


async def test_a_commit_without_an_answer_is_asked_for(own: BrokerProcess) -> None:
    async with Proxy(own.port) as proxy, checked(proxy.url, timeout=2) as client:
        tx = client.transaction(GROUP)

        async def commits() -> None:
            async with tx:
                await tx.send("t", b"1")
                proxy.mute = True

        with pytest.raises(ternmq.OutcomeUnknown) as caught:
            await commits()
        await asyncio.to_thread(own.restart, kill=True)
        proxy.mute = False
        assert await outcome(client, caught.value.transaction_id) is Decision.COMMIT
        assert await taken(client, "t") == [b"1"]


def produce(url: str, group: str, query: str) -> str:
    """Run a producer that dies in its transaction; return the transaction's id."""
    ended = subprocess.run(
        [sys.executable, "-c", PRODUCER, url, group, query],
        stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    return ended.stdout.decode().strip()


@pytest.mark.row("J0c", "J0d", "J0h", "J0i")
@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK])
async def test_a_producer_is_killed_and_another_process_decides(
    own: BrokerProcess, decision: Decision
) -> None:
    client = ternmq.connect(own.url)
    seen: list[tuple[str, str, list[str], list[bytes]]] = []

    @client.checker(GROUP)
    async def check(tx: ternmq.PreparedTransaction) -> Decision:
        seen.append((tx.id, tx.query_id, sorted(tx.topics), [one.body for one in tx.messages]))
        return decision

    async with client:
        await client.send("in", b"x")
        id_ = await asyncio.to_thread(produce, own.url, GROUP, "order-7")
        assert await outcome(client, id_) is decision
        assert seen == [(id_, "order-7", ["more", "out"], [b"of x", b"order-7"])]
        if decision is Decision.COMMIT:
            assert await taken(client, "out") == [b"of x"]
            assert await taken(client, "more") == [b"order-7"]
            assert not await client.pull("in", group="g", wait=0)
        else:
            (delivery,) = await client.pull("in", group="g", wait=10)
            assert (delivery.body, delivery.attempt) == (b"x", 1)
            await delivery.ack()
            assert not await client.pull("out", group="g", wait=0)


async def test_each_group_is_asked_about_its_own(own: BrokerProcess) -> None:
    asked: list[tuple[str, str]] = []
    clients = []
    for group in ("one", "two"):
        client = ternmq.connect(own.url)

        def declare(client: ternmq.Client, group: str) -> None:
            @client.checker(group)
            def check(tx: ternmq.sync.PreparedTransaction) -> Decision:
                asked.append((group, tx.group))
                return Decision.COMMIT

        declare(client, group)
        clients.append(await client.connect())
    sender, other = clients
    for group in ("one", "two", "one"):
        tx = sender.transaction(group, on_error="check", check_after=1)
        await broken(tx, sends)
    await until(lambda: len(asked) == 3)
    assert sorted(asked) == [("one", "one"), ("one", "one"), ("two", "two")]
    assert len(await taken(other, "t", 3)) == 3
    for client in clients:
        await client.close()


@pytest.mark.row("J0c", "J0d")
async def test_a_restart_between_the_questions(own: BrokerProcess) -> None:
    """The broker is killed while a transaction waits; a checker that comes later decides."""
    async with checked(own.url, timeout=60) as client:
        tx = await broken(client.transaction(GROUP, on_error="check", check_after=1), sends)

        async def asked() -> bool:
            return (await client.admin.transaction(tx.id)).attempt > 0

        await until_true(asked, "it was asked")
    await asyncio.to_thread(own.restart, kill=True)
    async with checked(own.url, Decision.COMMIT) as client:
        state = await client.admin.transaction(tx.id)
        assert (state.state, state.attempt) in {("undecided", 1), ("committed", 2)}
        await client.admin.check_transaction(tx.id)
        assert await outcome(client, tx.id) is Decision.COMMIT
        assert await taken(client, "t") == [b"1"]


@pytest.mark.row("K19")
async def test_what_stays_undecided_raises_an_alarm_and_waits_for_an_operator(
    own: BrokerProcess,
) -> None:
    """A counterparty that never answers: after the limit nobody asks any more, nor decides."""
    async with checked(own.url, timeout=60) as client:
        await client.admin.create_topic("t")
        await client.admin.put_producer_group(GROUP, first=1, factor=1, cap=1, attempts=2)
        good, bad = [
            await broken(client.transaction(GROUP, on_error="check", check_after=1), sends)
            for _ in range(2)
        ]
        for tx in (good, bad):
            await until_true(partial(parked_at, client, tx.id), "it is set aside")
            assert (await client.admin.transaction(tx.id)).attempt == 2
        await until_true(lambda: alarms_are(client, good, bad), "an alarm for each")
    await asyncio.to_thread(own.restart, kill=True)
    async with checked(own.url, Decision.COMMIT, timeout=60) as client:
        # A checker that would decide is there again, and is not asked.
        await until_true(lambda: alarms_are(client, good, bad), "the alarms are there again")
        assert await parked_at(client, good.id)
        assert await parked_at(client, bad.id)
        assert not await client.pull("t", group="g", wait=0)
        for tx, verb in ((good, "commit"), (bad, "rollback")):
            ended = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "ternmq", "transaction", "resolve", tx.id, f"--{verb}",
                 "--yes", "--url", own.url],
                capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            assert ended.returncode == 0, ended.stderr
        await until_true(lambda: alarms_are(client), "the alarms are over")
        assert await taken(client, "t") == [b"1"]
        assert await client.transaction_outcome(good.id) is Decision.COMMIT
        assert await client.transaction_outcome(bad.id) is Decision.ROLLBACK


async def alarms_are(client: ternmq.Client, *about: ternmq.Transaction) -> bool:
    """Return whether these parked transactions, and nothing else, have an alarm."""
    open_ = {(one.name, one.subject) for one in await client.admin.alarms()}
    return open_ == {("transaction-parked", tx.id) for tx in about}


async def parked_at(client: ternmq.Client, id_: str) -> bool:
    return (await client.admin.transaction(id_)).state == "parked"


class Mover:
    """Moves messages from one topic to another in transactions; some are left to checkers.

    Args:
        seed: Of what fails, and what is left.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ends: dict[str, bool | None] = {}
        """Query id -> whether its work was complete; None: it runs."""
        self.over = asyncio.Event()

    def check(self, tx: ternmq.sync.PreparedTransaction) -> Decision:
        complete = self.ends[tx.query_id]
        if complete is None or self.chance.random() < 0.2:
            return Decision.UNKNOWN
        return Decision.COMMIT if complete else Decision.ROLLBACK

    async def work(self, client: ternmq.Client) -> None:
        while not self.over.is_set():
            with suppress(ternmq.TernMQError):
                await self.batch(client)

    async def batch(self, client: ternmq.Client) -> None:
        """Move a batch; an error that nobody handles leaves the rest of it to the end of its lease.

        A function of its own, since the client extends the lease of what a variable still holds.
        """
        for delivery in await client.pull("in", group="g", max_messages=5, wait=1):
            await self.move(client, delivery)

    async def move(self, client: ternmq.Client, delivery: ternmq.Delivery) -> None:
        query = str(len(self.ends))
        self.ends[query] = None
        complete = False
        try:
            async with client.transaction(
                GROUP,
                query_id=query,
                on_error="check" if self.chance.random() < 0.5 else "rollback",
                check_after=1,
            ) as tx:
                await tx.send("out", delivery.body)
                self.fail_sometimes()
                await tx.ack(delivery)
                complete = True
                self.fail_sometimes()
        except (ZeroDivisionError, ternmq.TernMQError):
            if not (delivery.settled or delivery.lost):
                await delivery.release()
        finally:
            self.ends[query] = complete

    def fail_sometimes(self) -> None:
        if self.chance.random() < 0.1:
            raise ZeroDivisionError


@pytest.mark.timeout(600)  # on a busy machine; on an idle one it takes ten seconds
@pytest.mark.row("J0a", "J0c", "J0f", "J0g")
async def test_messages_are_moved_exactly_once_while_the_broker_is_killed(
    own: BrokerProcess,
) -> None:
    count, mover = 200, Mover(7)
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(3):
            client = ternmq.connect(own.url, timeout=8)
            client.checker(GROUP)(mover.check)
            clients.append(await stack.enter_async_context(client))
        admin = clients[0].admin
        await admin.put_producer_group(GROUP, first=1, factor=1, cap=1, attempts=1000)
        await clients[0].send_many("in", [b"%d" % number for number in range(count)])
        await admin.create_group("in", "g", lease=3, retry=ternmq.RetryPolicy(first=0.1, cap=1))
        tasks = [asyncio.create_task(mover.work(client)) for client in clients for _ in range(2)]
        for _ in range(5):
            await asyncio.sleep(mover.chance.uniform(0.2, 1.0))  # in the middle of anything
            await asyncio.to_thread(own.restart, kill=True)

        async def all_done() -> bool:
            floor = (await admin.group("in", "g")).queues[0].floor
            return floor == count and not await admin.checked_transactions()

        try:
            await until_true(all_done, "all are moved", seconds=240)
        finally:
            mover.over.set()
            await asyncio.gather(*tasks)
        found = sorted([int(one.body) async for one in clients[0].read("out")])
        assert found == list(range(count))
