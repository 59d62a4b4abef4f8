"""What ``ternmq dev`` tells somebody to type goes to the broker that tells it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.black_box.process import DEADLINE, BrokerProcess, free_port
from tests.cli.conftest import Processes


def said(processes: Processes, *arguments: object) -> str:
    """Return what a broker said on standard error from its start to its end."""
    process = processes.start(*arguments, "--http", "off", stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on")
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE)
    return err.decode()


def test_the_address_is_named(processes: Processes) -> None:
    port = free_port()
    told = said(processes, "dev", "--listen", f"127.0.0.1:{port}")
    begin, _, rest = told.partition("ternmq send greetings")
    assert f"\n    export TERNMQ_URL=ternmq://127.0.0.1:{port}\n" in begin
    assert "in Python, in that terminal:" in rest
    assert "\nTry, in another terminal:\n" in begin
    assert "TOKEN" not in told
    banner = told.partition("    print(")[0]
    assert max(map(len, banner.splitlines())) <= 80


def test_a_port_that_is_picked_is_named_by_the_next_line(processes: Processes) -> None:
    told = said(processes, "dev", "--listen", "127.0.0.1:0")
    assert "export TERNMQ_URL=ternmq://HOST:PORT    # as `listening on` says below" in told


def test_beyond_loopback_it_is_an_address_that_a_client_can_use(processes: Processes) -> None:
    processes.environment |= {"TERNMQ_ADMIN_TOKEN": "one-that-nobody-guesses"}
    port = free_port()
    told = said(processes, "dev", "--listen", f"0.0.0.0:{port}")
    assert f"export TERNMQ_URL=ternmq://127.0.0.1:{port}\n" in told
    assert 'export TERNMQ_APP=admin TERNMQ_TOKEN="$TERNMQ_ADMIN_TOKEN"\n' in told
    assert "nobody-guesses" not in told


@pytest.mark.parametrize("token", ["a", "secret", "fifteen-letters"])
def test_a_short_token_is_warned_of(processes: Processes, token: str) -> None:
    processes.environment |= {"TERNMQ_ADMIN_TOKEN": token}
    told = said(processes, "dev", "--listen", f"0.0.0.0:{free_port()}")
    assert "admin_token of the settings has fewer than 16 characters" in told
    assert f"{token!r}" not in told


def test_a_folder_with_apps_is_warned_of(processes: Processes, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess("serve", tmp_path, segment="4MiB") as served:
        assert served.data == folder
    told = said(processes, "dev", "--data", folder, "--listen", "127.0.0.1:0")
    assert "has 1 app with a token, but `ternmq dev` requires no token" in told
    told = said(processes, "dev", "--data", tmp_path / "other", "--listen", "127.0.0.1:0")
    assert "with a token" not in told
