"""A broker that was told to stop went on for as long as clients went on sending.

After the drain nothing refused or stopped reading requests, so there was always something that was
not durable yet.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pytest

from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.disk.port import File
from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Row
from ternmq.testing import InProcessBroker, broker, in_process
from ternmq.wire import bodies
from ternmq.wire.commands import Command
from tests.integration.raw import Closed, RawClient

SENDERS = 3
IN_FLIGHT = 64
STOP_S = 15.0
"""The stop's own bound is six seconds."""


class Sender(threading.Thread):
    """Sends as fast as it may, until it is cut; counts what was answered."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.client = RawClient(port)
        self.answered = 0
        self.warm = threading.Event()

    def run(self) -> None:
        """Send."""
        waiting: deque[int] = deque()
        client = self.client
        try:
            while True:
                batch = client.batch("orders", [Row(b"x")])
                waiting.append(client.ask(Command.SEND, bodies.pack_send("orders", None, batch)))
                if len(waiting) >= IN_FLIGHT:
                    client.wait(waiting.popleft())
                    self.answered += 1
                    self.warm.set()
        except (Closed, OSError, TernMQError):
            return


class SlowFile:
    """A file whose syncs take a while."""

    def __init__(self, inner: File) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def sync(self) -> None:
        """Take a while: meanwhile others send."""
        threading.Event().wait(0.02)
        self._inner.sync()


class SlowDisk(MemoryDisk):
    """A disk as slow as many are."""

    def open(self, name: str, *, create: bool = False) -> File:  # type: ignore[override]
        """Open."""
        return SlowFile(super().open(name, create=create))  # type: ignore[return-value]


@pytest.fixture
def slow() -> Iterator[InProcessBroker]:
    with broker(manual=False, disk=SlowDisk()) as one:
        yield one


def test_it_stops_and_what_was_answered_is_there(
    slow: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    senders = [Sender(slow.port) for _ in range(SENDERS)]
    for one in senders:
        one.start()
    for one in senders:
        assert one.warm.wait(30)
    monkeypatch.setattr(in_process, "START_S", STOP_S)
    slow.stop()  # TimeoutError, if it does not
    monkeypatch.undo()
    for one in senders:
        one.join(30)
        assert not one.is_alive()
    slow.start()
    assert slow._server.core.started.report.clean
    with RawClient(slow.port) as client:
        kept = client.read("orders", 0, 1).next
    answered = sum(one.answered for one in senders)
    assert answered <= kept <= answered + SENDERS * (IN_FLIGHT + 1)
