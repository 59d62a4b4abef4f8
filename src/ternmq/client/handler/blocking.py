"""Objects for code in threads: deliveries whose methods block.

For handlers that are plain functions, and for ``ternmq.sync``.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, TypeVar

from ternmq.client.consumer.concluding import conclude
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.process import pickling
from ternmq.client.process.forking import watch
from ternmq.model.errors import ClientClosed, ClientError, ClientForked, ClientStalled

T = TypeVar("T")
Promise = TypeVar("Promise", bound=Future[Any])

_LOOK: Final = 1.0
"""Seconds between two checks of the loop while a call waits."""


class Portal:
    """Runs calls of other threads in an event loop of this process.

    A call waits for its coroutine, whose own timeout ends it. A loop that has ended or is blocked
    cannot apply that timeout. So the call checks the loop every second and ends with an error: no
    call waits forever.

    Args:
        loop: A loop that runs in another thread.
        patience: Seconds without a turn of the loop after which a call gives up.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, patience: float = 10.0) -> None:
        self.loop = loop
        self._pid = os.getpid()
        self._patience = patience
        self._posted: deque[Callable[[], object]] = deque()
        self._woken = False
        self._promised: set[Future[Any]] = set()
        watch(self)

    @property
    def forked(self) -> bool:
        """Whether the loop belongs to the parent of this forked process. Any thread may ask."""
        return self._pid != os.getpid()

    def check(self) -> None:
        """Check that the loop belongs to this process. Callable from any thread.

        Raises:
            ClientForked: It does not, and cannot be used here.
        """
        if self.forked:
            raise ClientForked("this was opened in the parent process, before a fork")

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; return its result. Callable from any thread but the loop's.

        Raises:
            ClientError: This is the loop's own thread, which would wait for itself.
            ClientForked: The loop runs in another process.
            ClientClosed: The loop has ended.
            ClientStalled: The loop is blocked; whether the call was carried out is not known.
        """
        try:
            self.check()
            self._see_another_thread()
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop was closed
            coroutine.close()
            raise ClientClosed("the client is closed") from None
        except ClientError:
            coroutine.close()
            raise
        try:
            return self._result(future)
        except FutureCancelled:
            raise ClientClosed("the client was closed meanwhile") from None
        except BaseException:
            if not self.loop.is_closed():
                future.cancel()  # the thread was interrupted: the coroutine must end too
            elif inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()  # the loop ended before it began
            raise
        finally:
            del future  # see ``raising``

    def _see_another_thread(self) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return
        if here is self.loop:
            raise ClientError(
                "a blocking call was made in the client's own event loop, where `async def` "
                "handlers, and functions that on_assigned or queue= is given, run: make the "
                "handler a `def`, call it by `await asyncio.to_thread(...)`, or let another thread "
                "call it"
            )

    def _result(self, future: Future[T]) -> T:
        """Wait for a future of the loop; raises as ``call``."""
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        turned: list[bool] = []  # not empty: the loop had a turn since the last check
        asked, missed = False, 0
        while not done.wait(_LOOK):
            self.check()
            self._see_it_runs()
            if not asked or turned:
                turned.clear()
                asked, missed = True, 0
                try:
                    self.loop.call_soon_threadsafe(turned.append, True)
                except RuntimeError:
                    raise ClientClosed("the client was closed meanwhile") from None
                continue
            # Checks are counted, not seconds: a process that was suspended has missed only one.
            missed += 1
            if missed * _LOOK >= self._patience:
                raise ClientStalled(
                    f"the client's event loop was blocked for {missed * _LOOK:g} s; whether the "
                    f"request was carried out is not known"
                )
        try:
            return future.result()
        finally:
            del future  # see ``raising``

    def _see_it_runs(self) -> None:
        """Raise ``ClientClosed`` if the loop has ended."""
        if self.loop.is_closed() or sys.is_finalizing():
            raise ClientClosed("the client was closed meanwhile")

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the loop, after those posted before. From any thread; does not wait.

        Raises:
            ClientForked, ClientClosed: The loop belongs to another process, or has ended.
        """
        self.check()
        # One wake-up for all functions posted until the loop runs: it costs a system call.
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
            try:
                posted.popleft()()
            except Exception as error:  # noqa: BLE001 - the next function is another caller's
                self.loop.call_exception_handler(
                    {
                        "message": "a call that a thread passed to the event loop failed",
                        "exception": error,
                    }
                )

    # -- futures

    def promise(self, future: Promise) -> Promise:
        """Register a future that the loop will set, and return it. Callable from any thread.

        It fails if the loop ends first; in the child of a fork it fails at once.
        """
        self._promised.add(future)
        Future.add_done_callback(future, self._promised.discard)  # not a waiting caller
        return future

    def break_promises(self) -> None:
        """Fail the promised futures after the loop was closed, and accept no more."""
        self._woken = False  # from here on ``post`` wakes the loop, which refuses
        for future in list(self._promised):
            if future.set_running_or_notify_cancel():
                future.set_exception(ClientClosed("the client was closed before this was sent"))

    def after_fork(self) -> None:
        """Fail the promised futures in the child: only the parent knows their outcome."""
        promised, self._promised = self._promised, set()
        for future in list(promised):
            # A thread of the parent may have held the future's lock: it gets a new one.
            Future.__init__(future)
            future.set_exception(
                ClientForked("this was sent by the process that this one was forked from")
            )


