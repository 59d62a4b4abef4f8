"""SIGTERM under load, twice, and a folder that is taken."""

from __future__ import annotations

import time

import pytest

from tests.fault.processes import patience
from tests.fault.server.broker import Broker
from tests.fault.server.load import Load
from tests.fault.server.tools import SMALL

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SETTINGS = {**SMALL, "log_level": "info", "drain_timeout": "3s"}
EXIT_SECONDS = 5.0
"""The drain timeout, and what the rest takes."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("signals", [1, 2])
def test_a_clean_stop_under_load(signals, memory_folder, verdicts):
    """Clients are told, what is answered is there, the next start has nothing to recover."""
    data, record, logs = memory_folder / "data", memory_folder / "history", memory_folder / "logs"
    with Broker(data, logs, **SETTINGS) as first, Load(first.ready(), record) as load:
        load.sent(500)
        load.settled(50)
        load.wait(lambda: all(client.connections for client in load.clients), "all connected")
        began = time.monotonic()
        for _ in range(signals):
            first.terminate()
        assert first.wait(EXIT_SECONDS * patience()) == 0, first.log
        took = time.monotonic() - began
        assert "Traceback" not in first.log, first.log
        # The broker has ended; the clients' thread may still have to read what it wrote.
        load.wait(lambda: all(client.drained for client in load.clients), "every client told")
        with Broker(data, logs, **SETTINGS) as second:
            load.address = second.ready()
            assert ", clean, positions" in second.log, second.log
            assert "cut " not in second.log, second.log
            load.sent(200)
            load.settled(50)
            load.stop_sending()
            second.kill()
    verdict = verdicts.sound(data, record)
    print(f"stopped in {took:.2f} s, refused {dict(load.counts.refused)}, {verdict['sent']} sent")
    assert set(load.counts.refused) <= {"ShuttingDown", "Busy"}, load.counts.refused


@pytest.mark.timeout(60)
def test_a_folder_that_another_broker_holds(memory_folder, verdicts):
    """One line that says so, exit code 1; the other one does not notice."""
    data, record, logs = memory_folder / "data", memory_folder / "history", memory_folder / "logs"
    with Broker(data, logs, **SMALL) as first, Load(first.ready(), record) as load:
        load.sent(100)
        with Broker(data, logs, **SMALL) as second:
            assert second.wait() == 1
            said = [line for line in second.log.splitlines() if line.startswith("ternmq: ")]
            assert len(said) == 1, second.log
            assert str(data) in said[0] or "another" in said[0], said
            assert "Traceback" not in second.log, second.log
        load.sent(100)
        load.stop_sending()
        assert load.losses == 0
        assert not first.ended
        first.kill()
    verdicts.sound(data, record)
