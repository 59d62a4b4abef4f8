"""A handler together with its middlewares and dependencies, as one function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from typing import Any

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.declarations import Declaration
from ternmq.client.handler.injection import Plan, plan_of
from ternmq.client.handler.middleware import Awaited, Middlewares
from ternmq.client.handler.signature import Function


@dataclass(slots=True, frozen=True)
class Composed:
    """A handler with all that runs around it.

    Attributes:
        declared: Its function includes everything but ``outside``.
        outside: Async middlewares, around a handler that runs in a thread.
    """

    declared: Declaration
    outside: tuple[Awaited, ...] = ()


def compose(declared: Declaration, middlewares: Middlewares) -> Composed:
    """Return a handler with its middlewares and dependencies; unchanged if it has none.

    Raises:
        InvalidHandler: A dependency cannot be provided.
    """
    signature = declared.signature
    if not middlewares.handlers and not signature.injected:
        return Composed(declared)
    plan = plan_of(
        signature.name,
        signature.injected,
        is_async=signature.is_async,
        overrides=middlewares.overrides,
    )
    whole = replace(signature, delivery=True, injected={})
    if signature.is_async:
        function = _awaited(declared, plan, middlewares)
        return Composed(replace(declared, function=function, signature=whole))
    inside = [one for one in middlewares.handlers if not middlewares.is_awaited(one)]
    outside = tuple(one for one in middlewares.handlers if middlewares.is_awaited(one))
    function = _blocking(declared, plan, inside)
    return Composed(replace(declared, function=function, signature=whole), outside)


def _call(declared: Declaration, arguments: tuple[object, ...], given: dict[str, object]) -> Any:
    """Call a handler with its parameters among (body, delivery), and its dependencies."""
    signature = declared.signature
    own = arguments if signature.delivery else arguments[:-1]
    placed = len(own) - len(signature.named)
    given.update(zip(signature.named, own[placed:], strict=True))
    return declared.function(*own[:placed], **given)


def _awaited(declared: Declaration, plan: Plan, middlewares: Middlewares) -> Function:
    order: list[tuple[Any, bool]] = [
        (one, middlewares.is_awaited(one)) for one in middlewares.handlers
    ]

    async def call(*arguments: object) -> object:
        delivery = arguments[-1]
        async with AsyncExitStack() as stack:
            for middleware, awaited in order:
                if awaited:
                    await stack.enter_async_context(middleware(delivery))
                else:
                    stack.enter_context(middleware(delivery))
            given = await plan.make(stack, delivery)
            return await _call(declared, arguments, given)

    return call


def _blocking(declared: Declaration, plan: Plan, inside: list[Any]) -> Function:
    def call(*arguments: object) -> object:
        delivery = arguments[-1]
        with ExitStack() as stack:
            for middleware in inside:
                stack.enter_context(middleware(delivery))
            given = plan.make_blocking(stack, delivery)
            return _call(declared, arguments, given)

    return call


async def around(
    outside: tuple[Awaited, ...], delivery: Delivery, call: Callable[[], Any]
) -> object:
    """Run a handler in a thread, inside async middlewares."""
    async with AsyncExitStack() as stack:
        for middleware in outside:
            await stack.enter_async_context(middleware(delivery))
        return await call()
