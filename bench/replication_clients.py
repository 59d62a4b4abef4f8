"""The clients of the measurements of a broker group: each verb is a process of its own.

    python bench/replication_clients.py VERB URL [name=number ...]

prints "ready" when it is at it, and one JSON object of figures at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
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


def _order(number: int, size: int) -> bytes:
    """Return a body of JSON as programs send it: the same names, other values."""
    chance = random.Random(number)
    lines = [
        {"article": f"A-{chance.randrange(10**6):06}", "count": chance.randrange(20),
         "price": round(chance.random() * 100, 2), "warehouse": chance.choice(("north", "south"))}
        for _ in range(1 + size // 80)
    ]  # fmt: skip
    text = json.dumps({"order": number, "customer": chance.randrange(10**5), "lines": lines})
    return text.encode()[:size]


async def fill(url: str, mib: int, size: int, kind: int = 0) -> Figures:
    """Send messages of one size, by ``send_many``.

    Args:
        url: Of the brokers.
        mib: Bytes of bodies.
        size: Of a body.
        kind: 0: all the same; 1: JSON; 2: random bytes.
    """
    count = max(1, (1 << 20) // size)
    bodies = {
        0: [b"x" * size] * count,
        1: [_order(at, size) for at in range(count)],
        2: [os.urandom(size) for _ in range(count)],
    }[kind]
    batch = [ternmq.Message(one) for one in bodies]
    async with ternmq.connect(url, timeout=60.0) as client:
        print("ready", flush=True)
        began = time.perf_counter()
        for _ in range(mib):
            await client.send_many(TOPIC, batch)
        return {"mib_per_s": mib / (time.perf_counter() - began)}


if __name__ == "__main__":
    main_of(pauses, fill)
