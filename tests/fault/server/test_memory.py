"""256 MB for the broker, a large backlog, consumers that are frozen and slow (OVL-1).

What healthy consumers feel of it is a matter of time, and measured by ``bench/overload.py``.
"""

from __future__ import annotations

import abc
import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from ternmq.model.errors import TernMQError
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command
from tests.fault.processes import wait_until
from tests.fault.server.broker import Address, Broker
from tests.fault.server.memory import memory_limit, oom_kills, put_into
from tests.fault.server.raw import Peer, batch
from tests.fault.server.tools import LONG

pytestmark = [pytest.mark.fault, pytest.mark.slow]

LIMIT = 256 << 20
MOST_RESIDENT = 200 << 20
BACKLOG = 4_000_000 if LONG else 1_000_000
ROWS = 1000
BODY = b"x" * 400
INFLOW = 20_000_000
"""Bytes a second that come in while the backlog is drained."""
INFLOW_ROWS = 50
LARGE = b"y" * 4096
TOPIC = "bulk"
FROZEN = 2
"""As many consumers of a group each, and as many readers."""
GROUPS = ("healthy", "slow", *(f"frozen{number}" for number in range(FROZEN)))
WINDOW = 32
STALL_S = 2
SETTINGS = {"stall_timeout": f"{STALL_S}s", "segment": "16MiB", "log_level": "info"}


def fill(address: Address) -> None:
    """Make topic, groups and the backlog."""
    with Peer(address, name="filler") as peer:
        spec = TopicSpec(name=TOPIC)
        peer.ask(Command.TOPIC_CREATE, control.encode(control.TopicCreate(topic=TOPIC, spec=spec)))
        for group in GROUPS:
            joining = control.GroupJoin(topic=TOPIC, group=group)
            peer.ask(Command.GROUP_JOIN, control.encode(joining))
            wide = control.GroupChange(
                topic=TOPIC, group=group, spec=SubscriptionSpec(window=60_000)
            )
            peer.ask(Command.GROUP_CHANGE, control.encode(wide))
        waiting: deque[tuple[int, bytes]] = deque()
        for first in range(0, BACKLOG, ROWS):
            rows = [b"%d:%b" % (first + row, BODY) for row in range(ROWS)]
            body = batch(TOPIC, rows, 1, first)
            waiting.append((peer.begin(Command.SEND, body), body))
            if len(waiting) >= WINDOW:
                answered(peer, *waiting.popleft())
        for id_, body in waiting:
            answered(peer, id_, body)


def answered(peer: Peer, id_: int, body: bytes) -> None:
    """Wait for a send's answer; what may be tried again (no segment is ready yet) is."""
    while True:
        try:
            peer.end(id_)
        except TernMQError as error:
            if not error.retriable:
                raise
            id_ = peer.begin(Command.SEND, body)
        else:
            return


def pull_of(group: str, most: int, wait_ms: int = 0) -> bytes:
    return bodies.pack_pull(bodies.Pull(TOPIC, group, None, most, 0, wait_ms))


def done(peer: Peer, group: str, delivery: bodies.Delivery) -> int:
    """Acknowledge all rows of a pull; return how many."""
    settle = bodies.Settle(
        TOPIC, group, delivery.queue, delivery.epoch, delivery.lease, 0, (), None, ""
    )
    answer = bodies.unpack_settled(peer.ask(Command.SETTLE, bodies.pack_settle(settle)))
    assert not answer.refused
    return answer.rows


def frozen(address: Address) -> Iterator[Peer]:
    """Clients that ask for everything and read nothing, like ones that were stopped."""
    reading = bodies.pack_read(bodies.Read(TOPIC, 0, 0, 10_000, 0, 0))
    for number in range(FROZEN):
        consumer = Peer(address, window_bytes=4096, name=f"frozen{number}")
        for _ in range(64):
            consumer.begin(Command.PULL, pull_of(f"frozen{number}", ROWS))
        yield consumer
        reader = Peer(address, window_bytes=4096, name=f"reader{number}")
        for _ in range(200):
            reader.begin(Command.READ, reading)
        yield reader


