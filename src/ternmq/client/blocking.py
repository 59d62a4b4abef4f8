"""What is handed to code that runs in threads: deliveries whose verbs block.

For handlers that are written as plain functions, and for ``ternmq.sync``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from ternmq.client.delivery import Delivery, conclude
from ternmq.model.errors import ClientClosed, ClientError

T = TypeVar("T")


class Portal:
    """Leads from threads into an event loop.

    Args:
        loop: Runs in another thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; return or raise what it does. Any thread but the loop's.

        Raises:
            ClientError: This is the loop's own thread, which would wait for itself.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self.loop:
            coroutine.close()
            raise ClientError("a blocking call was made in the client's own event loop")
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop was closed
            coroutine.close()
            raise ClientClosed("the client is closed") from None
        try:
            return future.result()
        except FutureCancelled:
            raise ClientClosed("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()  # the thread was interrupted: whatever waits shall not go on
            raise

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called in the loop, in order with others. Any thread; does not wait."""
        # One wake-up for all that comes before the loop looks: waking it costs a system call.
        self._posted.append(function)
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                self._woken = False
                raise ClientClosed("the client is closed") from None

    def _drain(self) -> None:
        self._woken = False
        posted = self._posted
        while posted:
            posted.popleft()()


class BlockingDelivery:
    """A ``Delivery`` for threads: its verbs block. See there for what they mean."""

    __slots__ = ("_delivery", "_portal")

    def __init__(self, delivery: Delivery, portal: Portal) -> None:
        self._delivery = delivery
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._delivery)

    # -- the message

    @property
    def id(self) -> str:
        """Its id, as the receipt says it."""
        return self._delivery.id

    @property
    def application_id(self) -> str:
        """The id that the sender gave it."""
        return self._delivery.application_id

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._delivery.topic

    @property
    def queue(self) -> int:
        """The number of its queue."""
        return self._delivery.queue

    @property
    def offset(self) -> int:
        """Its place there."""
        return self._delivery.offset

    @property
    def key(self) -> str:
        """Its key, "" without one."""
        return self._delivery.key

    @property
    def ordering_key(self) -> str:
        """Its ordering key, "" without one."""
        return self._delivery.ordering_key

    @property
    def tag(self) -> str:
        """Its tag, "" without one."""
        return self._delivery.tag

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        return self._delivery.headers

    @property
    def content_type(self) -> str:
        """Its content type, "" for bare bytes."""
        return self._delivery.content_type

    @property
    def body(self) -> bytes:
        """Its body, as it was sent."""
        return self._delivery.body

    @property
    def value(self) -> Any:
        """Its body, decoded as its content type says."""
        return self._delivery.value

    def decode(self, kind: type[T]) -> T:
        """Return its body as a value of a type."""
        return self._delivery.decode(kind)

    @property
    def born_at(self) -> datetime:
        """When its sender sent it."""
        return self._delivery.born_at

    @property
    def stored_at(self) -> datetime:
        """When the broker stored it."""
        return self._delivery.stored_at

    # -- the delivery

    @property
    def attempt(self) -> int:
        """Which attempt this is, of those that count."""
        return self._delivery.attempt

    @property
    def deliveries(self) -> int:
        """How often it was handed out, this time included."""
        return self._delivery.deliveries

    @property
    def last_reason(self) -> str:
        """Why the attempt before this one failed; "" if none did, or nothing is known of it."""
        return self._delivery.last_reason

    @property
    def maybe_redelivered(self) -> bool:
        """It may have been handed out before."""
        return self._delivery.maybe_redelivered

    @property
    def group(self) -> str:
        """The group that it was delivered to."""
        return self._delivery.group

    @property
    def lease_until(self) -> datetime | None:
        """Until when it is this consumer's."""
        return self._delivery.lease_until

    @property
    def settled(self) -> bool:
        """It was acked, retried, rejected or released."""
        return self._delivery.settled

    @property
    def lost(self) -> bool:
        """Its lease ended before it was settled."""
        return self._delivery.lost

    # -- settling

    def ack(self) -> None:
        """Say that it is done; returns when that is durable."""
        self._portal.call(self._delivery.ack())

    def retry(self, delay: float | timedelta | None = None, *, reason: str = "") -> None:
        """Have it come again."""
        self._portal.call(self._delivery.retry(delay, reason=reason))

    def reject(self, reason: str = "") -> None:
        """Put it among the dead letters at once."""
        self._portal.call(self._delivery.reject(reason))

    def release(self) -> None:
        """Give it back, uncounted."""
        self._portal.call(self._delivery.release())

    def extend(self, seconds: float) -> None:
        """Have its lease last this long from now on."""
        self._portal.call(self._delivery.extend(seconds))

    def process(self, *, reraise: bool = False) -> BlockingProcessing:
        """Return a context (``with``) in which it is processed; see ``Delivery.process``."""
        return BlockingProcessing(self, reraise=reraise)

    def conclude(self, error: BaseException | None) -> bool:
        """Settle it as its processing ended, without waiting; return whether ``error`` is over."""
        delivery = self._delivery
        if error is None:
            self._portal.post(lambda: conclude(delivery, None))
            return True

        async def fail() -> bool:
            return conclude(delivery, error)

        return self._portal.call(fail())


class BlockingProcessing:
    """What ``BlockingDelivery.process`` returns."""

    __slots__ = ("_delivery", "_reraise")

    def __init__(self, delivery: BlockingDelivery, *, reraise: bool) -> None:
        self._delivery = delivery
        self._reraise = reraise

    def __enter__(self) -> BlockingDelivery:
        return self._delivery

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self._delivery.conclude(error) and error is not None and not self._reraise
