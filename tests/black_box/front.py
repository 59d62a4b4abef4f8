"""An HTTP server in a process of its own, and curl as its only client."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.black_box.process import DEADLINE, free_port

_SERVES = re.compile(r"^serves http://(\S+)/v1 ", re.MULTILINE)


class Answered(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Front:
    """A context manager: ``ternmq http`` for a broker; leaving ends it."""

    def __init__(self, url: str, *arguments: str) -> None:
        self.url = url
        self.port = free_port()
        self.arguments = arguments
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it; returns when it takes requests."""
        kept = {name: value for name, value in os.environ.items() if "TERNMQ" not in name}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ternmq", "http", "--url", self.url,
             "--listen", f"127.0.0.1:{self.port}", *self.arguments],
            stderr=subprocess.PIPE, env=kept,
        )  # fmt: skip
        assert self.process.stderr is not None
        said, until = "", time.monotonic() + DEADLINE
        while _SERVES.search(said) is None:
            left = max(0, until - time.monotonic())
            ready, _, _ = select.select([self.process.stderr], [], [], left)
            data = os.read(self.process.stderr.fileno(), 4096) if ready else b""
            if not data:
                self.kill()
                raise AssertionError(f"the server did not listen: {said!r}")
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
            assert process.stderr is not None
            process.stderr.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    def curl(self, path: str, *arguments: str, data: str | bytes | None = None) -> Answered:
        """Ask by curl; ``path`` is behind ``/v1``."""
        sent = [] if data is None else ["--data-binary", "@-"]
        found = subprocess.run(
            ["curl", "--silent", "--show-error", "--include", "--max-time", str(int(DEADLINE)),
             *arguments, *sent, f"http://127.0.0.1:{self.port}/v1{path}"],
            input=data.encode() if isinstance(data, str) else data,
            capture_output=True, check=True, timeout=2 * DEADLINE,
        )  # fmt: skip
        return answered(found.stdout)


def answered(told: bytes) -> Answered:
    """Return an answer as ``curl --include`` prints it."""
    head, _, body = told.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    if first.split()[1] == "100":  # curl asked whether it may send a large body
        return answered(body)
    named = [line.split(": ", 1) for line in lines]
    return Answered(int(first.split()[1]), {name.lower(): text for name, text in named}, body)
