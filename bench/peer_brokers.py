"""What a Python client does with each broker; ``peer_clients`` has the loads."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, Protocol

import ternmq

QUEUE: Final = "orders"
GROUP: Final = "billing"
SMALL: Final = 100
_FILL: Final = b"x" * 1024
_PREFETCH: Final = 1000


def body(number: int, size: int) -> bytes:
    """Make a message: its number, and what fills it."""
    return number.to_bytes(8, "little") + _FILL[: size - 8]


def small(count: int, of: int) -> Iterator[list[bytes]]:
    """Make messages of 100 bytes, so many at a time."""
    for at in range(0, count, of):
        yield [body(number, SMALL) for number in range(at, min(count, at + of))]


class Client(Protocol):
    """A client of a broker, on one connection."""

    pipelined: ClassVar[bool]
    """More than one message is under way on a connection only if they are sent together."""

    async def send(self, bodies: Sequence[bytes]) -> None:
        """Send messages; return when all are durable."""

    async def bulk(self, count: int, of: int) -> None:
        """Send messages of 100 bytes, so many under way at a time."""

    async def consume(self, of: int, taken: Callable[[int], bool]) -> None:
        """Take messages by so many and acknowledge them, until ``taken`` says no."""

    async def subscribe(self, came: Callable[[bytes], None]) -> asyncio.Future[None]:
        """Call ``came`` with each message that comes from now on, and acknowledge it."""

    async def stop(self, listening: asyncio.Future[None]) -> None:
        """End what ``subscribe`` began."""

    async def topics(self, count: int, of: int) -> None:
        """Make topics and send a message to each, so many under way at a time."""

    async def close(self) -> None:
        """End it."""


async def together(count: int, of: int, one: Callable[[int], Awaitable[object]]) -> None:
    """Await ``one`` for each number below ``count``, so many at a time."""
    numbers = iter(range(count))

    async def lane() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*[lane() for _ in range(of)])


async def cancelled(one: asyncio.Future[None]) -> None:
    """Cancel it, and wait for its end."""
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)


# ------------------------------------------------------------------------------------------ ternmq


class Ternmq:
    """This broker's client."""

    pipelined: ClassVar = False

    def __init__(self, client: ternmq.Client) -> None:
        self._client = client

    async def send(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._client.send(QUEUE, bodies[0])
        else:
            await self._client.send_many(QUEUE, [ternmq.Message(one) for one in bodies])

    async def bulk(self, count: int, of: int) -> None:
        for bodies in small(count, of):
            await self._client.send_many(QUEUE, [ternmq.Message(one) for one in bodies])

    async def consume(self, of: int, taken: Callable[[int], bool]) -> None:
        more = True
        while more:
            batch = await self._client.pull(QUEUE, group=GROUP, max_messages=of, wait=5)
            assert all(batch.bodies)
            await batch.ack()
            more = taken(len(batch))

    async def subscribe(self, came: Callable[[bytes], None]) -> asyncio.Future[None]:
        await self._client.pull(QUEUE, group=GROUP, wait=0)

        async def take() -> None:
            consuming = self._client.consume(QUEUE, group=GROUP, max_in_flight=_PREFETCH)
            async with consuming as deliveries:
                async for delivery in deliveries:
                    async with delivery.process():
                        came(delivery.body)

        return asyncio.ensure_future(take())

    async def stop(self, listening: asyncio.Future[None]) -> None:
        await cancelled(listening)

    async def topics(self, count: int, of: int) -> None:
        async def one(number: int) -> None:
            await self._client.send(f"topic.{number}", body(number, SMALL))

        await together(count, of, one)

    async def close(self) -> None:
        await self._client.close()


async def _ternmq(url: str) -> Client:
    return Ternmq(await ternmq.connect(url))


# ------------------------------------------------------------------------------------------- redis


class Redis:
    """redis-py, with hiredis."""

    pipelined: ClassVar = True

    def __init__(self, client: Any) -> None:
        self._client = client
        self._taking = True

    async def send(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._client.xadd(QUEUE, {"b": bodies[0]})
            return
        pipe = self._client.pipeline(transaction=False)
        for one in bodies:
            pipe.xadd(QUEUE, {"b": one})
        await pipe.execute()

    async def bulk(self, count: int, of: int) -> None:
        for bodies in small(count, of):
            await self.send(bodies)

    async def _take(self, of: int) -> list[bytes]:
        found = await self._client.xreadgroup(GROUP, "one", {QUEUE: ">"}, count=of, block=1000)
        if not found:
            return []
        ((_, rows),) = found
        bodies = [fields[b"b"] for _, fields in rows]
        assert all(bodies)
        await self._client.xack(QUEUE, GROUP, *[id_ for id_, _ in rows])
        return bodies

    async def consume(self, of: int, taken: Callable[[int], bool]) -> None:
        await self._client.xgroup_create(QUEUE, GROUP, id="0")
        more = True
        while more:
            more = taken(len(await self._take(of)))

    async def subscribe(self, came: Callable[[bytes], None]) -> asyncio.Future[None]:
        await self._client.xgroup_create(QUEUE, GROUP, id="$", mkstream=True)

        async def take() -> None:
            while self._taking:
                for one in await self._take(_PREFETCH):
                    came(one)

        return asyncio.ensure_future(take())

    async def stop(self, listening: asyncio.Future[None]) -> None:
        self._taking = False  # a read that is cancelled may never come back: it ends by itself
        await listening

    async def topics(self, count: int, of: int) -> None:
        for at in range(0, count, of):
            pipe = self._client.pipeline(transaction=False)
            for number in range(at, min(count, at + of)):
                pipe.xadd(f"topic.{number}", {"b": body(number, SMALL)})
            await pipe.execute()

    async def close(self) -> None:
        await self._client.aclose()


async def _redis(url: str) -> Client:
    asyncio_of_redis: Any = importlib.import_module("redis.asyncio")
    # RESP 2, whose answers the code above reads.
    return Redis(asyncio_of_redis.Redis.from_url(url, single_connection_client=True, protocol=2))


# ---------------------------------------------------------------------------------------- rabbitmq


class Rabbit:
    """aio-pika: a durable queue, persistent messages, publisher confirms awaited."""

    pipelined: ClassVar = False

    def __init__(self, connection: Any, channel: Any, kind: str) -> None:
        self._connection = connection
        self._channel = channel
        self._kind = kind
        self._aio_pika: Any = importlib.import_module("aio_pika")

    async def declare(self, name: str) -> Any:
        arguments = {"x-queue-type": self._kind}
        return await self._channel.declare_queue(name, durable=True, arguments=arguments)

    async def _publish(self, name: str, given: bytes) -> None:
        mode = self._aio_pika.DeliveryMode.PERSISTENT
        message = self._aio_pika.Message(given, delivery_mode=mode)
        await self._channel.default_exchange.publish(message, routing_key=name)

    async def send(self, bodies: Sequence[bytes]) -> None:
        if len(bodies) == 1:
            await self._publish(QUEUE, bodies[0])
        else:
            await asyncio.gather(*[self._publish(QUEUE, one) for one in bodies])

    async def bulk(self, count: int, of: int) -> None:
        for bodies in small(count, of):
            await self.send(bodies)

    async def consume(self, of: int, taken: Callable[[int], bool]) -> None:
        await self._channel.set_qos(prefetch_count=of)
        queue = await self.declare(QUEUE)
        done = 0
        over = asyncio.Event()

        async def take(message: Any) -> None:
            nonlocal done
            assert message.body
            done += 1
            # By halves, so that the broker always has something that it may send.
            if done % (of // 2) == 0:
                await message.ack(multiple=True)
                if not over.is_set() and not taken(of // 2):
                    over.set()

        await queue.consume(take)
        await over.wait()

    async def subscribe(self, came: Callable[[bytes], None]) -> asyncio.Future[None]:
        await self._channel.set_qos(prefetch_count=_PREFETCH)
        queue = await self.declare(QUEUE)

        async def take(message: Any) -> None:
            came(message.body)
            await message.ack()

        await queue.consume(take)
        return asyncio.get_running_loop().create_future()

    async def stop(self, listening: asyncio.Future[None]) -> None:
        await cancelled(listening)

    async def topics(self, count: int, of: int) -> None:
        async def one(number: int) -> None:
            await self._publish(f"topic.{number}", body(number, SMALL))

        for number in range(count):  # a channel declares one at a time
            await self.declare(f"topic.{number}")
        await together(count, of, one)

    async def close(self) -> None:
        await self._connection.close()


async def _rabbit(url: str, kind: str) -> Client:
    aio_pika: Any = importlib.import_module("aio_pika")
    connection = await aio_pika.connect(url)
    try:
        channel = await connection.channel(publisher_confirms=True)
        client = Rabbit(connection, channel, kind)
        await client.declare(QUEUE)
    except Exception:
        await connection.close()
        raise
    return client


BROKERS: Final[dict[str, Callable[[str], Awaitable[Client]]]] = {
    "ternmq": _ternmq,
    "redis": _redis,
    "rabbitmq": lambda url: _rabbit(url, "classic"),
    "rabbitmq_quorum": lambda url: _rabbit(url, "quorum"),
}
