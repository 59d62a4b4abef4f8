"""Broker, producers and consumers are killed at random, all at the same time (chaos).

Producers and consumers of all topics are processes of their own. What each of them was told is in
its history; all histories together are judged by what the broker's folder holds in the end.
``FAULT_SECONDS`` says how long it goes on.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.fault import history
from tests.fault.history import Line
from tests.fault.messages import GROUPS, LEDGER
from tests.fault.processes import DEADLINE, ROOT, environment, patience, wait_until
from tests.fault.server.broker import Address, Broker
from tests.fault.server.proxy import Proxy
from tests.fault.server.raw import Peer
from tests.fault.server.results import keep, spread
from tests.fault.server.reviewing import merged, overlaps, resends_without_need
from tests.fault.server.tools import SECONDS, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SEED: Final = 41
CREW: Final = ("producers", "producers", "producers", "consumers", "consumers", "consumers")
CALM_S: Final = (0.3, 2.5)
"""Least and most time between two kills."""
BROKER_SHARE: Final = 0.4
"""So many of the kills are the broker's, as far as chance goes."""


class Process:
    """One of the crew."""

    def __init__(self, address: Address, folder: Path, number: int, role: str) -> None:
        self.role = role
        self.record = folder / f"{number}.history"
        words = [str(address.port), str(self.record), str(number), role]
        self._errors = folder / f"{number}.errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fault.server.crew", *words],
                cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stderr=errors,
            )  # fmt: skip
        self.killed_ns = 1 << 63

    def kill(self) -> None:
        """SIGKILL it."""
        if self._process.returncode is None:
            assert self._process.poll() is None, self._errors.read_text()
            self.killed_ns = time.monotonic_ns()
            self._process.kill()
            self._process.wait(DEADLINE)

    def works(self) -> bool:
        """Tell whether it was told of anything yet."""
        return any(line["op"] in ("sent", "out") for line in history.read(self.record))


def told_of(lines: Sequence[Line], overlap: str) -> list[Line]:
    """Return the lines about the row of an overlap and the rows beside it, for the report."""
    offset = int(overlap.split(": ")[1].split(maxsplit=1)[0])
    near = range(offset - 3, offset + 4)
    return [
        line
        for line in lines
        if line.get("T") == LEDGER
        and any((one[0] if isinstance(one, list) else one) in near for one in line.get("rows", ()))
    ]


@pytest.mark.timeout(600 + 3 * SECONDS)
@pytest.mark.row("B1", "C8", "G2", "H6")
def test_everybody_is_killed_at_random(memory_folder, verdicts):
    """Nothing is lost, invented, repeated without a cause or out of order."""
    chance = random.Random(SEED)
    data, logs = memory_folder / "data", memory_folder / "logs"
    crew: list[Process] = []
    kills: Counter[str] = Counter()
    back: list[float] = []
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(data, logs, **SMALL))
        proxy = stack.enter_context(Proxy(broker.ready(), 0.0))

        def start(role: str) -> Process:
            one = Process(proxy.address, memory_folder, len(crew) + 1, role)
            stack.callback(one.kill)
            crew.append(one)
            return one

        running = [start(role) for role in CREW]
        wait_until(lambda: all(one.works() for one in running), "everybody is at work")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or not all(kills[role] for role in ("broker", *CREW)):
            calm(chance.uniform(*CALM_S))
            if chance.random() < BROKER_SHARE:
                broker.kill()
                kills["broker"] += 1
                killed = time.monotonic()
                broker = stack.enter_context(Broker(data, logs, **SMALL))
                proxy.target = broker.ready()
                back.append(time.monotonic() - killed)
            else:
                one = running.pop(chance.randrange(len(running)))
                one.kill()
                kills[one.role] += 1
                running.append(start(one.role))
        for one in running:
            if one.role == "producers":
                one.kill()
        with Peer(broker.ready(), name="onlooker") as onlooker:
            wait_until(lambda: consumed(onlooker), "all consumed", DEADLINE * patience())
        for one in crew:
            one.kill()
        broker.kill()
    path = merged([one.record for one in crew], memory_folder / "history")
    verdict = verdicts.sound(data, path)
    lines = history.read(path)
    killed_at = {
        line["s"]: one.killed_ns
        for one in crew
        for line in history.read(one.record)
        if line["op"] == "out"
    }
    both = overlaps(lines, killed_at)
    assert not both, (both[:5], told_of(lines, both[0]))
    assert not (again := resends_without_need(lines)), again[:5]
    told = {name: verdict[name] for name in ("sent", "settled", "out", "repeats", "drained")}
    print(f"{dict(kills)} kills in {SECONDS} s: {told}")
    keep(
        "chaos-kills",
        {
            "seed": SEED,
            "seconds": SECONDS,
            "kills": dict(kills),
            "processes": len(crew),
            "overlaps": 0,
            "verdict": {**told, "problems": verdict["problems"]},
            "kill_to_listening_s": spread(back),
        },
    )
    assert verdict["sent"] > 20 * kills.total(), "inconclusive: little was sent"
    assert verdict["repeats"] > 0, "inconclusive: nobody was killed with rows in hand"


def consumed(onlooker: Peer) -> bool:
    """Whether every group is done with every row, as the broker has it."""
    for topic, groups in GROUPS.items():
        for name in groups:
            asked = control.encode(control.GroupList(topic=topic, group=name))
            answer = onlooker.ask(Command.GROUP_LIST, asked)
            (group,) = control.decode(answer, control.Groups).groups
            if not all(queue.floor == queue.end for queue in group.queues):
                return False
    return True


def calm(seconds: float) -> None:
    """Let the time between two kills go by."""
    threading.Event().wait(seconds)
