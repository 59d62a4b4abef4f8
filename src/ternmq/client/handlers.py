"""Functions that are called with messages.

A handler takes the body, decoded as its annotation says, and the delivery if it wants it::

    async def on_order(order: Order) -> None: ...
    async def on_order(order: Order, delivery: Delivery) -> None: ...
    async def on_order(delivery: Delivery) -> None: ...
    def on_order(order: Order) -> None: ...              # runs in a thread

Returning acks; an exception has the message come again by the group's retry policy, ``Retry`` and
``Reject`` say what to do. A body that is not what the annotation says is rejected with reason
``decode``: it would not become so by trying again.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from ternmq.client import tracing
from ternmq.client.blocking import BlockingDelivery
from ternmq.client.codecs import Codecs
from ternmq.client.consumer import Consumer
from ternmq.client.delivery import Delivery, conclude
from ternmq.client.puller import Puller, Source
from ternmq.model.errors import DecodeError, InvalidRequest
from ternmq.record.facts import Outcome

log: Final = logging.getLogger("ternmq")

Function = Callable[..., Any]
"""A handler, as it was written."""

DECODE: Final = "decode"
"""How the reason of a body begins that cannot be decoded."""
_MOST_CONCURRENT: Final = 10_000


@dataclass(slots=True, frozen=True)
class Shape:
    """How a handler is called.

    Attributes:
        kind: What the body is decoded to; None: it takes no body.
        delivery: It takes the delivery as well.
    """

    kind: Any
    body: bool
    delivery: bool


def shape_of(
    function: Function, delivery_types: tuple[type, ...] = (Delivery, BlockingDelivery)
) -> Shape:
    """Return how a handler wants to be called.

    Raises:
        InvalidRequest: It takes other arguments than a body and a delivery.
    """
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # Names that are imported for the checker only: what is not known is not decoded.
        hints = {}
    parameters = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}
    ]
    needed = [one for one in parameters if one.default is one.empty]
    name = getattr(function, "__name__", repr(function))
    if not len(parameters) >= 1 or len(needed) > 2:
        raise InvalidRequest(f"handler {name} must take a body, a delivery, or both in this order")
    first = hints.get(parameters[0].name, Any)
    if isinstance(first, type) and issubclass(first, delivery_types):
        if len(needed) > 1:
            raise InvalidRequest(f"handler {name}: the body comes before the delivery")
        return Shape(None, body=False, delivery=True)
    second = len(parameters) > 1
    if second:
        wanted = hints.get(parameters[1].name, Delivery)
        second = isinstance(wanted, type) and issubclass(wanted, delivery_types)
        if not second and len(needed) > 1:
            raise InvalidRequest(f"handler {name}: its second argument is the delivery")
    return Shape(first, body=True, delivery=second)


class Handler:
    """A function and where its messages come from. Made when a module is imported; no I/O.

    Attributes:
        name: Of the function.
        source: Topic and group.
        concurrency: How many run at one time.
    """

    def __init__(
        self,
        function: Function,
        source: Source,
        *,
        concurrency: int,
        max_in_flight: int | None,
        codecs: Codecs,
        threaded: Callable[[Delivery], object],
    ) -> None:
        if not 1 <= concurrency <= _MOST_CONCURRENT:
            raise InvalidRequest(f"concurrency must be 1 to {_MOST_CONCURRENT}")
        self.name = getattr(function, "__name__", repr(function))
        self.source = source
        self.concurrency = concurrency
        self.max_in_flight = max_in_flight
        self._function = function
        self._shape = shape_of(function)
        self._codecs = codecs
        self._threaded = threaded
        call = function if inspect.isfunction(function) else getattr(function, "__call__", function)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
        self._pool: ThreadPoolExecutor | None = None
        self._consumer: Consumer | None = None
        self._workers: list[asyncio.Task[None]] = []

    # -- its life

    async def start(self, puller: Puller) -> None:
        """Join the group and begin; raises as ``Consumer.start``."""
        if not self._is_async:
            self._pool = ThreadPoolExecutor(self.concurrency, f"ternmq-{self.name}")
        least = max(64, 2 * self.concurrency)
        consumer = Consumer(puller, self.source, self._codecs, self.max_in_flight, least=least)
        await consumer.start()
        self._consumer = consumer
        self._workers = [
            asyncio.create_task(self._work(consumer), name=f"ternmq-{self.name}-{number}")
            for number in range(self.concurrency)
        ]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Its workers; one that ends with an error ends the run."""
        return self._workers

    def take_no_more(self) -> None:
        """Take no more messages; those that run go on."""
        if self._consumer is not None:
            self._consumer.stop()

    async def stop(self, timeout: float) -> None:
        """Take no more messages, wait for those that run, then cancel and give them back."""
        consumer = self._consumer
        if consumer is None:
            return
        consumer.stop()
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=timeout)
            for task in late:
                log.warning("handler %s did not finish within %g s: cancelled", self.name, timeout)
                task.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
        await consumer.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._consumer = None
        self._workers = []

    # -- messages

    async def _work(self, consumer: Consumer) -> None:
        call = self._call_async if self._is_async else self._call_thread
        codecs, kind, body = self._codecs, self._shape.kind, self._shape.body
        async for delivery in consumer:
            value: object = None
            if body:
                try:
                    value = codecs.decode(delivery.body, delivery.content_type, kind)
                except DecodeError as error:
                    self._reject(delivery, error)
                    continue
            try:
                await call(value, delivery)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    conclude(delivery, error)
                    raise
                # Nobody cancelled the worker: something that the handler waited for was.
                failure = RuntimeError("what the handler waited for was cancelled")
                failure.__cause__ = error
                conclude(delivery, failure)
            except BaseException as error:
                # Failures are told to the broker and logged; what ends the worker goes on.
                if not conclude(delivery, error):
                    raise
            else:
                conclude(delivery, None)

    def _reject(self, delivery: Delivery, error: DecodeError) -> None:
        log.error("%r is rejected: %s", delivery, error)
        delivery.settle_soon(Outcome.DEAD, f"{DECODE}: {error.args[0]}")

    def _call_async(self, value: object, delivery: Delivery) -> Awaitable[object]:
        shape = self._shape
        if tracing.enabled and delivery.headers:
            return self._traced(value, delivery)
        result: Awaitable[object]
        if not shape.delivery:
            result = self._function(value)
        elif shape.body:
            result = self._function(value, delivery)
        else:
            result = self._function(delivery)
        return result

    async def _traced(self, value: object, delivery: Delivery) -> None:
        with tracing.received(delivery.headers):
            await self._function(*self._arguments(value, delivery))

    async def _call_thread(self, value: object, delivery: Delivery) -> None:
        loop = asyncio.get_running_loop()
        arguments = self._arguments(value, delivery, threaded=True)
        with tracing.received(delivery.headers):
            context = contextvars.copy_context()
        await loop.run_in_executor(self._pool, lambda: context.run(self._in_thread, arguments))

    def _in_thread(self, arguments: tuple[object, ...]) -> None:
        try:
            self._function(*arguments)
        except StopIteration as error:  # no future takes it
            raise RuntimeError("the handler raised StopIteration") from error

    def _arguments(
        self, value: object, delivery: Delivery, *, threaded: bool = False
    ) -> tuple[object, ...]:
        shape = self._shape
        given: object = self._threaded(delivery) if threaded and shape.delivery else delivery
        if not shape.delivery:
            return (value,)
        return (value, given) if shape.body else (given,)
