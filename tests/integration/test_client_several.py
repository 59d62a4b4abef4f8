"""A url of several brokers, of which one leads: the client finds it, and follows a change."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial

import pytest

import ternmq
import ternmq.sync
from ternmq.client.bulk import Bulk, BulkOptions
from ternmq.model.errors import (
    CannotConnect,
    NotPrimary,
    ReadOnly,
    ShuttingDown,
    TernMQError,
    Unauthenticated,
)
from ternmq.testing import InProcessBroker
from ternmq.wire.commands import Command
from tests.asynchronous import until, until_true
from tests.integration.client_shapes import API
from tests.integration.fronts import Front, black_hole, pair, refusing, wait_for
from tests.integration.test_client_checked import GROUP, unknowing


async def bodies_of(url: str, topic: str = "orders") -> list[bytes]:
    async with ternmq.connect(url) as client:
        return [one.body async for one in client.read(topic)]


async def settled(client: ternmq.Client, floor: int) -> bool:
    (queue,) = (await client.admin.group("orders", "g")).queues
    return (queue.floor, queue.leased) == (floor, 0)


# -- who is connected to ---------------------------------------------------------------------------


async def test_dead_addresses_and_replicas_before_the_primary(
    api: API, real: InProcessBroker
) -> None:
    with (
        black_hole() as hole,
        refusing() as closed,
        Front(real.port) as replica,
        Front(real.port, leads=True) as primary,
    ):
        began = time.monotonic()
        url = f"ternmq://{hole},{closed},{replica.place},{primary.place}"
        async with api.connect(url, timeout=30) as client:
            assert (await client.send("orders", b"a")).offset == 0
        assert time.monotonic() - began < 4, "the black hole was not waited for: 5 s"
        assert replica.seen == {Command.HELLO: 1}
        wait_for(lambda: not replica.connections)
        wait_for(lambda: not primary.connections)


async def test_the_slow_one_is_aborted_when_another_accepts(real: InProcessBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as slow, Front(real.port, leads=True) as primary:
        slow.settimeout(10)
        port = slow.getsockname()[1]
        async with ternmq.connect(f"ternmq://127.0.0.1:{port},{primary.place}") as client:
            await client.send("orders", b"a")
            line, _ = await asyncio.to_thread(slow.accept)
            with line:
                line.settimeout(10)

                def ended() -> bool:
                    try:
                        while line.recv(65536):
                            pass
                    except ConnectionResetError:
                        pass
                    return True

                assert await asyncio.to_thread(ended)


async def test_if_none_answers_the_error_names_each(api: API, real: InProcessBroker) -> None:
    with refusing() as one, refusing() as other:
        url = f"ternmq://{one},{other}"
        client = api.connect(url)
        with pytest.raises(CannotConnect) as caught:
            async with client:
                pass
        assert caught.value.args[0] == (
            f"no broker at any of these addresses: ternmq://{one}: connection refused; "
            f"ternmq://{other}: connection refused"
        )
    for made in (ternmq.connect(url), ternmq.sync.connect(url)):
        assert url in repr(made)
        assert url in repr(made.options)


async def test_a_wrong_token_is_final(real: InProcessBroker) -> None:
    with refusing() as closed, Front(real.port) as replica, Front(real.port) as primary:
        primary.refuse[Command.HELLO] = [Unauthenticated("wrong token")] * 9
        url = f"ternmq://{replica.place},{closed},{primary.place}"
        with pytest.raises(Unauthenticated, match="refuses this client") as caught:
            async with ternmq.connect(url, timeout=60):
                pass
        for told in (f"{primary.url}: wrong token", f"{replica.url}: this broker is a replica",
                     f"ternmq://{closed}: connection refused"):  # fmt: skip
            assert told in str(caught.value)
        assert not caught.value.retriable


async def test_while_none_leads_the_client_goes_on_trying(api: API, real: InProcessBroker) -> None:
    with refusing() as dead, Front(real.port) as replica:
        client = api.connect(f"ternmq://{dead},{replica.place}", timeout=0.3)
        with pytest.raises(CannotConnect, match="none of the brokers leads now: ") as caught:
            async with client:
                pass
        assert f"{replica.url}: this broker is a replica" in str(caught.value)
        await client.close()
        tried = replica.seen[Command.HELLO]
        assert tried > 1
        later = api.connect(f"ternmq://{dead},{replica.place}", timeout=30)
        opening = asyncio.ensure_future(later.__aenter__())
        await until(lambda: replica.seen[Command.HELLO] > tried + 1)
        replica.lead()
        await opening
        await later.send("orders", b"a")
        await later.close()


async def test_a_silent_address_does_not_hide_that_another_begins_to_lead(
    real: InProcessBroker,
) -> None:
    with black_hole() as hole, Front(real.port) as replica:
        client = ternmq.connect(f"ternmq://{hole},{replica.place}", timeout=30)
        began = time.monotonic()
        opening = asyncio.ensure_future(client.connect())
        await until(lambda: replica.seen[Command.HELLO] > 1)
        replica.lead()
        await opening
        assert time.monotonic() - began < 4, "the black hole was not waited for: 5 s"
        await client.close()


# -- the primary changes ---------------------------------------------------------------------------


async def test_sends_go_on_and_nothing_is_lost_or_doubled(real: InProcessBroker) -> None:
    with pair(real) as brokers:
        async with ternmq.connect(brokers.url, timeout=30) as client:
            await client.admin.create_topic("orders")
            sent = 0

            async def send(worker: int) -> None:
                nonlocal sent
                for number in range(60):
                    await client.send("orders", b"%d-%d" % (worker, number))
                    sent += 1

            tasks = [asyncio.ensure_future(send(worker)) for worker in range(8)]
            for goal in (60, 160, 260, 360):
                await until(partial(lambda least: sent >= least, goal), seconds=20)
                brokers.switch()
                await client.admin.topics()  # is refused; the sends under way are not answered
            await asyncio.gather(*tasks)
            assert client.stats().failed == 0
            assert client.stats().reconnects >= 4
        bodies = await bodies_of(real.url)
        assert len(bodies) == 480
        for worker in range(8):
            mine = [one for one in bodies if one.startswith(b"%d-" % worker)]
            assert mine == [b"%d-%d" % (worker, number) for number in range(60)]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broker_that_opens_the_journal_of_one_that_ended(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What a promotion looks like: another epoch, the same sessions and leases."""
    caplog.set_level(logging.INFO, "ternmq")
    with InProcessBroker(clock=None) as first:
        with InProcessBroker(clock=None) as place:
            port = place.port  # a free one
        second = InProcessBroker(
            clock=None, disk=first.disk, settings={"listen": f"127.0.0.1:{port}"}
        )
        url = f"ternmq://127.0.0.1:{first.port},127.0.0.1:{port}"
        async with ternmq.connect(url, timeout=30) as client:
            await client.admin.create_topic("orders")
            await client.send_many("orders", [b"%d" % number for number in range(10)])
            batch = await client.pull("orders", group="g", max_messages=4)
            session = client._session.number
            sends = [
                asyncio.ensure_future(client.send("orders", b"more %d" % n)) for n in range(50)
            ]
            await until(lambda: any(one.done() for one in sends))
            await asyncio.to_thread(first.stop, clean=clean)
            await asyncio.to_thread(second.start)
            try:
                await asyncio.gather(*sends)
                await batch.ack()
                assert client._session.number == session
                assert await settled(client, 4)
                assert sorted([one.body async for one in client.read("orders")]) == sorted(
                    [b"%d" % n for n in range(10)] + [b"more %d" % n for n in range(50)]
                )
                lines = [one.getMessage() for one in caplog.records]
                assert any(
                    one.startswith(f"connected to {second.url} after ")
                    and one.endswith(f"; the primary was {first.url}")
                    for one in lines
                ), lines
            finally:
                await client.close()
                second.stop()


