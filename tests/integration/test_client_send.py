"""What sending does, against a real broker."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass

import msgspec
import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.integration.client_shapes import API


@dataclass
class Order:
    number: int
    paid: bool = False


class Item(msgspec.Struct):
    name: str
    count: int = 1


async def bodies_of(client, topic):
    return [delivery.body async for delivery in client.read(topic)]


async def test_a_receipt_says_where_the_message_is(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        first = await client.send("orders", b"a")
        second = await client.send("orders", b"b", key="k", tag="t", headers={"h": "1"})
        assert (first.topic, first.queue, first.offset) == ("orders", 0, 0)
        assert (second.offset, second.durable, second.duplicate) == (1, True, False)
        found = await client.get("orders", second.id)
        assert (found.id, found.body, found.key, found.offset) == (second.id, b"b", "k", 1)
        assert found.row.tag == "t"
        assert found.row.headers == {"h": "1"}
        assert (found.tag, found.headers, found.content_type, found.ordering_key) == (
            "t", {"h": "1"}, found.row.content_type, "",
        )  # fmt: skip
        assert found.application_id == found.row.application_id


async def test_bodies_of_every_kind_come_back(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        sent = [
            b"raw",
            "text",
            {"a": [1]},
            Order(7),
            Item("nut"),
            [1, 2],
            3.5,
            bytearray(b"x"),
        ]
        for body in sent:
            await client.send("orders", body)
        got = [delivery async for delivery in client.read("orders")]
        assert [one.value for one in got] == [
            b"raw", "text", {"a": [1]}, {"number": 7, "paid": False}, {"name": "nut", "count": 1},
            [1, 2], 3.5, b"x",
        ]  # fmt: skip
        assert got[3].decode(Order) == Order(7)
        assert got[4].decode(Item) == Item("nut")


async def test_sends_of_one_turn_are_one_batch(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.admin.create_topic("orders")
        receipts = await asyncio.gather(*[client.send("orders", b"%d" % n) for n in range(100)])
        assert [one.offset for one in receipts] == list(range(100))
        batch = await client.pull("orders", group="g", max_messages=1000)
        assert len(batch) == 100
        assert len(batch._chunks) == 1


async def test_many_at_once(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        bodies = [b"%d" % n for n in range(20_000)]
        receipts = await client.send_many("orders", bodies)
        assert [one.offset for one in receipts] == list(range(20_000))
        assert len({one.id for one in receipts}) == 20_000
        assert await bodies_of(client, "orders") == bodies
        messages = [ternmq.Message({"n": n}, key=f"k{n}", tag="t") for n in range(100)]
        receipts = await client.send_many("orders", messages)
        assert receipts[-1].offset == 20_099
        (found,) = await client.find("orders", key="k7")
        assert found.value == {"n": 7}
        assert await client.send_many("orders", []) == []


async def test_what_cannot_be_stored_of_many_is_told(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send("orders", b"one", id="1")
        messages = [
            ternmq.Message(b"zero", id="0"),
            ternmq.Message(b"another", id="1"),
            ternmq.Message(b"two", id="2"),
        ]
        with pytest.raises(ternmq.PartialSendError) as raised:
            await client.send_many("orders", messages)
        (failure,) = raised.value.failures
        assert (failure.row, failure.message) == (1, messages[1])
        assert isinstance(failure.error, ternmq.IdConflict)
        assert [one and one.offset for one in raised.value.receipts] == [1, None, 2]
        told = await client.send_many("orders", messages, return_errors=True)
        assert [type(one) for one in told] == [ternmq.Receipt, ternmq.IdConflict, ternmq.Receipt]
        assert (told[0].duplicate, told[0].offset) == (True, 1)


async def test_a_body_none_is_null(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.send("orders", None)
        await client.send("orders", None, content_type="application/msgpack")
        await client.send_many("orders", [None, ternmq.Message(None, key="k")])
        got = await client.pull("orders", group="g")
        assert got.bodies == [b"null", b"\xc0", b"null", b"null"]
        assert got.values == [None] * 4


async def test_an_id_of_the_application_is_stored_once(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        first = await client.send("orders", b"a", id="order-7")
        again = await client.send("orders", b"a", id="order-7")
        assert (again.duplicate, again.offset, again.application_id) == (True, 0, "order-7")
        assert first.duplicate is False
        for receipt in (first, again):
            assert (await client.get("orders", receipt.id)).id == first.id
        assert (again.id, again.producer, again.sequence) == ("order-7", 0, 0)
        items = [ternmq.Message(b"a", id="order-7"), ternmq.Message(b"b", id="order-8")]
        told = await client.send_many("orders", [*items, items[1]])
        for receipt, offset in zip(told, [0, 1, 1], strict=True):
            assert (await client.get("orders", receipt.id)).offset == offset
        with pytest.raises(ternmq.IdConflict):
            await client.send("orders", b"other", id="order-7")
        assert (await client.get("orders", "order-7")).body == b"a"


async def test_the_receipt_of_a_duplicate_names_the_queue_of_the_first(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client, api.connect(real.url) as other:
        await client.admin.create_topic("orders", queues=4)

        async def check(told: ternmq.Receipt, first: ternmq.Receipt) -> None:
            place = (first.queue, first.offset)
            assert (told.duplicate, told.queue, told.offset) == (True, *place)
            found = await client.get("orders", queue=told.queue, offset=told.offset)
            assert found.application_id == first.application_id

        for number in range(6):  # the queues take turns, and each client has turns of its own
            first = await client.send("orders", b"a", id=f"a{number}")
            await check(await other.send("orders", b"a", id=f"a{number}"), first)
            await check(await client.send("orders", b"a", id=f"a{number}"), first)
        first = await client.send("orders", b"b", id="b", queue=3)
        await check(await client.send("orders", b"b", id="b", queue=1), first)
        soon = client.send_soon("orders", b"b", id="b", queue=0)
        await client.flush()
        await check(soon.result(), first)
        items = [ternmq.Message(b"b", id="b"), ternmq.Message(b"c", id="c")]
        told = await client.send_many("orders", [*items, items[1]])
        await check(told[0], first)
        await check(told[2], told[1])
        keyed = await client.send("orders", b"d", id="d", key="alice")
        await client.admin.change_topic("orders", queues=7)
        await check(await other.send("orders", b"d", id="d", key="alice"), keyed)


async def test_soon_and_flush(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        futures = [client.send_soon("orders", b"%d" % n) for n in range(1000)]
        await client.flush()
        receipts = await asyncio.gather(*futures)
        assert [one.offset for one in receipts] == list(range(1000))


async def test_leaving_sends_what_waits(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        for number in range(100):
            client.send_soon("orders", b"%d" % number)
    async with api.connect(real.url) as client:
        assert len(await bodies_of(client, "orders")) == 100


async def test_what_nobody_heard_of_is_logged_and_raised(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_without_topics(real) as url, caplog.at_level(logging.WARNING, "ternmq"):
        client = await ternmq.connect(url)
        client.send_soon("nowhere", b"secret", key="k1")
        with pytest.raises(ternmq.UnsentMessages) as raised:
            await client.flush()
        assert isinstance(raised.value.failures[0].error, ternmq.UnknownTopic)
        assert "topic=nowhere key=k1" in caplog.text
        assert "secret" not in caplog.text
        future = client.send_soon("nowhere", b"x")
        with pytest.raises(ternmq.UnknownTopic):
            await future
        await client.close()  # that one was heard


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "ternmq"]


async def test_what_is_raised_is_not_logged(
    api: API, real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ternmq")
    with broker_without_topics(real) as url:
        async with api.connect(url) as client:
            with pytest.raises(ternmq.UnknownTopic):
                await client.send("nowhere", b"x")
            with pytest.raises(ternmq.PartialSendError):
                await client.send_many("nowhere", [b"x", b"y"])
            future = asyncio.ensure_future(client.send_soon("nowhere", b"x"))
            with pytest.raises(ternmq.UnknownTopic):
                await future
            await client.admin.create_topic("orders")
            await client.send("orders", b"x", id="a")
            with pytest.raises(ternmq.IdConflict):
                await client.send("orders", b"y", id="a")
    assert logged(caplog) == []


def test_a_thread_that_does_not_look_is_told_at_the_end(
    real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_without_topics(real) as url:
        client = ternmq.sync.connect(url)
        client.send_soon("nowhere", b"secret", key="k1")
        with pytest.raises(ternmq.UnsentMessages) as raised:
            client.flush()
        assert isinstance(raised.value.failures[0].error, ternmq.UnknownTopic)
        assert "topic=nowhere key=k1 id=" in caplog.text
        assert "secret" not in caplog.text
        client.flush()  # that one is known

        seen = client.send_soon("nowhere", b"x")
        client.send_soon("no name", b"x", key="k2")  # refused before it is sent
        with pytest.raises(ternmq.UnknownTopic):
            seen.result(10)
        with pytest.raises(ternmq.UnsentMessages) as raised:
            client.close()
        (failure,) = raised.value.failures
        assert isinstance(failure.error, ternmq.InvalidName)
        assert "not sent: topic=no name key=k2: InvalidName" in caplog.text


def test_a_future_of_a_thread_that_is_cancelled(real: InProcessBroker) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.connect()
        told = client.send_soon("orders", b"x")
        told.cancel()
        client.flush()
        assert told.cancelled() or told.result().offset == 0


async def test_a_producer_hears_nothing_of_leases(
    api: API, real: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ternmq")
    before = {one for one in threading.enumerate() if one.name == "ternmq-keeper"}

    def keepers() -> list[threading.Thread]:
        return [
            one
            for one in threading.enumerate()
            if one.name == "ternmq-keeper" and one not in before and one.is_alive()
        ]

    async with api.connect(real.url) as client:
        await client.send("orders", b"x")
        # Its session is gone, as after a day without a network.
        number = real.port
        await asyncio.to_thread(real.stop)
        real._settings["listen"] = f"127.0.0.1:{number}"
        await asyncio.to_thread(real.start)
        await client.send("orders", b"y")
        assert not await client.pull("orders", group="g", wait=0, start="latest")
        assert keepers() == []
        said = " ".join(logged(caplog))
        assert "connected to" in said
        assert "lease" not in said.replace("released", "")
        assert "delivered again" not in said
        await client.send("orders", b"z")
        batch = await client.pull("orders", group="g", wait=5)
        assert len(keepers()) == 1
        await batch.ack()


def broker_without_topics(one: InProcessBroker):
    del one
    from contextlib import contextmanager

    from ternmq.testing import broker

    @contextmanager
    def made():
        with broker(manual=False, settings={"create_topics": False}) as other:
            yield other.url

    return made()


async def test_one_way(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("logs")
        for number in range(50):
            client.send_oneway("logs", b"%d" % number)
        batch, got = await client.pull("logs", group="g", wait=5), 0
        while batch:
            got += len(batch)
            await batch.ack()
            batch = [] if got == 50 else await client.pull("logs", group="g", wait=5)
        assert got == 50


async def test_what_is_wrong_is_said_before_anything_is_sent(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_topic("ordered", ordered=True)
        with pytest.raises(ternmq.InvalidName):
            await client.send("or/ders", b"")
        with pytest.raises(ternmq.EncodeError):
            await client.send("orders", object())
        with pytest.raises(ternmq.MessageTooLarge):
            await client.send("orders", bytes(2 << 20))
        with pytest.raises(ternmq.InvalidRequest, match="headers"):
            await client.send("orders", b"", headers={"a": 1})
        with pytest.raises(ternmq.InvalidRequest, match="key"):
            await client.send("orders", b"", key=7)
        with pytest.raises(ternmq.InvalidRequest, match="UTF-8"):
            await client.send("orders", b"", key="\ud800")
        with pytest.raises(ternmq.InvalidRequest, match="id"):
            await client.send("orders", b"", id="x" * 129)
        with pytest.raises(ternmq.OrderingKeyRequired):
            await client.send("ordered", b"")
        with pytest.raises(ternmq.PartialSendError) as told:
            await client.send_many("ordered", [b"", b""])
        assert [type(one.error) for one in told.value.failures] == [ternmq.OrderingKeyRequired] * 2
        assert await bodies_of(client, "orders") == []


async def test_order_of_keys_is_kept_over_queues(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("moves", queues=3, ordered=True)
        sends = [client.send_soon("moves", b"%d" % n, ordering_key=f"k{n % 7}") for n in range(210)]
        await client.flush()
        receipts = await asyncio.gather(*sends)
        await client.send_many(
            "moves", [ternmq.Message(b"%d" % n, ordering_key=f"k{n % 7}") for n in range(210, 420)]
        )
        assert {one.queue for one in receipts} == {0, 1, 2}
        by_key: dict[str, list[int]] = {}
        queues: dict[str, set[int]] = {}
        async for delivery in client.read("moves"):
            by_key.setdefault(delivery.ordering_key, []).append(int(delivery.body))
            queues.setdefault(delivery.ordering_key, set()).add(delivery.queue)
        assert by_key == {f"k{key}": list(range(key, 420, 7)) for key in range(7)}
        assert all(len(one) == 1 for one in queues.values())


async def test_nobody_there() -> None:
    with pytest.raises(ternmq.CannotConnect, match="dev"):
        await ternmq.connect("ternmq://127.0.0.1:1")
    client = ternmq.connect("ternmq://127.0.0.1:1", timeout=0.2)
    with pytest.raises(ternmq.CannotConnect):
        await client.send("orders", b"")
    await client.close()


async def test_a_closed_client_says_so(api: API, real: InProcessBroker) -> None:
    client = await api.connect(real.url)
    await client.close()
    await client.close()
    with pytest.raises(ternmq.ClientClosed):
        await client.send("orders", b"")


class Text(str):
    __slots__ = ()


async def test_no_bad_message_keeps_another_back(api: API, real: InProcessBroker) -> None:
    loop: list[object] = []
    loop.append(loop)
    bad: list[tuple[object, type[Exception]]] = [
        (object(), ternmq.EncodeError),
        (loop, ternmq.EncodeError),
        (float("nan"), ternmq.EncodeError),
        (bytes(2 << 20), ternmq.MessageTooLarge),
        (ternmq.Message(7, content_type="x/y"), ternmq.EncodeError),
        (ternmq.Message(b"", headers={"a": 1}), ternmq.InvalidRequest),  # type: ignore[dict-item]
        (ternmq.Message(b"", headers={Text("a"): "b"}), ternmq.InvalidRequest),
        (ternmq.Message(b"", headers=[1]), ternmq.InvalidRequest),  # type: ignore[arg-type]
        (ternmq.Message(b"", headers={f"h{n}": "v" * 60_000 for n in range(20)}),
         ternmq.InvalidRequest),
        (ternmq.Message(b"", key="\ud800"), ternmq.InvalidRequest),
        (ternmq.Message(b"", key=None), ternmq.InvalidRequest),  # type: ignore[arg-type]
        (ternmq.Message(b"", tag="t" * 5000), ternmq.InvalidRequest),
        (ternmq.Message(b"", tag="a|b"), ternmq.InvalidRequest),
        (ternmq.Message(b"", tag="a,b"), ternmq.InvalidRequest),
        (ternmq.Message(b"", tag="a b"), ternmq.InvalidRequest),
        (ternmq.Message(b"", tag="*"), ternmq.InvalidRequest),
        (ternmq.Message(b"", id="i" * 129), ternmq.InvalidRequest),
        (ternmq.Message(b"", queue=7), ternmq.UnknownQueue),
        (ternmq.Message(b"", queue="0"), ternmq.InvalidRequest),  # type: ignore[arg-type]
        (ternmq.Message(b"", queue=lambda message, queues: 1 // 0), ternmq.InvalidRequest),
        (ternmq.Message(b"", ordering_key="o"), ternmq.TopicNotOrdered),
        (ternmq.Message(b"other", id="taken"), ternmq.IdConflict),
        (ternmq.Message(b"a", id="taken", key="other"), ternmq.IdConflict),
    ]  # fmt: skip
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        await client.send("t", b"a", id="taken")
        items: list[object] = []
        for at, (one, _) in enumerate(bad):
            items += [b"%d" % at, one]
        told = await client.send_many("t", items, return_errors=True)
        assert all(isinstance(one, ternmq.Receipt) for one in told[::2])
        for (_, error), one in zip(bad, told[1::2], strict=True):
            assert type(one) is error, (error, one)
        assert await bodies_of(client, "t") == [b"a", *[b"%d" % at for at in range(len(bad))]]


async def test_an_id_twice_in_one_call(api: API, real: InProcessBroker) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        items = [ternmq.Message(b"%d" % (n % 3000), id=f"i{n % 3000}") for n in range(9000)]
        items.append(ternmq.Message(b"other", id="i7"))
        told = await client.send_many("t", items, return_errors=True)
        assert isinstance(told.pop(), ternmq.IdConflict)
        assert [one.offset for one in told] == [*range(3000)] * 3  # over several batches
        assert [one.duplicate for one in told] == [False] * 3000 + [True] * 6000
        soon = [
            client.send_soon("t", b"x", id="soon"),
            client.send_soon("t", b"x", id="soon"),
            client.send_soon("t", b"y", id="soon"),
            client.send_soon("t", b"z", id="another"),
        ]
        await asyncio.wait(soon)
        assert [soon[0].result().offset, soon[1].result().offset] == [3000, 3000]
        assert [soon[0].result().duplicate, soon[1].result().duplicate] == [False, True]
        assert isinstance(soon[2].exception(), ternmq.IdConflict)
        assert soon[3].result().offset == 3001


async def test_messages_with_large_headers_are_cut_into_batches(
    api: API, real: InProcessBroker
) -> None:
    async with api.connect(real.url) as client:
        await client.admin.create_topic("t")
        items = [ternmq.Message(b"", headers={"h": f"{n}" * 3000}) for n in range(1000, 3000)]
        assert len(await client.send_many("t", items)) == 2000
        soon = [client.send_soon("t", b"", headers={"h": f"{n}" * 3000}) for n in range(100, 500)]
        await client.flush()
        assert max(one.result().offset for one in soon) == 2399
