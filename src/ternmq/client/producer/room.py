"""Budget for the bytes that wait to be sent or answered, and the callers that wait for room."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from ternmq.model.errors import BufferFull


class Taken(Protocol):
    """What uses the budget."""

    taken_bytes: int


class Room:
    """A budget of bytes. Not thread-safe: call it from the client's loop.

    Attributes:
        waiters: The callers that wait for room, the first one first; call ``let_in`` if there are
            any.
    """

    __slots__ = ("_limit", "_taken", "waiters")

    def __init__(self, taken: Taken, limit_bytes: int) -> None:
        self._taken = taken
        self._limit = limit_bytes
        self.waiters: deque[asyncio.Future[None]] = deque()

    @property
    def taken_bytes(self) -> int:
        """Bytes in use."""
        return self._taken.taken_bytes

    @property
    def full(self) -> bool:
        """Whether no more messages are accepted."""
        return self._taken.taken_bytes >= self._limit

    def refuse_when_full(self) -> None:
        """Raise if the budget is used up.

        Raises:
            BufferFull: See ``Options.buffer_bytes``.
        """
        if self._taken.taken_bytes >= self._limit:
            raise BufferFull(f"{self.taken_bytes} bytes of messages wait to be sent")

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until there is room for more."""
        while self.full:
            waiter = loop.create_future()
            self.waiters.append(waiter)
            try:
                await waiter
            finally:
                self.let_in()  # wakes the next, whether this one uses its room or not

    def let_in(self) -> None:
        """Wake one waiting caller, if there is room."""
        while self.waiters and not self.full:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
