"""Rows of MISSION, broadcast: shown with one broker process and processes that consume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

_INSTANCE = """
import sys, ternmq.sync
url, topic, path, fails = sys.argv[1:]
client = ternmq.sync.connect(url)

@client.handler(topic, broadcast=True, concurrency=1)
def got(number: int) -> None:
    with open(path, "a") as file:
        file.write(f"{number}\\n")
    if fails == "yes":
        raise ValueError("boom")

client.run()
"""


class Instances:
    """Processes that are broadcast instances, and what each has received."""

    def __init__(self, url: str, topic: str, folder: Path) -> None:
        self.url = url
        self.topic = topic
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, file: str, instance: str = "", *, fails: bool = False) -> None:
        """Start a process that appends what it gets to a file."""
        variables = {**os.environ, "TERNMQ_INSTANCE": instance}
        arguments = [self.url, self.topic, str(self.folder / file), "yes" if fails else "no"]
        self.running[file] = subprocess.Popen(
            [sys.executable, "-c", _INSTANCE, *arguments],
            env=variables,
            stderr=subprocess.DEVNULL,
        )

    def got(self, file: str) -> list[int]:
        """Return the numbers that a process has received."""
        path = self.folder / file
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def kill(self, file: str) -> None:
        """Kill a process, and wait for its end."""
        self.running[file].send_signal(signal.SIGKILL)
        self.running.pop(file).wait(30)

    def end(self) -> None:
        """Kill all."""
        for file in list(self.running):
            self.kill(file)


@pytest.fixture
def instances(dev: BrokerProcess, topic: str, tmp_path: Path) -> object:
    """Yield processes, which are ended behind the test."""
    made = Instances(dev.url, topic, tmp_path)
    yield made
    made.end()


def count_of(client: ternmq.sync.Client, topic: str) -> int:
    """Return the number of instances of a topic."""
    return client.admin.topic(topic).instances


@pytest.mark.row("I1")
def test_each_of_five_instances_gets_all_messages(
    client: ternmq.sync.Client, topic: str, instances: Instances
) -> None:
    client.admin.create_topic(topic, queues=2)
    names = [f"f{at}" for at in range(5)]
    for at, name in enumerate(names):
        instances.start(name, f"web-{at}" if at % 2 else "")
    wait_until(lambda: count_of(client, topic) == 5, "all have joined")
    client.send_many(topic, list(range(40)), queue=0)
    client.send_many(topic, list(range(40, 80)), queue=1)
    wait_until(lambda: all(len(instances.got(one)) >= 80 for one in names), "all is received")
    assert [sorted(instances.got(one)) for one in names] == [list(range(80))] * 5
    assert client.admin.groups(topic) == []


@pytest.mark.row("I2")
def test_a_killed_instance_continues_and_a_new_one_begins_at_latest(
    client: ternmq.sync.Client, topic: str, instances: Instances
) -> None:
    client.admin.create_topic(topic, broadcast=True)
    client.send(topic, 0)
    instances.start("first", "web-1")
    wait_until(lambda: count_of(client, topic) == 1, "it has joined")
    client.send(topic, 1)
    wait_until(lambda: instances.got("first") == [1], "the first message came")
    instances.kill("first")
    client.send(topic, 2)
    instances.start("new", "web-2")
    wait_until(lambda: count_of(client, topic) == 2, "the new one has joined")
    client.send(topic, 3)
    wait_until(lambda: instances.got("new") == [3], "the new one got the last message only")
    instances.start("again", "web-1")
    wait_until(lambda: set(instances.got("again")) >= {2, 3}, "it continues where it was")
    # The first message comes again only if its ack was lost with the process.
    assert set(instances.got("again")) <= {1, 2, 3}
    assert instances.got("new") == [3]


@pytest.mark.row("I3")
def test_a_failing_listener_gets_each_message_once(
    client: ternmq.sync.Client, topic: str, instances: Instances
) -> None:
    client.admin.create_topic(topic)
    instances.start("fails", "web-1", fails=True)
    wait_until(lambda: count_of(client, topic) == 1, "it has joined")
    for number in range(5):
        client.send(topic, number)
    wait_until(lambda: len(instances.got("fails")) >= 5, "all came")

    def settled() -> bool:
        (group,) = client.admin.groups(topic, broadcast=True)
        return group.queues[0].leased == 0 and group.queues[0].lag == 0

    wait_until(settled, "all are settled")
    client.send(topic, 5)  # had one been tried again, it would have come before this one
    wait_until(lambda: 5 in instances.got("fails"), "the last one came")
    assert instances.got("fails") == [0, 1, 2, 3, 4, 5]
    (group,) = client.admin.groups(topic, broadcast=True)
    assert (group.queues[0].waiting, group.queues[0].dead) == (0, 0)


@pytest.mark.row("I4")
def test_instances_without_a_name_go_with_their_clients(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    for _ in range(20):
        with ternmq.sync.connect(dev.url) as one:
            assert not one.pull(topic, broadcast=True, wait=0)
    wait_until(lambda: count_of(client, topic) == 0, "none is left")


@pytest.mark.row("I4")
def test_an_instance_with_a_name_is_kept_for_a_time_and_then_forgotten(tmp_path: Path) -> None:
    """Seven days by themselves: ``tests/unit/broker/operation/test_broadcasting.py``."""
    with (
        BrokerProcess("dev", tmp_path, limits_instance_kept="3s") as broker,
        ternmq.sync.connect(broker.url) as client,
    ):
        client.admin.create_topic("news")
        with ternmq.sync.connect(broker.url, instance="web-1") as one:
            assert not one.pull("news", broadcast=True, wait=0)
            there = time.monotonic()
        wait_until(lambda: count_of(client, "news") == 0, "it is forgotten")
        assert time.monotonic() - there > 3  # until then, its place was kept


@pytest.mark.row("I5")
def test_a_hundred_clients_receive_a_message_in_bounded_time(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """All have it within a deadline; `bench/broadcast.py` measures the second that I5 states."""
    client.admin.create_topic(topic, broadcast=True)
    clients = [ternmq.sync.connect(dev.url) for _ in range(100)]
    got: list[int] = []
    lock = threading.Lock()

    def receive(own: ternmq.sync.Client) -> None:
        batch = own.pull(topic, wait=60)
        with lock:
            got.extend(delivery.decode(int) for delivery in batch)
        batch.ack()

    try:
        for one in clients:
            assert not one.pull(topic, wait=0)
        threads = [threading.Thread(target=receive, args=(one,)) for one in clients]
        for thread in threads:
            thread.start()
        client.send(topic, 7)
        for thread in threads:
            thread.join(60)
    finally:
        for one in clients:
            one.close()
    assert got == [7] * 100


def test_a_second_living_process_of_an_instance_is_refused(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str, instances: Instances
) -> None:
    client.admin.create_topic(topic)
    instances.start("first", "web-1")
    wait_until(lambda: count_of(client, topic) == 1, "it has joined")
    with (
        ternmq.sync.connect(dev.url) as other,
        pytest.raises(ternmq.InstanceTaken, match="web-1"),
    ):
        other.pull(topic, broadcast=True, instance="web-1", wait=0)
    with pytest.raises(ternmq.InvalidName):
        client.pull(topic, group="$b.web-1", wait=0)
