"""Rows of MISSION, batch sessions: a broker process, seen from outside, also one that is killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.reliable import BlockingHolder, Holder, Items, batch
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.users import Async, Blocking, User

ITEMS = "application/vnd.ternmq.items+msgpack"


@dataclass
class Order:
    id: int


@pytest.fixture(params=[Async, Blocking])
def make(request: pytest.FixtureRequest) -> Callable[..., User]:
    made: Callable[..., User] = request.param
    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def filled(
    user: User, topic: str, count: int, each: Callable[[int], None] = lambda number: None
) -> list[ternmq.Receipt]:
    """Add so many orders to a holder of 20, in functions that do not have it; return the receipts.

    Args:
        user: Who sends.
        topic: Where.
        count: How many.
        each: Called behind each item, with the number of those that were added; may raise.
    """
    holders: list[Holder | BlockingHolder] = []

    def deeper(number: int) -> None:
        assert isinstance(user, Blocking)
        batch.current(user.client).add(Order(number), key=f"k{number}")

    async def deeper_async(number: int) -> None:
        await batch.current().add(Order(number), key=f"k{number}")

    async def work(client: ternmq.Client) -> None:
        async with batch(client, topic, size=20) as holder:
            holders.append(holder)
            for number in range(count):
                await deeper_async(number)
                each(number + 1)

    if isinstance(user, Async):
        user.call(work)
    else:
        with batch(user.client, topic, size=20) as holder:
            holders.append(holder)
            for number in range(count):
                deeper(number)
                each(number + 1)
    return holders[0].receipts


def taken(broker: BrokerProcess, topic: str, kind: Any = Items[Order]) -> list[Any]:
    """Pull and ack all that is there; return the bodies, decoded."""
    found: list[Any] = []
    with ternmq.sync.connect(broker.url) as client:
        while deliveries := client.pull(topic, group="g", wait=0):
            found += [one.decode(kind) for one in deliveries]
            deliveries.ack()
    return found


@pytest.mark.row("K6")
def test_twenty_items_are_one_send(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    with make(dev.url) as user:
        user.send(topic, b"so that the topic is known")
        sends, messages = (
            dev.metric(f"ternmq_{name}_total") for name in ("sends", "messages_sent")
        )
        (receipt,) = filled(user, topic, 20)
        assert user.stats().sends == 2
        assert dev.metric("ternmq_sends_total") == sends + 1
        assert dev.metric("ternmq_messages_sent_total") == messages + 1
        found = user.get(topic, receipt.application_id)
        assert found.content_type == ITEMS
        session = found.decode(Items[Order])
        assert (session.session, session.size) == (receipt.application_id, 20)
        assert list(session) == [Order(number) for number in range(20)]
        assert session.keys == [f"k{number}" for number in range(20)]


@pytest.mark.row("K6")
def test_a_holder_of_twenty_that_gets_forty_five(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    stored: list[int] = []
    with make(dev.url) as user:
        before = user.stats().stored

        def look(number: int) -> None:
            assert user.stats().stored - before == number // 20, f"after {number}"
            stored.append(number)

        receipts = filled(user, topic, 45, look)
        assert len(stored) == 45
        assert user.stats().stored - before == len(receipts) == 3
    found = taken(dev, topic)
    assert [one.size for one in found] == [20, 20, 5]
    assert len({one.session for one in found}) == 3
    assert [order.id for one in found for order in one] == list(range(45))


@pytest.mark.row("K6")
def test_an_exception_in_the_block_sends_nothing_of_the_unfilled_part(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    def fails(number: int) -> None:
        if number == 33:
            raise ZeroDivisionError

    with make(dev.url) as user:
        with suppress(ZeroDivisionError):
            filled(user, topic, 45, fails)
        user.flush()
    assert [[order.id for order in one] for one in taken(dev, topic)] == [list(range(20))]


@pytest.mark.row("K6")
def test_each_thread_has_its_own_current_holder(dev: BrokerProcess, topic: str) -> None:
    start = threading.Barrier(4)

    def work(first: int) -> None:
        with batch(client, topic, size=20) as holder:
            start.wait()
            for number in range(first, first + 30):
                assert batch.current(client) is holder
                batch.current(client).add(Order(number))

    with ternmq.sync.connect(dev.url) as client, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 400, 100)))
    found = sorted(sorted(order.id for order in one) for one in taken(dev, topic))
    spans = [
        (first + at, first + end) for first in range(0, 400, 100) for at, end in ((0, 20), (20, 30))
    ]
    assert found == [list(range(*span)) for span in spans]


@pytest.mark.row("K8")
@pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])
def test_a_handler_gets_the_complete_list_until_it_is_done_with_all_of_it(
    dev: BrokerProcess, topic: str, blocking: bool
) -> None:
    """It works on the items in several threads; one that fails brings all of them again."""
    lists: list[list[Order]] = []
    done: set[int] = set()
    threads: set[str] = set()
    together = threading.Barrier(4)

    def one(order: Order) -> None:
        if len(lists) == 2:
            together.wait(30)
            threads.add(threading.current_thread().name)
        if order.id == 13 and len(lists) == 1:
            raise ZeroDivisionError
        done.add(order.id)

    def load(orders: list[Order]) -> None:
        lists.append(orders)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, orders))

    with Blocking(dev.url) as user:
        filled(user, topic, 20)
        user.admin("create_group", topic, "g", retry=ternmq.RetryPolicy(first=0.1))
    other: Any = ternmq.sync.connect(dev.url) if blocking else ternmq.connect(dev.url)

    async def load_async(orders: list[Order]) -> None:
        await asyncio.to_thread(load, orders)

    other.handler(topic, group="g")(load if blocking else load_async)
    run = other.run if blocking else lambda: asyncio.run(other.run())
    with ThreadPoolExecutor(1) as pool, ternmq.sync.connect(dev.url) as client:
        running = pool.submit(run)
        try:
            wait_until(lambda: len(done) == 20, "all items are done")
        finally:
            other.stop()
        running.result(60)
        left = client.admin.group(topic, "g").queues[0]
    assert (left.floor, left.waiting, left.leased, left.dead) == (1, 0, 0, 0)
    assert lists == [[Order(number) for number in range(20)]] * 2
    assert done == set(range(20))
    assert len(threads) == 4


@pytest.mark.row("K8")
def test_an_incomplete_session_is_never_handed_over_as_complete(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    """Bodies that are cut, or state another size, end as dead letters with reason `decode`."""
    with make(dev.url) as user:
        (receipt,) = filled(user, topic, 20)
        body = user.get(topic, receipt.application_id).body
        at = body.index(b"\xdc\x00\x14") - 1  # the size is before the array of twenty items
        assert body[at] == 20
        item = body.index(b"\x95", at)
        short = body[:at] + b"\x14\xdc\x00\x13" + body[at + 4 : body.rindex(b"\x95")]
        bad = [
            body[:-1],
            body + b"\x00",
            body[:at] + b"\x13" + body[at + 1 :],
            body[:at] + b"\x15" + body[at + 1 :],
            short,
            body[:item],
        ]
        for one in bad:
            user.send(topic, one, content_type=ITEMS)
        (last,) = filled(user, topic, 3)
    lists: list[list[Order]] = []
    with ternmq.sync.connect(dev.url) as client:

        @client.handler(topic, group="g")
        def load(orders: list[Order]) -> None:
            lists.append(orders)
            if len(orders) == 3:
                client.stop()

        client.run()
    with ternmq.sync.connect(dev.url) as client:
        dead = list(client.deadletters.browse(topic, "g"))
    assert [len(one) for one in lists] == [20, 3]
    assert last.offset == len(bad) + 1
    assert [one.offset for one in dead] == list(range(1, len(bad) + 1))
    assert {one.reason.partition(":")[0] for one in dead} == {"decode"}


@pytest.mark.row("K8")
def test_sessions_are_complete_while_the_broker_is_killed(
    make: Callable[..., User], own: BrokerProcess
) -> None:
    sizes = [1 + 7 * number % 20 for number in range(120)]
    progress: list[ternmq.Receipt] = []

    def send() -> None:
        with make(own.url, timeout=60) as user:
            for size in sizes:
                progress.extend(filled(user, "t", size))

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        for part in (30, 60, 90):

            def there(part: int = part) -> bool:
                return len(progress) >= part or sending.done()

            wait_until(there, f"{part} are stored", 60)
            assert not sending.done(), "it ended before the broker was killed"
            own.restart(kill=True)
        sending.result(120)
    assert len(progress) == len(sizes)
    found: dict[str, int] = {}
    until = time.monotonic() + 60
    with ternmq.sync.connect(own.url) as client:
        while len(found) < len(sizes):
            assert time.monotonic() < until, f"{len(found)} of {len(sizes)} came"
            deliveries = client.pull("t", group="g", wait=1)
            for one in deliveries:
                session = one.decode(Items[Order])
                assert [order.id for order in session] == list(range(session.size))
                found[session.session] = session.size
            deliveries.ack()
    assert found == {one.application_id: size for one, size in zip(progress, sizes, strict=True)}
