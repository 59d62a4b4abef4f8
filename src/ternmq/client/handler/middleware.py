"""Middleware: code that runs around handlers, around sends, and around a whole run.

Each is a generator that yields once, or a function that returns a context manager: the code before
the ``yield`` runs first, the code after it runs when the inner part is done, and an error of the
inner part is raised at the ``yield``. The first that is declared is the outermost.

Without middleware, handlers and sends run directly, with no code of this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
)
from dataclasses import dataclass, field
from typing import Any, Final, Self

from ternmq.client.content.message import Message, Receipt
from ternmq.client.handler.depends import Provider
from ternmq.client.handler.lifespans import Entered
from ternmq.client.handler.signature import name_of, parameters_of
from ternmq.client.handler.yielding import async_context_of, context_of
from ternmq.model.errors import InvalidHandler, InvalidRequest

Blocking = Callable[..., AbstractContextManager[object]]
Awaited = Callable[..., AbstractAsyncContextManager[object]]
Lifespan = Callable[..., Any]


@dataclass(slots=True)
class Outbound:
    """A message that is being sent, as a send middleware receives it.

    Attributes:
        topic: Its topic; it cannot be changed.
        message: The message; its fields may be changed before the ``yield``.
        receipt: After the ``yield``: the receipt; None for one-way messages.
    """

    topic: str
    message: Message
    receipt: Receipt | None = None


class Overrides(dict[Provider, Provider]):
    """Providers that replace others. Setting one that is not callable raises InvalidHandler."""

    def __setitem__(self, provider: Provider, other: Provider) -> None:
        for one in (provider, other):
            if not callable(one):
                raise InvalidHandler(
                    f"overrides map functions to functions; {one!r} is not a function"
                )
        super().__setitem__(provider, other)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several."""
        for provider, other in dict(*args, **kwargs).items():
            self[provider] = other

    def __ior__(self, others: Any) -> Self:  # type: ignore[override,misc]
        self.update(others)
        return self

    def setdefault(self, provider: Provider, other: Provider) -> Provider:
        """Set one, unless there is one."""
        if provider not in self:
            self[provider] = other
        return self[provider]


@dataclass(slots=True)
class Middlewares:
    """The middleware of one client.

    Attributes:
        handlers: Around handlers. A ``def`` runs where the handler does: in its thread, or in the
            loop.
        sends: Around sends.
        lifespans: Around ``run``.
        overrides: Providers that replace others.
    """

    handlers: list[Callable[..., Any]] = field(default_factory=list)
    sends: list[Blocking] = field(default_factory=list)
    lifespans: list[Lifespan] = field(default_factory=list)
    overrides: Overrides = field(default_factory=Overrides)
    _awaited: set[int] = field(default_factory=set)

    def around_handlers(self, function: Callable[..., Any]) -> None:
        """Add a middleware of handlers; raises InvalidHandler if it is not valid."""
        self._add(self.handlers, function, "handler_middleware")

    def around_run(self, function: Callable[..., Any]) -> None:
        """Add a lifespan; raises InvalidHandler if it is not valid."""
        self._add(self.lifespans, function, "lifespan")

    def around_sends(self, function: Callable[..., Any]) -> None:
        """Add a send middleware; raises InvalidHandler if it is not valid."""
        made, awaited = _factory(function, "send_middleware")
        _check_parameters(function, "send_middleware", 1, 1, "the message, a ternmq.Outbound")
        if awaited:
            raise InvalidHandler(
                f"middleware {name_of(function)}: a send middleware must be a `def` and must "
                f"not wait, since send_soon and send_oneway return at once"
            )
        self.sends.append(made)

    def is_awaited(self, factory: Callable[..., Any]) -> bool:
        """Return whether a middleware or lifespan is entered with ``async with``."""
        return id(factory) in self._awaited

    def enter_sends(self, outbound: Outbound) -> ExitStack:
        """Enter the middlewares of sends for a message; close the returned stack with its outcome.

        Raises:
            InvalidRequest: One of them changed the topic, or caught an error.
        """
        topic = outbound.topic
        with ExitStack() as stack:
            for middleware in self.sends:
                stack.enter_context(middleware(outbound))
            if outbound.topic != topic:
                # One call of send_many goes to one topic: so every way to send refuses this.
                raise InvalidRequest(
                    f"a send middleware cannot change the topic ({topic!r} to "
                    f"{outbound.topic!r}); name it where the message is sent"
                )
            return stack.pop_all()
        raise InvalidRequest("a send middleware swallowed the error of another one")

    async def enter(
        self, stack: AsyncExitStack, lifespans: Iterable[Lifespan], client: object
    ) -> None:
        """Enter lifespans; the stack leaves them. Call it from the client's loop."""
        for one in lifespans:
            entered = _entered(one, client)
            if self.is_awaited(one):
                await stack.enter_async_context(entered)
            else:
                stack.enter_context(entered)

    def enter_blocking(self, stack: ExitStack, client: object) -> list[Lifespan]:
        """Enter the lifespans that are not async, in this thread; return the others."""
        for one in self.lifespans:
            if not self.is_awaited(one):
                stack.enter_context(_entered(one, client))
        return [one for one in self.lifespans if self.is_awaited(one)]

    def _add(self, to: list[Callable[..., Any]], function: Callable[..., Any], sort: str) -> None:
        made, awaited = _factory(function, sort)
        if sort == "lifespan":
            _check_parameters(function, sort, 0, 1, "the client, or nothing")
        else:
            _check_parameters(function, sort, 1, 1, "the delivery")
        to.append(made)
        if awaited:
            self._awaited.add(id(made))


def _entered(lifespan: Lifespan, client: object) -> Entered:
    return Entered(lifespan, lambda: lifespan(*_client_if_taken(lifespan, client)))


def _client_if_taken(function: Callable[..., Any], client: object) -> tuple[object, ...]:
    needed = [one for one in inspect.signature(function).parameters.values()
              if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]  # fmt: skip
    return (client,) if needed else ()


_HELD: Final = "a generator function that yields once, or a function that returns a context manager"


def _check_parameters(
    function: Callable[..., Any], sort: str, least: int, most: int, given: str
) -> None:
    """Refuse a function that cannot be called with its arguments.

    Raises:
        InvalidHandler: It needs more arguments, or takes fewer.
    """
    found = parameters_of(function, name_of(function))
    places = [one for one in found if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    needed = [one for one in places if one.default is one.empty]
    lacking = any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in found)
    starred = any(one.kind is one.VAR_POSITIONAL for one in found)
    if lacking or len(needed) > most or (len(places) < least and not starred):
        raise InvalidHandler(
            f"{sort} {name_of(function)} is called with {given}: its parameters do not fit"
        )


def _factory(function: Callable[..., Any], sort: str) -> tuple[Any, bool]:
    """Return the function that makes a context manager, and whether that is asynchronous."""
    if inspect.isasyncgenfunction(function):
        return async_context_of(function, f"{sort} {name_of(function)}"), True
    if inspect.isgeneratorfunction(function):
        return context_of(function, f"{sort} {name_of(function)}"), False
    inner = getattr(function, "__wrapped__", None)
    if inspect.isasyncgenfunction(inner):
        return function, True
    if inspect.isgeneratorfunction(inner):
        return function, False
    if isinstance(function, type):
        if hasattr(function, "__aenter__"):
            return function, True
        if hasattr(function, "__enter__"):
            return function, False
    raise InvalidHandler(f"{sort} {name_of(function)} must be {_HELD}")
