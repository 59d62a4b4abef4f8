"""Mistakes in what is declared on a client are errors where they are declared, not at run()."""

from __future__ import annotations

import functools
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import ternmq
import ternmq.sync
from ternmq.broker.catalog.apps import check_app
from ternmq.client.admin.grants import grants_of
from ternmq.client.declaration.source import assignments_of
from ternmq.record.fact.control import App, Grant

Mistake = Callable[[ternmq.Client], object]


def no_yield() -> None: ...


def two(one: object, other: object) -> Iterator[None]:
    yield


def none() -> Iterator[None]:
    yield


async def keyword(*, needed: int) -> AsyncIterator[None]:
    yield


def given(**arguments: Any) -> Mistake:
    def declare(client: ternmq.Client) -> None:
        client.handler("orders", **{"group": "g", **arguments})(lambda body: None)

    return declare


def annotated(client: ternmq.Client) -> None:
    def handler(body: Any) -> None: ...

    handler.__annotations__["body"] = object()
    client.handler("orders", group="g")(handler)


def overridden(client: ternmq.Client) -> None:
    client.overrides[no_yield] = 3  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda client: client.lifespan(no_yield), "lifespan no_yield must be a generator"),
        (lambda client: client.lifespan(two), "lifespan two is called with the client, or nothing"),
        (lambda client: client.lifespan(keyword), "keyword is called with the client, or nothing"),
        (lambda client: client.handler_middleware(two), "two is called with the delivery"),
        (lambda client: client.handler_middleware(none), "none is called with the delivery"),
        (lambda client: client.send_middleware(none), "none is called with the message"),
        (lambda client: client.send_middleware(no_yield), "send_middleware no_yield must be"),
        (given(tags="a ||"), "not a tag filter: 'a ||'"),
        (given(tags="a", mode="ordered"), "states a tag filter and mode ordered.*mode=.shared"),
        (given(tags="a", mode="queue_lock"), "a tag filter and mode queue_lock.*mode=.shared"),
        (given(filter="a = 1", mode="queue_lock"), "a header filter and mode queue_lock.*shared"),
        (
            given(mode="Owned"),
            "'Owned': it is one of shared, ordered, queue_lock, owned, exclusive$",
        ),
        (given(mode="broadcast"), "mode broadcast is not for groups.*broadcast=True in place of"),
        (given(mode=ternmq.Mode.BROADCAST), "mode broadcast is not for groups"),
        (given(group=None, broadcast=False), "with broadcast=False states group=; if it is a bro"),
        (given(tags=3), "tags is a str, not int"),
        (given(filter="a = b"), "not a filter: 'a = b'; column 5: expected a value"),
        (given(filter="a = 1", mode="ordered"), "states a header filter and mode ordered"),
        (given(filter=3), "filter is a str, not int"),
        (given(concurrency="4"), "concurrency is a whole number, not str"),
        (given(max_in_flight="4"), "max_in_flight is a whole number, not str"),
        (given(max_in_flight=0), "max_in_flight must be 1 to 60000"),
        (given(retry={"first": 1}), "retry is a ternmq.RetryPolicy, not dict"),
        (annotated, "parameter 'body' cannot be resolved: it is not a type"),
        (overridden, "overrides map functions to functions; 3 is not a function"),
        (lambda client: client.overrides.update({no_yield: 3}), "3 is not a function"),
        (lambda client: ternmq.Topic("x", queues="4"), "queues is a whole number, not str"),  # type: ignore[arg-type]
        (lambda client: ternmq.Topic("x", ordered="yes"), "ordered is True or False, not str"),  # type: ignore[arg-type]
        (lambda client: ternmq.RetryPolicy(attempts="4"), "attempts is a whole number"),  # type: ignore[arg-type]
        (lambda client: ternmq.RetryPolicy(factor="4"), "factor is a number, not str"),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_an_error_where_it_is_declared(mistake: Mistake, says: str) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=says):
        mistake(ternmq.connect("ternmq://127.0.0.1:1"))