async def test_leases_and_settles_go_on(real: InProcessBroker) -> None:
    with pair(real) as brokers:
        async with ternmq.connect(brokers.url, timeout=30) as client:
            await client.admin.create_topic("orders")
            await client.send_many("orders", [b"%d" % number for number in range(10)])
            batch = await client.pull("orders", group="g", max_messages=10)
            session = client._session.number
            brokers.switch()
            for delivery in batch:
                await delivery.ack()
            assert client._session.number == session
            assert brokers.leader.passed[Command.SETTLE] == 10
            assert await settled(client, 10)


async def test_consumers_of_an_ordered_group_go_on(real: InProcessBroker) -> None:
    came: dict[str, list[int]] = {"a": [], "b": []}
    with pair(real) as brokers:
        client = ternmq.connect(brokers.url, timeout=30)

        @client.handler("orders", group="g", concurrency=4)
        async def handle(body: bytes, delivery: ternmq.Delivery) -> None:
            key = delivery.ordering_key
            assert key is not None
            came[key].append(int(body))

        async with ternmq.connect(real.url) as admin:
            await admin.admin.create_topic("orders", ordered=True)
            running = asyncio.ensure_future(client.run())
            for number in range(60):
                for key in came:
                    await admin.send("orders", b"%d" % number, ordering_key=key)
                if number % 20 == 10:
                    await until(lambda: len(came["a"]) > 5)
                    brokers.switch()
            await until(lambda: min(map(len, came.values())) == 60, seconds=20)
            await until_true(lambda: settled(admin, 120))
        client.stop()
        await running
    assert came == {"a": list(range(60)), "b": list(range(60))}


