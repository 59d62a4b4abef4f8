"""What a client knows of the policies of groups that it consumes for."""

from __future__ import annotations

from typing import Any, cast

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Session
from ternmq.client.consumer import learning
from ternmq.client.consumer.learning import Policies
from ternmq.model.specs import RetryPolicy
from ternmq.wire.commands import Command


class Asked:
    """A connection that counts what it is asked."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def ask(self, command: Command, body: bytes, ask: Any) -> None:
        del body, ask
        self.commands.append(command)


def test_a_client_that_joins_ever_more_groups_remembers_the_latest(monkeypatch: Any) -> None:
    monkeypatch.setattr(learning, "_MOST", 3)
    policies = Policies(cast("Session", None))
    policy = RetryPolicy()
    for number in (0, 1, 2, 0, 3, 4):
        policies.joined("t", f"g{number}", policy)
    assert [number for number in range(5) if policies.of("t", f"g{number}")] == [0, 3, 4]
    link = Asked()
    policies.opened(cast("Link", link), resumed=True)
    assert link.commands == [Command.GROUP_LIST] * 3
