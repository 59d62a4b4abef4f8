"""The clients of the measurement of failed messages: each verb is a process of its own.

    python bench/failures_clients.py VERB URL [name=number ...]

prints one JSON object of figures.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from broker_clients import Figures, main_of
from schedule_clients import live

import ternmq
from ternmq import FailedQuery

TOPIC: Final = "payments"
GROUP: Final = "charging"
KEYS: Final = 10_000
LOOKS: Final = 5
POISON_ATTEMPTS: Final = 4
POISON_S: Final = 120.0
"""Longest that the messages of one run may take."""


async def prepare(url: str) -> Figures:
    """Make the topics and the group."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC)
        later = ternmq.RetryPolicy(first=86_400, cap=86_400, jitter=0)
        await client.admin.create_group(TOPIC, GROUP, retry=later)
        await client.admin.create_topic("orders")
    return {}


async def fill(url: str, count: int) -> Figures:
    """Send messages to the topic that ``prepare`` made."""
    async with ternmq.connect(url) as client:
        for first in range(0, count, 1000):
            await client.send_many(TOPIC, [b"x" * 100] * min(1000, count - first))
    return {}


async def fail(url: str, count: int, dead: int) -> Figures:
    """Let all messages fail: of each thousand the first ``dead`` for good, the others wait."""
    began = time.perf_counter()
    done = 0
    async with ternmq.connect(url) as client:
        while done < count:
            got = await client.pull(TOPIC, group=GROUP, max_messages=1000, wait=10)
            rows = range(len(got))
            # Fifty at a time, each with a record of its own: as handlers fail, not all at once.
            for first in range(0, len(got), 50):
                some = rows[first : first + 50]
                lost = [row for row in some if row < dead]
                if lost:
                    await got.reject(lost, reason="declined")
                rest = [row for row in some if row >= dead]
                if rest:
                    await got.retry(rest, reason="busy")
            done += len(got)
    return {"failed_per_s": count / (time.perf_counter() - began)}


async def query(url: str, count: int) -> Figures:
    """Ask for failed messages in each way, five times."""
    figures: Figures = {}
    worst = 0.0
    async with ternmq.connect(url) as client:
        letters = client.deadletters
        counts = await letters.count(TOPIC, GROUP)
        if counts.total != count:
            raise RuntimeError(f"{counts.total:,} of {count:,} messages have failed")
        middle = await _failed_at(client, count // 2)
        after = await _failed_at(client, count // 2 + count // 100)

        async def first(query: FailedQuery | None, *, newest: bool = False) -> int:
            found = letters.matching(TOPIC, GROUP, query, newest_first=newest, limit=100)
            return len([one async for one in found])

        async def counted(query: FailedQuery) -> int:
            return (await letters.count(TOPIC, GROUP, query)).total

        between = FailedQuery(since=middle, until=after)
        asks: dict[str, Callable[[], Awaitable[int]]] = {
            "newest": lambda: first(None, newest=True),
            "newest_dead": lambda: first(FailedQuery(states=["dead"]), newest=True),
            "newest_waiting": lambda: first(FailedQuery(states=["waiting"]), newest=True),
            "by_attempts": lambda: counted(FailedQuery(attempts=1)),
            "by_state_and_attempts": lambda: counted(FailedQuery(states=["dead"], attempts=1)),
            "by_time": lambda: counted(between),
            "by_time_first": lambda: first(between),
            "by_time_newest": lambda: first(between, newest=True),
            "by_key": lambda: first(FailedQuery(key=f"key-{min(KEYS, count) // 2}")),
            "by_id": lambda: first(FailedQuery(id=f"payment-{count // 2}")),
        }
        for name, ask in asks.items():
            took: list[float] = []
            found = 0
            for _ in range(LOOKS):
                began = time.perf_counter()
                found = await ask()
                took.append((time.perf_counter() - began) * 1e3)
            if not found:
                raise RuntimeError(f"{name} found nothing")
            figures[f"{name}_ms"] = statistics.median(took)
            worst = max(worst, *took)
    return {"slowest_ms": max(figures.values()), "worst_ms": worst, **figures}


async def _failed_at(client: ternmq.Client, offset: int) -> datetime:
    found = await client.deadletters.get(TOPIC, GROUP, offset)
    assert found is not None
    return found.failures[-1].time


async def redrive(url: str, count: int, begin_us: int) -> Figures:
    """Redrive all dead letters, as fast as it goes, from a time on."""
    async with ternmq.connect(url) as client:
        await client.admin.status()
        print("ready", flush=True)
        await asyncio.sleep(max(0.0, begin_us / 1e6 - time.time()))
        began = time.perf_counter()
        told = await client.deadletters.redrive(TOPIC, GROUP)
        took = time.perf_counter() - began
        done = sum(one.done for one in told)
        left = (await client.deadletters.count(TOPIC, GROUP)).total
    if done != count or left:
        raise RuntimeError(f"{done:,} of {count:,} dead letters were redriven, {left:,} are left")
    return {"redriven_s": took, "redriven_per_s": count / took}


async def poison(url: str, count: int, every: int) -> Figures:
    """Handle messages of which one in ``every`` always fails, between two runs without any."""
    logging.getLogger("ternmq").setLevel(logging.CRITICAL)  # a traceback for each failure
    calm_before = await _handled_per_s(url, "calm-before", count, 0)
    beside = await _handled_per_s(url, "poisoned", count, every)
    calm_after = await _handled_per_s(url, "calm-after", count, 0)
    calm = 2 * calm_before * calm_after / (calm_before + calm_after)  # the mean of the times
    return {"kept": beside / calm, "poisoned_per_s": beside, "calm_per_s": calm}


async def poisoned(url: str, count: int, every: int) -> Figures:
    """Handle messages of which one in ``every`` always fails."""
    logging.getLogger("ternmq").setLevel(logging.CRITICAL)
    return {"handled_per_s": await _handled_per_s(url, "poisoned", count, every)}


async def _handled_per_s(url: str, topic: str, count: int, every: int) -> float:
    """Return how many messages a second a handler has done; those that fail do not count."""
    policy = ternmq.RetryPolicy(first=1.0, cap=1.0, jitter=0, attempts=POISON_ATTEMPTS)
    bad = {number for number in range(count) if every and number % every == 0}
    good = count - len(bad)
    done, failed = 0, 0
    all_done = asyncio.Event()
    client = ternmq.connect(url)

    @client.handler(topic, group=GROUP, concurrency=100)
    async def charge(body: bytes) -> None:
        nonlocal done, failed
        if body.startswith(b"poison"):
            failed += 1
            raise ValueError("this message always fails")
        done += 1
        if done == good:
            all_done.set()

    async with ternmq.connect(url) as maker:
        await maker.admin.create_topic(topic, queues=4)
        await maker.admin.create_group(topic, GROUP, retry=policy)
        rest = b"x" * 94
        bodies = [(b"poison" if number in bad else b"usable") + rest for number in range(count)]
        for first in range(0, count, 1000):
            await maker.send_many(topic, bodies[first : first + 1000])
    began = time.perf_counter()
    running = asyncio.create_task(client.run(signals=False))
    await asyncio.wait_for(all_done.wait(), POISON_S)
    took = time.perf_counter() - began
    client.stop()
    await running
    if done != good or failed < len(bad):
        raise RuntimeError(f"{done:,} of {good:,} were handled, {failed:,} failures")
    return good / took


if __name__ == "__main__":
    main_of(prepare, fill, fail, query, redrive, live, poison, poisoned)
