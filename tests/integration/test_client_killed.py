"""A worker that a message kills: what of its messages has used up an attempt."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

import ternmq
from ternmq.testing import InProcessBroker
from tests.asynchronous import until_true

WORKER = """
import asyncio, os, signal, sys
import ternmq

client = ternmq.connect(sys.argv[1])
policy = ternmq.RetryPolicy(first=0.1, attempts=3, jitter=0)

@client.handler("jobs", group="g", concurrency=int(sys.argv[2]), retry=policy)
{async_}def job(number: int) -> None:
    print(number, flush=True)
    if number == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(client.run())
"""
COUNT = 60


def die(url: str, poison: int, *, is_async: bool, concurrency: int) -> list[int]:
    """Run a worker until a message kills it; return what its handler saw."""
    program = WORKER.replace("{async_}", "async " if is_async else "")
    ended = subprocess.run(
        [sys.executable, "-c", program, url, str(concurrency), str(poison)],
        stdout=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    return [int(line) for line in ended.stdout.split()]


async def all_gone(client: ternmq.Client) -> bool:
    """Return whether the broker knows that every client but this one has lost its connection."""
    return sum([one.connected for one in await client.admin.clients()]) == 1


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async-def"])
@pytest.mark.parametrize("poison", [0, 5])
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
async def test_only_the_message_that_kills_becomes_a_dead_letter(
    timed: InProcessBroker, is_async: bool, poison: int, ordered: bool
) -> None:
    async with ternmq.connect(timed.url) as client:
        await client.admin.create_topic("jobs", ordered=ordered)
        for number in range(COUNT):
            key = f"key {number % 20}" if ordered else ""
            await client.send("jobs", number, ordering_key=key)
        runs = 0
        while True:
            dead = [one async for one in client.deadletters.browse("jobs", "g")] if runs else []
            if dead:
                break
            runs += 1
            # What was done before it and not told yet may count in its place.
            assert runs <= 3 + poison
            die(timed.url, poison, is_async=is_async, concurrency=1)
            await until_true(lambda: all_gone(client), "its connection is lost")
            timed.clock.advance(seconds=11)
        assert [(one.offset, one.attempts) for one in dead] == [(poison, 3)]
        info = (await client.admin.group("jobs", "g")).queues[0]
        waiting = [one async for one in client.deadletters.waiting("jobs", "g")]
        assert info.dead == 1
        assert len(waiting) <= poison
        assert {one.cause for one in dead[0].failures} == {"session"}
    shown = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "ternmq", "--url", timed.url, "deadletter", "list", "jobs", "g"],
        capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert "the consumer was gone" in shown.stdout
