"""Connections that are lost, brokers that restart, clients that fork."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import time
from dataclasses import replace
from functools import partial

import pytest

import ternmq
import ternmq.sync
import ternmq.testing
from ternmq.model.errors import SettingsError
from ternmq.testing import InProcessBroker
from tests.asynchronous import until
from tests.integration.proxy import Proxy


async def bodies_of(url, topic="orders"):
    async with ternmq.connect(url) as client:
        return [one.body async for one in client.read(topic)]


async def floor_at(client: ternmq.Client, floor: int) -> None:
    """Wait until everything below an offset is settled, and nothing is leased."""
    for _ in range(2000):
        stand = (await client.admin.group("orders", "g")).queues[0]
        if (stand.floor, stand.leased) == (floor, 0):
            return
    pytest.fail(f"not settled up to {floor}")


async def test_sends_go_on_over_cut_connections_and_nothing_is_stored_twice(
    real: InProcessBroker,
) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        sent = 0

        async def send(worker: int) -> None:
            nonlocal sent
            for number in range(100):
                await client.send("orders", b"%d-%d" % (worker, number))
                sent += 1

        tasks = [asyncio.ensure_future(send(worker)) for worker in range(8)]
        for goal in (100, 250, 400, 550, 700):
            await until(partial(lambda least: sent >= least, goal))
            proxy.cut()
        await asyncio.gather(*tasks)
        bodies = await bodies_of(real.url)
        assert sorted(bodies) == sorted(b"%d-%d" % (w, n) for w in range(8) for n in range(100))
        for worker in range(8):
            mine = [one for one in bodies if one.startswith(b"%d-" % worker)]
            assert mine == [b"%d-%d" % (worker, n) for n in range(100)]
        assert proxy.made > 3


async def test_an_answer_that_was_lost_is_told_as_duplicate(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        await client.send("orders", b"first")
        proxy.mute = True
        pending = asyncio.ensure_future(client.send("orders", b"second"))
        async with ternmq.connect(real.url) as direct:
            for _ in range(2000):
                if (await direct.admin.topic("orders")).queues[0].next == 2:
                    break
        proxy.mute = False
        proxy.cut()
        receipt = await pending
        assert (receipt.offset, receipt.duplicate) == (1, True)
        assert await bodies_of(real.url) == [b"first", b"second"]


async def test_without_an_answer_the_outcome_is_unknown(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        client = await ternmq.connect(proxy.url, timeout=0.5)
        await client.admin.create_topic("orders")
        await client.send("orders", b"first")
        proxy.mute = True
        with pytest.raises(ternmq.SendTimeout):
            await client.send("orders", b"second")
        with pytest.raises(ternmq.SendTimeout):
            await client.send("orders", b"third", timeout=0.05)
        await client.close(timeout=0.1)


@pytest.mark.parametrize("how", ["connect", "run"])
async def test_whoever_waits_for_a_connection_learns_of_the_end(
    real: InProcessBroker, how: str
) -> None:
    """It is an error of ours: nobody has cancelled the task that waits."""
    async with Proxy(real.port) as proxy:
        proxy.mute = True
        client = ternmq.connect(proxy.url)

        @client.handler("orders", group="g")
        async def handle(body: bytes) -> None: ...

        waiting = asyncio.ensure_future(client.connect() if how == "connect" else client.run())
        await until(lambda: proxy.made == 1)
        await client.close()
        with pytest.raises(ternmq.ClientClosed):
            await waiting


async def test_who_cancels_a_connection_that_is_made_is_told_so(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy:
        proxy.mute = True
        client = ternmq.connect(proxy.url)
        waiting = asyncio.ensure_future(client.connect())
        await until(lambda: proxy.made == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        proxy.mute = False
        await client.connect()
        await client.close()


async def test_a_session_is_resumed_with_its_leases(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b"%d" % n for n in range(10)])
        batch = await client.pull("orders", group="g", max_messages=5)
        session = client._session.number
        proxy.cut()
        await batch.ack()
        assert client._session.number == session
        stand = (await client.admin.group("orders", "g")).queues[0]
        assert (stand.floor, stand.leased) == (5, 0)


async def test_rows_of_a_lost_pull_answer_come_again_uncounted(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        await client.pull("orders", group="g", wait=0)
        await client.send("orders", b"a")
        proxy.mute = True
        pulled = asyncio.ensure_future(client.pull("orders", group="g", wait=30))
        async with ternmq.connect(real.url) as direct:
            for _ in range(2000):
                if (await direct.admin.group("orders", "g")).queues[0].leased:
                    break
        proxy.mute = False
        proxy.cut()
        (again,) = await pulled
        assert (again.body, again.attempt) == (b"a", 1)


async def test_consumers_go_on_over_cut_connections(real: InProcessBroker) -> None:
    async with Proxy(real.port) as proxy, ternmq.connect(proxy.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b"%d" % n for n in range(500)])
        got: list[int] = []
        async with client.consume("orders", group="g", max_in_flight=20) as deliveries:
            async for delivery in deliveries:
                async with delivery.process():
                    got.append(int(delivery.body))
                    if len(got) % 90 == 0:
                        proxy.cut()
                    await asyncio.sleep(0)
                if len(set(got)) == 500:
                    break
        assert set(got) == set(range(500))
        await floor_at(client, 500)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_broker_that_is_stopped_and_started(clean: bool) -> None:
    """It is where it was, its HTTP port as well; so clients come back."""
    with ternmq.testing.broker(settings={"http": "127.0.0.1:0"}) as broker:
        places = broker.url, broker.http_port
        async with ternmq.connect(broker.url) as client:
            await client.send("orders", b"1")
            await asyncio.to_thread(broker.stop, clean=clean)
            await asyncio.to_thread(broker.start)
            assert (broker.url, broker.http_port) == places
            assert (await client.send("orders", b"2")).offset == 1


def test_a_setting_of_the_testing_kit_that_is_none() -> None:
    with (
        pytest.raises(SettingsError, match=r"'create_topic' in broker\(settings="),
        ternmq.testing.broker(settings={"create_topic": False}),
    ):
        raise AssertionError


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restarted_broker(real: InProcessBroker, clean: bool) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send_many("orders", [b"%d" % n for n in range(20)])
        batch = await client.pull("orders", group="g", max_messages=5)
        consumed: list[int] = []

        async def consume() -> None:
            async with client.consume("orders", group="g") as deliveries:
                async for delivery in deliveries:
                    async with delivery.process():
                        consumed.append(int(delivery.body))

        consuming = asyncio.ensure_future(consume())
        await until(lambda: len(consumed) == 15)
        restarting = asyncio.ensure_future(asyncio.to_thread(real.restart, clean=clean))
        if clean:  # it waits for what is held
            await batch.ack()
        await restarting
        receipt = await client.send("orders", b"20")
        assert receipt.offset == 20
        if not clean:
            await batch.ack()
        await until(lambda: 20 in consumed)
        await floor_at(client, 21)
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


async def test_a_session_that_ended_takes_its_leases_along(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    del real
    from ternmq.testing import broker

    with broker(manual=False, settings={"limits.session_grace": "50ms"}) as short:
        async with Proxy(short.port) as proxy, ternmq.connect(proxy.url) as client:
            await client.admin.create_topic("orders")
            await client.send("orders", b"a")
            (delivery,) = await client.pull("orders", group="g")
            proxy.refuse(on=True)
            proxy.cut()
            async with ternmq.connect(short.url) as other:
                (again,) = await other.pull("orders", group="g", wait=10)
                assert again.attempt == 2
                proxy.refuse(on=False)
                with caplog.at_level(logging.WARNING, "ternmq"):
                    await until(lambda: delivery.lost)
                with pytest.raises(ternmq.LeaseExpired):
                    await delivery.ack()
                await again.ack()


async def test_leases_are_kept_while_the_loop_is_blocked(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        from datetime import timedelta

        await client.admin.change_group("orders", "g", lease=timedelta(seconds=1.5))
        await client.send("orders", b"a")
        (delivery,) = await client.pull("orders", group="g")
        time.sleep(3.5)  # noqa: ASYNC251 - a handler that does not await
        await delivery.ack()


async def test_leases_end_after_the_longest_processing_time(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    from datetime import timedelta

    async with ternmq.connect(real.url, max_processing_time=0.3) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_group("orders", "g")
        await client.admin.change_group("orders", "g", lease=timedelta(seconds=0.2))
        await client.send("orders", b"a")
        (delivery,) = await client.pull("orders", group="g")
        # The second time it lasts.
        await client.admin.change_group("orders", "g", lease=timedelta(seconds=30))
        (again,) = await client.pull("orders", group="g", wait=30)
        assert again.attempt == 2
        with pytest.raises(ternmq.LeaseExpired):
            await delivery.ack()
        await again.ack()


# --------------------------------------------------------------------------------------------- fork


def _send_blocking(client, count: int) -> None:
    for number in range(count):
        client.send("orders", b"child-%d" % number)
    client.close()


def test_a_blocking_client_goes_on_in_a_forked_child(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.admin.create_topic("orders")
        client.send("orders", b"before")
        child = multiprocessing.get_context("fork").Process(
            target=_send_blocking, args=(client, 100)
        )
        child.start()
        for number in range(100):
            client.send("orders", b"parent-%d" % number)
        child.join(30)
        assert child.exitcode == 0
        bodies = [one.body for one in client.read("orders")]
    assert len(bodies) == len(set(bodies)) == 201


async def test_a_used_client_says_so_in_a_forked_child(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        unused = ternmq.connect(real.url)
        before = unused._producer.id
        pid = os.fork()
        if not pid:
            status = 1
            try:
                client.send_soon("orders", b"x")
            except ternmq.ClientForked:
                status = 0 if unused._producer.id != before else 2
            finally:
                os._exit(status)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await client.send("orders", b"still here")


async def test_options_can_be_given_whole(real: InProcessBroker) -> None:
    options = replace(ternmq.connect(real.url).options, buffer_bytes=1000)
    async with ternmq.connect(options=options) as client:
        for _ in range(7):
            client.send_soon("orders", bytes(100))
        with pytest.raises(ternmq.BufferFull):
            client.send_soon("orders", bytes(100))
        await client.flush()
        for _ in range(7):
            client.send_oneway("orders", bytes(100))
        with pytest.raises(ternmq.BufferFull):
            client.send_oneway("orders", bytes(100))
        receipts = await asyncio.gather(*[client.send("orders", bytes(100)) for _ in range(50)])
        assert len(receipts) == 50
