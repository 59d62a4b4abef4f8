"""The functions of steps: what they take, and what is passed to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ternmq.client.handler.signature import Annotations, innermost, name_of, parameters_of
from ternmq.model.errors import InvalidHandler
from ternmq.reliable.libraries.opening import Wanted
from ternmq.reliable.libraries.transactions import wanted_of

Function = Callable[..., Any]

_PLACED: Final = (
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class StepFunction:
    """A function that does a step, or undoes one.

    Attributes:
        name: Its name, for errors.
        function: Called with the step, and by name with what is ``wanted``.
        is_async: Whether it is awaited.
        wanted: Its parameters that receive the transaction.
    """

    name: str
    function: Function
    is_async: bool
    wanted: Sequence[Wanted]


def step_function(function: Function) -> StepFunction:
    """Return how a function is called with a step.

    Raises:
        InvalidHandler: It cannot be.
    """
    given: object = function
    if not callable(given) or isinstance(given, type):
        raise InvalidHandler(f"a step is done by a function, not by {type(given).__name__}")
    name = name_of(function)
    if any(one(function) for one in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise InvalidHandler(f"function {name} contains a yield: a call would not run it")
    is_async = any(
        inspect.iscoroutinefunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004
    )
    reader = Annotations(innermost(function), name)
    parameters = parameters_of(function, name)
    if not parameters or parameters[0].kind not in _PLACED:
        raise InvalidHandler(f"function {name} must take the step as its first parameter")
    first, *others = parameters
    if wanted_of(first.name, reader.read(first)) is not None:
        raise InvalidHandler(
            f"function {name}: its first parameter {first.name!r} is the step; sessions and "
            "connections come after it"
        )
    wanted = []
    for one in others:
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}:
            continue
        found = wanted_of(one.name, reader.read(one))
        if found is not None and one.kind is one.POSITIONAL_ONLY:
            raise InvalidHandler(
                f"function {name}: parameter {one.name!r} receives the transaction by its name, "
                "but is positional-only"
            )
        if found is None and one.default is one.empty:
            raise InvalidHandler(
                f"function {name}: parameter {one.name!r} gets no value: it is not annotated as a "
                "session or a connection of the database"
            )
        if found is not None:
            wanted.append(found)
    return StepFunction(name, function, is_async, wanted)
