"""A real Redis for tests, on loopback: a process in a temporary folder that may be killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.black_box.process import free_port, wait_until

DURABLE: Final = ("--appendonly", "yes", "--appendfsync", "always")
"""Options with which nothing is forgotten."""


class RedisServer:
    """A server's process, and a client that asks it as its operator would.

    Attributes:
        url: Of its database 0.
        port: Where it listens, on loopback.
    """

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command = [
            program, "--port", f"{self.port}", "--bind", "127.0.0.1", "--save", "", "--dir",
            str(folder), *options,
        ]  # fmt: skip
        self._password = (
            options[options.index("--requirepass") + 1] if ("--requirepass" in options) else None
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: Any = None

    def start(self) -> None:
        """Start it, also after ``kill``; return when it answers."""
        import redis

        if self._asked is None:
            self._asked = redis.Redis(port=self.port, password=self._password)
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, "the Redis ended"
            try:
                return bool(self._asked.ping())
            except redis.exceptions.ConnectionError:
                return False

        wait_until(answers, "Redis answers")

    def kill(self) -> None:
        """End it at once, and wait for that."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Have it keep its connections, and answer nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue after ``stop``."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def ask(self, *command: str | bytes | int) -> Any:
        """Run a command; return its answer, strings as bytes."""
        return self._asked.execute_command(*command)

    def settle(self, name: str, value: str) -> None:
        """Change a setting of the running server."""
        self.ask("CONFIG", "SET", name, value)

    def others(self) -> int:
        """Return how many connections there are beside this object's."""
        return int(self.ask("INFO", "clients")["connected_clients"]) - 1

    def close(self) -> None:
        """End it and the connections to it."""
        self.kill()
        if self._asked is not None:
            self._asked.connection_pool.disconnect()


def program() -> str:
    """Return the program of a server; skips the test if the machine has none."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        pytest.skip("needs redis-server")
    return found


@contextmanager
def redis_server(folder: Path, *options: str, start: bool = True) -> Iterator[RedisServer]:
    """Run a Redis whose files are in a folder; skips the test if the machine has none."""
    pytest.importorskip("redis", reason="needs redis-py")
    server = RedisServer(program(), folder, *options)
    try:
        if start:
            server.start()
        yield server
    finally:
        server.close()
