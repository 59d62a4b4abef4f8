"""/metrics kept the counts of every topic and group that had ever been: it only grew."""

from __future__ import annotations

from ternmq.record.fact.facts import Outcome
from ternmq.testing import InProcessBroker, broker
from ternmq.wire import control
from ternmq.wire.commands import Command
from tests.integration.raw import RawClient
from tests.integration.test_health import get, numbers

_SETTLED = "ternmq_settled_total"


def _used(client: RawClient, topic: str) -> None:
    client.send(topic, "a")
    client.join(topic, "billing")
    delivery = client.pull(topic, "billing")
    client.settle(topic, "billing", delivery, Outcome.DONE)


def _delete(client: RawClient, topic: str) -> None:
    client.manage(Command.TOPIC_DELETE, control.TopicDelete(topic=topic), control.Nothing)


def _lines(one: InProcessBroker) -> int:
    status, text = get(one, "/metrics")
    assert status == 200
    return text.count("\n")


def test_counts_go_with_their_topic() -> None:
    with broker(settings={"http": "127.0.0.1:0"}) as one, RawClient(one.port) as client:
        _used(client, "first")
        _delete(client, "first")
        before = _lines(one)
        for number in range(50):
            _used(client, f"t{number}")
        assert _lines(one) > before + 200
        for number in range(50):
            _delete(client, f"t{number}")
        assert _lines(one) == before
        found = numbers(one)
        assert found["ternmq_messages_delivered_total", ()] == 51
        assert found["ternmq_messages_settled_total", (("outcome", "done"),)] == 51


def test_a_group_that_is_made_again_begins_at_nothing() -> None:
    labels = (("group", "billing"), ("topic", "orders"))
    with broker(settings={"http": "127.0.0.1:0"}) as one, RawClient(one.port) as client:
        _used(client, "orders")
        gone = control.GroupDelete(topic="orders", group="billing")
        client.manage(Command.GROUP_DELETE, gone, control.Nothing)
        client.join("orders", "billing")
        found = numbers(one)
        assert ("ternmq_delivered_total", labels) not in found
        assert found["ternmq_group_lag", labels] == 1


def test_a_look_at_the_status_takes_nothing_from_the_next_scrape() -> None:
    with broker(settings={"http": "127.0.0.1:0"}) as one, RawClient(one.port) as client:
        client.send("orders", "a")
        for _ in range(3):
            client.manage(Command.STATUS, control.StatusAsk(), control.Status)
        assert numbers(one)["ternmq_longest_turn_seconds", ()] > 0
