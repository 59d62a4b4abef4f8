"""Runs ``async def`` tests: a loop for each, closed behind it, with a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

import pytest

DEADLINE_S = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    mark = pyfuncitem.get_closest_marker("timeout")
    # Before pytest gives up; never less than without a mark.
    seconds = DEADLINE_S if mark is None else max(DEADLINE_S, mark.args[0] / 2)

    async def run() -> None:
        async with asyncio.timeout(seconds):
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


async def until(condition: Callable[[], object], what: str = "", seconds: float = 10.0) -> None:
    """Wait until a condition holds; fail after a deadline."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {what or condition}")
        await asyncio.sleep(0.002)


async def until_true(
    asked: Callable[[], Awaitable[object]], what: str = "", seconds: float = DEADLINE_S / 2
) -> None:
    """Ask until the answer is true, a broker for one; fail after a deadline."""
    end = time.monotonic() + seconds
    while not await asked():
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds} s: {what or asked}")
        await asyncio.sleep(0.01)
