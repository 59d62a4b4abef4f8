"""The broker process is killed at random moments under load (DUR-1), and storms follow."""

from __future__ import annotations

import random
import time

import pytest

from tests.fault.server.broker import Broker
from tests.fault.server.load import Load
from tests.fault.server.results import keep, spread, start_up_s
from tests.fault.server.tools import KILLS, SMALL

SEED = 20
pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.row("B1", "C8", "G2")
def test_killed_at_random_moments(memory_folder, verdicts):
    """Clients come back by themselves; everything answered is there, nothing acked comes again."""
    chance = random.Random(SEED)
    data, record, logs = memory_folder / "data", memory_folder / "history", memory_folder / "logs"
    with Broker(data, logs, **SMALL) as first:
        load = Load(first.ready(), record)
        with load:
            broker, began = first, time.monotonic()
            ready: list[float] = []
            again: list[float] = []
            for _ in range(KILLS):
                load.sent(chance.randint(20, 1500))
                broker.kill()
                killed = time.monotonic()
                broker = Broker(data, logs, **SMALL)
                load.address = broker.ready()
                ready.append(time.monotonic() - killed)
                load.sent(1)
                again.append(time.monotonic() - killed)
            took = time.monotonic() - began
            with broker:
                load.sent(200)
                load.stop_sending()
                broker.kill()
    verdict = verdicts.sound(data, record)
    told = {name: verdict[name] for name in ("sent", "settled", "out", "repeats", "drained")}
    print(f"{KILLS} kills in {took:.1f} s: {told}")
    keep(
        "dur-1-kills",
        {
            "seed": SEED,
            "kills": KILLS,
            "span_s": round(took, 1),
            "verdict": {**told, "problems": verdict["problems"]},
            "kill_to_listening_s": spread(ready),
            "kill_to_first_answer_s": spread(again),
            "start_up_s": start_up_s(),
            "segments_at_the_end": len(list((data / "journal").iterdir())),
        },
    )
    assert verdict["sent"] > 50 * KILLS
    assert verdict["settled"] > 10 * KILLS
    assert load.losses >= KILLS * len(load.clients) // 2
