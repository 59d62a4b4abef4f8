"""Messages that are not due yet, as commands show them."""

from __future__ import annotations

from datetime import timedelta

import ternmq.sync
from ternmq.client.content.message import Message
from ternmq.client.forms.messages import message_of
from tests.cli.conftest import CommandLine


def test_a_message_is_shown_as_scheduled_or_cancelled(cli: CommandLine, topic: str) -> None:
    with ternmq.sync.connect(cli.url) as client:
        later = client.send(topic, b"later", key="k", id="order-7", deliver_after=timedelta(days=9))
        gone = client.send(topic, b"gone", key="k", deliver_after=timedelta(days=10))
        client.cancel(gone)
    assert later.due_at is not None
    due = later.due_at.astimezone().isoformat(timespec="seconds")[:16]
    for id_ in (later.id, "order-7"):
        shown = cli("message", "get", topic, id_).out
        assert f"{topic} (scheduled, due at " in shown
        assert due in shown
        assert "later" in shown
    assert f"{topic} (cancelled, due at " in cli("message", "get", topic, gone.id).out
    found = cli("message", "get", topic, later.id, "--json").json
    assert (found["state"], found["queue"], found["offset"]) == ("scheduled", None, None)
    assert found["due_at"].startswith(due)
    (line,) = cli("message", "find", topic, "--key", "k").out.splitlines()
    assert f"{topic} (scheduled, due at " in line

    shown = cli("message", "trace", "order-7").out
    assert ("in no queue" in shown, "scheduled" in shown, due in shown) == (True, True, True)
    assert "cancelled" in cli("message", "trace", gone.id, "--topic", topic).out
    (traced,) = cli("message", "trace", "--key", "k", "--topic", topic, "--json").json
    assert (traced["id"], traced["state"]) == (later.id, "scheduled")
    assert (traced["queue"], traced["offset"], traced["groups"]) == (None, None, [])


def test_a_message_that_was_scheduled_says_when_it_was_due(cli: CommandLine, topic: str) -> None:
    with ternmq.sync.connect(cli.url) as client:
        receipt = client.send(topic, b"x", deliver_after=0.05)
        (delivery,) = client.pull(topic, group="g")
        delivery.ack()
        plain = client.send(topic, b"y")
    found = cli("message", "get", topic, receipt.id, "--json").json
    assert ("state" in found, found["offset"]) == (False, 0)
    assert found["due_at"]
    assert "due_at" not in cli("message", "get", topic, plain.id, "--json").json
    assert "due at" in cli("message", "get", topic, receipt.id).out
    assert "due at" not in cli("message", "get", topic, plain.id).out
    traced = cli("message", "trace", receipt.id, "--topic", topic).out
    assert ("due at" in traced, f"{topic}/0/0" in traced) == (True, True)
    # What `tail` prints can be sent again, and is delivered at once.
    first = cli("tail", topic, "-n", 2, "--json").out.splitlines()[0]
    assert '"due_at"' in first
    again = message_of(first.encode(), Message(b""))
    assert (again.body, again.deliver_at, again.deliver_after) == (b"x", None, None)


def test_status_counts_scheduled_messages(cli: CommandLine, topic: str) -> None:
    with ternmq.sync.connect(cli.url) as client:
        client.send(topic, b"x", deliver_after=timedelta(days=1))
    lines = cli("broker", "status").out.splitlines()
    (line,) = [one for one in lines if one.startswith("scheduled ")]  # an alarm may name them, too
    assert line.endswith("not due yet")


def test_a_message_that_is_looked_up_says_when_it_expires(cli: CommandLine, topic: str) -> None:
    with ternmq.sync.connect(cli.url) as client:
        receipt = client.send(topic, b"x", expires_after=timedelta(days=1))
        plain = client.send(topic, b"y")
    assert "expires at" in cli("message", "get", topic, receipt.id).out
    assert "expires at" not in cli("message", "get", topic, plain.id).out
    found = cli("message", "get", topic, receipt.id, "--json")
    assert found.json["expires_at"] > found.json["stored_at"]
    assert "expires_at" not in cli("message", "get", topic, plain.id, "--json").json
    # What is printed can be sent again, and does not expire.
    again = message_of(found.out.encode(), Message(b""))
    assert (again.body, again.expires_after) == (b"x", None)
