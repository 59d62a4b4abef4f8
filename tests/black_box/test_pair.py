"""Two brokers, one journal: whichever is killed, what was answered is there, once and in order."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.pair import Pair
from tests.black_box.process import DEADLINE, wait_until
from ternmq import ClientError, RefusedError


class Producer(threading.Thread):
    """Sends numbers, one after the other, until told to stop; remembers which were answered."""

    def __init__(self, url: str, topic: str, key: str | None = None) -> None:
        super().__init__()
        self.answered: list[int] = []
        self.unknown: list[int] = []
        self.error: BaseException | None = None
        self._url = url
        self._topic = topic
        self._key = key
        self._ends = threading.Event()

    def run(self) -> None:
        try:
            with ternmq.sync.connect(self._url, timeout=DEADLINE) as client:
                number = 0
                while not self._ends.is_set():
                    try:
                        client.send(self._topic, {"n": number}, ordering_key=self._key)
                        self.answered.append(number)
                    except (ClientError, RefusedError):
                        self.unknown.append(number)
                    number += 1
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def wait_for(self, more: int) -> None:
        """Wait until so many more were answered."""
        wanted = len(self.answered) + more
        wait_until(
            lambda: len(self.answered) >= wanted or self.error is not None,
            f"{more} more sends are answered",
            2 * DEADLINE,
        )
        assert self.error is None

    def finish(self) -> None:
        self._ends.set()
        self.join(2 * DEADLINE)
        assert not self.is_alive()
        assert self.error is None


def consumed(url: str, topic: str, count: int) -> list[int]:
    """Consume until so many different numbers have come; return them in their order."""
    found: list[int] = []
    with (
        ternmq.sync.connect(url, timeout=DEADLINE) as client,
        client.consume(topic, group="check") as deliveries,
    ):
        for delivery in deliveries:
            found.append(delivery.value["n"])
            delivery.ack()
            if len(set(found)) >= count:
                break
    return found


def made(pair: Pair, topic: str, *, ordered: bool = False) -> None:
    with ternmq.sync.connect(pair.url, timeout=DEADLINE) as client:
        client.admin.create_topic(topic, ordered=ordered)
        client.admin.create_group(topic, "check")


def check(producer: Producer, found: list[int]) -> None:
    counts = Counter(found)
    assert not set(producer.answered) - set(counts), "answered, and lost"
    assert not set(counts) - set(producer.answered) - set(producer.unknown), "never sent"
    assert max(counts.values()) == 1, "stored twice"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["a", "b"])
def test_whichever_is_killed_nothing_that_was_answered_is_lost(
    tmp_path: Path, victim: str
) -> None:
    with Pair(tmp_path) as pair:
        made(pair, "orders", ordered=True)
        producer = Producer(pair.url, "orders", key="k")
        producer.start()
        producer.wait_for(50)
        pair[victim].kill()
        producer.wait_for(50)
        pair[victim].start()
        pair.wait_for_member(victim, 1 if victim == "a" else 2)
        producer.wait_for(20)
        producer.finish()
        found = consumed(pair.url, "orders", len(producer.answered))
        check(producer, found)
        assert found == sorted(found), "out of order"
