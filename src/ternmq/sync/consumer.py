"""Deliveries one by one, for threads."""

from __future__ import annotations

import contextlib
from collections import deque
from types import TracebackType
from typing import Self

from ternmq.client.consumer import consumer as engine
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.model.errors import ClientClosed, ClientForked, InvalidRequest
from ternmq.sync.loop_thread import LoopThread


class Consumer:
    """A context manager and an iterator of deliveries; see ``ternmq.Client.consume``."""

    def __init__(self, consumer: engine.Consumer, portal: LoopThread) -> None:
        self._consumer = consumer
        self._portal = portal
        self._ready: deque[Delivery] = deque()
        self._entered = False

    def __enter__(self) -> Self:
        self._portal.call(self._consumer.start())
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A closed client has closed it; in the child of a fork it belongs to the parent.
        with contextlib.suppress(ClientClosed, ClientForked):
            self._portal.call(self._consumer.close())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BlockingDelivery:
        self._portal.check()
        if not self._entered:
            raise InvalidRequest(engine.NOT_ENTERED.format("with"))
        while True:
            with contextlib.suppress(IndexError):  # other threads, and the loop, take from it too
                while True:
                    delivery = self._ready.popleft()
                    lease, consumer = delivery.lease, self._consumer
                    if not lease.lost and (
                        not engine.doubts(consumer, lease)
                        or self._portal.call(engine.still_held(consumer, delivery))
                    ):
                        return BlockingDelivery(delivery, self._portal)
            if not self._portal.call(self._consumer.take(self._ready)):
                raise StopIteration
