"""One message in a hundred always fails, beside a load; without kills and with them (RTY-1, RTY-2).

Each of those has its five attempts, with at least the policy's delays between them, and is then
one dead letter with five reasons; everything else is worked on as if they were not there. A broker
that is killed meanwhile forgets no attempt.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until

ATTEMPTS = 5
FIRST_S, FACTOR = 0.1, 2.0
BATCHES, OF, SENDERS, CONSUMERS = 50, 10, 4, 4
POISON = b"poison"
KILLS, BETWEEN_KILLS = 5, 8
"""Kills, and hand-outs that fail before each: in all less than there are for certain."""
SLEW = 0.99
"""The broker's time may run faster than this machine's by so much, after the wall clock."""
PATIENCE_S = 90.0


class Came(NamedTuple):
    """A hand-out of a message that fails."""

    at: float
    attempt: int
    maybe_redelivered: bool


@dataclass
class Load:
    """Senders and consumers of group g of topic t, in threads; what they did."""

    url: str
    sent: set[bytes] = field(default_factory=set)
    handled: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    again: set[bytes] = field(default_factory=set)
    """Of what does not fail: handed out with the word that it may have been before."""
    failed: dict[bytes, list[Came]] = field(default_factory=lambda: defaultdict(list))
    over: threading.Event = field(default_factory=threading.Event)
    wrong: list[Exception] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: list[threading.Thread] = field(default_factory=list)

    def hand_outs(self) -> int:
        """Return how often something was handed out that fails."""
        with self.lock:
            return sum(map(len, self.failed.values()))

    def send(self, number: int) -> None:
        chance = random.Random(number)
        # On a busy machine the broker is away most of the time between the first kill and the last.
        with ternmq.sync.connect(self.url, timeout=PATIENCE_S) as client:
            for batch in range(BATCHES):
                bodies = [b"%d.%d.%d " % (number, batch, row) for row in range(OF)]
                if batch % 10 == 0:  # one message in a hundred
                    bodies[batch // 10] += POISON
                bodies = [body.ljust(chance.choice([16, 4096, 40_000])) for body in bodies]
                client.send_many("t", bodies)
                with self.lock:
                    self.sent |= set(bodies)

    def consume(self) -> None:
        with ternmq.sync.connect(self.url) as client:
            while not self.over.is_set():
                with suppress(ternmq.TernMQError):  # as when the broker is away: it comes again
                    for one in client.pull("t", group="g", max_messages=8, wait=0.2):
                        self.handle(one)

    def handle(self, one: ternmq.sync.Delivery) -> None:
        body = one.body
        if POISON not in body:
            with self.lock:
                self.handled[body] += 1
                self.again |= {body} if one.maybe_redelivered else set()
            with suppress(ternmq.TernMQError):
                one.ack()
            return
        came = Came(time.monotonic(), one.attempt, one.maybe_redelivered)
        with self.lock:
            self.failed[body].append(came)
        try:
            one.retry(reason=f"failure {one.attempt}")
        except ternmq.LeaseExpired:
            # It waited in this thread's hand for longer than its lease, while the broker was away:
            # others had it meanwhile, and this hand-out is no attempt.
            with self.lock:
                self.failed[body].remove(came)
        except ternmq.TernMQError:
            pass  # whether it counts is not known

    def __enter__(self) -> Self:
        work = [partial(self.send, number) for number in range(SENDERS)]
        work += [partial(self.consume)] * CONSUMERS
        self.threads = [threading.Thread(target=self._watched, args=[one]) for one in work]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def _watched(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (ternmq.TernMQError, AssertionError) as error:
            self.wrong.append(error)

    def is_done(self, client: ternmq.sync.Client) -> bool:
        """Return whether everything was sent, worked on, or is a dead letter."""
        assert not self.wrong
        with self.lock:
            good = {body for body in self.sent if POISON not in body}
            complete = len(self.sent) == SENDERS * BATCHES * OF and good <= set(self.handled)
        return (
            complete and len(list(client.deadletters.browse("t", "g"))) >= SENDERS * BATCHES // 10
        )


def judge(load: Load, client: ternmq.sync.Client) -> None:
    """What holds with kills and without them."""
    poison = {body for body in load.sent if POISON in body}
    assert len(poison) == SENDERS * BATCHES // 10
    assert set(load.failed) == poison
    assert set(load.handled) == load.sent - poison
    dead = list(client.deadletters.browse("t", "g"))
    assert sorted(one.message.body for one in dead if one.message) == sorted(poison)
    for one in dead:
        assert one.attempts == ATTEMPTS
        assert len(one.failures) == ATTEMPTS
    for came in load.failed.values():
        for before, after in itertools.pairwise(came):
            if after.maybe_redelivered:
                assert after.attempt >= before.attempt, came
                continue
            assert after.attempt == before.attempt + 1
            delay = FIRST_S * FACTOR ** (before.attempt - 1)
            assert after.at - before.at >= SLEW * delay
        assert came[-1].attempt <= ATTEMPTS
    assert list(client.deadletters.waiting("t", "g")) == []
    assert not client.pull("t", group="g", wait=0.3)


def policy(client: ternmq.sync.Client) -> None:
    client.admin.create_topic("t", queues=2)
    client.admin.create_group("t", "g")
    retry = ternmq.RetryPolicy(first=FIRST_S, factor=FACTOR, attempts=ATTEMPTS, jitter=0.0)
    client.admin.change_group("t", "g", retry=retry, lease=5.0)


@pytest.mark.slow
def test_one_in_a_hundred_fails_and_nobody_else_notices(tmp_path: Path) -> None:
    with BrokerProcess("dev", tmp_path) as broker, ternmq.sync.connect(broker.url) as client:
        policy(client)
        with Load(broker.url) as load:
            wait_until(lambda: load.is_done(client), "everything done", PATIENCE_S)
        judge(load, client)
    assert set(load.handled.values()) == {1}
    assert load.again == set()
    for came in load.failed.values():
        assert [one.attempt for one in came] == list(range(1, ATTEMPTS + 1))


@pytest.mark.slow
def test_a_broker_that_is_killed_meanwhile_forgets_no_attempt(tmp_path: Path) -> None:
    """It starts from STATE sets that were written while rows of every attempt were in hand."""
    with BrokerProcess("dev", tmp_path, segment="4MiB", state="1MiB", body="64KiB") as broker:
        with ternmq.sync.connect(broker.url) as client:
            policy(client)
        with Load(broker.url) as load:
            for _ in range(KILLS):
                enough = load.hand_outs() + BETWEEN_KILLS
                wait_until(lambda least=enough: load.hand_outs() >= least, "attempts go on")  # type: ignore[misc]
                broker.restart(kill=True)
            with ternmq.sync.connect(broker.url) as client:
                wait_until(lambda: load.is_done(client), "everything done", PATIENCE_S)
        with ternmq.sync.connect(broker.url) as client:
            judge(load, client)
    repeated = {body for body, count in load.handled.items() if count > 1}
    assert repeated <= load.again
