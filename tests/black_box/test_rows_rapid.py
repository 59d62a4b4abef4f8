"""Rows of MISSION, the rapid mode: sends that nobody answers, beside those that are answered."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until
from tests.black_box.users import Async, Blocking, User
from tests.black_box.wire import Wire
from tests.fault.processes import patience


@pytest.fixture(params=[Async, Blocking])
def make(request: pytest.FixtureRequest) -> Callable[..., User]:
    made: Callable[..., User] = request.param
    return made


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that the test may kill."""
    with BrokerProcess("dev", tmp_path) as broker:
        yield broker


def stored(broker: BrokerProcess) -> float:
    return broker.metric("ternmq_messages_sent_total")


def wait_for_stored(broker: BrokerProcess, count: float) -> None:
    wait_until(lambda: stored(broker) == count, f"{count} are stored")


async def answered(client: ternmq.Client, topic: str, count: int) -> None:
    """Send as most programs do: the next one when the one before is stored."""
    for number in range(count):
        await client.send(topic, b"%d" % number)


async def rapid(client: ternmq.Client, topic: str, count: int) -> None:
    """Send without waiting."""
    for number in range(count):
        client.send_oneway(topic, b"%d" % number)


@pytest.mark.row("K1")
def test_rapid_sends_are_faster_than_sends_that_are_answered(
    dev: BrokerProcess, topic: str
) -> None:
    """In turns at one broker; rapid counts until the last message is stored."""
    count, plain_s, rapid_s = 500, [], []
    with Async(dev.url) as user:
        user.send(topic, b"so that the topic is known")
        for _ in range(3):
            began = time.monotonic()
            user.call(lambda client: answered(client, topic, count))
            plain_s.append(time.monotonic() - began)
            before, began = stored(dev), time.monotonic()
            user.call(lambda client: rapid(client, topic, count))
            wait_for_stored(dev, before + count)
            rapid_s.append(time.monotonic() - began)
    ratio = statistics.median(plain_s) / statistics.median(rapid_s)
    print(f"{count} answered {sorted(plain_s)}, rapid {sorted(rapid_s)}: {ratio:.1f} x")
    assert ratio >= 1


@pytest.mark.row("K1")
def test_rapid_sends_wait_for_no_answer(
    make: Callable[..., User], dev: BrokerProcess, topic: str
) -> None:
    """Nothing of the broker arrives, and all calls return."""
    with Wire(dev.port) as wire, make(wire.url) as user:
        user.send(topic, b"first")
        wire.frozen = True
        heard = wire.down_bytes
        for number in range(1000):
            user.send_oneway(topic, b"%d" % number)
        assert wire.down_bytes == heard
        wire.frozen = False
        wait_until(lambda: len(user.values(topic)) == 1001, "all are stored")


@pytest.mark.row("K1")
def test_a_killed_broker_may_lose_rapid_sends_and_no_others(
    make: Callable[..., User], own: BrokerProcess
) -> None:
    """No call fails; what was answered is there, and nothing is there twice."""
    sent = 0
    answered: list[bytes] = []
    with make(own.url, timeout=60) as user:
        user.send("t", b"first")
        for _ in range(3):
            for _ in range(2000):
                user.send_oneway("t", b"rapid %d" % sent)
                sent += 1
            user.send("t", b"answered %d" % len(answered))
            answered.append(b"answered %d" % len(answered))
            for _ in range(2000):
                user.send_oneway("t", b"rapid %d" % sent)
                sent += 1
            own.restart(kill=True)
        user.send("t", b"answered last")
        found = user.values("t")
    assert len(found) == len(set(found))
    assert {one for one in found if one.startswith(b"answered")} == {*answered, b"answered last"}
    rapid = [int(one.partition(b" ")[2]) for one in found if one.startswith(b"rapid")]
    assert rapid == sorted(rapid)
    assert len(rapid) <= sent
    print(f"{sent - len(rapid)} of {sent} rapid sends were lost in three kills")


COLLECTOR = """
import asyncio, sys, ternmq

async def main(url, topic, name, count):
    async with ternmq.connect(url) as client:
        for number in range(count):
            line = f"{name} {number} " + "GET /flights/LH400 200 " * 6
            while True:
                try:
                    client.send_oneway(topic, line)
                    break
                except ternmq.BufferFull:
                    await client.flush()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


@pytest.mark.row("P7")
def test_logs_of_several_processes_are_collected(dev: BrokerProcess, topic: str) -> None:
    """Rapid sends of 120,000 lines: each arrives once, those of a process in their order."""
    count, names = 40_000, ["web-1", "web-2", "db-1"]
    kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
    with ternmq.sync.connect(dev.url) as client:
        client.admin.create_topic(topic)
        collectors = [
            subprocess.Popen(
                [sys.executable, "-c", COLLECTOR, dev.url, topic, name, str(count)], env=kept
            )
            for name in names
        ]
        seen: dict[str, list[int]] = {name: [] for name in names}
        until = time.monotonic() + 120 * patience()
        try:
            while sum(map(len, seen.values())) < count * len(names):
                assert time.monotonic() < until, {name: len(one) for name, one in seen.items()}
                batch = client.pull(topic, group="g", max_messages=10_000, wait=1)
                for body in batch.bodies:
                    name, number, _ = body.split(b" ", 2)
                    seen[name.decode()].append(int(number))
                batch.ack()
            assert [one.wait(60) for one in collectors] == [0] * len(names)
        finally:
            for one in collectors:
                one.kill()
                one.wait()
        assert not client.pull(topic, group="g", wait=0)
    assert all(one == list(range(count)) for one in seen.values())
