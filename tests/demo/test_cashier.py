"""A cashier that is started while the broker starts again."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import ternmq
from ternmq.demo import cashier
from ternmq.demo.plan import PAYMENTS, TICKETS, Run
from ternmq.demo.processes import Broker, Child, Processes
from ternmq.demo.records import Paid, read, write_run
from tests.asynchronous import until

DEADLINE = 60.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * DEADLINE)]


async def created(broker: Broker) -> str:
    """Create what a cashier needs; return the broker's address."""
    settings = broker.environment
    url = settings["TERNMQ_URL"]
    async with ternmq.connect(
        url, app=settings["TERNMQ_APP"], token=settings["TERNMQ_TOKEN"]
    ) as client:
        for topic in (TICKETS, PAYMENTS):
            await client.admin.create_topic(topic)
        await client.admin.put_producer_group(cashier.GROUP, first=1, cap=5)
    return url


async def try_to_connect(url: str, child: Child) -> None:
    """Take the broker's place until the cashier has tried to connect; end its connection."""
    host, _, port = url.removeprefix("ternmq://").partition(":")
    with socket.create_server((host, int(port))) as place:
        place.setblocking(False)
        child.say("go")
        async with asyncio.timeout(DEADLINE):
            tried, _ = await asyncio.get_running_loop().sock_accept(place)
        tried.close()


async def test_it_waits_for_a_broker_that_starts_again(tmp_path: Path) -> None:
    write_run(tmp_path, Run(month=1, days=1, speed=0))
    async with Processes(tmp_path, remove=False) as processes:
        broker = Broker(processes)
        await broker.start()
        url = await created(broker)
        await broker.kill()

        name = "cashier-1"
        child = await processes.start(
            name, "ternmq.demo.cashier", str(tmp_path), name, env=broker.environment
        )
        await until(lambda: "bookings" in child.facts, "the cashier is ready", DEADLINE)
        await try_to_connect(url, child)
        await broker.start()

        # It stops with open transactions, to be killed, once it has paid its share.
        await until(lambda: child.number("open") == cashier.HELD, child.said(), DEADLINE)
        await child.kill()
        await processes.gone(child)
        await broker.stop()
    written = read(tmp_path / f"{name}.cashier.jsonl", killed=True)
    assert sum(isinstance(one, Paid) for one in written) > 0
