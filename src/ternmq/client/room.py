"""How much may wait to be sent or answered, and who waits for room."""

from __future__ import annotations

import asyncio
from collections import deque

from ternmq.model.errors import BufferFull


class Room:
    """Room for bytes of messages. Loop only.

    Attributes:
        taken_bytes: In use now.
    """

    __slots__ = ("_limit", "_waiters", "taken_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.taken_bytes = 0
        self._limit = limit_bytes
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        """No more messages are taken."""
        return self.taken_bytes >= self._limit

    def refuse_when_full(self) -> None:
        """Take no more when too much waits.

        Raises:
            BufferFull: See ``Options.buffer_bytes``.
        """
        if self.taken_bytes >= self._limit:
            raise BufferFull(f"{self.taken_bytes} bytes of messages wait to be sent")

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait until there is room for more."""
        while self.full:
            waiter = loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self.let_in()  # one after the other, whether this one makes use of it or not

    def let_in(self) -> None:
        """Wake one of those who wait, if there is some room."""
        while self._waiters and not self.full:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
