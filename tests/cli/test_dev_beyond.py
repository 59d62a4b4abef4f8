"""``ternmq dev`` beyond this machine: asked for plainly, with a token, and with a warning."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tests.black_box.process import DEADLINE, free_port
from tests.cli.conftest import CommandLine, Processes


def test_without_a_token_it_does_not_start(processes: Processes) -> None:
    said = processes.run("dev", "--listen", "0.0.0.0:0", "--http", "off", code=2).err
    assert "needs a token (set TERNMQ_ADMIN_TOKEN)" in said


def test_with_a_token_others_reach_it(
    processes: Processes, cli: CommandLine, tmp_path: Path
) -> None:
    port = free_port()
    processes.environment |= {"TERNMQ_ADMIN_TOKEN": "chosen", "TMPDIR": str(tmp_path)}
    process = processes.start(
        "dev", "--listen", f"0.0.0.0:{port}", "--http", "off", stdin=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening on 0.0.0.0:{port}\n".encode()
        url = f"ternmq://127.0.0.1:{port}"
        cli("topic", "list", "--url", url, code=5)
        as_admin = ("--url", url, "--app", "admin", "--token", "chosen")
        cli("send", "made-by-use", "x", *as_admin)
        assert "made-by-use" in cli("topic", "list", *as_admin).out
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE)
    assert b"Other machines can reach this broker at 0.0.0.0" in err
    assert b"no TLS" in err
    assert b"chosen" not in err
