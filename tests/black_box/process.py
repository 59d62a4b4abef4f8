"""A broker in a process of its own: started, killed, started again; nothing of it is imported."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

DEADLINE = 30.0
"""Longest that anything here may take, on a machine that does much else."""
_LISTENING = re.compile(r"^listening on (\S+):(\d+)$", re.MULTILINE)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Wait for something that cannot be waited for otherwise, or fail."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"after {seconds} s: not {what}")
        pause.wait(0.01)


_PORTS = range(15_000, 30_000)
"""Not those from which the system chooses when a process asks for any port: a test that runs at the
same time could get the port before the broker has it."""


def free_port() -> int:
    """Return a port that nobody has: for a broker that comes again at the same place."""
    while True:
        # Not `random`: hypothesis seeds it, in each worker with the same.
        port = secrets.choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port


class BrokerProcess:
    """A context manager: ``dev`` or ``serve`` in a folder; leaving ends it.

    Args:
        verb: ``dev`` (no tokens, topics made at first use) or ``serve``.
        folder: Its data and log are here; made if missing.
        http: Whether it has its HTTP port, for ``metric``.
        settings: As environment: ``segment="4MiB"`` is ``TERNMQ_SEGMENT``.
    """

    def __init__(self, verb: str, folder: Path, *, http: bool = False, **settings: str) -> None:
        self.verb = verb
        self.folder = folder
        self.port = free_port()
        self.http_port = free_port() if http else 0
        self.settings = settings
        self.arguments: list[str] = []
        """More of them, for the next start."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What to connect to."""
        return f"ternmq://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The broker's folder."""
        return self.folder / "data"

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return (self.folder / "log").read_text(encoding="utf-8")

    def start(self) -> Self:
        """Start it; returns when it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
        kept["TERNMQ_RETENTION_WATERMARK"] = "0.98"  # the disk may be full of other things
        http = f"127.0.0.1:{self.http_port}" if self.http_port else "off"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ternmq", self.verb, "--data", str(self.data),
                 "--listen", f"127.0.0.1:{self.port}", "--http", http, *self.arguments],
                stdout=subprocess.PIPE, stderr=log, cwd=self.folder,
                env=kept | {f"TERNMQ_{k.upper()}": v for k, v in self.settings.items()},
            )  # fmt: skip
        assert self.process.stdout is not None
        said = ""
        until = time.monotonic() + DEADLINE
        while _LISTENING.search(said) is None:
            left = max(0, until - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            data = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            if not data:
                self.kill()
                raise AssertionError(f"the broker did not listen: {said!r} {self.log[-2000:]}")
            said += data.decode()
        return self

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator does; return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(DEADLINE)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def restart(self, *, kill: bool = False) -> None:
        """End it and start it again in the same folder, at the same port."""
        if kill:
            self.kill()
        else:
            assert self.stop() == 0
        self.start()

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels, as Prometheus would read it."""
        address = f"http://127.0.0.1:{self.http_port}/metrics"
        with urllib.request.urlopen(address, timeout=DEADLINE) as answer:
            text = answer.read().decode()
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert found, f"there is no metric {name}"
        return sum(float(one) for one in found)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end(signal.SIGTERM)
