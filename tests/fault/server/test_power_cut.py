"""Power cuts under the broker process on ext4 and XFS, the process stopped first (DUR-4)."""

from __future__ import annotations

import random
import time

import pytest

from tests.fault.server.broker import Broker
from tests.fault.server.load import Load
from tests.fault.server.results import keep, spread
from tests.fault.server.tools import POWER_CUTS, SMALL
from tests.fault.tools import need_root
from tests.fault.volumes import Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.row("B1", "C3", "C8")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts(kind, memory_folder, verdicts):
    """Clients come back to their sessions; the folder opens by itself; what was synced is there."""
    need_root(f"mkfs.{kind}")
    chance = random.Random(kind)
    record, logs = memory_folder / "history", memory_folder / "logs"
    with Volume(memory_folder / "volume", kind) as volume:
        data = volume.point / "data"
        broker = Broker(data, logs, **SMALL)
        with broker, Load(broker.ready(), record) as load:
            sent, ready = [], []
            for _ in range(POWER_CUTS):
                before = load.counts.sent
                load.sent(chance.randint(100, 1000))
                volume.cut(broker)
                sent.append(load.counts.sent - before)
                began = time.monotonic()
                broker = Broker(data, logs, **SMALL)
                load.address = broker.ready()
                ready.append(time.monotonic() - began)
            with broker:
                load.sent(200)
                load.stop_sending()
                volume.cut(broker)
        verdict = verdicts.sound(data, record, power=True)
    told = {name: verdict[name] for name in ("sent", "settled", "out", "repeats", "drained")}
    print(f"{POWER_CUTS} cuts of {kind}: {told}")
    keep(
        f"dur-4-{kind}",
        {
            "seed": kind,
            "cuts": POWER_CUTS,
            "verdict": {**told, "problems": verdict["problems"]},
            "messages_answered_a_cycle": spread(sent),
            "start_to_listening_s": spread(ready),
        },
    )
    assert verdict["sent"] > 40 * POWER_CUTS
    assert verdict["settled"] > 5 * POWER_CUTS
