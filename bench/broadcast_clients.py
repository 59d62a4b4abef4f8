"""The clients of the measurement of broadcast instances: each verb is a process of its own.

    python bench/broadcast_clients.py VERB URL [name=number ...]

prints one JSON object of figures. A body is the time at which it was sent, in ns.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from broker_clients import Figures, main_of, percentile

import ternmq

TOPIC: Final = "prices"
PAUSE_S: Final = 0.5
_PATIENCE_S: Final = 120.0


async def prepare(url: str) -> Figures:
    """Make the topic."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC, broadcast=True)
    return {}


async def instances(url: str, clients: int, messages: int) -> Figures:
    """Be many instances; how long after it was sent has each of them a message in hand?"""
    arrived: list[list[float]] = []

    async def receive(client: ternmq.Client) -> None:
        mine: list[float] = []
        arrived.append(mine)
        while len(mine) < messages:
            batch = await client.pull(TOPIC, wait=_PATIENCE_S)
            now = time.time_ns()
            mine += [(now - int.from_bytes(body, "little")) / 1e6 for body in batch.bodies]
            await batch.ack()

    own = [ternmq.connect(url) for _ in range(clients)]
    try:
        for client in own:
            await client.pull(TOPIC, wait=0)
        print("ready", flush=True)
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(*[receive(client) for client in own])
    finally:
        for client in own:
            await client.close()
    last = [max(some) for some in zip(*arrived, strict=True)]
    every = [one for some in arrived for one in some]
    return {
        "all_have_it_p50_ms": percentile(last, 0.5),
        "all_have_it_worst_ms": max(last),
        "each_p50_ms": percentile(every, 0.5),
        "each_p99_ms": percentile(every, 0.99),
    }


async def send(url: str, messages: int) -> Figures:
    """Send some messages, one after another, with pauses."""
    async with ternmq.connect(url) as client:
        for _ in range(messages):
            await client.send(TOPIC, time.time_ns().to_bytes(8, "little"))
            await asyncio.sleep(PAUSE_S)
    return {}


if __name__ == "__main__":
    main_of(prepare, instances, send)
