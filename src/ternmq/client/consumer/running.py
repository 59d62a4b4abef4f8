"""A call of a handler for a message: from its beginning to its end, whatever happens to the lease.

A thread cannot be ended from outside, and a coroutine may ignore its cancellation. So the end of a
call is what counts: until then its message is not given back, its lease is extended, and the same
message, if it is delivered again, waits for the outcome of this call instead of a second one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Final, Protocol

from ternmq.client.consumer.concluding import conclude
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.lease import Lease
from ternmq.client.consumer.telling import outside
from ternmq.client.content.reasons import safe_str
from ternmq.record.fact.facts import Outcome

log: Final = logging.getLogger("ternmq")


class Named(Protocol):
    """The attributes of a handler that its calls use."""

    @property
    def name(self) -> str:
        """Name of the function."""

    @property
    def is_async(self) -> bool:
        """Whether it runs in the client's loop, and ends with that; else in a thread."""


class Running:
    """A call of a handler. Not thread-safe: use it in the client's loop, except where noted.

    One is made for every message: rarely needed attributes are class attributes until set.

    Attributes:
        handler: The handler.
        delivery: The delivery that it was called with.
        began: Monotonic time of the call.
        again: Later deliveries of the same message, while the handler ran.
        threaded: Whether a thread works on it.
        returned: Whether the thread has ended, and reported that to the loop. For any thread.
        over: Whether it has ended. For any thread.
        error: The error that it raised; None: none. For any thread.
        left: Whether its client was closed before it ended: the keeper settles it. For any thread.
    """

    again: tuple[Delivery, ...] = ()
    threaded: bool = False
    returned: bool = False
    over: bool = False
    error: BaseException | None = None
    left: bool = False

    def __init__(self, handler: Named, delivery: Delivery, lease: Lease, began: float) -> None:
        self.handler = handler
        self.delivery = delivery
        self.began = began
        lease.running.add(delivery.offset)

    def __str__(self) -> str:
        delivery = self.delivery
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - self.seconds))
        return (
            f"handler {self.handler.name}, topic={delivery.topic} group={delivery.group} "
            f"id={delivery.id} "
            f"offset={delivery.queue}/{delivery.offset}, since {since} ({self.seconds:.1f} s)"
        )

    @property
    def seconds(self) -> float:
        """Seconds since the call."""
        return monotonic() - self.began

    def came_again(self, delivery: Delivery) -> None:
        """Add another delivery of its message: the outcome applies to that one as well."""
        own = self.delivery
        if own.offset in own.lease.settled and not own.lost:
            log.info("%s was delivered again because its handler gave it back; the handler is "
                     "called again when this call ends: %s", repr(delivery), str(self))  # fmt: skip
        else:
            log.warning(
                "%s was delivered again while its handler runs: the handler is not called a second "
                "time, and the outcome of the running call counts: %s", repr(delivery), str(self),
            )  # fmt: skip
        delivery.lease.running.add(delivery.offset)
        self.again = (*self.again, delivery)

    def ended(self) -> Delivery:
        """End the call and the extension of its leases; return the delivery to be settled.

        That is the latest one: it shows that the earlier ones are no longer held. If the handler
        settled its own, those that came after that are another attempt.
        """
        self.over = True
        own = self.delivery
        own.lease.running.discard(own.offset)
        for delivery in self.again:
            delivery.lease.running.discard(delivery.offset)
        if not self.again or own.offset in own.lease.settled:
            return own
        return next((one for one in reversed(self.again) if not one.lost), own)

    def conclude(self, error: BaseException | None) -> bool:
        """Settle the message after the call; return whether the error goes no further."""
        held = self.ended()
        if self.again:
            for delivery in (self.delivery, *self.again):
                if delivery is not held and not (delivery.lost or delivery.settled):
                    delivery.settle_soon(Outcome.RELEASED)
        return conclude(held, error)


def failure_of(error: BaseException, what: str = "handler") -> Exception:
    """Return a failure of the message for whatever its handler raised; ``what`` called it.

    A library may raise an error that is no ``Exception``: parsers of arguments call ``sys.exit()``,
    test tools have base exceptions of their own. The message has failed; the worker continues. A
    StopIteration (of ``next(...)``) gets the same text in a ``def`` and in an ``async def``
    handler: no future accepts it, and Python turns it into another error in a coroutine.
    """
    made = isinstance(error, RuntimeError) and error.args == ("coroutine raised StopIteration",)
    if made and isinstance(error.__cause__, StopIteration):
        error = error.__cause__
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = error.code if isinstance(error, SystemExit) else error
    said = safe_str(told)
    text = f": {said}" if said else ""
    failure = RuntimeError(f"the {what} raised {type(error).__name__}{text}")
    failure.__cause__ = error.with_traceback(outside(error.__traceback__))
    return failure


class Threads:
    """Threads that call one handler, at most ``most``; started when they are needed.

    They do not keep the process alive: one that does not end is not waited for at exit. Not
    thread-safe: call it from the client's loop.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, work: Callable[[], None]) -> None:
        """Run a function that raises nothing in a thread; the caller calls ``done`` after it.

        Raises:
            RuntimeError: There is no thread, and none can be started; it will not run.
        """
        if len(self._threads) < min(self._busy + 1, self._most):
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # too many threads in this machine, or the interpreter ends
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)
        self._busy += 1
        self._work.put(work)

    def runs_caller(self) -> bool:
        """Return whether the caller runs in one of these threads. Callable from any thread."""
        return threading.current_thread() in self._threads

    def done(self) -> None:
        """Count a function that has ended."""
        self._busy -= 1

    def close(self) -> None:
        """Let each thread end when it has nothing to do; does not wait."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            work()
            del work  # and with it the message
