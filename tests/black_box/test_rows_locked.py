"""Rows of MISSION, queues that one consumer at a time has: shown with one broker process."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until


def filled(client: ternmq.sync.Client, topic: str, count: int, queues: int = 1) -> None:
    """Make a topic with numbered messages, and a group that locks its queues."""
    client.admin.create_topic(topic, queues=queues)
    client.admin.create_group(topic, "g", mode="queue_lock", lease=1)
    for queue in range(queues):
        client.send_many(topic, [b"%d" % n for n in range(count)], queue=queue)


@pytest.mark.row("E3")
def test_a_second_puller_gets_nothing_until_the_first_is_finished(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    filled(client, topic, 6)
    with ternmq.sync.connect(dev.url) as other:
        batch = client.pull(topic, group="g", max_messages=2)
        assert batch.bodies == [b"0", b"1"]
        assert not other.pull(topic, group="g", wait=0.2)
        batch.ack(rows=[0])
        assert not other.pull(topic, group="g", wait=0.2)  # half of it is not the end
        batch.ack()
        # Success: the other one gets the next ones. An exception: the queue waits for the retry.
        second = other.pull(topic, group="g", max_messages=2, wait=20)
        assert second.bodies == [b"2", b"3"]
        assert not client.pull(topic, group="g", wait=0.2)
        began = time.monotonic()
        second.retry(rows=[0], delay=0.5)
        third = client.pull(topic, group="g", max_messages=2, wait=20)
        assert time.monotonic() - began > 0.4
        assert [(one.body, one.attempt) for one in third] == [(b"2", 2), (b"3", 1)]
    # A timeout: the client is gone without a word, and its lease ends.
    with ternmq.sync.connect(dev.url) as gone:
        third.ack()
        assert gone.pull(topic, group="g", wait=20).bodies == [b"4", b"5"]
        assert not client.pull(topic, group="g", wait=0.2)
    last = client.pull(topic, group="g", wait=30)
    assert last.bodies == [b"4", b"5"]
    last.ack()


@pytest.mark.row("E3")
def test_consumers_that_come_and_go_have_each_queue_in_turn_and_in_order(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    count, queues = 400, 3
    filled(client, topic, count, queues)
    seen: defaultdict[int, list[int]] = defaultdict(list)
    at_work: set[int] = set()
    overlaps: list[int] = []
    lock = threading.Lock()

    def consume() -> None:
        while sum(map(len, seen.values())) < count * queues:
            with ternmq.sync.connect(dev.url) as own:
                for _ in range(4):
                    batch = own.pull(topic, group="g", max_messages=7, wait=0.3)
                    if not batch:
                        continue
                    queue = batch[0].queue
                    with lock:
                        overlaps.extend([queue] if queue in at_work else [])
                        at_work.add(queue)
                        seen[queue] += [int(body) for body in batch.bodies]
                    batch.ack(rows=range(1, len(batch)))  # the others go on meanwhile
                    with lock:
                        at_work.discard(queue)
                    batch.ack()

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not overlaps
    assert seen == {queue: list(range(count)) for queue in range(queues)}


@pytest.mark.row("E3", "H2")
def test_a_failing_message_holds_its_queue_and_no_other(
    dev: BrokerProcess, client: ternmq.sync.Client, topic: str
) -> None:
    filled(client, topic, 3, queues=2)
    order: list[tuple[int, bytes]] = []

    def work() -> None:
        with (
            ternmq.sync.connect(dev.url) as own,
            own.consume(topic, group="g") as deliveries,
        ):
            for delivery in deliveries:
                with delivery.process():
                    if (delivery.queue, delivery.body) == (1, b"1") and delivery.attempt < 3:
                        raise ternmq.Retry(after=0.2)
                    order.append((delivery.queue, delivery.body))
                if len(order) >= 6:
                    return

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: len(order) == 6, "all are done")
    thread.join(20)
    assert [body for queue, body in order if queue == 0] == [b"0", b"1", b"2"]
    assert [body for queue, body in order if queue == 1] == [b"0", b"1", b"2"]
    assert order[-2:] == [(1, b"1"), (1, b"2")]


@pytest.mark.row("H2")
def test_a_held_message_closes_its_queue_until_an_operator_retries_it(
    client: ternmq.sync.Client, topic: str
) -> None:
    filled(client, topic, 2)
    retry = ternmq.RetryPolicy(attempts=1, exhausted=ternmq.Exhausted.HOLD)
    client.admin.change_group(topic, "g", retry=retry)
    client.pull(topic, group="g").retry(rows=[0], reason="locked")
    assert not client.pull(topic, group="g", wait=0.3)
    (held,) = client.deadletters.waiting(topic, "g")
    assert held.held
    client.deadletters.retry(topic, "g", [0])
    assert client.pull(topic, group="g", wait=20).bodies == [b"0", b"1"]
