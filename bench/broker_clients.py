"""The clients of the broker's measurements: each verb is a process of its own.

    python bench/broker_clients.py VERB URL [name=number ...]

prints one JSON object of figures. Times are the wall clock's: what a user waits for.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine

import ternmq

TOPIC = "orders"
GROUP = "billing"

Figures = dict[str, float]


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` of the values lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def sends(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Send single messages of 1 KiB, each awaited: so many connections, so many in flight each."""
    body = b"x" * 1024
    clients = [await ternmq.connect(url) for _ in range(connections)]
    taken: list[float] = []
    began = time.perf_counter() + 0.5
    until = began + seconds

    async def one(client: ternmq.Client) -> None:
        while (at := time.perf_counter()) < until:
            await client.send(TOPIC, body)
            if at >= began:
                taken.append(time.perf_counter() - at)

    await asyncio.gather(*[one(client) for client in clients for _ in range(in_flight)])
    for client in clients:
        await client.close()
    return {
        "sends_per_s": len(taken) / seconds,
        "p50_ms": percentile(taken, 0.5) * 1e3,
        "p99_ms": percentile(taken, 0.99) * 1e3,
    }


async def send_many(url: str, count: int, of: int) -> Figures:
    """Send ready messages of 100 bytes by ``send_many``."""
    messages = [ternmq.Message(b"x" * 100) for _ in range(of)]
    async with ternmq.connect(url) as client:
        await client.send_many(TOPIC, messages)
        began = time.perf_counter()
        for _ in range(count // of):
            await client.send_many(TOPIC, messages)
        return {"messages_per_s": count / (time.perf_counter() - began)}


async def send_soon(url: str, count: int, of: int) -> Figures:
    """Send messages of 100 bytes by ``send_soon``, yielding now and then; then flush."""
    body = b"x" * 100
    async with ternmq.connect(url) as client:
        await client.send(TOPIC, body)
        began = time.perf_counter()
        for at in range(count):
            client.send_soon(TOPIC, body)
            if at % of == of - 1:
                await asyncio.sleep(0)
        await client.flush()
        return {"messages_per_s": count / (time.perf_counter() - began)}


async def pull(url: str, count: int, of: int) -> Figures:
    """Pull batches and acknowledge each."""
    async with ternmq.connect(url) as client:
        done = 0
        began = 0.0
        while done < count:
            batch = await client.pull(TOPIC, group=GROUP, max_messages=of, wait=5)
            if not began:
                began = time.perf_counter()
            else:
                done += len(batch)
            assert len(batch.bodies) == len(batch)
            await batch.ack()
        return {"messages_per_s": done / (time.perf_counter() - began)}


async def process(url: str, count: int, of: int) -> Figures:
    """Take messages one by one, each in ``process()``."""
    async with ternmq.connect(url) as client:
        done = 0
        began = time.perf_counter()
        async with client.consume(TOPIC, group=GROUP, max_in_flight=of) as deliveries:
            async for delivery in deliveries:
                async with delivery.process():
                    done += 1
                if done == count:
                    break
        return {"messages_per_s": done / (time.perf_counter() - began)}


async def handler(url: str, count: int, of: int) -> Figures:
    """Take messages by an async handler."""
    client = ternmq.connect(url)
    done = 0
    began = 0.0

    @client.handler(TOPIC, group=GROUP, concurrency=of)
    async def on_order(body: bytes) -> None:  # noqa: ARG001 - that it is decoded is measured
        nonlocal done, began
        if not done:
            began = time.perf_counter()
        done += 1
        if done == count:
            finished.set()

    finished = asyncio.Event()
    running = asyncio.ensure_future(client.run())
    await finished.wait()
    taken = time.perf_counter() - began
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return {"messages_per_s": count / taken}


async def produce_paced(url: str, per_s: int, seconds: float) -> Figures:
    """Send so many messages a second, each with the time at which it was sent."""
    async with ternmq.connect(url) as client:
        began = time.perf_counter()
        sent = 0
        while (passed := time.perf_counter() - began) < seconds:
            while sent < passed * per_s:
                client.send_soon(TOPIC, time.time_ns().to_bytes(8, "little"))
                sent += 1
            await asyncio.sleep(0.0005)
        await client.flush()
    return {"sent_per_s": sent / seconds}


async def consume_paced(url: str, seconds: float) -> Figures:
    """Consume what ``produce_paced`` sends; how old is each when it is handled?"""
    taken: list[float] = []
    async with ternmq.connect(url) as client:
        await client.pull(TOPIC, group=GROUP, wait=0)
        print("ready", flush=True)
        until = time.perf_counter() + seconds
        async with client.consume(TOPIC, group=GROUP, max_in_flight=1000) as deliveries:
            while time.perf_counter() < until:
                try:
                    delivery = await asyncio.wait_for(anext(deliveries), 2.0)
                except TimeoutError:
                    break
                async with delivery.process():
                    sent = int.from_bytes(delivery.body, "little")
                    taken.append((time.time_ns() - sent) / 1e6)
    taken = taken[len(taken) // 10 :]
    return {
        "received": float(len(taken)),
        "p50_ms": percentile(taken, 0.5),
        "p99_ms": percentile(taken, 0.99),
    }


async def idle(url: str, polls: int, seconds: float) -> Figures:
    """Leave so many pulls waiting; then wake one by a message, again and again."""
    clients = [await ternmq.connect(url) for _ in range(polls // 50)]
    sender = await ternmq.connect(url)
    waiting = [
        asyncio.ensure_future(client.pull(f"idle.{at}.{n}", group=GROUP, wait=120))
        for at, client in enumerate(clients)
        for n in range(50)
    ]
    await asyncio.sleep(2.0)
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    taken: list[float] = []
    for at in range(40):
        began = time.perf_counter()
        await sender.send(f"idle.{at % len(clients)}.{at // len(clients)}", b"x")
        await waiting[at % len(clients) * 50 + at // len(clients)]
        taken.append((time.perf_counter() - began) * 1e3)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for client in (*clients, sender):
        await client.close()
    return {"woken_p50_ms": percentile(taken, 0.5), "woken_worst_ms": max(taken)}


def main_of(*verbs: Callable[..., Coroutine[None, None, Figures]]) -> None:
    """Run the verb that the command line names."""
    name, url, *settings = sys.argv[1:]
    given: dict[str, float] = {}
    for setting in settings:
        key, _, number = setting.partition("=")
        given[key] = float(number) if "." in number else int(number)
    verb = {verb.__name__: verb for verb in verbs}[name]
    print(json.dumps(asyncio.run(verb(url, **given))))


if __name__ == "__main__":
    main_of(sends, send_many, send_soon, pull, process, handler, produce_paced, consume_paced, idle)
