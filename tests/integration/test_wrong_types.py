"""Every public argument of the client, given what it cannot be: an error that names it."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

import ternmq
import ternmq.sync
from ternmq.client.bulk import BulkOptions
from ternmq.sync import admin as sync_admin
from ternmq.testing import broker


class Wrong:
    """No argument is one of these."""


class Kind(enum.Enum):
    """An enumeration whose members are not texts, though their values are."""

    ONE = "one"


_GIVEN: dict[str, object] = {
    "topic": "t", "name": "t", "group": "g", "body": b"x", "offset": 0, "offsets": [0], "key": "k",
    "messages": [b"x"], "to": "earliest", "writer": "w", "batch_id": 1, "prepared": [], "digest": 1,
    "app": "x", "position": 0, "queue": 0, "id": "x", "what": "t", "commit": True,
    "query": ternmq.FailedQuery(),
}  # fmt: skip
_NEEDED = {"skip": ("queue", "offset"), "reset_group": ("to",)}
_SPOKEN = {"to": "to is a", "topic": "topic", "body": "Wrong"}
_ANY = {  # what takes any value, or is of another kind than a value
    ("handler_middleware", "function"), ("send_middleware", "function"), ("lifespan", "function"),
    ("on_assigned", "function"),
}  # fmt: skip


def _arguments() -> Iterator[tuple[str, str, str]]:
    for part, kind in (
        ("", ternmq.sync.Client),
        ("admin", sync_admin.Admin),
        ("deadletters", sync_admin.DeadLetters),
    ):
        for name in dir(kind):
            method = getattr(kind, name)
            if name.startswith("_") or not callable(method) or name in {"reach", "close"}:
                continue
            for one in list(inspect.signature(method).parameters.values())[1:]:
                if one.kind is one.VAR_POSITIONAL or (name, one.name) in _ANY:
                    continue
                yield part, name, one.name


@pytest.fixture(scope="module")
def client() -> Iterator[ternmq.sync.Client]:
    with broker(manual=False) as one, ternmq.sync.connect(one.url) as made:
        made.send("t", b"x")
        made.admin.create_group("t", "g")
        yield made


@pytest.mark.parametrize(("part", "method", "argument"), list(_arguments()))
def test_an_argument_of_a_method(
    client: ternmq.sync.Client, part: str, method: str, argument: str
) -> None:
    called = getattr(getattr(client, part) if part else client, method)
    needed = _needed(inspect.signature(called).parameters, argument)
    with pytest.raises((ternmq.TernMQError,)) as caught:
        _to_the_end(called(**needed | {argument: Wrong()}))
    said = str(caught.value)
    assert _SPOKEN.get(argument, argument.rstrip("_")) in said, said
    assert "Wrong" in said or "wrong" in said, said


def _needed(parameters: Mapping[str, inspect.Parameter], argument: str) -> dict[str, object]:
    """Return the arguments of a call that tries one of them.

    A consumer of a group states it; without one, it is a broadcast instance.
    """
    grouped = "instance" in parameters and argument not in {"instance", "broadcast"}
    return {
        name: _GIVEN[name]
        for name, one in parameters.items()
        if (one.default is one.empty and one.kind is not one.VAR_POSITIONAL)
        or (grouped and name == "group")
    }


_WRONG_KINDS: dict[str, object] = {
    "400 digits": 10**400, "5000 digits": 10**5000, "-400 digits": -(10**400), "list": [],
    "dict": {}, "True": True, "None": None, "1.5": 1.5, "set": {1},
    "a class": int, "datetime": datetime(2026, 1, 1, tzinfo=UTC), "timedelta": timedelta(1),
    "Decimal": Decimal(1), "UUID": UUID(int=1), "Enum": Kind.ONE,
}  # fmt: skip
"""Values that are wrong for most arguments: each has tripped a check that lets them through."""
_PARTS_OF_HINTS = {
    "list": ("Iterable", "Sequence"), "set": ("Iterable", "Sequence"),
    "dict": ("Iterable", "Mapping"), "True": ("bool",), "None": ("None",), "1.5": ("float",),
    "a class": ("type", "Callable"), "datetime": ("datetime", "Place"), "timedelta": ("timedelta",),
}  # fmt: skip
"""The words in an argument's annotation that allow a value."""
_DEFAULTED = {
    ("create_topic", name)
    for name in (
        "queues", "ordered", "durability", "keep_until_consumed", "ignore_ordering_keys", "levels",
        "broadcast",
    )
}  # fmt: skip
"""Arguments that take None for their default."""


def _may_be(method: str, one: inspect.Parameter, kind: str) -> bool:
    hint = str(one.annotation)
    if hint in {"object", "F"} or (kind == "None" and (method, one.name) in _DEFAULTED):
        return True
    return any(part in hint for part in _PARTS_OF_HINTS.get(kind, ()))


