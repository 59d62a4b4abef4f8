"""What a client knows of the policies of groups that it consumes for."""

from __future__ import annotations

from typing import Any, cast

from ternmq.client.connection.link import Link
from ternmq.client.connection.session import Session
from ternmq.client.consumer import learning
from ternmq.client.consumer.learning import Policies
from ternmq.model.specs import Mode, RetryPolicy, SubscriptionSpec
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push


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
    spec = SubscriptionSpec()
    for number in (0, 1, 2, 0, 3, 4):
        policies.joined("t", f"g{number}", spec)
    assert [number for number in range(5) if policies.of("t", f"g{number}")] == [0, 3, 4]
    link = Asked()
    policies.opened(cast("Link", link), resumed=True)
    assert link.commands == [Command.GROUP_LIST] * 3
    assert [number for number in range(5) if policies.mode("t", f"g{number}")] == [0, 3, 4]


def test_a_client_knows_the_mode_that_a_push_reports_at_once() -> None:
    class Unconnected:
        link = None

    def push(group: str, mode: Mode | None, *, gone: bool = False) -> None:
        changed = control.GroupChanged(topic="t", group=group, mode=mode, gone=gone)
        policies.pushed(Push(Command.GROUP_CHANGED, control.encode(changed)))

    policies = Policies(cast("Session", Unconnected()))
    policies.joined("t", "g", SubscriptionSpec(retry=RetryPolicy(attempts=3)))
    assert policies.mode("t", "g") is Mode.SHARED
    push("g", Mode.QUEUE_LOCK)
    assert policies.mode("t", "g") is Mode.QUEUE_LOCK
    push("g", None)  # another setting
    push("h", Mode.ORDERED)  # not joined
    assert policies.mode("t", "g") is Mode.QUEUE_LOCK
    assert policies.mode("t", "h") is None
    push("g", None, gone=True)
    assert policies.mode("t", "g") is None
