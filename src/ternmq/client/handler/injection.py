"""Plan of a handler's providers: their order, and their arguments.

``plan_of`` checks at the declaration, and sorts at the start of a run. For each message the steps
of the plan are run one after the other, and undone in reverse order when the handler is done.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Final

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.depends import Depends, Provider
from ternmq.client.handler.signature import (
    Annotations,
    check_delivery,
    injected_of,
    innermost,
    name_of,
    names_delivery,
    parameters_of,
)
from ternmq.client.handler.yielding import async_context_of, context_of
from ternmq.model.errors import InvalidHandler

_DELIVERY: Final = -1
"""Stands for the delivery itself, in place of a step."""

Overrides = Mapping[Provider, Provider]


class _Kind(enum.Enum):
    VALUE = enum.auto()
    AWAITED = enum.auto()
    CONTEXT = enum.auto()
    ASYNC_CONTEXT = enum.auto()


@dataclass(slots=True, frozen=True)
class Step:
    """A call of a provider: its parameters, each with the number of the step that it depends on."""

    provider: Provider
    kind: _Kind
    arguments: tuple[tuple[str, int], ...]


@dataclass(slots=True, frozen=True)
class Plan:
    """The providers of one handler, in an order that respects their dependencies.

    Attributes:
        steps: In the order of calls.
        given: Parameters of the handler, each with the number of the step whose result it gets.
    """

    steps: tuple[Step, ...]
    given: tuple[tuple[str, int], ...]

    async def make(self, stack: AsyncExitStack, delivery: object) -> dict[str, object]:
        """Return the handler's arguments; the stack undoes them. For the client's loop."""
        made: list[object] = []
        for step in self.steps:
            arguments = _arguments(step, made, delivery)
            result = step.provider(**arguments)
            if step.kind is _Kind.AWAITED:
                result = await result
            elif step.kind is _Kind.CONTEXT:
                result = stack.enter_context(result)
            elif step.kind is _Kind.ASYNC_CONTEXT:
                result = await stack.enter_async_context(result)
            made.append(result)
        return {name: made[at] for name, at in self.given}

    def make_blocking(self, stack: ExitStack, delivery: object) -> dict[str, object]:
        """Do the same in a thread, for the plan of a ``def`` handler."""
        made: list[object] = []
        for step in self.steps:
            result = step.provider(**_arguments(step, made, delivery))
            made.append(stack.enter_context(result) if step.kind is _Kind.CONTEXT else result)
        return {name: made[at] for name, at in self.given}


def _arguments(step: Step, made: list[object], delivery: object) -> dict[str, object]:
    return {name: delivery if at == _DELIVERY else made[at] for name, at in step.arguments}


def plan_of(
    handler: str, injected: Mapping[str, Depends], *, is_async: bool, overrides: Overrides
) -> Plan:
    """Return the plan of a handler.

    Args:
        handler: Its name, for errors.
        injected: Its parameters that depend on a provider.
        is_async: Whether it is awaited in the loop; else it runs in a thread.
        overrides: Providers that replace others.

    Raises:
        InvalidHandler: A provider cannot be called, or depends on itself.
    """
    sorting = _Sorting(handler, is_async, overrides)
    given = tuple((name, sorting.place(one.provider)) for name, one in injected.items())
    return Plan(tuple(sorting.steps), given)


class _Sorting:
    def __init__(self, handler: str, is_async: bool, overrides: Overrides) -> None:
        self.steps: list[Step] = []
        self._handler = handler
        self._is_async = is_async
        self._overrides = overrides
        self._places: dict[Provider, int] = {}
        self._open: list[Provider] = []

    def place(self, provider: Provider) -> int:
        """Return the number of the step that calls a provider; it is added if it is new."""
        provider = self._overrides.get(provider, provider)
        known = self._places.get(provider)
        if known is not None:
            return known
        if provider in self._open:
            circle = " -> ".join(name_of(one) for one in [*self._open, provider])
            raise InvalidHandler(f"handler {self._handler}: {circle} depends on itself")
        self._open.append(provider)
        kind, called = self._kind(provider)
        step = Step(called, kind, self._arguments(provider))
        self._open.pop()
        self.steps.append(step)
        self._places[provider] = len(self.steps) - 1
        return self._places[provider]

    def _kind(self, provider: Provider) -> tuple[_Kind, Provider]:
        if not callable(provider):
            raise InvalidHandler(
                f"handler {self._handler}: Depends takes a function, not {provider!r}"
            )
        function = provider
        if not (inspect.isroutine(function) or isinstance(function, type)):
            function = getattr(function, "__call__", function)  # noqa: B004
        kind, called = _Kind.VALUE, provider
        name = f"provider {name_of(provider)}"
        if inspect.isasyncgenfunction(function):
            kind, called = (
                _Kind.ASYNC_CONTEXT,
                async_context_of(provider, name),
            )
        elif inspect.isgeneratorfunction(function):
            kind, called = _Kind.CONTEXT, context_of(provider, name)
        elif inspect.iscoroutinefunction(function):
            kind = _Kind.AWAITED
        if not self._is_async and kind in {_Kind.AWAITED, _Kind.ASYNC_CONTEXT}:
            raise InvalidHandler(
                f"handler {self._handler} is a `def`, which runs in a thread: its provider "
                f"{name_of(provider)} must be a `def` as well, or the handler an `async def`"
            )
        return kind, called

    def _arguments(self, provider: Provider) -> tuple[tuple[str, int], ...]:
        name = f"{self._handler}, provider {name_of(provider)}"
        if isinstance(provider, type):
            return self._of_class(provider, name)
        reader = Annotations(innermost(provider), name)
        injected = injected_of(provider, reader, name)
        found: list[tuple[str, int]] = []
        own = Delivery if self._is_async else BlockingDelivery
        for one in parameters_of(provider, name):
            if one.name in injected:
                found.append((one.name, self.place(injected[one.name].provider)))
                continue
            if one.default is not one.empty or one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
                continue
            annotation = reader.read(one)
            if not names_delivery(annotation):
                raise InvalidHandler(
                    f"handler {name}: its parameter {one.name!r} gets no value; a parameter of a "
                    f"provider is the delivery, or is annotated with Depends"
                )
            check_delivery(name, one.name, annotation, own)
            found.append((one.name, _DELIVERY))
        return tuple(found)

    def _of_class(self, provider: type, name: str) -> tuple[tuple[str, int], ...]:
        needed = [
            one.name
            for one in parameters_of(provider, name)
            if one.default is one.empty and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
        ]
        if needed:
            raise InvalidHandler(
                f"handler {name}: its parameter {needed[0]!r} gets no value; a class that is a "
                f"provider is called without arguments"
            )
        return ()