async def test_a_parked_pull_moves(api: API, real: InProcessBroker) -> None:
    with pair(real) as brokers:
        async with api.connect(brokers.url, timeout=30) as client:
            await client.admin.create_topic("orders")
            pulling = asyncio.ensure_future(client.pull("orders", group="g", wait=30))
            first, second = brokers.fronts
            await until(lambda: first.passed[Command.PULL])
            brokers.switch()
            await until(lambda: second.passed[Command.PULL])
            async with ternmq.connect(real.url) as other:
                await other.send("orders", b"a")
            (delivery,) = await pulling
            await delivery.ack()


async def test_members_stay_members(real: InProcessBroker) -> None:
    with pair(real) as brokers:
        assigned: list[tuple[int, ...]] = []
        client = ternmq.connect(brokers.url, timeout=30)
        client.on_assigned(lambda one: assigned.append(one.queues))
        async with client:
            await client.admin.create_topic("orders", queues=2)
            await client.pull("orders", group="g", mode="owned", wait=0)
            assert assigned
            count = len(assigned)
            brokers.switch()
            refused = brokers.leader.refuse[Command.GROUP_JOIN] = [NotPrimary("a third one leads")]
            await client.admin.topics()
            # Nothing is pulled: the client joins by itself, again after the refusal.
            await until(lambda: not refused and len(assigned) > count)


async def test_a_transaction_goes_on(api: API, real: InProcessBroker) -> None:
    with pair(real) as brokers:
        client = api.connect(brokers.url, timeout=30)
        unknowing(client)
        async with client:
            await client.admin.create_topic("orders")
            await client.send("orders", b"in")
            (delivery,) = await client.pull("orders", group="g")
            async with client.transaction(GROUP) as tx:
                await tx.send("out", b"1")
                brokers.switch()
                await tx.send("out", b"2")
                brokers.switch()
                await tx.ack(delivery)
                brokers.switch()
        assert await bodies_of(real.url, "out") == [b"1", b"2"]
        async with ternmq.connect(real.url) as admin:
            assert await settled(admin, 1)


async def test_control_requests_go_on(api: API, real: InProcessBroker) -> None:
    with pair(real) as brokers:
        async with api.connect(brokers.url, timeout=30) as client:
            for number in range(6):
                await client.admin.create_topic(f"t{number}")
                brokers.switch()
            assert [one.spec.name for one in await client.admin.topics()] == [
                f"t{number}" for number in range(6)
            ]


async def test_the_keeper_follows_while_the_loop_is_blocked(real: InProcessBroker) -> None:
    """Its thread is there for this: only the connection in the loop has not moved."""
    with pair(real, dead=False) as brokers:
        async with ternmq.connect(brokers.url, timeout=30) as client:
            await client.admin.create_topic("orders")
            await client.admin.create_group("orders", "g", lease=3.0)
            await client.send("orders", b"a")
            batch = await client.pull("orders", group="g")
            first, second = brokers.fronts
            (lease,) = client._settler.held()
            until_then = lease.until
            wait_for(lambda: lease.until > until_then)
            assert first.passed[Command.EXTEND]
            until_then = lease.until
            brokers.switch()
            wait_for(lambda: lease.until > until_then)
            assert second.passed[Command.EXTEND]
            await batch.ack()
            assert await settled(client, 1)


