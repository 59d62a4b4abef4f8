"""The clients of the measurement of transactions: each verb is a process of its own.

    python bench/transaction_clients.py VERB URL [name=number ...]

prints one JSON object of figures. Times are the wall clock's: what a user waits for.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from broker_clients import GROUP, TOPIC, Figures, main_of, percentile

import ternmq

OUT: Final = "payments"
PRODUCERS: Final = "order-service"
_BODY: Final = b"x" * 1024
_WARM_S: Final = 0.5
_PULLED: Final = 100


async def _connected(url: str) -> ternmq.Client:
    """Return a client that can be asked about open transactions; nobody asks here."""
    client = ternmq.connect(url)

    @client.checker(PRODUCERS)
    async def check(transaction: ternmq.PreparedTransaction) -> ternmq.Decision:
        raise RuntimeError(f"{transaction.id} is still open")

    await client.connect()
    return client


async def sending(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Send one message in each transaction, so many at a time on each connection."""

    async def one(client: ternmq.Client) -> None:
        async with client.transaction(PRODUCERS) as tx:
            await tx.send(OUT, _BODY)

    clients = [await _connected(url) for _ in range(connections)]
    return await _timed(clients, in_flight, seconds, one)


async def moving(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Send one message in each transaction, which acks another one; the backlog is there."""
    clients = [await _connected(url) for _ in range(connections)]
    left: dict[ternmq.Client, deque[ternmq.Delivery]] = {one: deque() for one in clients}
    locks = {one: asyncio.Lock() for one in clients}

    async def one(client: ternmq.Client) -> None:
        mine = left[client]
        async with locks[client]:  # one pull at a time: others would take the backlog for nobody
            if not mine:
                mine.extend(await client.pull(TOPIC, group=GROUP, max_messages=_PULLED, wait=5))
            delivery = mine.popleft()
        async with client.transaction(PRODUCERS) as tx:
            await tx.send(OUT, _BODY)
            await tx.ack(delivery)

    return await _timed(clients, in_flight, seconds, one)


async def _timed(
    clients: list[ternmq.Client],
    in_flight: int,
    seconds: float,
    one: Callable[[ternmq.Client], Awaitable[None]],
) -> Figures:
    """Run ``one`` again and again for some seconds; the first half second does not count."""
    taken: list[float] = []
    began = time.perf_counter() + _WARM_S
    until = began + seconds

    async def work(client: ternmq.Client) -> None:
        while (at := time.perf_counter()) < until:
            await one(client)
            if at >= began:
                taken.append(time.perf_counter() - at)

    await asyncio.gather(*[work(client) for client in clients for _ in range(in_flight)])
    for client in clients:
        await client.close()
    return {
        "transactions_per_s": len(taken) / seconds,
        "p50_ms": percentile(taken, 0.5) * 1e3,
        "p99_ms": percentile(taken, 0.99) * 1e3,
    }


if __name__ == "__main__":
    main_of(sending, moving)
