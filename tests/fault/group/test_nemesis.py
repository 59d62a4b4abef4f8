"""Random faults on a pair with everything under way (REP-8).

A load of sends, acks, retries and rejections, transactions whose producers die, delays and cancels.
The plan of a round follows from its seed. A planned fault that did not happen fails the round as
inconclusive.

``GROUP_SECONDS`` (default 3600 in the long form): rounds follow each other for so long.
``GROUP_SEED``: of the first round; the next ones count up from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

import ternmq.sync
from tests.fault.group.checks import sound
from tests.fault.group.hands import Hands
from tests.fault.group.load import GroupLoad
from tests.fault.group.nemesis import plan, planned
from tests.fault.group.test_links import linked
from tests.fault.group.tools import LONG, seconds
from tests.fault.processes import Verdicts
from tests.fault.server.delays import Delays, kept_up
from tests.fault.server.desk import Plan
from tests.fault.server.ledger import Crew, Ledger, Orders
from tests.fault.server.results import keep
from tests.fault.tools import need_root
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SEED: Final = int(os.environ.get("GROUP_SEED", "187"))
SECONDS: Final = float(os.environ.get("GROUP_SECONDS", "3600"))
STEPS: Final = 20 if LONG else 6
"""Of a round."""
MOST_S: Final = seconds(2.5, 13.0)
"""Longest time of a fault. A primary whose sync has not ended after 10 s resigns."""
VOLUME_BYTES: Final = 192 << 20
LOAD: Final = Plan(producers=2, window=8, pause_s=0.03, handle_s=0.02)
ORDERS: Final = 10
"""Orders to be paid after each step."""


@pytest.mark.timeout(3 * SECONDS + 1200 if LONG else 400)
def test_random_faults(memory_folder, verdicts):
    """Nothing is lost, invented, repeated without a cause or early; the copies agree."""
    need_root("mkfs.ext4", "fsfreeze", "fallocate")
    told: list[dict[str, Any]] = []
    until = time.monotonic() + SECONDS
    while not told or (LONG and time.monotonic() < until):
        seed = SEED + len(told)
        told.append(a_round(memory_folder / str(seed), seed, verdicts))
        print(told[-1], flush=True)
    keep("rep-8-nemesis", {"seed": SEED, "rounds": told, "problems": []})


def a_round(folder: Path, seed: int, verdicts: Verdicts) -> dict[str, Any]:
    """Take the steps of a plan on a new group; return the counts."""
    taken = plan(seed, STEPS, MOST_S)
    print(f"seed {seed}", *taken, sep="\n", flush=True)
    folder.mkdir()
    record = folder / "history"
    with contextlib.ExitStack() as stack:
        volumes = {
            name: stack.enter_context(Volume(folder / name, "ext4", VOLUME_BYTES))
            for name in ("a", "b")
        }
        data = {name: one.point / "data" for name, one in volumes.items()}
        brokers, links = stack.enter_context(linked(folder / "group", data=data))
        with (
            GroupLoad(brokers.addresses, record, LOAD, seed=seed) as load,
            ternmq.sync.connect(brokers.url, timeout=240) as client,
        ):
            delays = Delays(client, seed)
            delays.make()
            orders = Orders(client, Ledger(folder / "ledger"), ORDERS)
            orders.make()
            began = time.monotonic()
            with Crew(brokers.url, folder / "ledger", deaths=60, count=2) as crew:
                hands = Hands(brokers, links, volumes, crew.tend)
                with kept_up(delays, client, most_s=5.0):
                    for step in taken:
                        load.sent(5)
                        hands.take(step)
                        orders.more(ORDERS)
                    hands.whole()
                orders.wait(crew.tend)
            took_s = time.monotonic() - began
            answered = {int(at - began) for at, _ in load.counts.latencies if at > began}
            assert orders.judge() >= ORDERS * (STEPS + 1)
            delays.drained()
            scheduled = delays.judge()
            load.stop_sending()
            load.drained()
        verdict = sound(brokers, verdicts, record)
    assert hands.fired == planned(taken), "inconclusive: a planned fault did not happen"
    kinds = Counter({kind.partition("(")[0]: 0 for kind in hands.fired})
    for fault, count in hands.fired.items():
        kinds[fault.partition("(")[0]] += count
    return {
        "seed": seed,
        "seconds": round(took_s),
        "seconds_with_an_answer": len(answered),
        "faults": dict(kinds),
        "ended_by_themselves": hands.ended,
        "payers_died": crew.died,
        "scheduled": scheduled,
        "cancelled": delays.cancelled,
        **{name: verdict[name] for name in ("sent", "refused", "settled", "out", "repeats")},
        "problems": verdict["problems"],
    }