class BlockingDelivery(pickling.NotPickled):
    """A ``Delivery`` for threads: its methods block. They are described there."""

    _not_pickled = pickling.DELIVERY

    __slots__ = ("_delivery", "_portal")

    def __init__(self, delivery: Delivery, portal: Portal) -> None:
        self._delivery = delivery
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._delivery)

    # -- the message

    @property
    def id(self) -> str:
        """Its id, as in the receipt."""
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
        """Its offset in the queue."""
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
        """Its body, decoded according to its content type."""
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

    @property
    def due_at(self) -> datetime | None:
        """Its due time, which may be before it was sent; None: it was sent without one."""
        return self._delivery.due_at

    @property
    def priority(self) -> int:
        """Its priority, 0 without one."""
        return self._delivery.priority

    # -- the delivery

    @property
    def attempt(self) -> int:
        """Which attempt this is, of those that count."""
        return self._delivery.attempt

    @property
    def deliveries(self) -> int:
        """Number of deliveries of this message, including this one: see ``ternmq.Delivery``."""
        return self._delivery.deliveries

    @property
    def last_reason(self) -> str:
        """Why the attempt before this one failed; "" if none did, or if the reason is not known."""
        return self._delivery.last_reason

    @property
    def maybe_redelivered(self) -> bool:
        """Whether it was delivered before, or may have been: see ``ternmq.Delivery``."""
        return self._delivery.maybe_redelivered

    @property
    def group(self) -> str:
        """The group that it was delivered to."""
        return self._delivery.group

    @property
    def lease_until(self) -> datetime | None:
        """When its lease ends."""
        return self._delivery.lease_until

    @property
    def settled(self) -> bool:
        """Whether it was acked, retried, rejected or released, and that was not refused."""
        return self._delivery.settled

    @property
    def lost(self) -> bool:
        """Whether this consumer lost it without settling it: it is delivered again."""
        return self._delivery.lost

    # -- settling

    def ack(self) -> None:
        """Report that it is processed; returns when that is durable."""
        self._portal.call(self._delivery.ack())

    def retry(self, delay: float | timedelta | None = None, *, reason: object = "") -> None:
        """Report a failure: it is delivered again."""
        self._portal.call(self._delivery.retry(delay, reason=reason))

    def reject(self, reason: object = "") -> None:
        """Make it a dead letter at once."""
        self._portal.call(self._delivery.reject(reason))

    def release(self) -> None:
        """Give it back; no attempt is counted."""
        self._portal.call(self._delivery.release())

    def extend(self, seconds: float | timedelta) -> None:
        """Make its lease last this long from now on."""
        self._portal.call(self._delivery.extend(seconds))

    def process(self, *, reraise: bool = False) -> BlockingProcessing:
        """Return a context (``with``) in which it is processed; see ``Delivery.process``."""
        return BlockingProcessing(self, reraise=reraise)

    def conclude(self, error: BaseException | None, *, reraise: bool = False) -> bool:
        """Settle it after its processing, without waiting; return whether ``error`` is over."""
        delivery = self._delivery
        if error is None:
            self._portal.post(lambda: conclude(delivery, None))
            return True
        if self._portal.forked:
            return False  # the parent must settle it; the child's error is raised

        async def fail() -> bool:
            return conclude(delivery, error, reraise=reraise)

        return self._portal.call(fail())


def engine_of(delivery: BlockingDelivery) -> Delivery:
    """Return the delivery in the client's loop behind one for threads."""
    return delivery._delivery  # noqa: SLF001 - of a class of this module


class BlockingProcessing:
    """The context that ``BlockingDelivery.process`` returns."""

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
        return self._delivery.conclude(error, reraise=self._reraise) and error is not None