class Beside(abc.ABC):
    """A peer at work in a thread until it is told to stop."""

    def __init__(self, address: Address) -> None:
        self.rows = 0
        self.error: Exception | None = None
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address,))
        self._thread.start()

    def _run(self, address: Address) -> None:
        try:
            with Peer(address, name=type(self).__name__) as peer:
                self.work(peer)
        except Exception as error:  # noqa: BLE001 - the test must hear of it
            self.error = error

    @abc.abstractmethod
    def work(self, peer: Peer) -> None:
        """Work until it is ``over``; count rows."""

    def stop(self) -> None:
        """End it."""
        self.over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


class Slow(Beside):
    """A consumer of one row at a time, about one a second."""

    def work(self, peer: Peer) -> None:
        """Consume."""
        while not self.over.wait(1.0):
            delivery = bodies.unpack_delivery(peer.ask(Command.PULL, pull_of("slow", 1, 1000)))
            self.rows += done(peer, "slow", delivery)


class Inflow(Beside):
    """A producer of 20 MB/s, less where the machine has no time for that."""

    def work(self, peer: Peer) -> None:
        """Send by the clock."""
        waiting: deque[tuple[int, bytes]] = deque()
        began = time.monotonic()
        while not self.over.is_set():
            if self.rows * len(LARGE) > (time.monotonic() - began) * INFLOW:
                self.over.wait(0.005)
                continue
            body = batch(TOPIC, [LARGE] * INFLOW_ROWS, 2, self.rows)
            waiting.append((peer.begin(Command.SEND, body), body))
            self.rows += INFLOW_ROWS
            if len(waiting) >= WINDOW:
                answered(peer, *waiting.popleft())
        for id_, body in waiting:
            answered(peer, id_, body)


@pytest.mark.timeout(600 if LONG else 180)
def test_frozen_and_slow_consumers_of_a_backlog(tmp_path):
    """Under 200 MB all the time, frozen ones cut off, a healthy one drains everything.

    20 MB/s come in meanwhile, after a restart with the whole backlog.
    """
    data, logs = tmp_path / "data", tmp_path / "logs"
    with memory_limit(LIMIT) as group:
        with Broker(data, logs, **SETTINGS) as broker:
            put_into(group, broker)
            fill(broker.ready())
            peak = broker.peak_bytes()
            broker.kill()
        with Broker(data, logs, **SETTINGS) as broker:
            put_into(group, broker)
            began = time.monotonic()
            address = broker.ready()
            started = time.monotonic() - began
            slow, inflow = Slow(address), Inflow(address)
            peers = list(frozen(address))
            try:
                drained, slowest = drain(address)
                cut_off(peers)
                wait_until(lambda: slow.rows > 0 or slow.error is not None, "a slow row")
                wait_until(lambda: inflow.rows > 1000, "a thousand rows that came in")
            finally:
                for peer in peers:
                    peer.socket.close()
                inflow.over.set()
                slow.stop()
                inflow.stop()
            peak = max(peak, broker.peak_bytes())
            assert drained >= BACKLOG
            assert broker.log.count("is cut off: does not read") == len(peers)
            broker.terminate()
            assert broker.wait() == 0, broker.log
        assert oom_kills(group) == 0
    print(f"{inflow.rows * len(LARGE) / 1e6:.0f} MB came in, {drained} rows drained")
    print(f"peak {peak >> 20} MB, start {started:.2f} s, slowest pull {slowest:.2f} s")
    assert peak < MOST_RESIDENT, f"{peak >> 20} MB"


def cut_off(peers: list[Peer]) -> None:
    """Wait until the broker has closed all of these."""
    try:
        wait_until(lambda: all(peer.cut for peer in peers), "the frozen cut off", 30)
    except pytest.fail.Exception as error:
        raise AssertionError([peer.cut for peer in peers]) from error


def drain(address: Address) -> tuple[int, float]:
    """Consume until the backlog is drained, each row once; return the rows, the longest pull."""
    seen: set[int] = set()
    left = BACKLOG
    slowest = 0.0
    with Peer(address, name="healthy") as peer:
        while left:
            began = time.monotonic()
            delivery = bodies.unpack_delivery(peer.ask(Command.PULL, pull_of("healthy", ROWS)))
            slowest = max(slowest, time.monotonic() - began)
            assert delivery.lease, f"{left} rows of the backlog do not come"
            rows = [at for run in delivery.runs for at in range(run.start, run.start + run.rows)]
            assert seen.isdisjoint(rows), "a row came twice"
            seen.update(rows)
            left -= sum(row < BACKLOG for row in rows)
            assert done(peer, "healthy", delivery) == len(rows)
    return len(seen), slowest
