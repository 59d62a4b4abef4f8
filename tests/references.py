"""What a caller holds is not kept by the client after its call: no cycle of frames and errors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.asynchronous import until
from tests.black_box.process import wait_until


class Held:
    """Stands for what a caller holds in a variable."""


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage: only what nothing refers to goes."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def keeps_nothing(call: Callable[[], Awaitable[object]], error: type[Exception]) -> None:
    """Check that a call raises an error, and that what its caller held is gone after that."""

    async def caller() -> weakref.ref[Held]:
        held = Held()
        try:
            await call()
        except error:
            return weakref.ref(held)
        pytest.fail(f"{call} raised no error")

    kept = await caller()
    await until(lambda: kept() is None, f"after {call}")


def blocking_keeps_nothing(call: Callable[[], object], error: type[Exception] | None) -> None:
    """Check the same of a blocking call; without an error, that it succeeds and keeps nothing."""

    def caller() -> weakref.ref[Held]:
        held = Held()
        try:
            call()
        except Exception as raised:
            if error is None or not isinstance(raised, error):
                raise
            return weakref.ref(held)
        if error is not None:
            pytest.fail(f"{call} raised no error")
        return weakref.ref(held)

    kept = caller()  # the loop's thread may still have the error for a moment
    wait_until(lambda: kept() is None, f"gone after {call}")