@pytest.mark.parametrize("instance", [None, "a"])
def test_two_handlers_of_one_broadcast_instance(instance: str | None) -> None:
    client = ternmq.connect("ternmq://127.0.0.1:1", instance="web")
    client.handler("p", broadcast=True, instance=instance)(lambda body: None)
    client.handler("p", broadcast=True, instance="b")(lambda body: None)
    client.handler("p", group="g")(lambda body: None)
    name = instance or "web"
    with pytest.raises(ternmq.InvalidHandler) as caught:
        client.handler("p", broadcast=True, instance=name)(lambda body: None)
    said = str(caught.value)
    assert f"has a broadcast handler for instance '{name}' of this client" in said
    assert "an instance= of its own" in said
    assert "group" not in said
    assert "share" not in said


async def waits(assigned: ternmq.AssignedQueues) -> None: ...


class Waits:
    async def __call__(self, assigned: ternmq.AssignedQueues) -> None: ...


@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect])
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (5, "on_assigned takes a function, not an int"),
        (no_yield, "no_yield is called with one argument, the AssignedQueues"),
        (two, "two is a generator"),
        (lambda one, other: None, "one argument, the AssignedQueues: its parameters do not fit"),
        (lambda *, assigned: None, "one argument, the AssignedQueues: its parameters do not fit"),
        (waits, "waits is an `async def`, and would not be awaited: make it a `def`"),
        (Waits(), "Waits is an `async def`"),
        (functools.partial(waits), "waits is an `async def`"),
    ],
)
def test_a_function_for_assigned_queues_that_could_not_be_called(
    connect: Callable[[str], Any], function: Any, says: str
) -> None:
    with pytest.raises(ternmq.InvalidHandler, match=says):
        connect("ternmq://127.0.0.1:1").on_assigned(function)


@pytest.mark.parametrize(
    "function",
    [[].append, queue.SimpleQueue().put, print, lambda *all_: None, lambda one, more=1: None, dict],
)
def test_a_function_for_assigned_queues_that_can_be_called(function: Any) -> None:
    client = ternmq.connect("ternmq://127.0.0.1:1")
    assert client.on_assigned(function) is function


@pytest.mark.parametrize(
    ("assign", "says"),
    [
        ({"x": 0}, "the queues of 'x' are a list, not int"),
        ({"x": "01"}, "the queues of 'x' are a list, not str"),
        ({"x": {0: 1}}, "the queues of 'x' are a list, not dict"),
        ({0: [0]}, "a pattern is a str, not int"),
        ({"x": ["0"]}, "a queue of 'x' is a whole number, not str"),
        ({"x": [True]}, "a queue of 'x' is a whole number, not bool"),
        (["0=x"], "not list"),
        ("0=x", "not str"),
        (5, "not int"),
    ],
)
def test_assignments_of_another_shape(assign: Any, says: str) -> None:
    shape = r'^assign is a dict of patterns .* list of queue numbers, such as \{"billing-\*": \[0'
    with pytest.raises(ternmq.InvalidRequest, match=f"{shape}.*{says}"):
        assignments_of(assign)


def test_an_assignment_of_no_queues() -> None:
    with pytest.raises(ternmq.InvalidRequest, match="an assignment names one queue or more"):
        assignments_of({"x": []})


@pytest.mark.parametrize("written", ["produce", "read:orders", "produce:", "consume:a:b:c", 3])
def test_a_grant_that_is_none(written: Any) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"produce:orders|RIGHT:TOPIC") as caught:
        grants_of([written])
    assert "did you mean produce" not in str(caught.value)


@pytest.mark.parametrize(
    "written",
    ["audit:orders", "audit:*:billing", "consume:*orders", "consume:a:*g", "manage:a b", "manage:*",
     "audit:*", "consume:orders.*:b*", "produce:" + "n" * 127, "produce:" + "n" * 128,
     "produce:" + "n" * 127 + "*"],
)  # fmt: skip
def test_a_grant_is_judged_as_by_the_broker(written: str) -> None:
    right, topic, *group = written.split(":")
    grant = Grant(right=right, topic=topic, group=group[0] if group else "*")
    app = App(name="a", salt=bytes(16), hash=bytes(32), grants=(grant,), owner="", created_us=0)
    try:
        check_app(app)
    except ternmq.InvalidRequest:
        with pytest.raises(ternmq.InvalidRequest):
            grants_of([written])
    else:
        (found,) = grants_of([written])
        assert (found.right, found.topic, found.group) == (right, topic, grant.group)


def test_a_grant_to_send_to_a_group_says_how_it_is_written() -> None:
    with pytest.raises(ternmq.InvalidRequest, match=r"'produce:a:g' names a group, .*: write prod"):
        grants_of(["produce:a:g"])
