"""The work that ``instructions`` counts: loads against a broker in this process.

    python bench/instructions_work.py

A call of ``os.getppid`` comes before and after each counted part: callgrind writes its counts down
there. The parts come in the order of ``LOADS``, ``SAMPLES`` of each. Only public names are used, so
that versions of the tree that are far apart can be compared.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import ternmq
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.testing import InProcessBroker

SAMPLES: Final = 4
LOADS: Final = {
    "send": (100, "a send of 1 KiB, one at a time"),
    "send-256": (2 * 256, "a send of 1 KiB, 256 under way"),
    "send_many": (4 * 1000, "a message of a send_many of 1,000"),
    "pull": (20 * 100, "a message sent, pulled and acknowledged, by the 100"),
    "deliver": (40, "a send, a pull and an ack, one at a time"),
    "read": (10 * 1000, "a message read without a group, by the 1,000"),
    "start": (1, "a start of a broker on 20,000 messages and 200 acks"),
}
"""Operations of a sample, and what one is."""


async def _loads(broker: InProcessBroker) -> None:
    body = b"x" * 1024
    async with ternmq.connect(broker.url) as client:
        for topic in ("t", "read"):
            await client.admin.create_topic(topic)
        await client.send_many("read", [body] * 1000)

        async def send() -> None:
            await client.send("t", body)

        async def send_256() -> None:
            await asyncio.gather(*[client.send("t", body) for _ in range(256)])

        async def send_many() -> None:
            await client.send_many("t", [body] * 1000)

        async def pull() -> None:
            await client.send_many("p", [body] * 100)
            got = await client.pull("p", group="g", max_messages=100, wait=5)
            await got.ack()

        async def deliver() -> None:
            await client.send("d", body)
            got = await client.pull("d", group="g", max_messages=1, wait=5)
            await got.ack()

        async def read() -> None:
            async for _ in client.read("read"):
                pass

        loads: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "send": (1, send), "send-256": (256, send_256), "send_many": (1000, send_many),
            "pull": (100, pull), "deliver": (1, deliver), "read": (1000, read),
        }  # fmt: skip
        for topic in ("p", "d"):
            await client.admin.create_topic(topic)
        for name, (each, load) in loads.items():
            calls = LOADS[name][0] // each
            for _ in range(max(3, calls // 4)):
                await load()
            for _ in range(SAMPLES):
                with _counted():
                    for _ in range(calls):
                        await load()


class _counted:  # noqa: N801 - used as a function
    def __enter__(self) -> None:
        gc.collect()
        gc.disable()
        os.getppid()

    def __exit__(self, *_: object) -> None:
        os.getppid()
        gc.enable()


async def _fill(url: str) -> None:
    async with ternmq.connect(url) as client:
        await client.admin.create_topic("t")
        for _ in range(200):
            await client.send_many("t", [b"x" * 100] * 100)
            await (await client.pull("t", group="g", max_messages=100, wait=5)).ack()


def _starts() -> None:
    disk = MemoryDisk()
    broker = InProcessBroker(clock=None, disk=disk)
    broker.start()
    asyncio.run(_fill(broker.url))
    broker.stop(clean=False)
    for _ in range(SAMPLES):
        again = InProcessBroker(clock=None, disk=disk)
        with _counted():
            again.start()
        again.stop(clean=False)


def main() -> None:
    """Run every load."""
    broker = InProcessBroker(clock=None, disk=MemoryDisk())
    broker.start()
    asyncio.run(_loads(broker))
    broker.stop(clean=False)
    _starts()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
