"""Coroutines of an asyncio client that are made in a thread and never awaited.

A ``def`` handler runs in a thread and cannot await ``client.send(...)``. Python reports this with a
warning that few read, and the message would be acked though nothing was sent. So a coroutine that
is made in a thread other than its client's is wrapped in an object: if that is dropped before the
coroutine has begun, the handler that made it has failed. Outside of handlers the error is logged.
Handing the coroutine to the loop with ``asyncio.run_coroutine_threadsafe`` begins it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import linecache
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from ternmq.client.consumer.telling import LIBRARY
from ternmq.model.errors import WrongEventLoop

log: Final = logging.getLogger("ternmq")

T = TypeVar("T")

HINT: Final = (
    "make the function an `async def`; or make the client with ternmq.sync.connect(); or hand it "
    "to the loop: asyncio.run_coroutine_threadsafe(client.send(...), loop).result()"
)


class Made(NamedTuple):
    """The place where a coroutine was made in a thread.

    It does not contain the frame, which may hold the coroutine: that would never be dropped.
    """

    method: str
    file: str
    line: int
    function: str


class _Found(threading.local):
    """Dropped coroutines of a thread that runs a handler; None in other threads."""

    dropped: list[Made] | None = None


_found: Final = _Found()


class Unawaited(Coroutine[Any, Any, Any]):
    """A coroutine that was made outside of its loop's thread. Usable from any thread."""

    __slots__ = ("_coroutine", "_made")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._coroutine = coroutine
        self._made = _made_here(name)

    def send(self, value: object) -> object:
        """Continue the coroutine."""
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        """Raise an error in the coroutine."""
        del traceback
        return self._coroutine.throw(value if isinstance(value, BaseException) else kind)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        # A generator holds this object while it is awaited; ``await`` alone would drop it, and it
        # would be reported as never awaited before its coroutine has begun.
        return (yield from self._coroutine.__await__())

    def __del__(self) -> None:
        if inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED:
            return
        self._coroutine.close()
        if _found.dropped is None:
            log.error("%s", error_of(self._made))
        else:
            _found.dropped.append(self._made)


def watch_begins() -> None:
    """Start to collect dropped coroutines: a handler is about to be called in this thread."""
    _found.dropped = []


def raise_found() -> None:
    """Check that the handler, which has returned, dropped no coroutine.

    Raises:
        WrongEventLoop: It dropped one that was never begun.
    """
    dropped, _found.dropped = _found.dropped, None
    if dropped:
        raise error_of(dropped[0])


def error_of(made: Made) -> WrongEventLoop:
    """Return the error for a method that was not awaited.

    The code that called it has returned, so no traceback shows it: a note of the error does.
    """
    error = WrongEventLoop(
        f"{made.method}() was called in a thread and not awaited: nothing was done; it was called "
        f"in {made.function}, {made.file}:{made.line}"
    )
    error.hint = HINT
    source = linecache.getline(made.file, made.line).strip()
    error.add_note(
        f'It was called here:\n  File "{made.file}", line {made.line}, in {made.function}'
        + (f"\n    {source}" if source else "")
    )
    return error


def _made_here(name: str) -> Made:
    """Return the place in the application's code that made a coroutine."""
    frame = sys._getframe(1)  # noqa: SLF001 - as warnings find the code that they are about
    while frame.f_code.co_filename.startswith(LIBRARY) and frame.f_back is not None:
        frame = frame.f_back
    return Made(name, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def looked_after(place: str) -> Callable[[type[T]], type[T]]:
    """Wrap the coroutines of a class's public methods with ``Unawaited``; a decorator.

    Its objects have a ``_session``.

    Args:
        place: The expression by which users reach an object of the class: ``client.admin``.
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
        # Mocks check this attribute.
        vars(made)["_is_coroutine"] = vars(asyncio.coroutines)["_is_coroutine"]
    return made


def makes_coroutines(function: Callable[..., object]) -> bool:
    """Return whether a function is an ``async def``, or a wrapped one."""
    if sys.version_info >= (3, 12):
        return inspect.iscoroutinefunction(function)
    else:  # mypy reports code after a return that newer Pythons always reach
        return asyncio.iscoroutinefunction(function)
