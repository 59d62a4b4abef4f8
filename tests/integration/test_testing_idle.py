"""The testing kit waits until a group has handled what was sent."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import ternmq
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
        await until(lambda: client._handlers and client._handlers[0].running)
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