async def test_the_keeper_goes_where_the_session_is(real: InProcessBroker) -> None:
    """Its own broker may still answer, and be another one by now."""
    with pair(real, dead=False) as brokers:
        async with ternmq.connect(brokers.url, timeout=30) as client:
            await client.admin.create_topic("orders")
            await client.admin.create_group("orders", "g", lease=1.0)
            await client.send("orders", b"a")
            batch = await client.pull("orders", group="g")
            first, second = brokers.fronts
            await until(lambda: first.passed[Command.EXTEND])
            first.refuse[Command.TOPIC_LIST] = [NotPrimary("only this once")]
            first.refuse[Command.HELLO] = [NotPrimary("and this once")]
            second.lead()
            await client.admin.topics()
            assert str(client._session.address) == second.url
            await until(lambda: second.passed[Command.EXTEND])
            await batch.ack()


def test_the_bulk_client_goes_on(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        for number in range(6):
            client.send_many("orders", [b"%d" % number] * 100)
    with pair(real) as brokers, Bulk(BulkOptions(url=brokers.url, read_bytes=4096)) as bulk:
        found = 0
        for page in bulk.fetch("orders", 0, 0, 600):
            assert page.start == found
            found = page.stop
            brokers.switch()
        assert found == 600
        assert [one.spec.name for one in bulk.topics()] == ["orders"]


def test_the_bulk_client_says_that_none_leads(real: InProcessBroker) -> None:
    with Front(real.port) as one, Front(real.port) as other:
        options = BulkOptions(
            url=f"ternmq://{one.place},{other.place}", tries=2, first_backoff=0.01
        )
        with (
            Bulk(options) as bulk,
            pytest.raises(NotPrimary, match="none of the brokers leads now"),
        ):
            bulk.topics()
        assert (one.seen[Command.HELLO], other.seen[Command.HELLO]) == (3, 3)


async def test_one_address_that_leads_again(api: API, real: InProcessBroker) -> None:
    with Front(real.port, leads=True) as front:
        async with api.connect(front.url, timeout=30) as client:
            await client.send("orders", b"a")
            front.step_down()
            sending = asyncio.ensure_future(client.send("orders", b"b"))
            await until(lambda: front.seen[Command.HELLO] > 2)
            front.lead()
            await sending
        assert await bodies_of(real.url) == [b"a", b"b"]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ReadOnly, ShuttingDown])
async def test_a_refused_send_is_repeated_over_the_same_connection(
    real: InProcessBroker, kind: type[TernMQError]
) -> None:
    with Front(real.port, leads=True) as front, refusing() as dead:
        async with ternmq.connect(f"ternmq://{front.place},{dead}", timeout=30) as client:
            front.refuse[Command.SEND] = [kind("not now")] * 3
            await client.send("orders", b"a")
            assert front.seen[Command.SEND] == 4
            assert front.seen[Command.HELLO] == 1
            front.refuse[Command.SEND] = [kind("not now")] * 1000
            with pytest.raises(kind, match="not now"):
                await client.send("orders", b"b", timeout=0.3)
            assert front.seen[Command.HELLO] == 1
        assert await bodies_of(real.url) == [b"a"]


async def test_a_broker_that_greets_and_refuses_is_not_asked_all_the_time(
    real: InProcessBroker,
) -> None:
    with Front(real.port) as front:
        front.greets = True
        async with ternmq.connect(real.url) as client:
            await client.admin.create_topic("orders")
        front.lead()
        async with ternmq.connect(front.url) as client:
            async with client.consume("orders", group="g") as consumer:
                coming = asyncio.ensure_future(anext(consumer))
                await until(lambda: front.passed[Command.PULL])
                front.step_down()
                await asyncio.wait({coming}, timeout=1.5)
                assert 1 < front.seen[Command.HELLO] < 30, "hundreds without a pause"
                coming.cancel()
            front.lead()  # to leave
