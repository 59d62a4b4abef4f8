"""Rows of MISSION, pulling and the pull log: shown with one broker process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

T = TypeVar("T")
Place = int | datetime | Literal["earliest", "latest"]


def run(url: str, work: Callable[[ternmq.Client], Coroutine[Any, Any, T]]) -> T:
    """Run an asyncio program with a client of its own."""

    async def main() -> T:
        async with asyncio.timeout(60), ternmq.connect(url) as client:
            return await work(client)

    return asyncio.run(main())


def send(client: ternmq.sync.Client, topic: str, number: int) -> None:
    client.send_many(topic, [b"%d" % n for n in range(number)])


def numbers(deliveries: ternmq.sync.Deliveries) -> list[int]:
    return [int(body) for body in deliveries.bodies]


# -------------------------------------------------------------------------------------- long polls


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.row("E1")
def test_an_empty_pull_returns_at_its_timeout_or_when_a_message_comes(
    client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, b"known")
    client.pull(topic, group="g").ack()
    began = time.monotonic()
    assert not client.pull(topic, group="g", wait=0.3)
    assert 0.25 < time.monotonic() - began < 10  # its wait, not that of the client

    took: list[float] = []
    for _ in range(20):
        got: list[float] = []

        def wait(got: list[float] = got) -> None:
            client.pull(topic, group="g", wait=10).ack()
            got.append(time.monotonic())

        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: bool(client.admin.group(topic, "g").members), "the pull is parked")
        client.send(topic, b"x")
        sent_at = time.monotonic()
        waiting.join(10)
        took.append(got[0] - sent_at)
    assert sorted(took)[10] < 0.2, took


@pytest.mark.slow
@pytest.mark.row("E1")
def test_a_thousand_idle_polls_cost_nothing(dev: BrokerProcess, topic: str) -> None:
    assert dev.process is not None
    pid = dev.process.pid

    async def work(client: ternmq.Client) -> None:
        await client.send(topic, b"known")
        polls = []
        for number in range(1000):
            await client.admin.create_group(topic, f"g-{number}", start="latest")
            pull = client.pull(topic, group=f"g-{number}", wait=30)
            polls.append(asyncio.create_task(pull))
        async with asyncio.timeout(30):  # the broker says when all are parked
            while (await client.admin.status()).metrics["ternmq_waiters"] < 1000:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        before = _cpu_seconds(pid)
        await asyncio.sleep(3)  # what is measured is a stretch of time in which nothing happens
        assert _cpu_seconds(pid) - before <= 0.06
        took: list[float] = []
        other = f"{topic}-other"
        await client.send(other, b"known")
        await (await client.pull(other, group="one")).ack()
        for _ in range(21):
            one = asyncio.create_task(client.pull(other, group="one", wait=30))
            async with asyncio.timeout(10):
                while (await client.admin.status()).metrics["ternmq_waiters"] < 1001:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await client.send(other, b"for one of them")
            sent_at = time.monotonic()
            batch = await one
            took.append(time.monotonic() - sent_at)
            await batch.ack()
        assert sorted(took)[10] < 0.2  # bench/broker.py idle-polls has the figure
        assert (await client.admin.status()).metrics["ternmq_waiters"] == 1000
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)

    run(dev.url, work)


# -------------------------------------------------------------------------- who gets which message


@pytest.mark.row("E2", "E8")
def test_consumers_come_and_go_without_a_protocol(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """Every message is delivered, none twice, whoever works."""
    send(client, topic, 3000)
    got: list[int] = []
    left = threading.Event()

    def work(batches: int) -> None:
        with ternmq.sync.connect(dev.url) as own:
            for _ in range(batches):
                batch = own.pull(topic, group="g", max_messages=20, wait=0.2)
                got.extend(numbers(batch))
                batch.ack()
                if len(got) >= 3000:
                    left.set()
                    return

    waves = 0
    while not left.is_set():
        waves += 1
        assert waves < 100
        threads = [threading.Thread(target=work, args=(5 + waves % 7,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(got) == list(range(3000))


@pytest.mark.row("E7")
def test_each_group_gets_the_full_set(client: ternmq.sync.Client, topic: str) -> None:
    send(client, topic, 200)
    for group in ("a", "b", "c"):
        batch = client.pull(topic, group=group, max_messages=500)
        assert numbers(batch) == list(range(200))
        batch.ack()
        assert not client.pull(topic, group=group, wait=0)


@pytest.mark.row("F1")
def test_ten_consumers_of_one_queue_all_receive(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.send(topic, b"known")

    async def work(own: ternmq.Client) -> None:
        workers: Counter[int] = Counter()
        busy = asyncio.Event()

        async def consume(number: int) -> None:
            async with own.consume(topic, group="g", max_in_flight=1) as deliveries:
                async for delivery in deliveries:
                    async with delivery.process():
                        workers[number] += 1
                        if len(workers) == 10:
                            busy.set()
                        await asyncio.sleep(0.005)

        tasks = [asyncio.create_task(consume(number)) for number in range(10)]
        await own.send_many(topic, [b"x"] * 500)
        async with asyncio.timeout(1.0):
            await busy.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(dev.url, work)


@pytest.mark.slow
@pytest.mark.row("F2", "F3")
def test_more_consumers_are_faster_at_once_and_fewer_lose_nothing(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """A handler that waits 20 ms: two consumers, then ten, on the same backlog; then two again."""
    send(client, topic, 3000)

    async def work(own: ternmq.Client) -> None:
        done: Counter[bytes] = Counter()

        async def consume() -> None:
            async with own.consume(topic, group="g", max_in_flight=4) as deliveries:
                async for delivery in deliveries:
                    async with delivery.process():
                        await asyncio.sleep(0.02)
                        done[delivery.body] += 1

        async def rate(seconds: float) -> float:
            before, began = done.total(), time.monotonic()
            await asyncio.sleep(seconds)
            return (done.total() - before) / (time.monotonic() - began)

        tasks = [asyncio.create_task(consume()) for _ in range(2)]
        async with asyncio.timeout(30):  # both work
            while done.total() < 8:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        two = await rate(1.5)
        tasks += [asyncio.create_task(consume()) for _ in range(8)]
        ten = max([await rate(0.5) for _ in range(4)])  # within two seconds
        assert ten >= 4.5 * two
        for task in tasks[2:]:
            task.cancel()
        async with asyncio.timeout(30):  # the broker says when all are parked
            while len(done) < 3000:
                if len(done) > 1200 and len(tasks) == 10:
                    tasks += [asyncio.create_task(consume()) for _ in range(20)]
                await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(dev.url, work)


# ------------------------------------------------------------------------------ ways of consuming


@pytest.mark.row("E14")
def test_a_handler_is_called_within_milliseconds(dev: BrokerProcess, topic: str) -> None:
    async def work(client: ternmq.Client) -> list[float]:
        took: list[float] = []
        heard = asyncio.Event()

        @client.handler(topic, group="g")
        async def on_message(body: bytes) -> None:
            took.append(time.monotonic() - float(body))
            heard.set()

        running = asyncio.create_task(client.run())
        async with ternmq.connect(dev.url) as other:
            for _ in range(50):
                heard.clear()
                await other.send(topic, str(time.monotonic()).encode())
                await heard.wait()
        client.stop()
        await running
        return sorted(took)

    assert run(dev.url, work)[25] < 0.5


@pytest.mark.row("E15")
def test_batches_are_of_at_most_so_many(client: ternmq.sync.Client, topic: str) -> None:
    send(client, topic, 95)
    sizes: list[int] = []
    for batch in client.consume_batches(topic, group="g", max_messages=30, max_wait=0.2):
        with batch.process():
            sizes.append(len(batch))
        if sum(sizes) == 95:
            break
    assert sizes == [30, 30, 30, 5]


@pytest.mark.row("E17")
def test_only_messages_of_the_tag_are_delivered(client: ternmq.sync.Client, topic: str) -> None:
    """With more tags than a hash of 64 places can tell apart: none comes by mistake."""
    client.send_many(topic, [ternmq.Message(b"%d" % n, tag=f"tag-{n % 300}") for n in range(3000)])
    batch = client.pull(topic, group="g", tags="tag-7 || tag-299", max_messages=500)
    expected = [n for n in range(3000) if n % 300 in {7, 299}]
    assert numbers(batch) == expected
    batch.ack()
    (queue,) = client.admin.group(topic, "g").queues
    assert (queue.floor, queue.cursor) == (3000, 3000)
    with pytest.raises(ternmq.GroupSettingsMismatch, match="tag"):
        client.pull(topic, group="g", tags="tag-8")


@pytest.mark.row("E17")
def test_only_messages_with_matching_headers_are_delivered(tmp_path: Path) -> None:
    """Also after a kill; what does not match, or is not known to, advances the position."""
    wanted = "region = 'eu' AND n BETWEEN 100 AND 2000"
    with BrokerProcess("dev", tmp_path / "broker") as broker:
        with ternmq.sync.connect(broker.url) as client:
            regions = {0: {"region": "eu"}, 1: {"region": "us"}, 2: {}}
            client.send_many("t", [
                ternmq.Message(b"%d" % n, tag=f"t{n % 2}",
                               headers=regions[n % 3] | {"n": str(n) if n % 5 else "many"})
                for n in range(3000)
            ])  # fmt: skip
            passing = [n for n in range(100, 2001) if n % 3 == 0 and n % 5]
            first = client.pull("t", group="g", filter=wanted, max_messages=100)
            assert numbers(first) == passing[:100]
            first.ack()
            odd = client.pull("t", group="odd", tags="t1", filter=wanted, max_messages=3000)
            assert numbers(odd) == [n for n in passing if n % 2]
            for wrong in ("n >", "x" * (1 << 20), "(" * 10_000 + "n = 1"):
                with pytest.raises(ternmq.InvalidFilter, match="column"):
                    client.pull("t", group="new", filter=wrong)
            with pytest.raises(ternmq.GroupSettingsMismatch, match="filter"):
                client.pull("t", group="g", filter="n = 1")
            assert {one.group for one in client.admin.groups("t")} == {"g", "odd"}
        broker.kill()
        broker.start()
        with ternmq.sync.connect(broker.url) as client:
            got: list[int] = []
            while batch := client.pull("t", group="g", max_messages=200, wait=1):
                got += numbers(batch)
                batch.ack()
            assert got == passing[100:]
            (queue,) = client.admin.group("t", "g").queues
            assert (queue.floor, queue.cursor, queue.lag) == (3000, 3000, 0)


@pytest.mark.row("E19")
def test_a_group_goes_on_where_it_is_told_also_after_a_restart(tmp_path: Path) -> None:
    """Row E19 but for the switch to a replica, which there is none of yet."""
    with (
        BrokerProcess("dev", tmp_path / "broker") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        send(client, "t", 100)
        client.pull("t", group="g", max_messages=500).ack()
        middle = client.get("t", offset=60).stored_at
        client.send("t", b"100")
        places: list[tuple[Place, int | None]] = [
            ("earliest", 0), (30, 30), ("latest", None), (middle, 0),
        ]  # fmt: skip
        for place, first in places:
            (preview,) = client.admin.reset_group("t", "g", place, queue=0, dry_run=True)
            (done,) = client.admin.reset_group("t", "g", place, queue=0)
            assert preview == done
            broker.restart(kill=place == 30)
            batch = client.pull("t", group="g", max_messages=1, wait=0.5)
            assert numbers(batch) == ([] if first is None else [first])
            if batch:
                batch.ack()


@pytest.mark.row("E20")
def test_a_paused_group_gets_nothing_others_do(client: ternmq.sync.Client, topic: str) -> None:
    send(client, topic, 10)
    for group in ("paused", "other"):
        client.admin.create_group(topic, group)
    client.admin.pause_group(topic, "paused")
    with pytest.raises(ternmq.GroupPaused, match="resume"):
        client.pull(topic, group="paused", wait=0.3)
    assert numbers(client.pull(topic, group="other")) == list(range(10))
    client.admin.resume_group(topic, "paused")
    assert numbers(client.pull(topic, group="paused")) == list(range(10))
