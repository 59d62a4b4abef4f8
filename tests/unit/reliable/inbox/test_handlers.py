"""What a handler of an inbox takes, as the client sees it, and what it is passed."""

from __future__ import annotations

import functools
import inspect
import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.depends import Depends
from ternmq.client.handler.signature import signature_of
from ternmq.model.errors import InvalidHandler
from ternmq.reliable.inbox.handlers import Shape, call_of, shape_of


class Given(BlockingDelivery):
    """A delivery of no client."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]


DELIVERY = Given()
Order = dict[str, int]


def provide() -> int:
    return 1


def seen_by_client(shape: Shape, function: Callable[..., Any]) -> Any:
    async def awaited(*given: object) -> None: ...

    def blocking(*given: object) -> None: ...

    made: Any = functools.update_wrapper(awaited if shape.is_async else blocking, function)
    made.__signature__ = shape.signature
    return signature_of(made)


def passed(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Return (by position, by name) of what a handler is passed when the client calls it."""
    shape = shape_of(function)
    seen = seen_by_client(shape, function)
    assert seen.delivery
    arguments: list[object] = ["body", DELIVERY] if seen.body else [DELIVERY]
    placed = len(arguments) - len(seen.named)
    named: dict[str, object] = dict(zip(seen.named, arguments[placed:], strict=True))
    named |= dict.fromkeys(seen.injected, "injected")
    call = call_of(shape, arguments[:placed], named)
    assert call.delivery is DELIVERY
    assert call.subject == ("body" if seen.body else DELIVERY)
    inspect.signature(function).bind(
        *call.placed, **call.named, **{one.name: "session" for one in shape.wanted}
    )
    return ["body" if one == "body" else "delivery" for one in call.placed], sorted(call.named)


def body(order: Order) -> None: ...
def body_and_session(order: Order, session: Session) -> None: ...
def keyword(order: Order, *, connection: Connection) -> None: ...
def both(order: Order, delivery: ternmq.sync.Delivery, session: Session) -> None: ...
def between(order: Order, session: Session, delivery: ternmq.sync.Delivery) -> None: ...
def bare(order, delivery, connection: sqlite3.Connection) -> None: ...
def alone(delivery: ternmq.sync.Delivery, session: Session) -> None: ...
def positional(order: Order, /, session: Session) -> None: ...
def default(order: Order, size: int = 5, *, session: Session) -> None: ...
def injected(order: Order, n: Annotated[int, Depends(provide)], session: Session) -> None: ...
def injected_first(n: Annotated[int, Depends(provide)], order: Order, session: Session) -> None: ...
def session_of_a_provider(order: Order, session: Annotated[Session, Depends(provide)]) -> None: ...


@pytest.mark.parametrize(
    ("function", "placed", "named", "wanted"),
    [
        (body, ["body"], [], []),
        (body_and_session, ["body"], [], ["session"]),
        (keyword, ["body"], [], ["connection"]),
        (both, ["body", "delivery"], [], ["session"]),
        (between, ["body"], ["delivery"], ["session"]),
        (bare, ["body", "delivery"], [], ["connection"]),
        (alone, ["delivery"], [], ["session"]),
        (positional, ["body"], [], ["session"]),
        (default, ["body"], [], ["session"]),
        (injected, ["body"], ["n"], ["session"]),
        (injected_first, [], ["n", "order"], ["session"]),
        (session_of_a_provider, ["body"], ["session"], []),
    ],
)
def test_what_a_handler_is_passed(
    function: Callable[..., Any], placed: list[str], named: list[str], wanted: list[str]
) -> None:
    got, by_name = passed(function)
    assert sorted([*got, *by_name]) == sorted([*placed, *named]) or (got, by_name) == (
        placed,
        named,
    )
    assert [one.name for one in shape_of(function).wanted] == wanted


def test_the_client_decodes_to_the_annotation_of_the_handler() -> None:
    seen = seen_by_client(shape_of(both), both)
    assert (seen.kind, seen.body, seen.delivery, seen.name) == (Order, True, True, "both")


def test_an_async_def() -> None:
    async def handler(order: Order, session: AsyncSession, connection: AsyncConnection) -> None: ...

    shape = shape_of(handler)
    assert shape.is_async
    assert [one.awaited for one in shape.wanted] == [True, True]
    assert seen_by_client(shape, handler).is_async


class Service:
    def method(self, order: Order, session: Session) -> None: ...

    def __call__(self, order: Order, session: Session) -> None: ...


def test_methods_instances_and_partials() -> None:
    assert passed(Service().method)[0] == ["body"]
    assert passed(Service())[0] == ["body"]
    assert passed(functools.partial(default, size=3))[0] == ["body"]
    shape = shape_of(Service.method)
    service = Service()
    call = call_of(shape, (service, "body", DELIVERY), {})
    assert call.placed == [service, "body"]
    assert list(shape.signature.parameters) == ["self", "order", "ternmq_delivery"]


def nothing(session: Session) -> None: ...
def three(order: Order, delivery: ternmq.sync.Delivery, more: int) -> None: ...
def by_place(order: Order, session: Session, /) -> None: ...
def yields(order: Order) -> Any:
    yield 1


def unknown(order: NotThere, session: Session) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def wrong_kind(order: Order, delivery: ternmq.Delivery) -> None: ...


@pytest.mark.parametrize("function", [nothing, three, by_place, yields, unknown, wrong_kind, 7])
def test_what_is_no_handler(function: Any) -> None:
    with pytest.raises(InvalidHandler):
        shape_of(function)


def test_a_call_without_delivery_is_refused() -> None:
    with pytest.raises(TypeError, match="delivery"):
        call_of(shape_of(body), ("body",), {})
