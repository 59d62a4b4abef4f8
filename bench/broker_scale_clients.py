"""The clients of ``broker_scale``: each verb is a process of its own.

    python bench/broker_scale_clients.py VERB URL [name=number ...]

prints one JSON object of figures. The 70 groups are read over the bare protocol, a connection each:
every record's checksum is computed, and nothing in it is looked at, as a reader does that passes
records on.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Final, cast

from broker_clients import Figures, main_of, percentile
from google_crc32c import value as crc32c

import ternmq
from ternmq.model.specs import Start
from ternmq.record.fact.header import HEADER
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from ternmq.wire.session import Answer, ClientSession, State

TOPIC: Final = "events"
BACKLOG: Final = "backlog"
_TOGETHER: Final = 200
_BODY: Final = b"x" * 100
_RESULT_S: Final = 600.0


async def make_topics(url: str, count: int) -> Figures:
    """Make topics, each with a group and a message."""
    began = time.perf_counter()
    async with ternmq.connect(url) as client:

        async def one(number: int) -> None:
            name = f"service.orders.{number:05}"
            await client.send(name, _BODY)
            await client.admin.create_group(name, "billing")

        for at in range(0, count, _TOGETHER):
            await asyncio.gather(*[one(n) for n in range(at, min(at + _TOGETHER, count))])
    return {"making_topics_s": time.perf_counter() - began, "topics": float(count)}


# ------------------------------------------------------------------------------------- many groups


async def make_groups(url: str, count: int) -> Figures:
    """Make the topic and its groups."""
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(TOPIC)
        await asyncio.gather(*[client.admin.create_group(TOPIC, f"g{n}") for n in range(count)])
    return {}


async def send_singles(url: str, count: int) -> Figures:
    """Send messages one by one, 32 at a time."""
    left = iter(range(count))
    # A connection puts what is sent in one turn into one batch: singles come from connections.
    clients = [await ternmq.connect(url) for _ in range(32)]

    async def one(client: ternmq.Client) -> None:
        for _ in left:
            await client.send(TOPIC, _BODY)

    await asyncio.gather(*[one(client) for client in clients])
    for client in clients:
        await client.close()
    return {}


async def send_batches(url: str, count: int) -> Figures:
    """Send messages in batches of 500."""
    messages = [ternmq.Message(_BODY) for _ in range(500)]
    async with ternmq.connect(url) as client:
        for _ in range(count // 500):
            await client.send_many(TOPIC, messages)
    return {}


async def journal_end(url: str) -> Figures:
    """Return how long the journal is."""
    async with ternmq.connect(url) as client:
        return {"journal_end": float((await client.admin.status()).journal_end)}


async def fill(url: str, size: int) -> Figures:
    """Send so many bytes of something else, so that earlier segments are over."""
    body = b"x" * 500_000
    async with ternmq.connect(url) as client:
        for _ in range(size // len(body)):
            await client.send("filler", body)
    return {}


class Reader(asyncio.Protocol):
    """A group's connection: one pull at a time, each checked and settled with the next."""

    def __init__(self, group: str, of: int, messages: int) -> None:
        self.left = messages
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._group = group
        self._session = ClientSession()
        self._transport: asyncio.Transport
        self._pull = bodies.pack_pull(bodies.Pull(TOPIC, group, None, of, 0, 10_000))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who this is."""
        self._transport = cast("asyncio.Transport", transport)
        hello = control.Hello(client=f"reader-{self._group}")
        self._transport.write(self._session.hello(hello))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail whoever waits."""
        for waiting in (self.joined, self.done):
            if not waiting.done():
                waiting.set_exception(exc or ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        opening = self._session.state is State.OPENING
        events = self._session.receive(data)
        if opening:
            join = control.GroupJoin(topic=TOPIC, group=self._group, start=Start.EARLIEST)
            self._transport.write(self._session.ask(Command.GROUP_JOIN, control.encode(join))[1])
            return
        for event in events:
            assert isinstance(event, Answer), event
            if event.command is Command.PULL:
                self._pulled(event.body)
            elif event.command is Command.GROUP_JOIN:
                self.joined.set_result(None)
            elif event.command is Command.SETTLE and not self.left and not self.done.done():
                self.done.set_result(None)

    def begin(self) -> None:
        """Pull."""
        self._transport.write(self._session.ask(Command.PULL, self._pull)[1])

    def _pulled(self, body: bytes) -> None:
        told = bodies.unpack_delivery(body)
        records = told.records
        at = 0
        while at < len(records):
            crc, _, length, *_ = HEADER.unpack_from(records, at)
            assert crc32c(records[at + 4 : at + length]) == crc
            at += length
        self.left -= sum([run.rows for run in told.runs])
        settle = bodies.Settle(
            TOPIC, self._group, told.queue, told.epoch, told.lease, 0, (), None, ""
        )
        frames = self._session.ask(Command.SETTLE, bodies.pack_settle(settle))[1]
        if self.left:
            frames += self._session.ask(Command.PULL, self._pull)[1]
        self._transport.write(frames)


async def read_groups(url: str, first: int, stop: int, of: int, messages: int) -> Figures:
    """Read the topic to its end for each of some groups."""
    host, _, port = url.removeprefix("ternmq://").rpartition(":")
    loop = asyncio.get_running_loop()
    readers: list[Reader] = []
    for number in range(first, stop):
        reader = Reader(f"g{number}", of, messages)
        await loop.create_connection(lambda reader=reader: reader, host, int(port))  # type: ignore[misc]
        await reader.joined
        readers.append(reader)
    began = time.time()
    for reader in readers:
        reader.begin()
    async with asyncio.timeout(_RESULT_S):
        await asyncio.gather(*[reader.done for reader in readers])
    return {"began": began, "ended": time.time()}


# ------------------------------------------------------------------------------------ cold backlog


async def make_backlog(url: str, size: int, groups: int) -> Figures:
    """Send a backlog of 1 KiB messages that some groups have before them."""
    of = 500
    messages = [ternmq.Message(b"x" * 1024) for _ in range(of)]
    async with ternmq.connect(url) as client:
        await client.admin.create_topic(BACKLOG)
        for number in range(groups):
            await client.admin.create_group(BACKLOG, f"cold{number}")
        for _ in range(size // (of * 1024)):
            await client.send_many(BACKLOG, messages)
    return {}


async def live(url: str, seconds: float) -> Figures:
    """Send messages of 1 KiB, 16 at a time on 4 connections, each answered after its sync."""
    body = b"x" * 1024
    clients = [await ternmq.connect(url) for _ in range(4)]
    began = time.perf_counter() + 0.3
    until = began + seconds
    taken: list[float] = []

    async def one(client: ternmq.Client) -> None:
        while (at := time.perf_counter()) < until:
            await client.send("live", body)
            if at >= began:
                taken.append((time.perf_counter() - at) * 1e3)
            await asyncio.sleep(0.01)  # a service's pace: it is not the broker that is full

    await asyncio.gather(*[one(client) for client in clients for _ in range(4)])
    for client in clients:
        await client.close()
    return {
        "p50_ms": percentile(taken, 0.5),
        "p99_ms": percentile(taken, 0.99),
        "live_per_s": len(taken) / seconds,
    }


async def read_backlog(url: str, group: int, seconds: float) -> Figures:
    """Pull and settle at full speed; two pulls under way, so that the broker never waits for it."""
    rows = 0
    name = f"cold{group}"
    async with ternmq.connect(url) as client:
        told = itertools.count()
        began = time.perf_counter()
        until = began + seconds
        ended = until

        async def one() -> None:
            nonlocal rows, ended
            while time.perf_counter() < until:
                batch = await client.pull(BACKLOG, group=name, max_messages=1000, wait=0)
                if not batch:
                    ended = min(ended, time.perf_counter())
                    return
                if next(told) == 0:
                    print("ready", flush=True)
                rows += len(batch)
                await batch.ack()

        await asyncio.gather(one(), one())
        passed = ended - began
    return {"read_mb_per_s": rows * 1024 / 1e6 / passed, "busy_share": passed / seconds}


if __name__ == "__main__":
    main_of(
        make_topics, make_groups, send_singles, send_batches, journal_end, fill, read_groups,
        make_backlog, live, read_backlog,
    )  # fmt: skip
