"""Rows of MISSION, administration: who is connected, how the broker is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq
import ternmq.sync
from tests.black_box.process import BrokerProcess, wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess("dev", tmp_path / "broker", segment="4MiB") as broker:
        yield broker


@pytest.mark.row("O6")
def test_a_list_says_who_is_connected(broker: BrokerProcess) -> None:
    """App, address, library, language, topics in use, process, since when."""
    with ternmq.sync.connect(broker.url) as client, ternmq.sync.connect(broker.url) as other:
        client.send("orders", b"a")
        client.send("prices", b"b")
        client.pull("orders", group="billing").ack()
        other.send("stock", b"c")
        now = client.admin.status().now_us
        first, second = client.admin.clients()
        assert (first.topics, second.topics) == (["orders", "prices"], ["stock"])
        assert first.session != second.session
        for one in (first, second):
            assert re.fullmatch(r"127\.0\.0\.1:\d+", one.address)
            assert one.language == f"python {sys.version.split()[0]}"
            assert ternmq.__version__ in one.library
            assert (one.app, one.pid, one.connected) == ("", os.getpid(), True)
            assert 0 < one.since_us <= now
        other.close()
        wait_until(lambda: len(client.admin.clients()) == 1, "the one that left is not listed")


def used_by_df(folder: Path) -> float:
    """Return the Use% of ``df`` of the disk of a folder, as a fraction."""
    told = subprocess.run(
        ["df", "--output=pcent", str(folder)], capture_output=True, text=True, check=True
    )
    return int(told.stdout.split()[-1].rstrip("%")) / 100


@pytest.mark.row("O7")
def test_the_status_says_how_the_broker_is(broker: BrokerProcess) -> None:
    """Role, positions of the journal, disk, lag, messages a second, how long it runs."""
    with ternmq.sync.connect(broker.url) as client:
        before = client.admin.status()
        client.send_many("orders", [b"x" * 1000 for _ in range(1000)])
        client.admin.create_group("orders", "billing")
        client.pull("orders", group="billing", max_messages=300).ack()
        status = client.admin.status()
        assert (status.broker, status.role) == ("ternmq", "primary")
        assert status.version == ternmq.__version__
        assert status.epoch >= 1
        assert before.uptime_us < status.uptime_us < 600_000_000
        assert status.journal_first <= before.journal_end < status.journal_end
        assert status.journal_end - before.journal_end > 1_000_000
        assert before.journal_end <= status.journal_durable <= status.journal_end
        system = os.statvfs(broker.data)
        assert status.disk_total_bytes == system.f_blocks * system.f_frsize  # as `df`
        assert status.disk_used == pytest.approx(used_by_df(broker.data), abs=0.02)
        assert 0 < status.disk_free_bytes < status.disk_total_bytes
        assert status.metrics['ternmq_group_lag{group="billing",topic="orders"}'] == 700
        wait_until(lambda: client.admin.status().sent_a_second > 10, "messages a second")
        wait_until(lambda: client.admin.status().delivered_a_second > 3, "and handed out")


def test_the_log_ends_with_the_end(tmp_path: Path) -> None:
    with BrokerProcess("serve", tmp_path / "broker", segment="4MiB") as broker:
        assert broker.stop() == 0
        assert broker.log.splitlines()[-1].endswith("stopped")
