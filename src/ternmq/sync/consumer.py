"""Deliveries one by one, for threads."""

from __future__ import annotations

import contextlib
from collections import deque
from types import TracebackType
from typing import Self

from ternmq.client.consumer import consumer as engine
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.process import pickling
from ternmq.model.errors import ClientClosed, ClientForked, InvalidRequest
from ternmq.record.fact.facts import Outcome
from ternmq.sync.loop_thread import LoopThread


class Consumer(pickling.NotPickled):
    """A context manager and an iterator of deliveries; see ``ternmq.Client.consume``."""

    _not_pickled = pickling.CONSUMER

    def __init__(self, consumer: engine.ConsumerEngine, portal: LoopThread) -> None:
        self._consumer = consumer
        self._portal = portal
        self._ready: deque[Delivery] = deque()
        self._entered = False
        self._stopped = False

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
        while not self._stopped:
            with contextlib.suppress(IndexError):  # other threads, and the loop, take from it too
                while not self._stopped:
                    delivery = self._ready.popleft()
                    lease, consumer = delivery.lease, self._consumer
                    if not lease.lost and (
                        not engine.doubts(consumer, lease)
                        or self._portal.call(engine.still_held(consumer, delivery))
                    ):
                        return BlockingDelivery(delivery, self._portal)
            if not self._portal.call(self._consumer.take(self._ready)):
                break
        raise StopIteration

    def stop(self) -> None:
        """End the iteration: a ``for`` loop ends after the delivery in hand.

        That delivery is still to be settled. Messages that were fetched ahead go back to the group,
        and no attempt is counted. Callable from any thread and from a signal handler; it does not
        wait. May be repeated, and called before the consumer is entered.

        Raises:
            ClientForked: The consumer was opened by the parent of this forked process.
        """
        self._portal.check()
        self._stopped = True
        with contextlib.suppress(ClientClosed):  # which has stopped it
            self._portal.post(self._give_back)

    def _give_back(self) -> None:
        """Stop the engine, and release what was taken from it and not begun. In the loop."""
        self._consumer.stop()
        with contextlib.suppress(IndexError):  # a thread may have taken the last one
            while True:
                delivery = self._ready.pop()
                if not (delivery.lost or delivery.settled):
                    delivery.settle_soon(Outcome.RELEASED)
