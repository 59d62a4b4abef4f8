"""Every public argument of the client, given what it cannot be: an error that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.sync import admin as sync_admin
from ternmq.testing import broker


class Wrong:
    """No argument is one of these."""


_GIVEN: dict[str, object] = {
    "topic": "t", "name": "t", "group": "g", "body": b"x", "offset": 0, "offsets": [0], "key": "k",
    "messages": [b"x"], "to": "earliest", "writer": "w", "batch_id": 1, "prepared": [], "digest": 1,
    "app": "x", "position": 0, "queue": 0, "id": "x",
}  # fmt: skip
_NEEDED = {"skip": ("queue", "offset"), "reset_group": ("to",)}
_SPOKEN = {"to": "to is an offset", "topic": "topic", "body": "Wrong"}
_ANY = {  # what takes any value, or is of another kind than a value
    ("handler_middleware", "function"), ("send_middleware", "function"), ("lifespan", "function"),
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
    needed = {
        name: _GIVEN[name]
        for name, one in inspect.signature(called).parameters.items()
        if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
    }
    with pytest.raises((ternmq.TernMQError,)) as caught:
        _to_the_end(called(**needed | {argument: Wrong()}))
    said = str(caught.value)
    assert _SPOKEN.get(argument, argument.rstrip("_")) in said, said
    assert "Wrong" in said or "wrong" in said, said


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
]


@pytest.mark.parametrize(
    ("made", "needed", "argument"),
    [
        pytest.param(made, needed, name, id=f"{made.__name__}-{name}")
        for made, needed in _MADE
        for name in inspect.signature(made).parameters
        if name != "options"
    ],
)
def test_an_argument_of_what_is_made(
    made: Callable[..., object], needed: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ternmq.TernMQError, match=argument) as caught:
        made(**needed | {argument: Wrong()})
    assert "Wrong" in str(caught.value)
