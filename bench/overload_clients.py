"""The clients of the overload measurement: each verb is a process of its own; see ``overload``.

    python bench/overload_clients.py VERB URL [name=number ...]

Verbs that measure print one JSON object of figures at their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from broker_clients import Figures, percentile

import ternmq
from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Row, encode, topic_seed
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import ClientSession, State

TOPIC: Final = "bulk"
SLOW: Final = "slow"
FROZEN: Final = "frozen"
BODY: Final = 4096
BAIT: Final = "bait"
HOSTILE: Final = ("frozen", "returning", "sends", "settles", "lookups", "pulls")
"""What a hostile app does."""
OUT: Final = 8
"""Batches of the inflow without an answer."""


async def prepare(url: str) -> Figures:
    """Make the topic, and the groups that do not keep up: the backlog is theirs."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC)
        for group in (SLOW, FROZEN):
            await client.admin.create_group(TOPIC, group)
            await client.admin.change_group(TOPIC, group, window=60_000)
    return {}


async def fill(url: str, count: int, size: int) -> Figures:
    """Send the backlog."""
    messages = [ternmq.Message(b"x" * size) for _ in range(1000)]
    async with ternmq.connect(url) as client:
        began = time.perf_counter()
        for _ in range(count // 1000):
            await client.send_many(TOPIC, messages)
        return {"filled_per_s": count / (time.perf_counter() - began)}


async def inflow(url: str, bytes_per_s: int, seconds: float) -> Figures:
    """Send so many bytes a second, in batches; each body begins with the time of its making.

    The pace is the clock's, not the broker's: a broker that is late finds the rest waiting, up to
    ``OUT`` batches; what is beyond that was not sent, and shows in the figure.
    """
    rest = b"x" * (BODY - 8)
    of = 50
    batches_per_s = bytes_per_s / (of * BODY)
    sent = late = 0
    room = asyncio.Semaphore(OUT)
    async with ternmq.connect(url) as client:

        async def one() -> None:
            nonlocal sent
            try:
                now = time.time_ns().to_bytes(8, "little")
                await client.send_many(TOPIC, [ternmq.Message(now + rest) for _ in range(of)])
                sent += of
            finally:
                room.release()

        began = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        made = 0
        while (passed := time.perf_counter() - began) < seconds:
            while made < passed * batches_per_s:
                made += 1
                if room.locked():
                    late += 1
                    continue
                await room.acquire()
                task = asyncio.ensure_future(one())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.002)
        await asyncio.gather(*tasks)
        took = time.perf_counter() - began
    return {"inflow_mb_s": sent * BODY / 1e6 / took, "batches_not_sent": float(late)}


async def healthy(url: str, seconds: float, consumers: int, number: int) -> Figures:
    """Consume what comes in now; how old is each message when it is in hand?

    The first fifth of the time is not counted: connections are made, the inflow begins. A group of
    its own for each ``number``: it begins where the topic ends, with no backlog of its own.
    """
    group = f"healthy{number}"
    clients = [await ternmq.connect(url) for _ in range(consumers)]
    began = time.perf_counter()
    until, counted_from = began + seconds, began + seconds / 5
    taken: list[float] = []

    async def one(client: ternmq.Client) -> None:
        while time.perf_counter() < until:
            at = time.perf_counter()
            got = await client.pull(TOPIC, group=group, wait=0.5)
            now = time.time_ns()
            ages = [(now - int.from_bytes(body[:8], "little")) / 1e6 for body in got.bodies]
            await got.ack()
            if at >= counted_from and ages:
                taken.extend(ages)

    await (await clients[0].pull(TOPIC, group=group, wait=0, start="latest")).ack()
    print("ready", flush=True)
    await asyncio.gather(*[one(client) for client in clients])
    for client in clients:
        await client.close()
    return {
        "received_per_s": len(taken) / (seconds * 0.8),
        "p50_ms": percentile(taken, 0.5),
        "p99_ms": percentile(taken, 0.99),
        "worst_ms": max(taken),
    }


