"""Rows of MISSION: modes that are changed live, clients that are switched off, and limits.

Shown with one broker process, which is killed and started again on the way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

MODES = (
    "queue_lock", "owned", "shared", "exclusive", "ordered", "owned", "queue_lock", "exclusive",
    "shared", "ordered", "queue_lock", "ordered", "shared",
)  # fmt: skip


@contextmanager
def workers(url: str, topic: str, count: int, work: Callable[[bytes], None]) -> Iterator[None]:
    """Consume in threads, each with a client of its own, until the block ends."""
    over = threading.Event()

    def consume() -> None:
        with ternmq.sync.connect(url) as own:
            while not over.is_set():
                with suppress(ternmq.TernMQError):
                    batch = own.pull(topic, group="g", max_messages=3, wait=0.3)
                    for delivery in batch:
                        work(delivery.body)
                    batch.ack()

    threads = [threading.Thread(target=consume) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.row("E13")
def test_modes_change_under_load_and_a_killed_broker_loses_nothing(tmp_path: Path) -> None:
    """Every message is delivered, in whatever mode, with kills of the broker between and at the
    changes of the mode."""
    done: Counter[bytes] = Counter()
    lock = threading.Lock()

    def work(body: bytes) -> None:
        with lock:
            done[body] += 1

    with BrokerProcess("dev", tmp_path) as broker, ternmq.sync.connect(broker.url) as client:
        client.admin.create_topic("o", ordered=True)
        client.admin.create_group("o", "g", mode="ordered", lease=1)
        sent: list[bytes] = []
        with workers(broker.url, "o", 3, work):
            for at, mode in enumerate(MODES):
                for number in range(100):
                    body = b"%d.%d" % (at, number)
                    client.send("o", body, ordering_key=f"k{number % 5}")
                    sent.append(body)
                    if number == 50 and at % 2:
                        broker.restart(kill=True)
                switch(client, mode)
                broker.restart(kill=True)
                assert client.admin.group("o", "g").spec.mode is ternmq.Mode(mode)
            wait_until(lambda: len(done) == len(sent), "everything is delivered", 120)
        assert set(done) == set(sent)
        wait_until(lambda: client.admin.group("o", "g").queues[0].lag == 0, "nothing is owed", 60)


def switch(client: ternmq.sync.Client, mode: str) -> None:
    """Change the mode; to ordered when the group is owed nothing."""
    if mode != "ordered":
        client.admin.change_group("o", "g", mode=mode)
        return

    def changed() -> bool:
        """Pause the group until what it has is settled; let what waits go on."""
        client.admin.pause_group("o", "g")

        def settled() -> bool:
            (queue,) = client.admin.group("o", "g").queues
            return not queue.leased

        wait_until(settled, "the leases are settled or over", 60)
        try:
            client.admin.change_group("o", "g", mode="ordered", paused=False)
        except ternmq.GroupBusy:
            client.admin.resume_group("o", "g")
            return False
        return True

    wait_until(changed, "the group is owed nothing", 60)


@pytest.mark.row("E13")
def test_a_stall_ends_when_the_group_is_switched_to_parallel(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    """A slow message stalls its key; the queues stay as they are, and no consumer starts again."""
    client.admin.create_topic(topic, ordered=True)
    client.admin.create_group(topic, "g", mode="ordered", lease=60)
    go_on, began = threading.Event(), threading.Event()
    done: list[bytes] = []

    def work(body: bytes) -> None:
        if body == b"0":
            began.set()
            assert go_on.wait(60)
        done.append(body)

    with ternmq.sync.connect(dev.url) as sender:
        sender.send(topic, b"0", ordering_key="k")
        with workers(dev.url, topic, 2, work):
            assert began.wait(30)
            for number in range(1, 20):
                sender.send(topic, b"%d" % number, ordering_key="k")
            wait_until(
                lambda: client.admin.group(topic, "g").queues[0].ready > 0, "rows are parked", 30
            )
            assert done == []
            client.admin.change_group(topic, "g", mode="shared")
            wait_until(lambda: len(done) == 19, "the stall is over", 30)
            assert b"0" not in done
            go_on.set()
            wait_until(lambda: len(done) == 20, "the slow one is settled", 30)
    (queue,) = client.admin.group(topic, "g").queues
    assert (queue.lag, queue.ready, queue.leased, queue.dead) == (0, 0, 0, 0)


@pytest.mark.row("E20")
def test_a_paused_group_gets_nothing_and_others_do(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    for group in ("g", "h"):
        client.admin.create_group(topic, group)
    with ternmq.sync.connect(dev.url) as own, own.consume(topic, group="g") as deliveries:
        client.send(topic, b"0")
        first = next(deliveries)
        client.admin.pause_group(topic, "g")
        first.ack()
        client.send(topic, b"1")
        assert client.pull(topic, group="h", max_messages=5, wait=20).bodies[-1] in (b"0", b"1")
        assert client.admin.group(topic, "g").queues[0].lag == 1
        client.admin.resume_group(topic, "g")
        assert next(deliveries).body == b"1"


@pytest.mark.row("E20")
def test_a_client_holds_no_more_messages_than_the_concurrency(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic, queues=3)
    client.admin.create_group(topic, "g")
    client.admin.change_group(topic, "g", concurrency=4)
    for queue in range(3):
        client.send_many(topic, [b"x"] * 10, queue=queue)
    dev.restart(kill=True)
    batches = [client.pull(topic, group="g", wait=5) for _ in range(2)]
    assert [len(batch) for batch in batches] == [4, 0]
    with ternmq.sync.connect(dev.url) as other:
        assert len(other.pull(topic, group="g", wait=5)) == 4
    batches[0].ack()
    assert len(client.pull(topic, group="g", wait=20)) == 4
    client.admin.change_group(topic, "g", concurrency=0)
    assert len(client.pull(topic, group="g", wait=20)) > 4


@pytest.mark.row("F9", "E20")
def test_a_client_that_is_switched_off_stops_and_others_continue(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    client.admin.create_topic(topic)
    client.admin.create_group(topic, "g")
    with (
        ternmq.sync.connect(dev.url) as off, ternmq.sync.connect(dev.url) as on,
        off.consume(topic, group="g") as first,
    ):  # fmt: skip
        client.send(topic, b"0")
        next(first).ack()

        def names() -> list[str]:
            return [
                one.client
                for one in client.admin.clients()
                for of in one.consumes
                if (of.topic, of.group) == (topic, "g")
            ]

        wait_until(lambda: len(names()) == 1, "it waits for messages", 30)
        (name,) = names()
        client.admin.switch_off(topic, "g", name)
        client.send_many(topic, [b"1", b"2", b"3"])
        got = on.pull(topic, group="g", max_messages=3, wait=20)
        assert got.bodies == [b"1", b"2", b"3"]  # its pull waited longer, and got nothing
        got.ack()
        dev.restart(kill=True)
        assert client.admin.group(topic, "g").spec.offline == (name,)
        client.send(topic, b"4")
        assert on.pull(topic, group="g", wait=20).bodies == [b"4"]
        client.admin.switch_on(topic, "g", name)
        client.send(topic, b"5")
        assert next(first).body == b"5"
