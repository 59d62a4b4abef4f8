"""An ordered group whose consumers are killed and paused all the time (ORD-2)."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest

from tests.fault import history
from tests.fault.messages import LEDGER
from tests.fault.processes import wait_until
from tests.fault.server.broker import Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.ordered import LEASE_S, Consumer, consumed, handed, killed, lease_over
from tests.fault.server.raw import Peer
from tests.fault.server.results import keep
from tests.fault.server.reviewing import merged, overlaps
from tests.fault.server.tools import KILLS, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

WORKER = "tests.fault.server.worker"
CONSUMERS = 3
PERIOD_S = 2.0
GRACE = "500ms"


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
            place = [str(load.address.port)]
            one = Consumer(WORKER, place, memory_folder, 2 + len(consumers))
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
    both = overlaps(lines, killed(consumers))
    assert not both, both[:5]
    assert verdict["drained"] == 0
    keys = len({row[5] for line in lines if line["op"] == "out" for row in line["rows"]})
    told = {"messages": rows, "keys": keys}
    told |= {name: verdict[name] for name in ("repeats", "expired", "drained")}
    print(told)
    keep("ord-2-ordered", {"faults": KILLS, "overlaps": 0, "problems": [], **told})
    assert keys > 4
    assert verdict["repeats"] > 0, "inconclusive: nobody was killed with rows in hand"


def pause(consumer: Consumer, others: list[Consumer]) -> None:
    """Stop one for longer than its lease lasts; it wakes up with rows that are another's now."""
    consumer.stop()
    wait_until(lease_over(others, LEASE_S), "its lease over")
    consumer.go_on()


def period() -> None:
    """Let the time between two faults go by."""
    threading.Event().wait(PERIOD_S / 2)