async def slow(url: str, seconds: float) -> Figures:
    """Take one message a second."""
    done = 0
    async with ternmq.connect(url) as client:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            got = await client.pull(TOPIC, group=SLOW, max_messages=1, wait=1)
            await got.ack()
            done += len(got)
            await asyncio.sleep(1.0)
    return {"slow_rows": float(done)}


async def frozen(url: str, seconds: float) -> Figures:
    """Ask for everything and read nothing; when cut off, come back and do it again."""
    until = time.perf_counter() + seconds
    times = cut = 0
    while time.perf_counter() < until:
        one = await asyncio.to_thread(frozen_connection, url)
        times += 1
        with one:
            while time.perf_counter() < until:
                await asyncio.sleep(0.05)
                if is_cut(one):
                    cut += 1
                    break
    return {"frozen_connections": float(times), "frozen_cut_off": float(cut)}


def frozen_connection(url: str) -> socket.socket:
    """Return a connection with a small window whose many answers nobody will read."""
    host, _, port = url.removeprefix("ternmq://").rpartition(":")
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect((host, int(port)))
    session = ClientSession()
    one.sendall(session.hello(control.Hello(client=FROZEN, app="admin", token="")))
    while session.state is State.OPENING:
        session.receive(one.recv(1 << 16))
    for _ in range(64):
        asked = bodies.Pull(TOPIC, FROZEN, None, 1000, 0, 0)
        one.sendall(session.ask(Command.PULL, bodies.pack_pull(asked))[1])
    reading = bodies.pack_read(bodies.Read(TOPIC, 0, 0, 10_000, 0, 0))
    for _ in range(64):
        one.sendall(session.ask(Command.READ, reading)[1])
    return one


