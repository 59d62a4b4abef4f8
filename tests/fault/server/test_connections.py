"""Connections that are cut, and everybody coming back at one time (OVL-3)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from tests.fault import history
from tests.fault.history import Line
from tests.fault.messages import LEDGER, ORDERS, QUICK
from tests.fault.processes import patience
from tests.fault.server.broker import Broker
from tests.fault.server.desk import Plan
from tests.fault.server.load import Load
from tests.fault.server.proxy import Proxy
from tests.fault.server.reviewing import resends_without_need
from tests.fault.server.tools import SMALL
from tests.fault.tools import need_strace, strace

pytestmark = [pytest.mark.fault, pytest.mark.slow]

STORM = Plan(
    producers=200, window=1, consumers=((ORDERS, "billing"), (ORDERS, "audit")), faults=False
)


def known_already(lines: Sequence[Line]) -> list[Line]:
    """Sends whose answer was lost: sent again, they were known."""
    return [line for line in lines if line["op"] == "sent" and line["dup"]]


@pytest.mark.timeout(120)
@pytest.mark.row("F6")
def test_connections_cut_while_syncs_are_slow(memory_folder, verdicts):
    """Cut every 200 ms, a sync takes 60: what has no answer is sent again, and stored once."""
    need_strace()
    data, record = memory_folder / "data", memory_folder / "history"
    slow = strace(trace=["fdatasync"], inject="delay_enter=60000")
    plan = Plan(window=4, topics=(ORDERS, LEDGER, QUICK), batch=4, faults=False)
    with (
        Broker(data, memory_folder / "logs", before=slow, **SMALL) as broker,
        Proxy(broker.ready(), 0.0) as direct,
        Load(direct.address, record, plan) as load,
        Proxy(direct.target, 0.2) as cutting,
    ):
        load.wait(lambda: all(client.connections for client in load.clients), "all connected")
        load.address = cutting.address
        for client in load.clients:
            load.in_loop(client.cut)
        load.sent(300)
        load.wait(
            lambda: load.counts.delivered >= 300 and load.losses > 40,
            "300 rows delivered through forty cuts",
        )
        load.wait(lambda: sum(client.resent for client in load.clients) > 20, "20 sends again")
        load.wait(lambda: bool(known_already(history.read(record))), "a lost answer")
        lost = load.losses
        load.address = direct.address
        load.stop_sending()
        load.drained()
        resent = sum(client.resent for client in load.clients)
        broker.kill()
    verdict = verdicts.sound(data, record)
    lines = history.read(record)
    assert not resends_without_need(lines)
    assert not [line for line in lines if line["op"] == "refused"]
    known = known_already(lines)
    assert verdict["drained"] == 0, "what was lost with a connection did not come again"
    print(f"{lost} lost, {resent} resent, {len(known)} of them known, {verdict['repeats']} repeats")


@pytest.mark.timeout(120)
def test_everybody_comes_back_at_one_time(memory_folder, verdicts):
    """Two hundred clients, the broker killed and started: all are back, and soon."""
    data, record, logs = memory_folder / "data", memory_folder / "history", memory_folder / "logs"
    with Broker(data, logs, **SMALL) as first, Load(first.ready(), record, STORM) as load:
        load.wait(lambda: all(client.connections for client in load.clients), "all connected")
        load.sent(1000)
        first.kill()
        with Broker(data, logs, **SMALL) as broker:
            load.address = broker.ready()
            began = time.monotonic()
            load.wait(lambda: all(client.connections > 1 for client in load.clients), "all back")
            back = time.monotonic() - began
            load.sent(1000)
            load.stop_sending()
            assert not [client for client in load.clients if client.lost_sessions]
            print(f"{len(load.clients)} clients back in {back:.2f} s")
            assert back < 5 * patience()
            broker.kill()
    verdicts.sound(data, record)
