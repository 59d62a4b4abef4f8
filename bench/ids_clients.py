"""The clients of the measurement of numbers: each verb is a process of its own.

    python bench/ids_clients.py VERB URL [name=number ...]

prints one JSON object of figures.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from itertools import pairwise
from typing import Any, Final

from broker_clients import main_of

import ternmq
import ternmq.sync
from ternmq.reliable import Ids

TOPIC: Final = "orders"
AT_ONCE: Final = 1_000
"""Numbers between two looks at the clock."""
TURNS: Final = 300


async def prepare(url: str) -> dict[str, Any]:
    """Make the topic."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC)
    return {}


def runs_of(numbers: list[int]) -> list[list[int]]:
    """Return the ranges ``[start, stop)`` of which increasing numbers consist."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, number + 1])
    return runs


async def take(url: str, count: int) -> dict[str, Any]:
    """Take numbers with the blocking client when a line comes; say which, and how long it took."""
    return await asyncio.to_thread(_take, url, count)


def _take(url: str, count: int) -> dict[str, Any]:
    with ternmq.sync.connect(url) as client:
        ids = Ids(client, TOPIC)
        ids.start()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        numbers = [ids.next() for _ in range(count)]
        seconds = time.perf_counter() - began
        ended_us = int(time.time() * 1e6)
        stats = ids.stats()
        if not stats.fallbacks and any(one >= other for one, other in pairwise(numbers)):
            raise RuntimeError("the numbers of a process do not increase")
        return {
            "seconds": seconds,
            "ended_us": ended_us,
            "fallbacks": stats.fallbacks,
            "blocks": stats.blocks,
            "runs": runs_of(numbers),
        }


async def buffered(url: str) -> dict[str, Any]:
    """Take numbers that are there: of each thousand, how long one took."""
    return await asyncio.to_thread(_buffered, url)


def _buffered(url: str) -> dict[str, Any]:
    each_us: list[float] = []
    with ternmq.sync.connect(url) as client:
        ids = Ids(client, TOPIC)
        ids.start()
        take_one = ids.next
        while ids.stats().taken < 300_000:  # until blocks are large
            take_one()
        for _ in range(TURNS):
            began = time.perf_counter()
            for _ in range(AT_ONCE):
                take_one()
            each_us.append((time.perf_counter() - began) / AT_ONCE * 1e6)
    return {
        "each_us": statistics.median(each_us),
        "least_us": min(each_us),
        "p90_us": sorted(each_us)[int(0.9 * TURNS)],
    }


if __name__ == "__main__":
    main_of(prepare, take, buffered)
