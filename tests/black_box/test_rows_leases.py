"""Rows of MISSION about leases: how they end, and what comes back."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess
from tests.black_box.wire import Wire


def send(client: ternmq.sync.Client, topic: str, number: int) -> None:
    client.send_many(topic, [b"%d" % n for n in range(number)])


def numbers(deliveries: ternmq.sync.Deliveries) -> list[int]:
    return [int(body) for body in deliveries.bodies]


@pytest.mark.row("E4")
def test_a_lease_that_ended_gives_its_messages_to_another(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    send(client, topic, 3)
    client.admin.create_group(topic, "g")
    client.admin.change_group(topic, "g", lease=timedelta(seconds=1))
    with ternmq.sync.connect(dev.url, max_processing_time=0.01) as slow:
        first = slow.pull(topic, group="g")
        assert numbers(first) == [0, 1, 2]
        assert not client.pull(topic, group="g", wait=0.3)
        second = client.pull(topic, group="g", wait=10)
        assert numbers(second) == [0, 1, 2]
        assert [one.attempt for one in second] == [2, 2, 2]
        with pytest.raises(ternmq.LeaseExpired, match="delivered again"):
            first.ack()
    second.ack()
    assert client.admin.group(topic, "g").queues[0].floor == 3


@pytest.mark.row("E9")
def test_one_slow_message_does_not_stop_the_later_ones(
    client: ternmq.sync.Client, topic: str
) -> None:
    send(client, topic, 100)
    slow = client.pull(topic, group="g", max_messages=1)
    rest = client.pull(topic, group="g", max_messages=500)
    assert numbers(rest) == list(range(1, 100))
    rest.ack()
    (queue,) = client.admin.group(topic, "g").queues
    assert (queue.floor, queue.cursor, queue.leased) == (0, 100, 1)
    slow.ack()
    assert client.admin.group(topic, "g").queues[0].floor == 100


@pytest.mark.row("E10", "F4")
def test_settled_intervals_merge_and_one_cursor_and_one_floor_are_left(
    client: ternmq.sync.Client, topic: str
) -> None:
    """Acks in random order: in between there are many intervals, at the end there is one."""

    def stand() -> tuple[int, int, int]:
        (queue,) = client.admin.group(topic, "g").queues
        return queue.cursor, queue.floor, queue.intervals

    client.send_many(topic, [b"%d" % n for n in range(200)])
    batch = client.pull(topic, group="g", max_messages=200)
    assert stand()[:2] == (200, 0)
    order = list(range(200))
    random.Random(7).shuffle(order)  # the first of them is not 0
    for row in order[:100]:
        batch.ack(rows=[row])
    cursor, floor, intervals = stand()
    settled = set(order[:100])
    assert (cursor, floor) == (200, min(set(range(200)) - settled))
    gaps = sum(1 for n in range(200) if n not in settled and (n == 0 or n - 1 in settled))
    assert intervals >= gaps > 10
    for row in order[100:]:
        batch.ack(rows=[row])
    assert stand() == (200, 200, 1)
    assert not client.pull(topic, group="g", wait=0)


@pytest.mark.row("E12")
def test_no_more_than_the_window_is_in_hands(client: ternmq.sync.Client, topic: str) -> None:
    send(client, topic, 100)
    client.admin.create_group(topic, "g")
    client.admin.change_group(topic, "g", window=10)
    first = client.pull(topic, group="g", max_messages=50)
    assert numbers(first) == list(range(10))
    assert not client.pull(topic, group="g", max_messages=50, wait=0.2)
    first.ack(rows=range(4))
    more = client.pull(topic, group="g", max_messages=50)
    assert numbers(more) == [10, 11, 12, 13]
    more.ack()
    first.ack()


@pytest.mark.row("F7")
def test_what_lies_between_settled_ranges_comes_back(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    send(client, topic, 10)
    client.admin.create_group(topic, "g")
    client.admin.change_group(topic, "g", lease=timedelta(seconds=1))
    with ternmq.sync.connect(dev.url, max_processing_time=0.01) as own:
        own.pull(topic, group="g").ack(rows=[0, 1, 2, 5, 6])
        assert client.admin.group(topic, "g").queues[0].leased == 5
        assert not client.pull(topic, group="g", wait=0.2)
        again = client.pull(topic, group="g", wait=10)
    assert numbers(again) == [3, 4, 7, 8, 9]
    again.ack()


_DYING = """
import sys, time, ternmq.sync
client = ternmq.sync.connect()
batch = client.pull(sys.argv[1], group="g", max_messages=100)
batch.ack(rows=range(10))
print(len(batch), flush=True)
time.sleep(100)
"""


@pytest.mark.slow
@pytest.mark.row("F8")
def test_what_a_killed_consumer_held_comes_back(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """Within the session's grace (10 s) and a second."""
    send(client, topic, 100)
    with subprocess.Popen(
        [sys.executable, "-c", _DYING, topic],
        env={**os.environ, "TERNMQ_URL": dev.url},
        stdout=subprocess.PIPE,
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"100\n"
        consumer.kill()
        began = time.monotonic()
        batch = client.pull(topic, group="g", max_messages=500, wait=30)
        assert time.monotonic() - began < 20  # the grace of 10 s, not the lease of 30
    assert numbers(batch) == list(range(10, 100))
    batch.ack()


@pytest.mark.row("F6")
def test_a_pull_whose_answer_is_lost_is_healed(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """The connection is cut in the middle of the answer: the same messages come, in order."""
    client.send_many(topic, [b"%5d" % n + b"x" * 1000 for n in range(200)])
    with Wire(dev.port) as wire, ternmq.sync.connect(wire.url) as own:
        own.admin.create_group(topic, "g")
        own.pull(topic, group="g", max_messages=1).ack()
        wire.cut_after(50_000)
        batch = own.pull(topic, group="g", max_messages=199, wait=9)
        assert [int(body[:5]) for body in batch.bodies] == list(range(1, 200))
        batch.ack()
        assert wire.connections >= 2


@pytest.mark.slow
@pytest.mark.row("E4")
@pytest.mark.parametrize("how", ["stop", "stop-in-a-hurry", "kill"])
def test_a_short_lease_outlives_a_restart_of_the_broker(tmp_path: Path, how: str) -> None:
    """Its worker works on it for longer than the lease; another one waits: it is handled once."""
    with (
        BrokerProcess("dev", tmp_path, drain_timeout="1s" if "hurry" in how else "10s") as one,
        ternmq.sync.connect(one.url) as worker,
        ternmq.sync.connect(one.url) as other,
    ):
        worker.admin.create_topic("t")
        worker.admin.create_group("t", "g")
        worker.admin.change_group("t", "g", lease=timedelta(seconds=1))
        send(worker, "t", 1)
        begun, calls = threading.Event(), list[int]()

        def handle(body: bytes, delivery: ternmq.sync.Delivery) -> None:
            calls.append(delivery.attempt)
            begun.set()
            time.sleep(5.0)

        for client in (worker, other):
            client.handler("t", group="g", concurrency=1)(handle)
        threads = [threading.Thread(target=client.run) for client in (worker, other)]
        for thread in threads:
            thread.start()
        assert begun.wait(20)
        if how == "kill":
            one.kill()
            time.sleep(2.5)  # longer than the lease
            one.start()
        else:
            one.restart()
        with ternmq.sync.connect(one.url) as looking:
            end = time.monotonic() + 30
            while not looking.admin.group("t", "g").queues[0].floor:
                assert time.monotonic() < end, "the message is not acked"
                time.sleep(0.05)
        for client in (worker, other):
            client.stop()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
        assert calls == [1]
