"""Commands that go on say when the broker is lost, and when it is back."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq.sync
from tests.black_box.process import DEADLINE, BrokerProcess
from tests.cli.conftest import Processes


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that may be killed, and keeps what it has."""
    with BrokerProcess("dev", tmp_path / "own", segment="4MiB") as one:
        yield one


@pytest.mark.parametrize("command", [("tail", "orders", "-f"), ("consume", "orders", "-g", "g")])
def test_a_broker_that_goes_and_comes(
    processes: Processes, own: BrokerProcess, command: tuple[str, ...]
) -> None:
    processes.environment |= {"TERNMQ_URL": own.url}
    with ternmq.sync.connect(own.url) as client:
        client.send("orders", "one")
    process = processes.start(*command, "--raw", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == b"one\n"
        own.kill()
        while b"is lost" not in (line := process.stderr.readline()):
            assert line, "it ended"
        assert line.startswith(b"the connection to ")
        own.start()
        while b"again after" not in (line := process.stderr.readline()):
            assert line, "it ended"
        assert line.startswith(b"connected to ")
        with ternmq.sync.connect(own.url) as client:
            client.send("orders", "two")
        assert process.stdout.readline() in {b"one\n", b"two\n"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
