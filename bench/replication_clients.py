"""The clients of the measurements of a broker group: each verb is a process of its own.

    python bench/replication_clients.py VERB URL [name=number ...]

prints "ready" when it is at it, and one JSON object of figures at its end.
"""

from __future__ import annotations

import asyncio
import time

from broker_clients import TOPIC, Figures, main_of, percentile

import ternmq


async def pauses(url: str, seconds: float) -> Figures:
    """Send one message after the other; find the longest time between two answers."""
    body = b"x" * 1024
    failed = 0
    taken: list[float] = []
    longest = 0.0
    async with ternmq.connect(url, timeout=30.0) as client:
        await client.send(TOPIC, body)
        print("ready", flush=True)
        last = time.perf_counter()
        until = last + seconds
        while last < until:
            at = time.perf_counter()
            try:
                await client.send(TOPIC, body)
            except (ternmq.ClientError, ternmq.RefusedError):
                failed += 1
            now = time.perf_counter()
            taken.append(now - at)
            longest = max(longest, now - last)
            last = now
            await asyncio.sleep(0)
    return {
        "sends": float(len(taken)),
        "failed": float(failed),
        "longest_pause_s": longest,
        "p50_ms": percentile(taken, 0.5) * 1e3,
        "p99_ms": percentile(taken, 0.99) * 1e3,
    }


async def fill(url: str, mib: int, size: int) -> Figures:
    """Send messages of one size, by ``send_many``."""
    batch = [ternmq.Message(b"x" * size) for _ in range(max(1, (1 << 20) // size))]
    async with ternmq.connect(url, timeout=60.0) as client:
        print("ready", flush=True)
        began = time.perf_counter()
        for _ in range(mib):
            await client.send_many(TOPIC, batch)
        return {"mib_per_s": mib / (time.perf_counter() - began)}


if __name__ == "__main__":
    main_of(pauses, fill)
