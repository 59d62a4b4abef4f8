"""Waits that a cancellation does not cut short."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def surely(wait: Awaitable[T]) -> T:
    """Return what an awaitable returns, also if this task is cancelled meanwhile.

    For a thread that works in the data folder: nobody else may use it before the thread has ended.
    A cancellation is forgotten, but for ``asyncio.current_task().cancelling()``.
    """
    waiting = asyncio.ensure_future(wait)
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(waiting)
    return waiting.result()
