"""Users' generators that yield once, as contexts, with errors that name the function.

Python's own text, ``generator didn't stop``, names neither the function nor a remedy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any


def context_of(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that makes a context (``with``) of a generator function.

    Args:
        function: A generator function that yields once.
        name: Its name in errors: ``middleware timed``.
    """

    @functools.wraps(function)
    def begun(*arguments: object, **named: object) -> Any:
        return _Once(function(*arguments, **named), name)

    return contextmanager(begun)


def async_context_of(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that makes a context (``async with``) of an async generator function."""

    @functools.wraps(function)
    def begun(*arguments: object, **named: object) -> Any:
        return _OnceAwaited(function(*arguments, **named), name)

    return asynccontextmanager(begun)


class _Once:
    """A generator that may yield once."""

    def __init__(self, generator: Any, name: str) -> None:
        self._generator = generator
        self._name = name
        self._yielded = False

    def __next__(self) -> object:
        try:
            value = next(self._generator)
        except StopIteration:
            if not self._yielded:
                raise RuntimeError(never(self._name)) from None
            raise
        if self._yielded:
            self._generator.close()
            raise RuntimeError(twice(self._name))
        self._yielded = True
        return value

    def throw(self, *error: Any) -> object:
        self._generator.throw(*error)
        self._generator.close()
        raise RuntimeError(twice(self._name))

    def close(self) -> None:
        self._generator.close()


class _OnceAwaited:
    """An async generator that may yield once."""

    def __init__(self, generator: Any, name: str) -> None:
        self._generator = generator
        self._name = name
        self._yielded = False

    def __aiter__(self) -> _OnceAwaited:
        return self

    async def __anext__(self) -> object:
        try:
            value = await anext(self._generator)
        except StopAsyncIteration:
            if not self._yielded:
                raise RuntimeError(never(self._name)) from None
            raise
        if self._yielded:
            await self._generator.aclose()
            raise RuntimeError(twice(self._name))
        self._yielded = True
        return value

    async def athrow(self, *error: Any) -> object:
        await self._generator.athrow(*error)
        await self._generator.aclose()
        raise RuntimeError(twice(self._name))

    async def aclose(self) -> None:
        await self._generator.aclose()


def twice(name: str) -> str:
    """Return the error text for a generator that yields again."""
    return f"{name} yielded a second time: it must yield once, whatever is raised at its yield"


def never(name: str) -> str:
    """Return the error text for a generator that never yields."""
    return f"{name} returned without a yield: it must yield once"
