"""Errors of calls name the argument, the value that was given, and the limits of that argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.testing import InProcessBroker

Call = Callable[[ternmq.sync.Client], object]
LEASE = r"^lease must be 0\.1 s to a day, not "
OFFSETS = r"^offsets are whole numbers from 0 to 2\*\*63 - 2, not "


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.replay("o", "g", offsets=[2**63]), f"{OFFSETS}{2**63}"),
        (lambda c: c.replay("o", "g", offsets=range(2**63 - 1, 2**63)), f"{OFFSETS}{2**63 - 1}"),
        (lambda c: c.replay("o", "g", offsets=range(-3, 5)), f"{OFFSETS}-3"),
        (lambda c: c.replay("o", "g", ids=[7]), "^an entry of ids is a str, not int"),
        (lambda c: c.replay("o", "g", ids=["a", ""]), "^an entry of ids is empty"),
        (
            lambda c: c.replay("o", "g", ids=["x" * 201]),
            "^an entry of ids has 201 bytes, at most 128 are allowed",
        ),
        (
            lambda c: c.deadletters.get("o", "g", 2**63 + 1),
            rf"^offset is a whole number from 0 to 2\*\*63 - 1, not {2**63 + 1}",
        ),
        (lambda c: c.get("o", "x" * 5000), "^id has 5000 bytes, at most 128 are allowed"),
        (lambda c: c.get("o", ""), "^id is empty"),
        (lambda c: c.get("o", "", offset=1), "^id is empty"),
        (lambda c: c.get("o"), "^give id= or offset="),
        (lambda c: c.get("o", "a", offset=1), "^give either id= or offset=, not both"),
        (lambda c: c.admin.change_group("o", "g", lease=-1), f"{LEASE}-1 s"),
        (lambda c: c.admin.change_group("o", "g", lease=0), f"{LEASE}0 s"),
        (lambda c: c.admin.change_group("o", "g", lease=10**10), f"{LEASE}10000000000 s"),
        (lambda c: c.admin.change_group("o", "g", lease=86400.001), rf"{LEASE}86400\.001 s"),
        (lambda c: c.admin.create_group("o", "h", lease=float("nan")), f"{LEASE}nan s"),
        (lambda c: c.pull("o", group="g", wait=-1), "^wait must be 0 seconds to a day, not -1 s"),
        (
            lambda c: c.pull("o", group="g", wait=1e9),
            "^wait must be 0 seconds to a day, not 1000000000 s",
        ),
        (lambda c: c.run(drain_timeout=-1), "^drain_timeout must be 0 seconds or more, and finite"),
        (
            lambda c: list(c.read("o", start=datetime(2026, 1, 1))),  # noqa: DTZ001 - a mistake
            r"^start names no time zone \(2026-01-01 00:00:00\)",
        ),
        (
            lambda c: list(c.read("o", start=b"0")),
            "^start is an offset, a datetime with a time zone, 'earliest' or 'latest'; not bytes",
        ),
        (
            lambda c: list(c.read("o", stop=1.5)),
            "^stop is an offset, a datetime with a time zone; not float",
        ),
        (
            lambda c: c.admin.create_topic(".."),
            r"^not a name: '\.\.' \(use 1 to 127 of .*, but not \. or \.\. alone",
        ),
        (
            lambda c: c.admin.reset_group("o", "g", "2026-01-01"),
            "^to is an offset, a datetime with a time zone, 'earliest' or 'latest', not '2026-01",
        ),
        (
            lambda c: c.admin.change_group("o", "g", tags="x" * 5000),
            "^tags has 5000 characters, at most 4096 are allowed",
        ),
        (lambda c: c.admin.change_group("o", "g", tags="a|b"), "^not a tag filter: 'a|b'"),
        (lambda c: c.admin.change_group("o", "g", tags=7), "^tags is a str, not int"),
    ],
)  # fmt: skip
def test_the_argument_its_value_and_its_limits(
    real: InProcessBroker, call: Call, says: str
) -> None:
    with ternmq.sync.connect(real.url) as client:
        client.send("o", "x")
        client.admin.create_group("o", "g")
        with pytest.raises(ternmq.InvalidRequest, match=says):
            call(client)


def test_a_time_before_all_messages_is_one(real: InProcessBroker) -> None:
    early, earlier = datetime(1960, 1, 1, tzinfo=UTC), datetime(1950, 1, 1, tzinfo=UTC)
    with ternmq.sync.connect(real.url) as client:
        client.send("o", "x", key="k")
        client.pull("o", group="g").ack()
        assert len(client.find("o", key="k", since=early)) == 1
        assert client.find("o", key="k", since=earlier, until=early) == []
        with pytest.raises(ternmq.InvalidRequest, match=r"since \(1960.*must be before until"):
            client.find("o", key="k", since=early, until=earlier)
        with pytest.raises(ternmq.InvalidRequest, match=r"since \(1960.*must be before until"):
            client.replay("o", "g", since=early, until=earlier)
        assert client.replay("o", "g", since=early, dry_run=True).again == 1
        assert client.replay("o", "g", until=early, dry_run=True) == ternmq.Replayed()
        assert len(list(client.read("o", start=early))) == 1


def test_a_group_that_is_deleted_under_a_consumer(real: InProcessBroker) -> None:
    with (
        ternmq.sync.connect(real.url) as client,
        client.consume("o", group="g") as deliveries,
    ):
        client.admin.delete_group("o", "g")
        with pytest.raises(ternmq.UnknownGroup, match=r"\(it was deleted, or never created: "):
            next(deliveries)


@pytest.mark.parametrize("number", [0, 60_001, "many"])
def test_a_handler_is_refused_where_it_is_declared(number: Any) -> None:
    for client in (ternmq.connect(), ternmq.sync.connect()):
        with pytest.raises(ternmq.InvalidRequest, match=r"^max_in_flight "):
            client.handler("o", group="g", max_in_flight=number)(lambda body: None)
        with pytest.raises(ternmq.InvalidRequest, match=r"^max_in_flight "):
            client.consume("o", group="g", max_in_flight=number)


def test_batches_are_refused_where_they_are_asked_for() -> None:
    for client in (ternmq.connect(), ternmq.sync.connect()):
        with pytest.raises(ternmq.InvalidRequest, match=r"^max_messages must be 1 or more"):
            client.consume_batches("o", group="g", max_messages=0)
        with pytest.raises(ternmq.InvalidRequest, match=r"^max_wait must be 0 seconds to a day"):
            client.consume_batches("o", group="g", max_wait=-1)
        with pytest.raises(ternmq.InvalidRequest, match=r"^not a tag filter"):
            client.consume_batches("o", group="g", tags="a|b")
