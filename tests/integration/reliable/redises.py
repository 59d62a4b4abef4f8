"""A Redis for inboxes: a real server where the machine has one, and an object that answers as one.

The object knows the commands that an inbox sends, and refuses all others.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from ternmq.reliable import Inbox
from ternmq.reliable.inbox.claims import ClaimStore
from ternmq.reliable.inbox.redis import GIVE_UP, RedisClaims
from tests.black_box.process import free_port, wait_until


class FakeRedis:
    """Answers the commands of an inbox. Attribute ``clock_s`` is added to its time."""

    def __init__(self) -> None:
        self.clock_s = 0.0
        self._lock = threading.Lock()
        self._values: dict[bytes, tuple[bytes, float]] = {}

    def execute_command(self, *command: bytes | str | int) -> object:
        """Run a command, whole."""
        with self._lock:
            match command:
                case ("SET", bytes() as key, bytes() as value, "NX", "PX", int() as ms):
                    if self._get(key) is not None:
                        return None
                    return self._set(key, value, ms)
                case ("SET", bytes() as key, bytes() as value, "PX", int() as ms):
                    return self._set(key, value, ms)
                case ("GET", bytes() as key):
                    return self._get(key)
                case ("DEL", bytes() as key):
                    return self._delete(key)
                case ("EVAL", script, 1, bytes() as key, bytes() as value) if script == GIVE_UP:
                    return self._delete(key) if self._get(key) == value else 0
        raise AssertionError(f"an inbox sends no such command: {command}")

    def close(self) -> None:
        """Keep what is there: another client may connect."""

    def _now(self) -> float:
        return time.monotonic() + self.clock_s

    def _get(self, key: bytes) -> bytes | None:
        value, until = self._values.get(key, (b"", 0.0))
        return value if self._now() < until else None

    def _set(self, key: bytes, value: bytes, ms: int) -> bool:
        assert ms > 0
        self._values[key] = value, self._now() + ms / 1000
        return True

    def _delete(self, key: bytes) -> int:
        there = self._get(key) is not None
        self._values.pop(key, None)
        return int(there)


@contextmanager
def over(fake: FakeRedis, *, wait_s: float, claim_ms: int = 300_000) -> Iterator[Inbox]:
    """Return an inbox over a fake."""
    inbox = Inbox.memory()
    inbox._set(ClaimStore(RedisClaims(lambda: fake, "a fake", claim_ms), wait_s))
    yield inbox
    inbox.close()


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis; return its URL."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None or find_spec("redis") is None:
        pytest.skip("needs redis-server and redis-py")
    port = free_port()
    process = subprocess.Popen(
        [program, "--port", f"{port}", "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_until(listens, "Redis listens")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()
