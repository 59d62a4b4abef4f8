"""Handlers whose messages are remembered: what they take, and what is passed to them.

The decorated function takes what the handler takes, without the parameters that receive the
transaction, and with the delivery. Its ``__signature__`` says so, and the client declares it as any
other handler; its annotations are evaluated where the handler was written, by ``__wrapped__``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.handler.declarations import declared_as
from ternmq.client.handler.depends import Depends, depends_in
from ternmq.client.handler.signature import (
    Annotations,
    innermost,
    name_of,
    parameters_of,
    signature_of,
)
from ternmq.model.errors import InvalidHandler
from ternmq.reliable.libraries.opening import Wanted
from ternmq.reliable.libraries.transactions import wanted_of

Function = Callable[..., Any]

_DELIVERY: Final = "ternmq_delivery"
"""Name of the parameter for the delivery, where the handler has none."""


@dataclass(slots=True, frozen=True)
class Shape:
    """How a handler is called.

    Attributes:
        name: Its name, for errors.
        is_async: Whether it is awaited.
        wanted: Its parameters that receive the transaction; they are passed by name.
        signature: That of the decorated function.
        body: Whether it takes the body.
        delivery: Whether it takes the delivery.
        owner: Whether its first argument is the object that it is a method of.
        names: Names of its arguments by position, without the transaction and what is injected.
        placed: How many of them are passed by position: those before any other parameter.
    """

    name: str
    is_async: bool
    wanted: Sequence[Wanted]
    signature: inspect.Signature
    body: bool
    delivery: bool
    owner: bool
    names: Sequence[str]
    placed: int


@dataclass(slots=True, frozen=True)
class Call:
    """A call of a handler.

    Attributes:
        placed: What it is passed by position.
        named: What it is passed by name, without the transaction.
        delivery: The delivery.
        subject: What ``by=`` is called with: the body, else the delivery.
    """

    placed: Sequence[object]
    named: dict[str, object]
    delivery: Delivery | BlockingDelivery
    subject: object


def check_order(function: Function, name: str) -> None:
    """Check that a function is not called without its inbox.

    Raises:
        InvalidHandler: A client has it as a handler already, and calls it as it is.
    """
    declared = declared_as(function)
    if declared is not None:
        raise InvalidHandler(
            f"handler {name} is declared for topic {declared.source.topic!r} already, so the "
            "client would call it without the inbox: write @client.handler(...) first, and "
            "@idempotent(...) below it"
        )


def call_of(shape: Shape, given: Sequence[object], named: dict[str, object]) -> Call:
    """Return what a handler is passed, when the decorated function is called.

    Raises:
        TypeError: It is not called as the client calls it.
    """
    all_named = {**named, **dict(zip((*shape.names, _DELIVERY), given, strict=False))}
    own = shape.names[shape.owner :]
    place = _DELIVERY if not shape.delivery else own[1 if shape.body else 0]
    delivery = all_named.get(place)
    if not isinstance(delivery, Delivery | BlockingDelivery):
        raise TypeError(f"{shape.name}() must be called with a delivery, as the client calls it")
    subject = all_named[own[0]] if shape.body else delivery
    all_named.pop(_DELIVERY, None)
    placed = [all_named.pop(name) for name in shape.names[: shape.placed] if name in all_named]
    return Call(placed, all_named, delivery, subject)


def shape_of(function: Function) -> Shape:
    """Return how a handler is called.

    Raises:
        InvalidHandler: It is no handler, an annotation cannot be resolved, or a parameter that
            receives the transaction comes first or has no name.
    """
    given: object = function
    if not callable(given):
        raise InvalidHandler(f"idempotent decorates a handler, not {type(given).__name__}")
    name = name_of(function)
    if any(one(function) for one in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise InvalidHandler(f"handler {name} contains a yield: a call would not run it")
    is_async = any(
        inspect.iscoroutinefunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004
    )
    reader = Annotations(innermost(function), name)
    parameters = parameters_of(function, name)
    owner = _has_owner(function, parameters)
    wanted = [_wanted(one, reader, name) for one in parameters]
    kept = [one for one, found in zip(parameters, wanted, strict=True) if found is None]
    found = signature_of(_probe(function, kept[owner:], is_async=is_async))
    places = [one for one in kept if _is_placed(one) and one.name not in found.injected]
    others = {one.name for one in wanted if one is not None} | set(found.injected)
    first = next((at for at, one in enumerate(parameters) if one.name in others), len(parameters))
    before = {one.name for one in parameters[:first]}
    used = owner + found.body + found.delivery
    names = [one.name for one in places[:used]]
    if not found.delivery:
        kept = _with_delivery(kept, names[-1], Delivery if is_async else BlockingDelivery)
    return Shape(
        name, is_async, [one for one in wanted if one is not None], inspect.Signature(kept),
        found.body, found.delivery, owner, names, sum(one in before for one in names),
    )  # fmt: skip


def _wanted(parameter: inspect.Parameter, reader: Annotations, name: str) -> Wanted | None:
    """Return how a parameter receives the transaction; None: it does not.

    Raises:
        InvalidHandler: It has no name to pass it by, or its annotation cannot be resolved.
    """
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        return None
    if isinstance(parameter.default, Depends):
        return None
    annotation = reader.read(parameter)
    found = None if depends_in(annotation) is not None else wanted_of(parameter.name, annotation)
    if found is not None and parameter.kind is parameter.POSITIONAL_ONLY:
        raise InvalidHandler(
            f"handler {name}: parameter {parameter.name!r} receives the transaction by its name, "
            "but is positional-only"
        )
    return found


def _has_owner(function: Function, parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a function stands in a class, and takes the object first."""
    return (
        inspect.isfunction(function)
        and not function.__qualname__.rpartition(".")[0].endswith("<locals>")
        and "." in function.__qualname__
        and bool(parameters)
        and parameters[0].name in {"self", "cls"}
    )


def _is_placed(one: inspect.Parameter) -> bool:
    return one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}


def _probe(
    function: Function, parameters: Sequence[inspect.Parameter], *, is_async: bool
) -> Function:
    """Return a function that the client sees as the handler with these parameters."""

    async def awaited(*given: object, **named: object) -> None: ...

    def blocking(*given: object, **named: object) -> None: ...

    probe: Any = functools.update_wrapper(awaited if is_async else blocking, function)
    probe.__name__ = name_of(function)
    probe.__signature__ = inspect.Signature(parameters)
    made: Function = probe
    return made


def _with_delivery(
    parameters: Sequence[inspect.Parameter], body: str, kind: type[Delivery | BlockingDelivery]
) -> list[inspect.Parameter]:
    """Return parameters with one for the delivery, right after that of the body."""
    at = next(at for at, one in enumerate(parameters) if one.name == body)
    one = parameters[at]
    added = inspect.Parameter(_DELIVERY, one.kind, default=one.default, annotation=kind)
    return [*parameters[: at + 1], added, *parameters[at + 1 :]]
