"""The clients of the measurement of scheduled messages: each verb is a process of its own.

    python bench/schedule_clients.py VERB URL [name=number ...]

prints one JSON object of figures. A body begins with the time at which its message is due, in µs.
"""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from itertools import pairwise
from typing import Final

from broker_clients import Figures, main_of, percentile

import ternmq

TOPIC: Final = "reminders"
LIVE: Final = "orders"
GROUP: Final = "billing"
_PATIENCE_S: Final = 300.0


async def prepare(url: str) -> Figures:
    """Make the topics and the group."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC)
        await client.admin.create_group(TOPIC, GROUP)
        await client.admin.create_topic(LIVE)
    return {}


async def receive(url: str, count: int) -> Figures:
    """Consume the messages that come due; how late is each in hand?"""
    taken: list[float] = []
    early = 0
    async with ternmq.connect(url) as client:
        await client.pull(TOPIC, group=GROUP, wait=0)
        print("ready", flush=True)
        until = time.monotonic() + _PATIENCE_S
        while len(taken) < count and time.monotonic() < until:
            got = await client.pull(TOPIC, group=GROUP, max_messages=1000, wait=5)
            now_us = time.time_ns() // 1000
            late = [now_us - int.from_bytes(body[:8], "little") for body in got.bodies]
            early += sum(one < 0 for one in late)
            taken += [one / 1e3 for one in late]
            await got.ack()
    return {
        "received": float(len(taken)),
        "early": float(early),
        "received_late_p50_ms": percentile(taken, 0.5),
        "received_late_p99_ms": percentile(taken, 0.99),
    }


async def stored(url: str) -> Figures:
    """Read everything that came due; how late was each stored, and in which order?"""
    late: list[float] = []
    dues: list[datetime] = []
    async with ternmq.connect(url) as client:
        async for one in client.read(TOPIC):
            assert one.due_at is not None
            late.append((one.stored_at - one.due_at).total_seconds() * 1e3)
            dues.append(one.due_at)
    return {
        "stored": float(len(late)),
        "stored_early": float(sum(one < 0 for one in late)),
        "out_of_order": float(sum(a > b for a, b in pairwise(dues))),
        "late_p50_ms": percentile(late, 0.5),
        "late_p99_ms": percentile(late, 0.99),
        "late_worst_ms": max(late),
    }


async def drained(url: str, begin_us: int) -> Figures:
    """Wait until no message is scheduled any more; how long after ``begin_us`` is that?"""
    async with ternmq.connect(url) as client:
        print("ready", flush=True)
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            status = await client.admin.status()
            if not status.metrics["ternmq_scheduled_rows"]:
                return {"drained_s": time.time() - begin_us / 1e6}
            await asyncio.sleep(0.05)
    raise RuntimeError(f"after {_PATIENCE_S} s messages were still scheduled")


async def live(url: str, per_s: int, seconds: float, begin_us: int) -> Figures:
    """Send single messages of 1 KiB at a pace from a time on; each is timed from its own time."""
    body = b"x" * 1024
    taken: list[float] = []
    tasks: set[asyncio.Task[None]] = set()
    async with ternmq.connect(url) as client:
        await client.send(LIVE, body)
        print("ready", flush=True)
        await asyncio.sleep(max(0.0, begin_us / 1e6 - time.time()))
        began = time.perf_counter()

        async def one(planned: float) -> None:
            await client.send(LIVE, body)
            taken.append((time.perf_counter() - planned) * 1e3)

        made = 0
        while (passed := time.perf_counter() - began) < seconds:
            while made < passed * per_s:
                task = asyncio.ensure_future(one(began + made / per_s))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                made += 1
            await asyncio.sleep(0.0005)
        await asyncio.gather(*tasks)
    return {
        "p50_ms": percentile(taken, 0.5),
        "p99_ms": percentile(taken, 0.99),
        "worst_ms": max(taken),
    }


if __name__ == "__main__":
    main_of(prepare, receive, stored, drained, live)
