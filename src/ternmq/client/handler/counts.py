"""Counts of a handler's messages; ``ternmq worker --http`` shows them.

Nothing is counted unless somebody asks for it before the start: otherwise a message costs nothing
more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from ternmq.client.consumer.delivery import Delivery

if TYPE_CHECKING:
    from ternmq.client.consumer.consumer import ConsumerEngine


class HandlerCounts(msgspec.Struct, frozen=True):
    """What a handler did since its client was made.

    Attributes:
        name: Name of the function.
        topic: Its topic.
        group: Its group.
        done: Messages that it finished.
        failed: Messages for which it raised an error, ``Retry`` or ``Reject``, or whose body could
            not be decoded.
        running: Messages that it works on now.
    """

    name: str
    topic: str
    group: str
    done: int
    failed: int
    running: int


class Tally:
    """Counts the messages of a handler. Not thread-safe: call it from the client's loop.

    Attributes:
        begun: Messages that were taken from the consumer.
        failed: See ``HandlerCounts``.
        released: Messages that were given back, because the handler was cancelled.
    """

    __slots__ = ("begun", "failed", "released")

    def __init__(self) -> None:
        self.begun = 0
        self.failed = 0
        self.released = 0

    def each(self, consumer: ConsumerEngine) -> Counted:
        """Return the deliveries of a consumer, counted when they are taken."""
        return Counted(self, consumer)

    def ended(self, error: BaseException | None) -> None:
        """Count how a message ended; ``error``: what was raised."""
        if isinstance(error, Exception):
            self.failed += 1
        elif error is not None:
            self.released += 1

    def done(self, running: int) -> int:
        """Return how many messages were finished; ``running``: how many are not over."""
        return self.begun - self.failed - self.released - running


class Counted:
    """The deliveries of a consumer, counted when they are taken."""

    __slots__ = ("_consumer", "_tally")

    def __init__(self, tally: Tally, consumer: ConsumerEngine) -> None:
        self._tally = tally
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self._consumer.__anext__()
        self._tally.begun += 1
        return delivery
