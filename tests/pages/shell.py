"""A shell that runs the commands of a page, one after the other, as a reader types them."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

DEADLINE = 60.0
"""Longest that one command may take."""


class Shell:
    """A context manager: ``bash`` in a folder. Leaving it ends all that was started in it.

    Args:
        folder: Where it begins.
        environment: What is set in it.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], cwd=folder, env=dict(environment),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def run(self, command: str) -> tuple[str, int]:
        """Run a command; return what it printed, on both outputs, and its exit status."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        mark = secrets.token_hex(16)
        process.stdin.write(f"{command}\nprintf '\\n{mark} %d\\n' $?\n".encode())
        process.stdin.flush()
        said = b""
        until = time.monotonic() + DEADLINE
        while True:
            text, found, rest = said.partition(f"\n{mark} ".encode())
            if found and rest.endswith(b"\n"):
                return text.decode(), int(rest)
            left = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([process.stdout], [], [], left)
            more = os.read(process.stdout.fileno(), 65_536) if ready else b""
            assert more, f"`{command}` did not end: {said.decode()!r}"
            said += more

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The session is this shell's own: nobody else is in its group.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                break
        self._process.communicate()
