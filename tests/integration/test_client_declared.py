"""Topics that a client declared and then uses: the first send or join makes them as declared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.integration.client_shapes import API

ADMIN = "root-token-of-the-test"
ORDERS = ternmq.Topic("orders", ordered=True, queues=4, retention=3600)

Use = Callable[[Any, Any], Coroutine[Any, Any, object]]


async def send(client: Any, topic: Any) -> None:
    await client.send(topic, 7, ordering_key="a")


async def send_soon(client: Any, topic: Any) -> None:
    for n in range(9):
        client.send_soon(topic, n, ordering_key=str(n))
    await client.flush()


async def send_many(client: Any, topic: Any) -> None:
    await client.send_many(topic, [ternmq.Message(n, ordering_key=str(n)) for n in range(9)])


async def send_oneway(client: Any, topic: Any) -> None:
    client.send_oneway(topic, 7, ordering_key="a")
    await client.send(topic, 8, ordering_key="a")  # one connection: the other was before it


async def prepare(client: Any, topic: Any) -> None:
    messages = [ternmq.Message(n, ordering_key=str(n)) for n in range(9)]
    batches = await client.prepare(topic, messages, writer="w", batch_id=1)
    assert (await client.commit_prepared("w", 1, batches, digest=1)).rows == 9


async def pull(client: Any, topic: Any) -> None:
    assert not await client.pull(topic, group="g", wait=0)


async def consume(client: Any, topic: Any) -> None:
    async with client.consume(topic, group="g"):
        pass


USES = [send, send_soon, send_many, send_oneway, prepare, pull, consume]


async def spec_of(client: Any) -> tuple[int, bool, int]:
    spec = (await client.admin.topic("orders")).spec
    return spec.queues, spec.ordered, spec.retention_us // 1_000_000


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("given", ["name", "topic"])
async def test_the_first_use_makes_it_as_declared(
    api: API, real: InProcessBroker, use: Use, given: str
) -> None:
    async with api.connect(real.url) as client:
        if given == "name":
            client.declare(ORDERS)
        await use(client, ORDERS if given == "topic" else "orders")
        assert await spec_of(client) == (4, True, 3600)
        worker = ternmq.Client(ternmq.connect(real.url).options)
        worker.declare(ORDERS)
        assert await worker.apply() == []
        await worker.close()


async def test_the_guides_recipe_is_no_race(real: InProcessBroker) -> None:
    client = ternmq.connect(real.url)
    handled = []

    @client.handler(ORDERS, group="charging")
    async def charge(body: int) -> None:
        handled.append(body)
        client.stop()

    running = asyncio.create_task(client.run())
    await client.send("orders", 999, ordering_key="a")
    await running
    assert handled == [999]


async def test_one_that_is_there_costs_nothing_and_is_taken_as_it_is(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as first, api.connect(real.url) as second:
        await first.admin.create_topic("orders", ordered=True, queues=2)
        await first.send("orders", 1, ordering_key="a")
        second.declare(ORDERS)
        await second.send("orders", 1, ordering_key="a")
        assert (await spec_of(second))[0] == 2
        if not api.blocking:  # creating is the one request more of the first; looking, the second
            assert second.stats().requests == first.stats().requests


async def test_one_that_was_deleted_is_made_as_declared(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.send(ORDERS, 1, ordering_key="a")
        await client.admin.delete_topic(ORDERS)
        await client.send(ORDERS, 2, ordering_key="a")
        assert (await spec_of(client))[0] == 4


async def test_many_clients_make_it_at_the_same_time(real: InProcessBroker) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ternmq.connect(real.url)) for _ in range(8)]
        await asyncio.gather(*[one.send(ORDERS, 1, ordering_key="a") for one in clients])
        assert await spec_of(clients[0]) == (4, True, 3600)


async def test_a_broker_that_makes_none_on_the_way_makes_none(api: API) -> None:
    with broker(manual=False, settings={"create_topics": False}) as one:
        async with api.connect(one.url) as client:
            client.declare(ORDERS)
            for use in (send, send_many, pull):
                with pytest.raises(
                    (ternmq.UnknownTopic, ternmq.PartialSendError), match="no topic"
                ):
                    await use(client, "orders")
            assert await client.admin.topics() == []
            done = await client.apply()
            assert [str(change).partition(" with")[0] for change in done] == [
                "topic orders: created"
            ]
            await send(client, "orders")
            assert await client.apply() == []


async def test_an_app_that_may_not_manage_sends_as_before(
    api: API, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"auth": True, "admin_token": ADMIN, "create_topics": True}
    with broker(manual=False, settings=settings) as one:
        async with ternmq.connect(one.url, app="admin", token=ADMIN) as admin:
            token = await admin.admin.put_app("shop", ["produce:orders"])
            async with api.connect(one.url, app="shop", token=token) as client:
                client.declare(ORDERS)
                await client.send("orders", 1, ordering_key="a")
                await client.send_many("orders", [ternmq.Message(1, ordering_key="b")])
            assert await spec_of(admin) == (1, True, 7 * 86400)
    assert caplog.text.count("topic orders is not created as declared: app 'shop'") == 1


async def test_a_topic_goes_wherever_its_name_goes(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        admin, dead = client.admin, client.deadletters
        created = await admin.create_topic(ORDERS)
        assert (created.queues, created.ordered) == (4, True)
        with pytest.raises(ternmq.InvalidRequest, match="put all settings into the Topic"):
            await admin.create_topic(ternmq.Topic("other"), queues=3)
        receipt = await client.send(ORDERS, 7, ordering_key="a")
        at = {"queue": receipt.queue, "offset": receipt.offset}
        assert (await client.get(ORDERS, **at)).value == 7
        assert await client.find(ORDERS, key="none") == []
        assert [one.value async for one in client.read(ORDERS, queue=receipt.queue)] == [7]
        await admin.create_group(ORDERS, "g", start="earliest")
        assert (await admin.group(ORDERS, "g")).topic == "orders"
        assert [one.group for one in await admin.groups(ORDERS)] == ["g"]
        await admin.pause_group(ORDERS, "g")
        await admin.resume_group(ORDERS, "g")
        await admin.reset_group(ORDERS, "g", "earliest")
        await admin.skip(ORDERS, "g", queue=0, offset=0)
        (got,) = await client.pull(ORDERS, group="g", wait=5)
        assert got.topic == "orders"
        await got.ack()
        await client.replay(ORDERS, "g", offsets=[receipt.offset], queue=receipt.queue)
        async for batch in client.consume_batches(ORDERS, group="g", max_messages=1):
            for delivery in batch:
                await delivery.reject("no")
            break
        (letter,) = [one async for one in dead.browse(ORDERS, "g")]
        assert [one async for one in dead.waiting(ORDERS, "g")] == []
        assert (await dead.get(ORDERS, "g", letter.offset, queue=letter.queue)) is not None
        # It is dead, and waits for no retry.
        again = await dead.retry(ORDERS, "g", [letter.offset], queue=letter.queue)
        assert again == [letter.offset]
        assert await dead.redrive(ORDERS, "g", dry_run=True) != []
        assert await dead.delete(ORDERS, "g", [letter.offset], queue=letter.queue) == []
        await admin.delete_group(ORDERS, "g")
        assert (await admin.change_topic(ORDERS, retention=60)).name == "orders"
        assert [one.spec.name for one in await admin.topics([ORDERS])] == ["orders"]
        await admin.delete_topic(ORDERS)


async def test_a_topic_that_is_given_twice_is_one(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.send(ORDERS, 7, ordering_key="a")
        with pytest.raises(ternmq.InvalidRequest, match="declared twice, and differently"):
            await client.send(ternmq.Topic("orders", queues=2), 7)
