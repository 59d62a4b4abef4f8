"""The Python clients of ``peers``: each verb is a process of its own, the same for each broker.

    python bench/peer_clients.py VERB URL [name=number ...]

prints one JSON object of figures; a verb is a broker's name and a load, as ``redis_sends``:

* ``sends``: messages of 1 KiB, each awaited until the broker answers that it is durable;
* ``bulk``: messages of 100 bytes, so many under way at a time;
* ``consume``: takes a backlog of those by so many, and acknowledges them;
* ``end_to_end``: so many messages of 1 KiB a second; the time from the moment at which each was due
  to be sent until its consumer has it, on another connection;
* ``topics``: makes topics, and sends one message to each.

``native`` has the same loads in Go and in Java. In all of them every message is made inside the
timing, its number first, and the first part of a load (``warm``, ``warm_count``) is not timed. The
clock begins when the connection and its topic are there and can be used, 30 s at most after the
first try: a broker may listen before it is ready.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from broker_clients import Figures, percentile
from peer_brokers import BROKERS, Client, body

LARGE: Final = 1024
_PATIENCE_S: Final = 30.0
_SLEEP_S: Final = 0.0005
_AGAIN_S: Final = 0.02

Connect = Callable[[], Awaitable[Client]]


async def patiently(connect: Connect, patience_s: float = _PATIENCE_S) -> Client:
    """Connect until a broker can be used, outside the timing: it may listen and not be ready yet.

    Raises:
        TimeoutError: It was not in that time; the last error is the cause.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return await connect()
        except Exception as error:  # whatever its client makes of a broker that is not ready
            if time.monotonic() >= until:
                raise TimeoutError(f"not ready within {patience_s:g} s") from error
        await asyncio.sleep(_AGAIN_S)


async def sends(
    connect: Connect, connections: float, in_flight: float, seconds: float, warm: float
) -> Figures:
    """See above. Where a client can only have more under way by a pipeline, it sends pipelines."""
    clients = [await connect() for _ in range(int(connections))]
    taken: list[float] = []
    began = time.perf_counter() + warm
    until = began + seconds
    count = 0

    async def lane(client: Client, each: int) -> None:
        nonlocal count
        while (at := time.perf_counter()) < until or not taken:  # a machine may be too busy
            await client.send([body(count + number, LARGE) for number in range(each)])
            count += each
            if at >= began:
                taken.extend([time.perf_counter() - at] * each)

    lanes, each = (1, int(in_flight)) if clients[0].pipelined else (int(in_flight), 1)
    await asyncio.gather(*[lane(client, each) for client in clients for _ in range(lanes)])
    for client in clients:
        await client.close()
    return {
        "per_s": len(taken) / seconds,
        "p50_ms": percentile(taken, 0.5) * 1e3,
        "p99_ms": percentile(taken, 0.99) * 1e3,
        "count": float(count),
    }


async def bulk(connect: Connect, count: float, of: float, warm_count: float) -> Figures:
    """See above."""
    client = await connect()
    await client.bulk(int(warm_count), int(of))
    began = time.perf_counter()
    await client.bulk(int(count), int(of))
    taken = time.perf_counter() - began
    await client.close()
    return {"per_s": count / taken, "count": count + warm_count}


async def consume(connect: Connect, count: float, of: float, warm_count: float) -> Figures:
    """See above."""
    client = await connect()
    done = first = 0
    began = ended = 0.0

    def taken(more: int) -> bool:
        nonlocal done, first, began, ended
        done += more
        ended = time.perf_counter()
        if not began and done >= warm_count:
            first, began = done, ended
        return done < count

    await client.consume(int(of), taken)
    await client.close()
    return {"per_s": (done - first) / (ended - began), "count": float(done)}


async def end_to_end(connect: Connect, per_s: float, seconds: float, warm: float) -> Figures:
    """See above."""
    producer, consumer = await connect(), await connect()
    skipped = int(per_s * warm)
    total = skipped + int(per_s * seconds)
    taken = [0.0] * total
    received = 0
    everything = asyncio.Event()
    began = 0.0

    def came(given: bytes) -> None:
        nonlocal received
        number = int.from_bytes(given[:8], "little")
        taken[number] = time.perf_counter() - began - number / per_s
        received += 1
        if received == total:
            everything.set()

    listening = await consumer.subscribe(came)
    began = time.perf_counter() + 0.1
    sent = 0
    sending: set[asyncio.Future[None]] = set()
    while sent < total:
        due = min(total, int((time.perf_counter() - began) * per_s) + 1)
        if due > sent:
            bodies = [body(number, LARGE) for number in range(sent, due)]
            sent = due
            if producer.pipelined:  # one pipeline at a time: what is due meanwhile is in the next
                await producer.send(bodies)
            else:
                sending.add(asyncio.ensure_future(producer.send(bodies)))
        await asyncio.sleep(_SLEEP_S)
    await asyncio.gather(*sending)
    await asyncio.wait_for(everything.wait(), _PATIENCE_S)
    await consumer.stop(listening)
    for client in (producer, consumer):
        await client.close()
    return {
        "p50_ms": percentile(taken[skipped:], 0.5) * 1e3,
        "p99_ms": percentile(taken[skipped:], 0.99) * 1e3,
        "count": float(total),
    }


async def topics(connect: Connect, count: float, of: float) -> Figures:
    """See above."""
    client = await connect()
    began = time.perf_counter()
    await client.topics(int(count), int(of))
    taken = time.perf_counter() - began
    await client.close()
    return {"seconds": taken, "count": count}


LOADS: Final = {one.__name__: one for one in (sends, bulk, consume, end_to_end, topics)}


def main(verb: str, url: str, *settings: str) -> None:
    """Run the verb of the command line."""
    given = {key: float(number) for key, _, number in (one.partition("=") for one in settings)}
    name = next(one for one in LOADS if verb.endswith(f"_{one}"))
    opened = BROKERS[verb.removesuffix(f"_{name}")]

    async def connect() -> Client:
        return await patiently(lambda: opened(url))

    print(json.dumps(asyncio.run(LOADS[name](connect, **given))))


if __name__ == "__main__":
    main(*sys.argv[1:])
