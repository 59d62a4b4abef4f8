"""What a blocking client does when its process exits: its messages have their whole timeout."""

from __future__ import annotations

from datetime import timedelta

import pytest

import ternmq.sync
from ternmq.sync import client as blocking


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> dict[ternmq.sync.Client, float]:
    """Two clients with different timeouts, and the timeout with which each is closed at exit."""
    ours = [ternmq.sync.connect(timeout=seconds) for seconds in (20, 1e-9)]
    closed: dict[ternmq.sync.Client, float] = {}

    def close(client: ternmq.sync.Client, timeout: float | timedelta | None = None) -> None:
        assert isinstance(timeout, float)
        closed[client] = timeout

    monkeypatch.setattr(ternmq.sync.Client, "close", close)
    monkeypatch.setattr(blocking, "watched", lambda kind: ours)
    return closed


def test_each_has_its_timeout_from_the_beginning_of_the_exit_on(
    clients: dict[ternmq.sync.Client, float],
) -> None:
    blocking._close_all()
    first, second = clients.values()
    assert 19 < first <= 20
    assert second == 0, "its time was over when the first one was closed"
