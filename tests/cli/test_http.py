"""``ternmq http``: what it refuses, and what it says."""

from __future__ import annotations

import socket
import subprocess
import urllib.request

import pytest

from tests.black_box.process import DEADLINE, free_port, wait_until
from tests.cli.conftest import Processes


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--listen", "0.0.0.0:7119"), "this server has no TLS"),
        (("--listen", "nonsense"), "Invalid value for '--listen'"),
        (("--app", "shop"), "connects with the app and token of each request"),
        (("--token", "tmq_x"), "connects with the app and token of each request"),
        (("--url", "nonsense://x"), "nonsense"),
        (("--lisen", "x"), "No such option"),
    ],
)
def test_what_it_refuses(processes: Processes, arguments: tuple[str, ...], text: str) -> None:
    ended = processes.run("http", *arguments, code=2)
    assert text in ended.err
    assert ended.err.count("\n") == 1
    assert "tmq_x" not in ended.err


def test_a_port_that_is_in_use(processes: Processes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = processes.run("http", "--listen", str(port), code=1)
    assert ended.err == f"ternmq: cannot listen at 127.0.0.1:{port}: address already in use\n"


def test_it_says_where_it_serves_and_ends_at_sigterm(processes: Processes) -> None:
    port = free_port()
    log = processes.folder / "http.log"
    with log.open("wb") as out:
        process = processes.start(
            "http", "--listen", f"127.0.0.1:{port}",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out,
        )  # fmt: skip
    wait_until(lambda: b"serves http://" in log.read_bytes(), "it serves")
    alive = urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=DEADLINE)
    with alive:
        assert alive.read() == b"alive\n"
    process.terminate()
    assert process.wait(DEADLINE) == 0
    assert "Traceback" not in log.read_text()
