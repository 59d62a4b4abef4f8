"""Whether ``run`` has begun and its start is not accepted yet: then no checker is offered."""

from __future__ import annotations

import asyncio
import contextlib


class PendingStart:
    """The start of a client's ``run``, until the broker has let its handlers join their groups.

    An offer takes a producer group for the app, which a start that is refused must not do. What
    needs the checkers meanwhile waits: opening a transaction.

    Not thread-safe: call it from the client's loop.
    """

    def __init__(self) -> None:
        self._over: asyncio.Future[None] | None = None

    @property
    def pending(self) -> bool:
        """Whether the start is not accepted yet."""
        return self._over is not None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a start begins."""
        if self._over is None:
            self._over = loop.create_future()

    def end(self) -> None:
        """Note that the start was accepted, or that the client is closed. Idempotent."""
        over, self._over = self._over, None
        if over is not None and not over.done():
            over.set_result(None)

    async def wait(self, timeout: float) -> None:
        """Return when no start is pending, after ``timeout`` seconds at the latest."""
        if self._over is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.shield(self._over)