@pytest.mark.parametrize(("part", "method", "argument"), list(_arguments()))
def test_an_argument_of_a_wrong_kind(
    client: ternmq.sync.Client, part: str, method: str, argument: str
) -> None:
    called = getattr(getattr(client, part) if part else client, method)
    parameters = inspect.signature(called).parameters
    needed = _needed(parameters, argument)
    for kind, value in _WRONG_KINDS.items():
        if _may_be(method, parameters[argument], kind):
            continue
        try:
            _to_the_end(called(**needed | {argument: value}))
        except ternmq.TernMQError as error:
            said = str(error)
            assert argument.rstrip("_") in said, (kind, said)
            assert len(said) < 300, (kind, said)  # it does not print such a number
        else:
            pytest.fail(f"{method} took {kind} as {argument}")


def test_a_timeout_of_close() -> None:
    for kind, value in _WRONG_KINDS.items():
        if kind not in {"None", "1.5", "timedelta"}:
            with pytest.raises(ternmq.InvalidRequest, match="timeout"):
                ternmq.sync.connect("ternmq://127.0.0.1:1").close(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("send", ["send", "send_soon", "send_oneway"])
@pytest.mark.parametrize("topic", [[], {}, {1}])
def test_a_topic_that_cannot_be_hashed(send: str, topic: Any) -> None:
    with broker(manual=False) as one, ternmq.sync.connect(one.url) as client:
        with pytest.raises(ternmq.InvalidName, match="a topic's name is a str, not"):
            _to_the_end(getattr(client, send)(topic, b"x"))
        client.flush()


@pytest.mark.parametrize("content_type", [[], {}, 0, False, None, 5, b"x"])
@pytest.mark.parametrize("body", [b"x", "x", {"a": 1}])
def test_a_content_type_that_is_no_text(
    client: ternmq.sync.Client, body: object, content_type: Any
) -> None:
    says = f"content_type is a str, not {type(content_type).__name__}"
    with pytest.raises(ternmq.InvalidRequest, match=says):
        client.send("t", body, content_type=content_type)
    with pytest.raises(ternmq.PartialSendError, match=says):
        client.send_many("t", [ternmq.Message(body, content_type=content_type)])


def test_true_is_no_number_of_a_queue_or_row(client: ternmq.sync.Client) -> None:
    client.admin.create_topic("two", queues=2)
    with pytest.raises(ternmq.InvalidRequest, match="returned True, not the number of a queue"):
        client.send("two", b"x", queue=lambda message, queues: True)
    client.send_many("two", [b"x", b"y"], queue=0)
    batch = client.pull("two", group="g")
    with pytest.raises(ternmq.InvalidRequest, match="by their places"):
        batch.ack(rows=[True])
    assert batch.unsettled == 2
    batch.ack(rows=[1])
    batch.ack()


def test_times_of_a_delivery(client: ternmq.sync.Client) -> None:
    client.send("t", b"x")
    (delivery,) = batch = client.pull("t", group="times", max_messages=1)
    calls: list[Callable[[Any], object]] = [
        delivery.extend,
        lambda wrong: delivery.retry(delay=wrong),
        lambda wrong: batch.retry(delay=wrong),
        lambda wrong: ternmq.Retry("x", after=wrong),
    ]
    for kind, value in _WRONG_KINDS.items():
        for call in calls if kind not in {"None", "1.5", "timedelta"} else ():
            with pytest.raises(ternmq.InvalidRequest, match=r"seconds|delay|after"):
                call(value)
    delivery.ack()


def _to_the_end(found: Any) -> None:
    """Have what comes by and by come."""
    if isinstance(found, Iterator):
        next(found, None)
    elif hasattr(found, "result"):
        found.result(10)
    elif hasattr(found, "__enter__"):
        with found:
            pass
    elif callable(found):
        found(lambda body: None)


_MADE: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (ternmq.Topic, {"name": "t"}),
    (ternmq.RetryPolicy, {}),
    (ternmq.connect, {}),
    (ternmq.sync.connect, {}),
    (ternmq.Options, {"address": ternmq.connect("ternmq://localhost").options.address}),
    (BulkOptions, {}),
]


@pytest.mark.parametrize(
    ("made", "needed", "argument"),
    [
        pytest.param(made, needed, name, id=f"{made.__name__}-{name}")
        for made, needed in _MADE
        for name in inspect.signature(made).parameters
    ],
)
def test_an_argument_of_what_is_made(
    made: Callable[..., object], needed: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ternmq.TernMQError, match=argument) as caught:
        made(**needed | {argument: Wrong()})
    assert "Wrong" in str(caught.value)
    hint = inspect.signature(made).parameters[argument]
    for kind, value in _WRONG_KINDS.items():
        if not _may_be(made.__name__, hint, kind):
            with pytest.raises(ternmq.TernMQError, match=argument):
                made(**needed | {argument: value})
