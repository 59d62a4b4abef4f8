"""The testing kit waits until a group has handled what was sent."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker, broker
from tests.asynchronous import until


@pytest.mark.parametrize("queues", [1, 3])
async def test_it_returns_when_all_is_handled(real: InProcessBroker, queues: int) -> None:
    client = ternmq.connect(real.url)
    go = asyncio.Event()
    done: list[int] = []

    @client.handler("t", group="g")
    async def handle(n: int) -> None:
        await go.wait()
        done.append(n)

    async with ternmq.connect(real.url) as other:
        await other.admin.create_topic("t", queues=queues)
        await other.send_many("t", list(range(50)))
        # There is no group so far: it waits for that as well.
        waiting = asyncio.ensure_future(asyncio.to_thread(real.wait_idle, "t", "g"))
        running = asyncio.ensure_future(client.run())
        await until(lambda: client.serving.handlers and client.serving.handlers[0].running)
        assert not waiting.done()
        go.set()
        await waiting
        assert sorted(done) == list(range(50))
        await asyncio.to_thread(real.wait_idle, "t", "g", timeout=timedelta(0))
    client.stop()
    await running


async def test_what_waits_for_a_retry_is_left_to_the_clock(real: InProcessBroker) -> None:
    async with ternmq.connect(real.url) as client:
        await client.send("t", 1)
        (one,) = await client.pull("t", group="g")
        with pytest.raises(TimeoutError, match="not idle after 0 s: lag 0, ready 0, leased 1"):
            await asyncio.to_thread(real.wait_idle, "t", "g", timeout=0)
        await one.retry(3600)
        await asyncio.to_thread(real.wait_idle, "t", "g")


def test_it_says_what_is_not_there() -> None:
    with broker() as one, pytest.raises(TimeoutError, match="no topic 't'"):
        one.wait_idle("t", "g", timeout=0)
    with pytest.raises(RuntimeError, match="does not run"):
        one.wait_idle("t", "g")


@pytest.mark.parametrize("wrong", ["5", True, -1, None])
def test_it_names_what_is_no_time(wrong: Any, real: InProcessBroker) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^timeout (is|must be)"):
        real.wait_idle("t", "g", timeout=wrong)


def test_what_waits_behind_a_retry_of_its_key_is_left_to_the_clock(
    timed: InProcessBroker,
) -> None:
    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("t", ordered=True, queues=2)
        for n in range(6):
            client.send("t", n, ordering_key="ab"[n % 2])
        found = pulled(client, 6)
        first = {one.ordering_key: one for one in reversed(found)}
        first["a"].retry(3600)  # the later ones of its key go back
        first["b"].release()
        # Those of the other key can be handed out: they are waited for.
        left = r"lag 0, ready 3, leased 0, behind a retry 2, retrying 1 \(.*`clock.advance`\)$"
        with pytest.raises(TimeoutError, match=left):
            timed.wait_idle("t", "g", timeout=0)
        for one in pulled(client, 3):
            assert one.ordering_key == "b"
            one.ack()
        timed.wait_idle("t", "g", timeout=0)
        timed.clock.advance(hours=1, seconds=1)
        with pytest.raises(TimeoutError, match=r"lag 0, ready 3, leased 0$"):
            timed.wait_idle("t", "g", timeout=0)
        assert [one.value for one in pulled(client, 3)] == [0, 2, 4]


def pulled(client: ternmq.sync.Client, count: int) -> list[ternmq.sync.Delivery]:
    """Pull until so many messages came."""
    found: list[ternmq.sync.Delivery] = []
    while len(found) < count:
        found += client.pull("t", group="g")
    assert len(found) == count
    return found


@pytest.mark.parametrize("ordered", [False, True])
def test_a_retry_is_tested_by_waiting_and_advancing(timed: InProcessBroker, ordered: bool) -> None:
    worker = ternmq.sync.connect(timed.url)
    tried: list[tuple[int, int]] = []

    @worker.handler("t", group="g", retry=ternmq.RetryPolicy(first=60, attempts=2, jitter=0))
    def handle(n: int, delivery: ternmq.sync.Delivery) -> None:
        tried.append((n, delivery.attempt))
        if n == 0:
            raise ternmq.Retry("later")

    with ternmq.sync.connect(timed.url) as client:
        client.admin.create_topic("t", ordered=ordered)
        thread = threading.Thread(target=worker.run)
        thread.start()
        for n in range(2):
            client.send("t", n, ordering_key="a" if ordered else "")
        timed.wait_failed("t", "g")
        timed.wait_idle("t", "g")
        assert sorted(tried) == ([(0, 1)] if ordered else [(0, 1), (1, 1)])
        with pytest.raises(TimeoutError, match="not failed on 2 messages after 0 s: lag 0, ready"):
            timed.wait_failed("t", "g", messages=2, timeout=0)
        timed.clock.advance(minutes=2)
        timed.wait_idle("t", "g")
        assert sorted(tried) == [(0, 1), (0, 2), (1, 1)]
        timed.wait_failed("t", "g", timeout=0)  # a dead letter by now
        worker.stop()
        thread.join()


@pytest.mark.parametrize("wrong", ["5", True, 0, None])
def test_it_names_what_is_no_number(wrong: Any, timed: InProcessBroker) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"^messages (is|must be)"):
        timed.wait_failed("t", "g", messages=wrong)
