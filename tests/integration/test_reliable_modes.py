"""Batch sessions and throttles of both clients, against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.client.content.items import ITEMS, Row, pack, pack_item
from ternmq.reliable import Items, Throttle, batch
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Order:
    id: int


def fill(url: str, count: int, *, blocking: bool, **named: Any) -> list[ternmq.Receipt]:
    """Add so many orders; return the receipts. Blocks the caller."""

    async def work() -> list[ternmq.Receipt]:
        async with ternmq.connect(url) as client:
            async with batch(client, "orders", **named) as holder:
                for number in range(count):
                    await holder.add(Order(number), key=f"k{number}")
            return holder.receipts

    if not blocking:
        return asyncio.run(work())
    with ternmq.sync.connect(url) as client:
        with batch(client, "orders", **named) as holder:
            for number in range(count):
                holder.add(Order(number), key=f"k{number}")
        return holder.receipts


kinds = pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])


def handled(url: str, declare: Callable[[Any, Any], Any], count: int, *, blocking: bool) -> None:
    """Run a client whose handler ``declare`` makes, until ``count`` calls were noted."""

    async def run() -> None:
        client: Any = ternmq.sync.connect(url) if blocking else ternmq.connect(url)
        calls: list[object] = []
        declare(client, calls)
        work = asyncio.to_thread(client.run) if blocking else client.run()
        running = asyncio.ensure_future(work)
        try:
            await until(lambda: len(calls) >= count or running.done(), f"{count} calls")
        finally:
            client.stop()
            await running

    asyncio.run(run())


@kinds
def test_a_handler_gets_each_session_as_a_list(real: InProcessBroker, blocking: bool) -> None:
    receipts = fill(real.url, 45, blocking=blocking)
    assert [one.offset for one in receipts] == [0, 1, 2]
    lists: list[list[Order]] = []
    items: list[Items[Order]] = []

    def declare(client: Any, calls: list[object]) -> None:
        def load(orders: list[Order]) -> None:
            lists.append(orders)
            calls.append(orders)

        async def load_async(orders: list[Order]) -> None:
            load(orders)

        def look(orders: Items[Order], delivery: ternmq.sync.Delivery) -> None:
            assert delivery.application_id == orders.session
            items.append(orders)
            calls.append(orders)

        async def look_async(orders: Items[Order], delivery: ternmq.Delivery) -> None:
            assert delivery.application_id == orders.session
            items.append(orders)
            calls.append(orders)

        client.handler("orders", group="lists")(load if blocking else load_async)
        client.handler("orders", group="items")(look if blocking else look_async)

    handled(real.url, declare, 6, blocking=blocking)
    wanted = [[Order(n) for n in range(*span)] for span in ((0, 20), (20, 40), (40, 45))]
    assert sorted(lists, key=lambda one: one[0].id) == wanted
    items.sort(key=lambda one: one[0].id)
    assert [list(one) for one in items] == wanted
    assert [one.size for one in items] == [20, 20, 5]
    assert items[2].keys == [f"k{n}" for n in range(40, 45)]
    assert [one.session for one in items] == [one.application_id for one in receipts]


@kinds
def test_what_is_not_a_complete_session_is_rejected_and_the_next_is_handled(
    real: InProcessBroker, blocking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    item = pack_item(Row("", "", "application/json", {}, b'{"id":1}'))
    whole = pack("s", [item, item])
    bad = [
        whole[:-1],
        whole + b"\xc0",
        whole.replace(b"\xa1s\x02", b"\xa1s\x03"),
        whole.replace(b"\xa1s\x02", b"\xa1s\x01"),
        pack("s", [item, pack_item(Row("", "", "application/json", {}, b'{"id":"x"}'))]),
        b"",
    ]
    assert len({*bad, whole}) == len(bad) + 1
    got: list[Any] = []
    with ternmq.sync.connect(real.url) as client:
        for body in (*bad, whole):
            client.send("orders", body, content_type=ITEMS)

    def declare(client: Any, calls: list[object]) -> None:
        async def load_async(orders: list[Order]) -> None:
            got.append(orders)
            calls.append(orders)

        def load(orders: list[Order]) -> None:
            got.append(orders)
            calls.append(orders)

        client.handler("orders", group="g")(load if blocking else load_async)

    handled(real.url, declare, 1, blocking=blocking)
    assert got == [[Order(1), Order(1)]]
    with ternmq.sync.connect(real.url) as client:
        dead = list(client.deadletters.browse("orders", "g"))
    assert [one.offset for one in dead] == list(range(len(bad)))
    assert [one.reason.partition(":")[0] for one in dead] == ["decode"] * len(bad)


@kinds
def test_a_pulled_session_is_decoded_by_a_type(real: InProcessBroker, blocking: bool) -> None:
    fill(real.url, 3, blocking=blocking, id="import-7")
    with ternmq.sync.connect(real.url) as client:
        (delivery,) = client.pull("orders", group="g", wait=5)
        assert delivery.decode(list[Order]) == [Order(0), Order(1), Order(2)]
        assert delivery.decode(Items[Order]).session == "import-7.0"
        assert delivery.value == [{"id": 0}, {"id": 1}, {"id": 2}]
        with pytest.raises(ternmq.DecodeError, match=r"message 0/0 of orders: .* list\[Order\]"):
            delivery.decode(Order)
        delivery.ack()
        found = client.get("orders", "import-7.0")
        assert found.decode(list[Order]) == [Order(0), Order(1), Order(2)]


@kinds
def test_a_repeated_block_with_an_id_is_stored_once(real: InProcessBroker, blocking: bool) -> None:
    first = fill(real.url, 45, blocking=blocking, id="import-7")
    again = fill(real.url, 45, blocking=blocking, id="import-7")
    assert [one.duplicate for one in first + again] == [False] * 3 + [True] * 3
    assert [one.offset for one in again] == [one.offset for one in first] == [0, 1, 2]
    with pytest.raises(ternmq.IdConflict):
        fill(real.url, 44, blocking=blocking, id="import-7")
    fill(real.url, 45, blocking=blocking)
    with ternmq.sync.connect(real.url) as client:
        assert len(list(client.read("orders"))) == 6


@kinds
def test_an_item_that_the_broker_s_limit_leaves_no_room_for(blocking: bool) -> None:
    async def work(url: str) -> list[ternmq.Receipt]:
        async with ternmq.connect(url) as client, batch(client, "t") as holder:
            await holder.add(bytes(40_000))
            with pytest.raises(ternmq.MessageTooLarge, match="accepts 65536"):
                await holder.add(bytes(40_000))
            await holder.add(bytes(20_000))
            await holder.flush()
            await holder.add(bytes(40_000))
        return holder.receipts

    with broker(settings={"body": "64KiB"}) as one:
        if blocking:
            with ternmq.sync.connect(one.url) as client, batch(client, "t") as holder:
                holder.add(bytes(40_000))
                with pytest.raises(ternmq.MessageTooLarge, match="accepts 65536"):
                    holder.add(bytes(40_000))
                holder.add(bytes(20_000))
                holder.flush()
                holder.add(bytes(40_000))
            receipts = holder.receipts
        else:
            receipts = asyncio.run(work(one.url))
        with ternmq.sync.connect(one.url) as client:
            sizes = [
                [len(item) for item in found.decode(list[bytes])] for found in client.read("t")
            ]
        assert sizes == [[40_000, 20_000], [40_000]]
        assert len(receipts) == 2


def test_a_session_is_sent_as_its_block_says(timed: InProcessBroker) -> None:
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("orders", levels=3)
        with batch(
            client, "orders", key="k", tag="new", headers={"region": "eu"}, priority=2,
            deliver_after=60,
        ) as holder:  # fmt: skip
            holder.add(Order(1), tag="item", headers={"a": "b"})
        (receipt,) = holder.receipts
        assert receipt.due_at == START + timedelta(seconds=60)
        timed.clock.advance(seconds=61)
        (delivery,) = client.pull("orders", group="g", wait=0, tags="new")
        assert (delivery.key, delivery.tag, delivery.headers, delivery.priority) == (
            "k", "new", {"region": "eu"}, 2,
        )  # fmt: skip
        (entry,) = delivery.decode(Items[Order]).entries
        assert (entry.tag, entry.headers) == ("item", {"a": "b"})
        delivery.ack()


@kinds
def test_a_throttle_gives_each_message_a_slot_by_the_broker_s_clock(
    timed: InProcessBroker, blocking: bool
) -> None:
    async def work() -> list[ternmq.Receipt]:
        async with ternmq.connect(timed.url) as client:
            throttle = Throttle(client, rate=100)
            sends = [throttle.send("sms", b"%d" % number) for number in range(1000)]
            return list(await asyncio.gather(*sends))

    if blocking:
        with ternmq.sync.connect(timed.url) as client:
            throttle = Throttle(client, rate=100)
            receipts = [throttle.send("sms", b"%d" % number) for number in range(1000)]
    else:
        receipts = asyncio.run(work())
    slots = [START + timedelta(milliseconds=10) * number for number in range(1000)]
    assert [one.due_at for one in receipts] == [None, *slots[1:]]
    with ternmq.sync.connect(timed.url) as client:
        timed.clock.advance(seconds=5)
        assert len(client.pull("sms", group="g", max_messages=1000, wait=0)) == 501
        timed.clock.advance(seconds=5)
        assert len(list(client.read("sms"))) == 1000


def test_threads_that_share_a_throttle_share_its_slots(timed: InProcessBroker) -> None:
    with ternmq.sync.connect(timed.url) as client:
        throttle = Throttle(client, rate=10)

        def send(number: int) -> datetime | None:
            return throttle.send("sms", b"%d" % number).due_at

        async def work() -> list[datetime | None]:
            return await asyncio.gather(*(asyncio.to_thread(send, n) for n in range(60)))

        due = asyncio.run(work())
        assert due.count(None) == 1
        found = sorted(one for one in due if one is not None)
        assert found == [START + timedelta(milliseconds=100) * number for number in range(1, 60)]
        timed.clock.advance(seconds=60)
        late = throttle.send("sms", b"at once").due_at
        assert late is None, "slots that nobody took are not saved up, and not waited for"
