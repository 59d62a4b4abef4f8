"""Lifespans as contexts whose own errors are told from those of the run inside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple

from ternmq.client.consumer.telling import LIBRARY
from ternmq.client.handler.signature import innermost, name_of

_MARK: Final = "_ternmq_lifespan"
"""Entry of an error's ``__dict__``: the lifespan that raised it."""


class Broken(NamedTuple):
    """The lifespan that raised an error."""

    name: str
    """With its module: ``shop.db``."""
    traceback: TracebackType | None
    """From the user's code on; None if the library raised the error itself."""
    inner: BaseException | None
    """The error that ended the run inside the lifespan, when the lifespan failed at its end."""


def broken_of(error: BaseException) -> Broken | None:
    """Return the lifespan that raised an error; None if another part of the run did."""
    found = vars(error).get(_MARK)
    return found if isinstance(found, Broken) else None


class Entered:
    """The context of a lifespan; an error that begins in it is marked with its name.

    Args:
        lifespan: The function that was declared.
        made: Calls it; returns a context manager.
    """

    def __init__(self, lifespan: Callable[..., Any], made: Callable[[], Any]) -> None:
        self._lifespan = lifespan
        self._make = made
        self._made: Any = None

    def __enter__(self) -> object:
        try:
            self._made = self._make()
            return self._made.__enter__()
        except (Exception, SystemExit) as error:
            self._mark(error)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        inner: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return bool(self._made.__exit__(kind, inner, traceback))
        except (Exception, SystemExit) as error:
            if error is not inner:
                self._mark(error, inner)
            raise

    async def __aenter__(self) -> object:
        try:
            self._made = self._make()
            return await self._made.__aenter__()
        except (Exception, SystemExit) as error:
            self._mark(error)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        inner: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return bool(await self._made.__aexit__(kind, inner, traceback))
        except (Exception, SystemExit) as error:
            if error is not inner:
                self._mark(error, inner)
            raise

    def _mark(self, error: BaseException, inner: BaseException | None = None) -> None:
        function = innermost(self._lifespan)
        module = getattr(function, "__module__", None) or "?"
        name = f"{module}.{getattr(function, '__qualname__', None) or name_of(self._lifespan)}"
        found = error.__traceback__
        while found is not None and _is_between(found):
            found = found.tb_next
        vars(error).setdefault(_MARK, Broken(name, found, inner))


def _is_between(traceback: TracebackType) -> bool:
    """Return whether a frame is this library's, or of its contexts: before the user's code."""
    file = traceback.tb_frame.f_code.co_filename
    return file.startswith(LIBRARY) or file == contextlib.__file__
