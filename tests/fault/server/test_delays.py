"""Scheduled messages of a broker that is killed, down, frozen, without power (DLY-1, DLY-2)."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.fault.processes import patience, wait_until
from tests.fault.server.delays import FILLER, TOPIC, Delays, Frozen, Steady, kept_up
from tests.fault.server.tools import LONG, POWER_CUTS, SMALL
from tests.fault.tools import need_root, need_strace
from tests.fault.volumes import Memory, Volume

pytestmark = [pytest.mark.fault, pytest.mark.slow]

PRESSED = {**SMALL, "retention_max": "12MiB"}
"""Files with scheduled rows go soon, so the rows are copied again and again."""


READS = "pread64,preadv,preadv2"


def passed(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until


def filled(client: ternmq.sync.Client) -> int:
    """Send until the disk is full; return how many messages were taken."""
    sent = 0
    while True:
        try:
            client.send("held", bytes(400_000))
        except ternmq.DiskFull:
            return sent
        sent += 1


@contextmanager
def client_of(broker: Steady) -> Iterator[ternmq.sync.Client]:
    with ternmq.sync.connect(broker.url, timeout=120) as client:
        yield client


@pytest.mark.timeout(900)
@pytest.mark.row("K10", "L0f", "L0h", "L0n")
def test_killed_while_delays_are_under_way(tmp_path: Path) -> None:
    """SIGKILL every few seconds while messages are scheduled, cancelled, copied, delivered."""
    chance = random.Random(5)
    kills = 30 if LONG else 6
    with Steady(tmp_path, tmp_path / "data", PRESSED) as broker, client_of(broker) as client:
        delays = Delays(client)
        delays.make()
        with kept_up(delays, client, filler=True):
            copied = 0.0
            for _ in range(kills):
                wait_until(
                    passed(5.0 if LONG else chance.uniform(1.0, 4.0)), "some time has passed"
                )
                copied += client.admin.status().metrics["ternmq_copied_scheduled_rows_total"]
                broker.restart(kill=True)
        delays.drained()
        stored = delays.judge()
    assert stored > 30 * kills
    assert delays.cancelled > kills
    print(f"{kills} kills: {stored} stored, {delays.cancelled} cancelled, {copied:.0f} copied")
    assert copied


@pytest.mark.timeout(900)
@pytest.mark.row("K10", "L0h")
def test_nothing_but_delays_and_a_kill_every_few_seconds(tmp_path: Path) -> None:
    """DLY-1; with ``FAULT_LONG=1`` in full: 100,000 delays of 1 to 120 s, a kill every 5 s."""
    calls, most_s, pause_s = (100, 120.0, 5.0) if LONG else (5, 12.0, 2.0)
    with Steady(tmp_path, tmp_path / "data", {}) as broker, client_of(broker) as client:
        delays = Delays(client)
        delays.make()
        for _ in range(calls):
            delays.schedule(1000, 1.0, most_s)
        while not delays.over():
            wait_until(passed(pause_s), "some time has passed")
            broker.restart(kill=True)
        delays.drained(300.0)
        assert delays.judge() == 1000 * calls


@pytest.mark.timeout(180)
@pytest.mark.row("K10", "L0i")
@pytest.mark.parametrize("how", ["killed", "stopped", "frozen"])
def test_away_over_the_due_times(how: str, tmp_path: Path) -> None:
    """It comes back after all of them were due: all are delivered, in order, none early."""
    with Steady(tmp_path, tmp_path / "data", SMALL) as broker, client_of(broker) as client:
        delays = Delays(client)
        delays.make()
        for _ in range(20):
            delays.schedule(100, 2.0, 6.0)
        delays.cancel(50)
        assert delays.pending > 500, "inconclusive: this machine is too slow"
        if how == "frozen":
            broker.freeze()
        elif how == "stopped":
            broker.stop()
        else:
            broker.kill()
        wait_until(lambda: delays.over(0.5), "all of them due")
        if how == "frozen":
            broker.thaw()
        else:
            broker.start()
        delays.schedule(100, 0.1, 0.5)  # behind those that are overdue
        delays.drained()
        assert delays.judge() == 2100 - delays.cancelled


@pytest.mark.timeout(300)
@pytest.mark.row("K10")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_power_cuts_while_delays_are_under_way(kind: str, memory_folder: Path) -> None:
    """What was answered is there: scheduled, cancelled, copied, delivered."""
    need_root(f"mkfs.{kind}")
    chance = random.Random(kind)
    with Volume(memory_folder / "volume", kind) as volume:
        broker = Steady(memory_folder / "broker", volume.point / "data", PRESSED)
        with broker, client_of(broker) as client:
            delays = Delays(client)
            delays.make()
            with kept_up(delays, client, filler=True):
                for _ in range(POWER_CUTS + 1):
                    upto = len(delays.sent) + chance.randint(60, 400)
                    wait_until(partial(delays.reached, upto), "some are scheduled")
                    volume.cut(Frozen(broker))
                    broker.start()
            delays.drained()
            assert delays.judge() > 40 * POWER_CUTS
            assert delays.cancelled
            broker.kill()


@pytest.mark.timeout(300)
@pytest.mark.row("K10", "C14")
def test_rows_come_due_while_the_disk_is_full(memory_folder: Path) -> None:
    """They are delivered at the latest when there is room, each once and in order."""
    need_root()
    with Memory(memory_folder / "volume", 96 << 20) as volume:
        given = {"segment": "4MiB", "log_level": "warning", "retention_watermark": "0.85"}
        broker = Steady(memory_folder / "broker", volume.point / "data", given)
        with broker, client_of(broker) as client:
            delays = Delays(client)
            delays.make()
            client.admin.create_topic("held", retention=timedelta(seconds=1))
            client.admin.create_group("held", "g")
            for _ in range(10):
                delays.schedule(50, 45.0, 55.0, body=20_000)
            with ternmq.sync.connect(broker.url, timeout=5) as filling:  # it tries for so long
                sent = filled(filling)
            assert not delays.over(), "inconclusive: it was full too late"
            wait_until(lambda: delays.over(1.0), "all of them due")
            delays.cancel(20)  # too late, or while they wait for room: either answer holds
            acked = 0
            until = time.monotonic() + 30 * patience()
            while acked < sent:
                assert time.monotonic() < until, f"{acked} of {sent} came"
                deliveries = client.pull("held", group="g", max_messages=16, wait=1)
                deliveries.ack()
                acked += len(deliveries)
            delays.drained(30 * patience())
            assert delays.judge() == 500 - delays.cancelled


@pytest.mark.timeout(180)
def test_rows_that_cannot_be_read_are_set_aside(tmp_path: Path) -> None:
    """The disk says EIO for one file: its rows are given up by name, the others are delivered."""
    need_strace()
    with Steady(tmp_path, tmp_path / "data", SMALL) as broker, client_of(broker) as client:
        delays = Delays(client)
        delays.make()
        delays.schedule(50, 40.0, 41.0, body=1000)
        journal = broker.data / "journal"
        first = min(journal.glob("*.seg"))
        while len(list(journal.glob("*.seg"))) < 8:
            client.send_many(FILLER, [bytes(50_000)] * 10)
        delays.schedule(50, 40.0, 41.0, body=1000)
        broker.restart()  # what it knew of the file is forgotten
        assert broker.process is not None
        failing = [
            "strace", "-f", "-qq", "-o", "/dev/null", "-P", str(first), "-p",
            str(broker.process.pid), "-e", f"trace={READS}", "-e", f"inject={READS}:error=EIO",
        ]  # fmt: skip
        status = Path(f"/proc/{broker.process.pid}/status")
        with subprocess.Popen(failing) as tracer:
            try:
                wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), "traced")
                assert not delays.over(-2.0), "inconclusive: it came due too early"
                delays.drained(60 * patience())
                given_up = client.admin.status().metrics["ternmq_unreadable_scheduled_rows_total"]
            finally:
                tracer.terminate()
        assert given_up == 50
        assert delays.judge(unreadable=frozenset(range(50))) == 50
        assert client.get(TOPIC, delays.sent[70].receipt.id).state == "stored"
