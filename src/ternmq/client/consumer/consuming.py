"""What ``client.consume`` returns: the part of a consumer that programs use."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Self

from ternmq.client.consumer.consumer import ConsumerEngine
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.process import pickling


class Consumer(pickling.NotPickled):
    """An async context manager, and an async iterator of deliveries. One event loop only.

    Leaving it gives back what is not settled.
    """

    __slots__ = ("_engine",)
    _not_pickled = pickling.CONSUMER

    def __init__(self, engine: ConsumerEngine) -> None:
        self._engine = engine

    async def __aenter__(self) -> Self:
        await self._engine.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._engine.close()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Delivery]:
        return self._engine.__anext__()

    def stop(self) -> None:
        """Stop pulling, and give back the messages that were not begun; iteration ends.

        The message in hand is still to be settled. May be repeated, and called before the consumer
        is entered. Call it in the client's event loop.
        """
        self._engine.stop()


def engine_of(consumer: Consumer) -> ConsumerEngine:
    """Return the engine of a consumer, for ``ternmq.sync``."""
    return consumer._engine  # noqa: SLF001 - of a class of this module
