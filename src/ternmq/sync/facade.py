"""Blocking methods made from asynchronous ones: same name, same arguments, same types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from ternmq.sync.loop_thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Facade(Protocol[E_co]):
    """Has a loop in a thread, and an asynchronous object in that loop."""

    def reach(self) -> tuple[LoopThread, E_co]:
        """Return the loop's thread and the asynchronous object. Callable from any thread."""


def blocking(
    method: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Facade[E], P], T]:
    """Return a method that runs ``method`` in the loop and waits for it."""
    # The coroutine is awaited here, so the check for unawaited ones is not needed.
    plain: Callable[Concatenate[E, P], Coroutine[Any, Any, T]] = inspect.unwrap(method)

    @functools.wraps(plain)
    def wait(self: Facade[E], *args: P.args, **kwargs: P.kwargs) -> T:
        thread, engine = self.reach()
        return thread.call(plain(engine, *args, **kwargs))

    return cast("Callable[Concatenate[Facade[E], P], T]", wait)


def iterating(
    method: Callable[Concatenate[E, P], AsyncIterator[T]],
) -> Callable[Concatenate[Facade[E], P], Iterator[T]]:
    """Return a method that iterates over the result of ``method``, which iterates in the loop."""

    @functools.wraps(method)
    def iterate(self: Facade[E], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        thread, engine = self.reach()

        async def make() -> AsyncIterator[T]:
            return method(engine, *args, **kwargs)

        return thread.iterate(thread.call(make()))

    shown = inspect.signature(method)
    returned = str(shown.return_annotation).removeprefix("Async")
    iterate.__signature__ = shown.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return cast("Callable[Concatenate[Facade[E], P], Iterator[T]]", iterate)
