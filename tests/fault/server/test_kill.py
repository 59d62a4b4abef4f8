"""The broker process is killed at random moments under load (DUR-1), and storms follow."""

from __future__ import annotations

import random
import time

import pytest

from tests.fault.server.broker import Broker
from tests.fault.server.load import Load
from tests.fault.server.tools import KILLS, SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.row("B1", "C8", "G2")
def test_killed_at_random_moments(memory_folder, verdicts):
    """Clients come back by themselves; everything answered is there, nothing acked comes again."""
    chance = random.Random(20)
    data, record, logs = memory_folder / "data", memory_folder / "history", memory_folder / "logs"
    with Broker(data, logs, **SMALL) as first:
        load = Load(first.ready(), record)
        with load:
            broker, began = first, time.monotonic()
            for _ in range(KILLS):
                load.sent(chance.randint(20, 1500))
                broker.kill()
                broker = Broker(data, logs, **SMALL)
                load.address = broker.ready()
            took = time.monotonic() - began
            with broker:
                load.sent(200)
                load.stop_sending()
                broker.kill()
    verdict = verdicts.sound(data, record)
    told = {name: verdict[name] for name in ("sent", "settled", "out", "repeats", "drained")}
    print(f"{KILLS} kills in {took:.1f} s: {told}")
    assert verdict["sent"] > 50 * KILLS
    assert verdict["settled"] > 10 * KILLS
    assert load.losses >= KILLS * len(load.clients) // 2
