"""A broker that is told to stop before it listens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.black_box.process import DEADLINE, free_port, wait_until


def begin(folder: Path) -> subprocess.Popen[bytes]:
    """Start a broker whose log is the file ``log``."""
    command = [
        sys.executable, "-m", "ternmq", "serve", "--data", "data", "--http", "off",
        "--listen", f"127.0.0.1:{free_port()}",
    ]  # fmt: skip
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log,
            env={**os.environ, "TERNMQ_SEGMENT": "64MiB"},
        )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_ends_it_cleanly(tmp_path: Path, number: int) -> None:
    log = tmp_path / "log"
    for said in ("a new journal", "journal open"):
        process = begin(tmp_path)
        wait_until(lambda: said in log.read_text(), said)  # noqa: B023 - called at once
        process.send_signal(number)
        assert process.wait(DEADLINE) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        log.unlink()
    process = begin(tmp_path)
    wait_until(lambda: "listening on" in log.read_text(), "it listens")
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0
    assert "after a crash" not in log.read_text()
