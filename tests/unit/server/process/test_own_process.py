"""What a process is set to that is the broker's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ternmq.server.process.own_process import DUE, MIDDLE, OVERDUE, QUIET, FullCollections


class Collector:
    """Stands for the interpreter's."""

    def __init__(self) -> None:
        self.asked = 0
        self.waiting = 0
        self.full = 0

    def collect(self) -> None:
        self.full += 1
        self.waiting = 0


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
def collections(collector: Collector) -> FullCollections:
    return FullCollections(lambda: collector.asked, collector.collect, lambda: collector.waiting)


def test_what_is_young_waits_for_its_own_collections(
    collector: Collector, collections: FullCollections
) -> None:
    collector.waiting = DUE - 1
    collections.look()
    assert collector.full == 0


def test_all_is_collected_in_a_quiet_moment(
    collector: Collector, collections: FullCollections
) -> None:
    collector.waiting = DUE
    for _ in range(3):
        collector.asked += QUIET + 1
        collections.look()
        assert collector.full == 0
    collector.asked += QUIET
    collections.look()
    assert collector.full == 1
    collections.look()
    assert collector.full == 1  # there is nothing new


def test_much_that_waits_is_collected_however_much_is_asked(
    collector: Collector, collections: FullCollections
) -> None:
    for collector.waiting in (OVERDUE - 1, OVERDUE):
        collector.asked += 100_000
        collections.look()
    assert collector.full == 1


SET_UP = """
import asyncio, gc, sys
from ternmq.server import app
from ternmq.server.process import own_process
from ternmq.settings import Mode, load

app._SWEEP_S = 0.001

async def run(data):
    ended = asyncio.current_task()
    class Collections(own_process.FullCollections):
        def look(self):
            super().look()
            self.looks = getattr(self, "looks", 0) + 1
            if self.looks == 3:
                ended.cancel()
    own_process.FullCollections = Collections
    flags = {"data": data, "listen": "127.0.0.1:0", "http": "off"}
    settings = load(None, environ={}, flags=flags, mode=Mode.TESTING)
    try:
        await asyncio.wait_for(app.run(settings, announce=False), 30)
    except asyncio.CancelledError:
        return

asyncio.run(run(sys.argv[1]))
assert gc.isenabled()
print(round(sys.getswitchinterval(), 6), *gc.get_threshold()[1:], gc.get_freeze_count() > 1000)
"""


def test_a_process_is_set_up_and_looked_after(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SET_UP, str(tmp_path / "data")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    interval, middle, threshold, frozen = told.stdout.split()
    assert (interval, middle, frozen) == ("0.0001", str(MIDDLE), "True")
    # From 3.14 on the old generation is collected in pieces, and has no threshold of its own.
    assert int(threshold) in (1 << 30, 0)
