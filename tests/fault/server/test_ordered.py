"""An ordered group whose consumers are killed and paused all the time (ORD-2)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.fault import history
from tests.fault.messages import GROUPS, LEDGER
from tests.fault.processes import DEADLINE, ROOT, environment, wait_until
from tests.fault.server.broker import Address, Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.raw import Peer
from tests.fault.server.results import keep
from tests.fault.server.reviewing import merged, overlaps
from tests.fault.server.tools import KILLS, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

GROUP = "books"
CONSUMERS = 3
PERIOD_S = 2.0
GRACE = "500ms"


class Consumer:
    """A consumer process."""

    def __init__(self, address: Address, folder: Path, number: int) -> None:
        self.record = folder / f"{number}.history"
        words = [str(address.port), str(self.record), str(number), LEDGER, GROUP]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.server.worker", *words],
            cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.killed_ns = 1 << 63

    def lines(self) -> list[history.Line]:
        """Return what it has written."""
        return history.read(self.record)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL it."""
        if self.process.returncode is None:
            self.killed_ns = time.monotonic_ns()
            self.process.kill()
            self.process.wait(DEADLINE)


@pytest.mark.timeout(500)
@pytest.mark.row("H6", "F8")
def test_consumers_killed_and_paused(memory_folder, verdicts):
    """No key is in two hands at a time, its messages come in order, and none is left."""
    chance = random.Random(2)
    data, record = memory_folder / "data", memory_folder / "producers.history"
    settings = {**SMALL, "limits_session_grace": GRACE}
    plan = Plan(producers=2, window=4, topics=(LEDGER,), consumers=(), batch=2, pause_s=0.02)
    consumers: list[Consumer] = []
    with (
        contextlib.ExitStack() as stack,
        Broker(data, memory_folder / "logs", **settings) as broker,
        Load(broker.ready(), record, plan, number=1) as load,
    ):

        def start() -> Consumer:
            one = Consumer(load.address, memory_folder, 2 + len(consumers))
            stack.callback(one.kill)
            consumers.append(one)
            return one

        running = [start() for _ in range(CONSUMERS)]
        handed(running, 1)
        for cycle in range(KILLS):
            ended = running.pop(chance.randrange(len(running)))
            if cycle % 2:
                ended.kill()
                running.append(start())
            else:
                pause(ended, running)
                running.append(ended)
            handed(running, 10)
            period()
        load.stop_sending()
        rows = sum(line["a"][3] for line in history.read(record) if line["op"] == "sent")
        assert rows > 100, f"inconclusive: {rows} messages"
        with Peer(load.address, name="onlooker") as onlooker:
            wait_until(lambda: consumed(onlooker), "all consumed")
        for one in consumers:
            one.kill()
        broker.kill()
    path = merged([record, *[one.record for one in consumers]], memory_folder / "history")
    verdict = verdicts.sound(data, path)
    lines = history.read(path)
    killed = {
        line["s"]: one.killed_ns for one in consumers for line in one.lines() if line["op"] == "out"
    }
    both = overlaps(lines, killed)
    assert not both, both[:5]
    assert verdict["drained"] == 0
    keys = len({row[5] for line in lines if line["op"] == "out" for row in line["rows"]})
    told = {"messages": rows, "keys": keys}
    told |= {name: verdict[name] for name in ("repeats", "expired", "drained")}
    print(told)
    keep("ord-2-ordered", {"faults": KILLS, "overlaps": 0, "problems": [], **told})
    assert keys > 4
    assert verdict["repeats"] > 0, "inconclusive: nobody was killed with rows in hand"


def consumed(onlooker: Peer) -> bool:
    """Whether the group is done with every row, as the broker has it.

    Not as the consumers have it: one that is killed may have settled rows without hearing of it.
    """
    asked = control.encode(control.GroupList(topic=LEDGER, group=GROUP))
    (group,) = control.decode(onlooker.ask(Command.GROUP_LIST, asked), control.Groups).groups
    return all(queue.floor == queue.end for queue in group.queues)


def handed(running: list[Consumer], more: int) -> None:
    """Wait until each of these was handed something more so many times."""
    goals = {one: outs(one) + more for one in running}
    wait_until(lambda: all(outs(one) >= goal for one, goal in goals.items()), "handed out")


def outs(consumer: Consumer) -> int:
    return sum(line["op"] == "out" for line in consumer.lines())


def pause(consumer: Consumer, others: list[Consumer]) -> None:
    """Stop one for longer than its lease lasts; it wakes up with rows that are another's now."""
    consumer.signal(signal.SIGSTOP)
    held: Callable[[], bool] = lambda: all(outs(one) for one in others)  # noqa: E731
    began = time.monotonic()
    lease_s = GROUPS[LEDGER][GROUP].lease_us / 1e6
    wait_until(lambda: held() and time.monotonic() > began + lease_s + 1.0, "its lease over")
    consumer.signal(signal.SIGCONT)


def period() -> None:
    """Let the time between two faults go by."""
    threading.Event().wait(PERIOD_S / 2)
