"""Consumers of an ordered group are killed and paused while the primary changes (ORD-2).

Leases outlive a failover: a consumer that is stopped keeps its rows until its lease is over, though
its connection went with the primary. When it goes on, they are another's, and its acks are refused.
"""

from __future__ import annotations

import contextlib
import random
from typing import Final

import msgspec
import pytest

from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.fault import history
from tests.fault.group.brokers import Brokers, wait
from tests.fault.group.checks import sound
from tests.fault.group.load import GroupLoad
from tests.fault.group.tools import LONG, cycles, passed
from tests.fault.messages import GROUPS, LEDGER
from tests.fault.processes import wait_until
from tests.fault.server.desk import Plan
from tests.fault.server.ordered import GROUP, Consumer, consumed, handed, killed, taken_over
from tests.fault.server.raw import Peer
from tests.fault.server.reviewing import merged, overlaps

pytestmark = [pytest.mark.fault, pytest.mark.slow]

TIMES = cycles(1)
CONSUMERS: Final = 3
WORKER: Final = "tests.fault.group.worker"
PERIOD_S: Final = 2.0
LEASE_S: Final = 8.0
"""Longer than a failover takes: a lease that the next primary ended early would be noticed."""
GRACE: Final = "6s"
"""A session without a connection ends so long after a failover, which takes 3 s: no lease before
its time."""
PLAN: Final = Plan(producers=2, window=4, topics=(LEDGER,), consumers=(), batch=2, pause_s=0.02)


@pytest.mark.timeout(200 + 120 * TIMES)
def test_consumers_killed_and_paused_over_failovers(memory_folder, verdicts):
    """No key is in two hands at a time, its messages come in order, and none is left."""
    chance = random.Random(6)
    record = memory_folder / "producers.history"
    consumers: list[Consumer] = []
    with (
        contextlib.ExitStack() as stack,
        Brokers(memory_folder / "group", limits_session_grace=GRACE) as brokers,
    ):

        def start() -> Consumer:
            place = [",".join(str(one.port) for one in brokers.addresses)]
            one = Consumer(WORKER, place, memory_folder, 2 + len(consumers))
            stack.callback(one.kill)
            consumers.append(one)
            return one

        with GroupLoad(brokers.addresses, record, PLAN, number=1) as load:
            lengthen_leases(brokers)
            running = [start() for _ in range(CONSUMERS)]
            handed(running, 1)
            for _ in range(TIMES):
                dying, paused = chance.sample(running, 2)
                primary = brokers.primary
                paused.stop_with_rows()  # its leases end under another primary
                brokers.kill(primary)
                wait_until(passed(chance.uniform(0.0, PERIOD_S)), "another fault")
                dying.stop_with_rows()
                dying.kill()
                running[running.index(dying)] = start()
                others = [one for one in running if one is not paused]
                wait(taken_over(paused, others), "another consumer has its rows")
                paused.go_on()
                handed(running, 5)
                brokers.start(primary)
                brokers.wait_until_whole()
                if LONG:
                    running.pop(chance.randrange(CONSUMERS)).kill()
                    running.append(start())
                    handed(running, 5)
                    wait_until(passed(chance.uniform(0.0, PERIOD_S)), "another fault")
            load.stop_sending()
            rows = sum(line["a"][3] for line in history.read(record) if line["op"] == "sent")
            assert rows > 100, f"inconclusive: {rows} messages"
            with Peer(brokers.address(brokers.primary), name="onlooker") as onlooker:
                wait_until(lambda: consumed(onlooker), "all consumed")
        for one in consumers:
            one.kill()
        path = merged([record, *[one.record for one in consumers]], memory_folder / "history")
        verdict = sound(brokers, verdicts, path)
    lines = history.read(path)
    both = overlaps(lines, killed(consumers))
    assert not both, both[:5]
    assert verdict["drained"] == 0
    keys = {row[5] for line in lines if line["op"] == "out" for row in line["rows"]}
    print(f"{rows} messages of {len(keys)} keys, {verdict['repeats']} redelivered")
    assert len(keys) > 4
    assert verdict["repeats"] > 0, "inconclusive: nobody was killed with rows in hand"


def lengthen_leases(brokers: Brokers) -> None:
    """Have the group lease its messages for ``LEASE_S``."""
    spec = msgspec.structs.replace(GROUPS[LEDGER][GROUP], lease_us=round(LEASE_S * 1e6))
    with Peer(brokers.address(brokers.primary), name="operator") as operator:
        change = control.GroupChange(topic=LEDGER, group=GROUP, spec=spec)
        operator.ask(Command.GROUP_CHANGE, control.encode(change))
