"""256 descriptors, 5,000 connection attempts, twenty clients that must not notice (OVL-3)."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from typing import Final

import pytest

from tests.fault.messages import ORDERS
from tests.fault.processes import patience, wait_until
from tests.fault.server.broker import Address, Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.raw import Peer
from tests.fault.server.results import keep
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

FILES: Final = 256
ATTEMPTS: Final = 5000
OPEN_AT_A_TIME = 400
"""More than the broker has descriptors; the last ones stay."""
MESSAGES = 8000
"""Two segments, at least: descriptors that the journal needs while there are none left."""
GOOD = Plan(
    producers=14,
    window=2,
    consumers=((ORDERS, "billing"), (ORDERS, "billing"), (ORDERS, "audit"), (ORDERS, "audit")),
    topics=(ORDERS,),
    pause_s=0.01,
)
"""Nineteen connections, and one that sets up."""


CPU_S: Final = 0.5
"""Most processor time that a thousand attempts may cost: ten times what they do, and more."""
IDLE_SHARE: Final = 0.2
"""Most of a processor that it may take to stand at a limit while nobody new comes."""


class Crowd:
    """Connects and says nothing, over and over, holding as many as it may; in a thread."""

    def __init__(self, address: Address) -> None:
        self.tried = 0
        self._address = address
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        held: list[socket.socket] = []
        try:
            while self.tried < ATTEMPTS:
                one = socket.socket()
                one.settimeout(1.0)
                held.append(one)
                with contextlib.suppress(OSError):  # the queue is full, or it is turned away
                    one.connect(self._address)
                self.tried += 1
                if len(held) >= OPEN_AT_A_TIME:
                    for old in held[: OPEN_AT_A_TIME // 4]:
                        old.close()
                    del held[: OPEN_AT_A_TIME // 4]
            self._leave.wait(60)
        finally:
            for one in held:
                one.close()

    def leave(self) -> None:
        """Let go of all."""
        self._leave.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.timeout(120)
def test_connection_attempts_beyond_the_descriptors(memory_folder, verdicts):
    """The journal rolls meanwhile: its descriptors are there; afterwards new clients come in."""
    data, record = memory_folder / "data", memory_folder / "history"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    with (
        Broker(data, memory_folder / "logs", **SMALL, handshake_timeout="60s") as broker,
        Load(broker.ready(), record, GOOD) as load,
    ):
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        load.sent(300)
        cpu, began = broker.cpu_s(), time.monotonic()
        crowd = Crowd(load.address)
        try:
            load.wait(lambda: crowd.tried >= ATTEMPTS, "all tried")
            load.sent(MESSAGES)
            load.settled(300)
        finally:
            crowd.leave()
        seconds = time.monotonic() - began
        assert load.losses == 0, "a good connection was lost"
        assert not load.counts.refused, load.counts.refused
        rolled = len(list((data / "journal").iterdir()))
        worst = load.worst_latency_s(began)
        print(
            f"{crowd.tried} attempts in {seconds:.1f} s, {rolled} segments,"
            f" worst send {worst:.2f} s, {broker.cpu_s() - cpu:.1f} s of processor"
        )
        assert worst < 2.0 * patience()
        newcomer_is_welcome(load.address)
        load.stop_sending()
        cost = cost_of_a_crowd(broker, load.address)
        assert cost < CPU_S, f"{cost} s of processor for a thousand attempts"
        assert load.losses == 0, "a good connection was lost"
        newcomer_is_welcome(load.address)
        broker.terminate()
        assert broker.wait() == 0, broker.log
        assert "Traceback" not in broker.log, broker.log
    verdicts.sound(data, record)


def newcomer_is_welcome(address: Address) -> None:
    until = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError), Peer(address, name="newcomer"):
            return
        assert time.monotonic() < until, "a new client is not let in"


def cost_of_a_crowd(broker: Broker, address: Address) -> float:
    """Return the processor time of a thousand attempts; nobody else does anything meanwhile.

    While the crowd stays, and holds all that it may, the broker must come to rest.
    """
    before = broker.cpu_s()
    crowd = Crowd(address)
    try:
        wait_until(lambda: crowd.tried >= ATTEMPTS, "all tried")
        at, cpu = time.monotonic(), broker.cpu_s()
        share = 1.0

        def at_rest() -> bool:
            nonlocal at, cpu, share
            if time.monotonic() - at < 1.0:
                return False
            share = (broker.cpu_s() - cpu) / (time.monotonic() - at)
            at, cpu = time.monotonic(), broker.cpu_s()
            return share < IDLE_SHARE

        wait_until(at_rest, "the broker at rest beside a crowd", 20)
        used = cpu - before
    finally:
        crowd.leave()
    each_thousand = used * 1000 / ATTEMPTS
    print(f"{each_thousand:.3f} s of processor for 1,000 attempts, {share:.3f} of one at rest")
    keep(
        "ovl-3-attempts",
        {
            "attempts": ATTEMPTS,
            "descriptors": FILES,
            "cpu_s_per_1000_attempts": round(each_thousand, 4),
            "cpu_share_at_rest": round(share, 4),
            "good_connections": GOOD.producers + len(GOOD.consumers),
            "good_connections_lost": 0,
        },
    )
    return each_thousand
