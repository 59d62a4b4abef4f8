"""The clients of ``peers``: each verb is a process of its own, and does the same for each broker.

    python bench/peer_clients.py VERB URL [name=number ...]

prints one JSON object of figures. ``sends`` sends messages of 1 KiB, each awaited until the broker
says it is durable; ``bulk`` messages of 100 bytes, 1,000 in flight; ``consume`` takes messages of
100 bytes by 1,000 and acknowledges them.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import broker_clients
from broker_clients import Figures, main_of, percentile

QUEUE: Final = "orders"
GROUP: Final = "billing"
_SMALL: Final = b"x" * 100
_LARGE: Final = b"x" * 1024
_WARM_S: Final = 0.5

Send = Callable[[], Awaitable[None]]


async def _paced(send: Send, lanes: int, each: int, seconds: float) -> tuple[list[float], int]:
    """Call ``send`` in so many lanes until the time is over; it sends ``each`` messages."""
    taken: list[float] = []
    began = time.perf_counter() + _WARM_S
    until = began + seconds
    count = 0

    async def one() -> None:
        nonlocal count
        while (at := time.perf_counter()) < until:
            await send()
            count += each
            if at >= began:
                taken.extend([time.perf_counter() - at] * each)

    await asyncio.gather(*[one() for _ in range(lanes)])
    return taken, count


def _speeds(taken: list[float], count: int, seconds: float) -> Figures:
    return {
        "per_s": len(taken) / seconds,
        "p50_ms": percentile(taken, 0.5) * 1e3,
        "p99_ms": percentile(taken, 0.99) * 1e3,
        "count": float(count),
    }


def _together(parts: list[tuple[list[float], int]], seconds: float) -> Figures:
    taken = [one for part, _ in parts for one in part]
    return _speeds(taken, sum([count for _, count in parts]), seconds)


# ------------------------------------------------------------------------------------------ ternmq


async def ternmq_sends(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """See above."""
    found = await broker_clients.sends(url, connections, in_flight, seconds)
    rate = found["sends_per_s"]
    return {
        "per_s": rate,
        "p50_ms": found["p50_ms"],
        "p99_ms": found["p99_ms"],
        "count": rate * (seconds + _WARM_S),
    }


async def ternmq_bulk(url: str, count: float, of: int) -> Figures:
    """See above."""
    found = await broker_clients.send_many(url, int(count), of)
    return {"per_s": found["messages_per_s"], "count": float(count)}


async def ternmq_consume(url: str, count: float, of: int) -> Figures:
    """See above."""
    found = await broker_clients.pull(url, int(count), of)
    return {"per_s": found["messages_per_s"], "count": float(count)}


# ------------------------------------------------------------------------------------------- redis


def _redis(url: str) -> Any:
    asyncio_of_redis: Any = importlib.import_module("redis.asyncio")
    return asyncio_of_redis.Redis.from_url(url, single_connection_client=True)


async def redis_sends(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """A pipeline of ``in_flight`` on each connection; one of 1 is no pipeline."""
    clients = [_redis(url) for _ in range(connections)]

    def send(client: Any) -> Send:
        async def one() -> None:
            await client.xadd(QUEUE, {"b": _LARGE})

        async def some() -> None:
            pipe = client.pipeline(transaction=False)
            for _ in range(in_flight):
                pipe.xadd(QUEUE, {"b": _LARGE})
            await pipe.execute()

        return one if in_flight == 1 else some

    parts = await asyncio.gather(
        *[_paced(send(client), 1, in_flight, seconds) for client in clients]
    )
    for client in clients:
        await client.aclose()
    return _together(list(parts), seconds)


async def redis_bulk(url: str, count: float, of: int) -> Figures:
    """See above."""
    client = _redis(url)
    began = time.perf_counter()
    for _ in range(int(count) // of):
        pipe = client.pipeline(transaction=False)
        for _ in range(of):
            pipe.xadd(QUEUE, {"b": _SMALL})
        await pipe.execute()
    taken = time.perf_counter() - began
    await client.aclose()
    return {"per_s": count / taken, "count": float(count)}


async def redis_consume(url: str, count: float, of: int) -> Figures:
    """See above."""
    client = _redis(url)
    await client.xgroup_create(QUEUE, GROUP, id="0")
    done = 0
    began = time.perf_counter()
    while done < count:
        ((_, rows),) = await client.xreadgroup(GROUP, "one", {QUEUE: ">"}, count=of)
        assert all(fields[b"b"] for _, fields in rows)
        done += await client.xack(QUEUE, GROUP, *[id_ for id_, _ in rows])
    taken = time.perf_counter() - began
    await client.aclose()
    return {"per_s": done / taken, "count": float(done)}


# ---------------------------------------------------------------------------------------- rabbitmq


def _aio_pika() -> Any:
    return importlib.import_module("aio_pika")


async def _rabbit(url: str, kind: str) -> tuple[Any, Any]:
    """Return a connection and its channel, with the queue there."""
    aio_pika = _aio_pika()
    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    arguments = {"x-queue-type": kind}
    await channel.declare_queue(QUEUE, durable=True, arguments=arguments)
    return connection, channel


def _publish(channel: Any, body: bytes) -> Send:
    aio_pika = _aio_pika()
    mode = aio_pika.DeliveryMode.PERSISTENT
    exchange = channel.default_exchange

    async def one() -> None:
        await exchange.publish(aio_pika.Message(body, delivery_mode=mode), routing_key=QUEUE)

    return one


async def _rabbit_sends(
    url: str, kind: str, connections: int, in_flight: int, seconds: float
) -> Figures:
    pairs = [await _rabbit(url, kind) for _ in range(connections)]
    parts = await asyncio.gather(
        *[_paced(_publish(channel, _LARGE), in_flight, 1, seconds) for _, channel in pairs]
    )
    for connection, _ in pairs:
        await connection.close()
    return _together(list(parts), seconds)


async def _rabbit_bulk(url: str, kind: str, count: float, of: int) -> Figures:
    connection, channel = await _rabbit(url, kind)
    publish = _publish(channel, _SMALL)
    began = time.perf_counter()
    for _ in range(int(count) // of):
        await asyncio.gather(*[publish() for _ in range(of)])
    taken = time.perf_counter() - began
    await connection.close()
    return {"per_s": count / taken, "count": float(count)}


async def _rabbit_consume(url: str, kind: str, count: float, of: int) -> Figures:
    connection, channel = await _rabbit(url, kind)
    await channel.set_qos(prefetch_count=of)
    queue = await channel.get_queue(QUEUE)
    done = 0
    over = asyncio.Event()
    began = time.perf_counter()

    async def take(message: Any) -> None:
        nonlocal done
        assert message.body
        done += 1
        # By halves, so that the broker always has something that it may send.
        if done % (of // 2) == 0:
            await message.ack(multiple=True)
            if done >= count:
                over.set()

    await queue.consume(take)
    await over.wait()
    taken = time.perf_counter() - began
    count = float(done)
    await connection.close()
    return {"per_s": count / taken, "count": count}


async def rabbitmq_sends(url: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """See above."""
    return await _rabbit_sends(url, "classic", connections, in_flight, seconds)


async def rabbitmq_bulk(url: str, count: float, of: int) -> Figures:
    """See above."""
    return await _rabbit_bulk(url, "classic", count, of)


async def rabbitmq_consume(url: str, count: float, of: int) -> Figures:
    """See above."""
    return await _rabbit_consume(url, "classic", count, of)


async def rabbitmq_quorum_sends(
    url: str, connections: int, in_flight: int, seconds: float
) -> Figures:
    """See above."""
    return await _rabbit_sends(url, "quorum", connections, in_flight, seconds)


async def rabbitmq_quorum_bulk(url: str, count: float, of: int) -> Figures:
    """See above."""
    return await _rabbit_bulk(url, "quorum", count, of)


async def rabbitmq_quorum_consume(url: str, count: float, of: int) -> Figures:
    """See above."""
    return await _rabbit_consume(url, "quorum", count, of)


if __name__ == "__main__":
    main_of(
        ternmq_sends, ternmq_bulk, ternmq_consume,
        redis_sends, redis_bulk, redis_consume,
        rabbitmq_sends, rabbitmq_bulk, rabbitmq_consume,
        rabbitmq_quorum_sends, rabbitmq_quorum_bulk, rabbitmq_quorum_consume,
    )  # fmt: skip
