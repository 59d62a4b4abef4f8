"""Signals of a broker that runs: what its terminal sends when it is closed, and nohup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import DEADLINE, free_port, wait_until

SERVE = ("-m", "ternmq", "serve", "--data", "data", "--http", "off", "--listen")


def begin(folder: Path, port: int, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a broker whose log is the file ``log``; return when it listens."""
    log = folder / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*before, sys.executable, *SERVE, f"127.0.0.1:{port}"], cwd=folder,
            stdout=out, stderr=out, env={**os.environ, "TERNMQ_SEGMENT": "64MiB"},
        )  # fmt: skip
    wait_until(lambda: "listening on" in log.read_text(), "it listens")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_of_these_signals_stops_it_in_order(tmp_path: Path, number: int) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run behind nohup
    try:
        process = begin(tmp_path, free_port())
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        process.send_signal(number)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
    assert "stopped" in (tmp_path / "log").read_text()


def test_behind_nohup_it_continues_when_the_terminal_is_closed(tmp_path: Path) -> None:
    port = free_port()
    process = begin(tmp_path, port, ["nohup"])
    try:
        process.send_signal(signal.SIGHUP)
        token = (tmp_path / "data" / "admin.token").read_text().strip()
        url = f"ternmq://127.0.0.1:{port}"
        with ternmq.sync.connect(url, app="admin", token=token) as client:
            client.admin.create_topic("t")
            client.send("t", "still here")
        assert process.poll() is None
        assert "stopping" not in (tmp_path / "log").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()