def is_cut(one: socket.socket) -> bool:
    """Whether the broker has closed it; reads nothing that was sent."""
    poll = select.poll()
    poll.register(one, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


async def bait(url: str, rows: int) -> Figures:
    """Make the topics, and what is worth reading."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic("orders")
        await client.admin.create_topic(BAIT)
        await client.admin.create_group(BAIT, "evil")
        for _ in range(rows // 1000):
            await client.send_many(BAIT, [ternmq.Message(b"x" * 1000) for _ in range(1000)])
    return {}


async def shop(url: str, seconds: float) -> Figures:
    """Send 200 messages a second and consume them; how old is each when it is in hand?"""
    ages: list[float] = []
    async with (
        ternmq.connect(url, app="shop") as sender,
        ternmq.connect(url, app="shop") as consumer,
    ):
        group = f"shop{time.time_ns()}"
        await (await consumer.pull("orders", group=group, wait=0, start="latest")).ack()
        began = time.perf_counter()
        until, counted_from = began + seconds, began + seconds / 8

        async def consume() -> None:
            while time.perf_counter() < until:
                got = await consumer.pull("orders", group=group, wait=0.5)
                now, at = time.time_ns(), time.perf_counter()
                if at >= counted_from:
                    ages.extend(
                        [(now - int.from_bytes(body[:8], "little")) / 1e6 for body in got.bodies]
                    )
                await got.ack()

        async def send() -> None:
            sent = 0
            tasks: set[asyncio.Task[ternmq.Receipt]] = set()
            while (passed := time.perf_counter() - began) < seconds:
                while sent < passed * 200:
                    sent += 1
                    body = time.time_ns().to_bytes(8, "little") + b"x" * 1016
                    task = asyncio.ensure_future(sender.send("orders", body))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                await asyncio.sleep(0.002)
            await asyncio.gather(*tasks)

        await asyncio.gather(consume(), send())
    return {
        "p50_ms": percentile(ages, 0.5),
        "p99_ms": percentile(ages, 0.99),
        "worst_ms": max(ages),
    }


async def hostile(url: str, kind: int, seconds: float) -> Figures:
    """Do harm with 48 connections of one app; see ``HOSTILE``."""
    stand_aside()
    name = HOSTILE[kind]
    host, _, port = url.removeprefix("ternmq://").rpartition(":")
    until = time.perf_counter() + seconds
    connections = requests = 0

    async def one(number: int) -> None:
        nonlocal connections, requests
        while time.perf_counter() < until:
            try:
                reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
                session = ClientSession()
                writer.write(session.hello(control.Hello(client=f"evil{number}", app="evil")))
                while session.state is State.OPENING:
                    session.receive(await reader.read(4096))
                connections += 1
                frames = harm(name, number, session)
                if name in ("frozen", "returning"):
                    writer.write(b"".join(frames))
                    requests += len(frames)
                    reader._transport.pause_reading()  # type: ignore[attr-defined]
                    stays = min(until, time.perf_counter() + (0.2 if name == "returning" else 60))
                    sock = writer.get_extra_info("socket")
                    while time.perf_counter() < stays and not is_cut(sock):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)  # nobody tells who reads nothing
                else:
                    draining = asyncio.ensure_future(drained(reader))
                    while time.perf_counter() < until and not draining.done():
                        writer.write(b"".join(frames))
                        requests += len(frames)
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(writer.drain(), until - time.perf_counter())
                    draining.cancel()
                writer.transport.abort()
            except (OSError, TernMQError):
                await asyncio.sleep(0.05)

    tasks = [asyncio.ensure_future(one(number)) for number in range(48)]
    await asyncio.sleep(2.0)  # they are at it
    print("ready", flush=True)
    await asyncio.gather(*tasks)
    return {"connections": float(connections), "requests_per_s": requests / seconds}


async def burn(url: str, cores: float, seconds: float) -> Figures:
    """Talk to nobody, and use so much of a core, in goes of 1 ms or more."""
    del url
    stand_aside()
    began, used = time.perf_counter(), time.process_time()
    said = False
    while (passed := time.perf_counter() - began) < seconds:
        if time.process_time() - used >= cores * passed:
            await asyncio.sleep(0.001)
        if passed > 1.0 and not said:
            said = True
            print("ready", flush=True)
    return {}


def stand_aside() -> None:
    """Take only the processor time that the broker and the healthy client leave.

    The process stands for other machines: what the broker does for it is measured, not the
    processor that it would take from others here.
    """
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


async def drained(reader: asyncio.StreamReader) -> None:
    """Read answers away, until the broker ends the connection."""
    while await reader.read(1 << 16):
        pass


def harm(name: str, number: int, session: ClientSession) -> list[bytes]:
    """Return the frames that a hostile connection sends, once or again and again."""
    if name in ("frozen", "returning"):
        asked = bodies.pack_read(bodies.Read(BAIT, 0, 0, 10_000, 0, 0))
        return [session.ask(Command.READ, asked)[1] for _ in range(8)]
    frames = []
    for n in range(256):
        if name == "sends":
            batch = encode(
                [Row(b"x" * 100)], topic_seed=topic_seed(BAIT), producer_id=number + 1,
                first_sequence=n, born_us=1,
            )  # fmt: skip
            frames.append(session.ask(Command.SEND, bodies.pack_send(BAIT, None, batch))[1])
        elif name == "settles":
            settle = bodies.Settle(BAIT, "evil", 0, 1, n + 1, 1, (), None, "")
            frames.append(session.ask(Command.SETTLE, bodies.pack_settle(settle))[1])
        elif name == "lookups":
            find = control.encode(control.Find(topic=BAIT, offset=n))
            frames.append(session.ask(Command.FIND, find)[1])
        else:
            pull = bodies.Pull(BAIT, "evil", None, 1, 0, 1000)
            frames.append(session.ask(Command.PULL, bodies.pack_pull(pull))[1])
    return frames


VERBS: dict[str, Callable[..., Coroutine[None, None, Figures]]] = {
    verb.__name__: verb
    for verb in (prepare, fill, inflow, healthy, slow, frozen, bait, shop, hostile, burn)
}


def main(verbs: Mapping[str, Callable[..., Coroutine[None, None, Figures]]] = VERBS) -> None:
    """Run the verb that the command line names."""
    verb, url, *settings = sys.argv[1:]
    given: dict[str, float] = {}
    for setting in settings:
        name, _, number = setting.partition("=")
        given[name] = float(number) if "." in number else int(number)
    try:
        print(json.dumps(asyncio.run(verbs[verb](url, **given))))
    except TernMQError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
