"""Rows of MISSION, queues that belong to one consumer: processes that are killed and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

WORKER = """
import sys, time
import ternmq.sync

topic, path = sys.argv[1:3]
with ternmq.sync.connect() as client, client.consume(topic, group="g") as deliveries:
    with open(path, "a", buffering=1) as log:
        print("ready", flush=True)
        for delivery in deliveries:
            log.write(f"begin {delivery.queue} {delivery.body.decode()} {time.monotonic_ns()}\\n")
            time.sleep(0.004)
            log.write(f"end {delivery.queue} {delivery.body.decode()} {time.monotonic_ns()}\\n")
            delivery.ack()
"""


class Worker:
    """A consumer in a process of its own, which writes down what it works on."""

    def __init__(self, dev: BrokerProcess, topic: str, path: Path, instance: str = "") -> None:
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, topic, str(path)],
            env={**os.environ, "TERNMQ_URL": dev.url, "TERNMQ_INSTANCE": instance},
            stdout=subprocess.PIPE,
        )

    def ready(self) -> None:
        """Wait until it consumes."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def freeze(self, seconds: float) -> None:
        """Stop it for some time."""
        self.process.send_signal(signal.SIGSTOP)
        pass_by(seconds)
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it; may be repeated."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def pass_by(seconds: float) -> None:
    """Let some time pass, in which faults have their effect."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until, "the time is over")


def shares(client: ternmq.sync.Client, topic: str) -> list[int]:
    """Return how many queues each owner has, the most first."""
    counts: defaultdict[str, int] = defaultdict(int)
    for queue in client.admin.group(topic, "g").queues:
        counts[queue.owner] += 1
    counts.pop("", None)
    return sorted(counts.values(), reverse=True)


def worked_on(paths: list[Path]) -> dict[int, list[tuple[int, int, int, Path]]]:
    """Return what was done by queue: when it began and ended, the number, who.

    A message whose end was not written was being worked on when its process was killed: it ended
    with it, at the latest at the time of the last line that this process wrote.
    """
    found: defaultdict[int, list[tuple[int, int, int, Path]]] = defaultdict(list)
    for path in paths:
        begun: dict[tuple[int, int], int] = {}
        for line in path.read_text().splitlines():
            word, *numbers = line.split()
            if len(numbers) < 3:
                continue  # its process was killed while it wrote
            queue, number, at = map(int, numbers)
            if word == "begin":
                begun[queue, number] = at
            else:
                found[queue].append((begun.pop((queue, number)), at, number, path))
        for (queue, number), at in begun.items():
            found[queue].append((at, at, number, path))
    return {queue: sorted(rows) for queue, rows in found.items()}


@pytest.mark.row("E21")
def test_five_queues_of_two_members_are_three_and_two_and_of_three_two_two_and_one(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic(topic, queues=5)
    client.admin.create_group(topic, "g", mode="owned")
    with ExitStack() as workers:

        def begin(name: str) -> None:
            worker = Worker(dev, topic, tmp_path / name)
            workers.callback(worker.kill)
            worker.ready()

        begin("one")
        begin("two")
        wait_until(lambda: shares(client, topic) == [3, 2], "shared out")
        before = [one.owner for one in client.admin.group(topic, "g").queues]
        began = time.monotonic()
        begin("three")
        wait_until(lambda: shares(client, topic) == [2, 2, 1], "shared out again")
        assert time.monotonic() - began < 30
        after = [one.owner for one in client.admin.group(topic, "g").queues]
        assert sum(one != two for one, two in zip(before, after, strict=True)) == 1
        for number in range(50):
            client.send(topic, b"%d" % number, queue=number % 5)
        wait_until(
            lambda: sum(one.floor for one in client.admin.group(topic, "g").queues) == 50, "done"
        )
    done = worked_on([tmp_path / name for name in ("one", "two", "three")])
    assert all(len({row[3] for row in rows}) == 1 for rows in done.values())


@pytest.mark.row("E21")
def test_configured_queues_belong_to_the_processes_that_are_named(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str, tmp_path: Path
) -> None:
    client.admin.create_topic(topic, queues=3)
    client.admin.create_group(topic, "g", mode="owned", assign={"blue-*": [0, 1], "green": [2]})

    def owners() -> list[str]:
        return [one.owner.split("/")[0] for one in client.admin.group(topic, "g").queues]

    for number in range(30):
        client.send(topic, b"%d" % number, queue=number % 3)
    with ExitStack() as workers:
        for name in ("green", "blue-1"):
            worker = Worker(dev, topic, tmp_path / name, instance=name)
            workers.callback(worker.kill)
            worker.ready()
            if name == "green":
                wait_until(lambda: owners() == ["", "", "green"], "it has its queue, and no other")
        wait_until(lambda: owners() == ["blue-1", "blue-1", "green"], "each has its queues")
        wait_until(
            lambda: sum(one.floor for one in client.admin.group(topic, "g").queues) == 30, "done"
        )
    done = worked_on([tmp_path / "green", tmp_path / "blue-1"])
    assert {queue: {row[3].name for row in rows} for queue, rows in done.items()} == {
        0: {"blue-1"}, 1: {"blue-1"}, 2: {"green"},
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.row("E21", "H6")
@pytest.mark.parametrize(
    "mode",
    [
        "owned",
        pytest.param("exclusive", marks=pytest.mark.row("K11")),
        pytest.param("queue_lock", marks=pytest.mark.row("E3")),
    ],
)
def test_the_order_stays_while_consumers_are_killed_and_frozen(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str, tmp_path: Path, mode: str
) -> None:
    """Every two seconds one is killed and replaced; another one is frozen for less than a lease."""
    queues, count = 4, 300
    client.admin.create_topic(topic, queues=queues)
    client.admin.create_group(topic, "g", mode=mode, lease=10)
    for queue in range(queues):
        client.send_many(topic, [b"%d" % number for number in range(count)], queue=queue)
    paths: list[Path] = []
    with ExitStack() as stack:

        def begin() -> Worker:
            paths.append(tmp_path / f"worker-{len(paths)}")
            worker = Worker(dev, topic, paths[-1])
            stack.callback(worker.kill)
            worker.ready()
            return worker

        def done() -> int:
            return sum(one.floor for one in client.admin.group(topic, "g").queues)

        working = [begin(), begin(), begin()]
        for _ in range(4):
            pass_by(1)
            working[-1].freeze(1)  # what it has in hand stays its own
            working.pop(0).kill()
            working.append(begin())
        wait_until(lambda: done() == queues * count, "all are done", 150)
        for one in working:
            one.kill()
    found = worked_on(paths)
    assert set(found) == set(range(queues))
    for rows in found.values():
        reached = -1
        for at, (_, _, number, _) in enumerate(rows):
            # The next one, or one that comes again since its process was killed.
            assert number <= reached + 1, rows[max(0, at - 3) : at + 2]
            reached = max(reached, number)
        assert reached == count - 1
        # No one begins with a queue before the owner before it has ended.
        for (_, ended, _, before), (began, _, _, after) in pairwise(rows):
            assert before == after or ended <= began


@pytest.mark.row("K11")
def test_an_exclusive_group_has_one_consumer_and_another_takes_over_when_it_leaves(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, queues=3)
    client.admin.create_group(topic, "g", mode="exclusive")
    for number in range(6):
        client.send(topic, b"%d" % number, queue=number % 3)
    with ternmq.sync.connect(dev.url) as first, ternmq.sync.connect(dev.url) as second:
        seen = set()
        for _ in range(3):
            batch = first.pull(topic, group="g", max_messages=1, wait=20)
            seen.add(batch[0].queue)
            assert not second.pull(topic, group="g", wait=0.1)
            batch.ack()
        assert seen == {0, 1, 2}
        first.close()  # a clean leave: at once
        began = time.monotonic()
        for _ in range(3):
            second.pull(topic, group="g", max_messages=1, wait=20).ack()
        assert time.monotonic() - began < 10
    with pytest.raises(ternmq.GroupSettingsMismatch, match="mode"):
        client.pull(topic, group="g", mode="shared", wait=0)


@pytest.mark.row("K11")
@pytest.mark.parametrize("mode", ["exclusive", "owned"])
def test_who_is_killed_is_followed_after_the_grace_and_not_after_the_lease(
    tmp_path: Path, mode: str
) -> None:
    """Its lease has an hour to go: only the end of its session can have ended it."""
    with (
        BrokerProcess("dev", tmp_path / "broker", limits_session_grace="2s") as dev,
        ternmq.sync.connect(dev.url) as client,
    ):
        client.admin.create_topic("t", queues=1)
        client.admin.create_group("t", "g", mode=mode, lease=3600)
        client.send_many("t", [b"%d" % number for number in range(500)])
        first = Worker(dev, "t", tmp_path / "first")
        try:
            first.ready()
            wait_until(lambda: b"begin" in first.path.read_bytes(), "it has messages in hand")
            assert not client.pull("t", group="g", wait=0.2)
            first.kill()
            assert not client.pull("t", group="g", wait=0.2), "not before the grace is over"
            batch = client.pull("t", group="g", max_messages=1, wait=60)
        finally:
            first.kill()
        (one,) = batch
        begun = [line.split()[2] for line in first.path.read_text().splitlines() if "begin" in line]
        assert int(one.body) <= int(begun[-1]) + 1, "the first that was not acknowledged"
        one.ack()
