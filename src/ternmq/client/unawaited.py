"""Coroutines of an asyncio client that were made in a thread, and that nobody awaits.

A ``def`` handler runs in a thread and cannot await ``client.send(...)``. Python says so with a
warning that few read, and the message would be acked though nothing was sent. So a coroutine that
is made in a thread other than its client's is held in an object that looks after it: if that is
dropped before anything has begun it, the handler that made it has failed. Elsewhere the error is
logged. Handing the coroutine to the loop, by ``asyncio.run_coroutine_threadsafe``, begins it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final, TypeVar

from ternmq.model.errors import WrongEventLoop

log: Final = logging.getLogger("ternmq")

T = TypeVar("T")

HINT: Final = (
    "make the function an `async def`; or make the client with ternmq.sync.connect(); or hand it "
    "to the loop: asyncio.run_coroutine_threadsafe(client.send(...), loop).result()"
)


class _Found(threading.local):
    """What was dropped in a thread that runs a handler; None in other threads."""

    names: list[str] | None = None


_found: Final = _Found()


class Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine that was made in a thread which is not its loop's. Any thread."""

    __slots__ = ("_coroutine", "_name")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._coroutine = coroutine
        self._name = name

    def send(self, value: object) -> object:
        """See ``Coroutine``."""
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        """See ``Coroutine``."""
        del traceback
        return self._coroutine.throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        """See ``Coroutine``."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        # A generator holds this object while it is awaited; ``await`` itself drops it, and it
        # would be taken for one that nobody awaits before its coroutine has begun.
        return (yield from self._coroutine.__await__())

    def __del__(self) -> None:
        if inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED:
            return
        self._coroutine.close()
        if _found.names is None:
            log.error("%s", error_of(self._name))
        else:
            _found.names.append(self._name)


def watch_begins() -> None:
    """A handler is about to be called in this thread."""
    _found.names = []


def raise_found() -> None:
    """The handler has returned: see that nothing it made was dropped.

    Raises:
        WrongEventLoop: Something was; it was never begun.
    """
    names, _found.names = _found.names, None
    if names:
        raise error_of(names[0])


def error_of(name: str) -> WrongEventLoop:
    """Return what is said of a method that nobody awaited."""
    error = WrongEventLoop(f"{name}() was called in a thread and not awaited: nothing was done")
    error.hint = HINT
    return error


def looked_after(place: str) -> Callable[[type[T]], type[T]]:
    """Have the coroutines of a class's public methods looked after; a decorator.

    Its objects have a ``_session``.

    Args:
        place: How users reach an object of it: ``client.admin``.
    """

    def decorate(kind: type[T]) -> type[T]:
        for name, method in list(vars(kind).items()):
            if inspect.iscoroutinefunction(method) and not name.startswith("_"):
                setattr(kind, name, _looked_after(method, f"{place}.{name}"))
        return kind

    return decorate


def _looked_after(method: Callable[..., Coroutine[Any, Any, T]], name: str) -> Callable[..., Any]:
    here = threading.get_ident

    @functools.wraps(method)
    def made(self: Any, *args: object, **named: object) -> Coroutine[Any, Any, T]:
        home = self._session.home
        if home is None or home == here():
            return method(self, *args, **named)
        return Unawaited(method(self, *args, **named), name)

    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(made)
    else:
        # What mocks look at.
        vars(made)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return made


def makes_coroutines(function: Callable[..., object]) -> bool:
    """Return whether a function is an ``async def``, or one that is looked after."""
    if sys.version_info >= (3, 12):
        return inspect.iscoroutinefunction(function)
    else:  # mypy takes code behind a return that newer Pythons always reach for an error
        return asyncio.iscoroutinefunction(function)
