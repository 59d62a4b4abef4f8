"""The graces of sessions and checkers begin when the broker has recovered, however long it took."""

from __future__ import annotations

import pytest

import ternmq.sync
from ternmq.broker.checkback.asking import Asking
from ternmq.broker.operation.clients import Clients
from ternmq.broker.start import open_broker
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.testing import broker


def test_they_are_renewed_at_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the recovery, and before a turn could end any session."""
    order: list[str] = []
    renewed, began = Clients.renew_graces, Asking.begin_grace

    def recover(*arguments: object, **named: object) -> object:
        order.append("recovered")
        return open_broker(*arguments, **named)  # type: ignore[arg-type]

    def renew(self: Clients, now_us: int) -> None:
        order.append("renewed")
        renewed(self, now_us)

    def begin(self: Asking, now_us: int) -> None:
        order.append("checkers have time")
        began(self, now_us)

    monkeypatch.setattr(Asking, "begin_grace", begin)
    monkeypatch.setattr("ternmq.server.engine.engine.open_broker", recover)
    monkeypatch.setattr(Clients, "renew_graces", renew)
    disk = MemoryDisk()
    for _ in range(2):
        with broker(disk=disk) as one, ternmq.sync.connect(one.url) as client:
            client.send("t", b"x")
    first = ["recovered", "checkers have time"]
    assert order == [*first, "renewed", "checkers have time"] * 2
