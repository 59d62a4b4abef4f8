"""A handler that runs on a message: from its call to its end, whatever becomes of the lease.

A thread cannot be ended from outside, and a coroutine may ignore that it is cancelled. So the end
of a call is what counts: until then its message is not given back, its lease is extended, and the
same message, should it come again, waits for the outcome of this call instead of a second one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Final, Protocol

from ternmq.client.delivery import Delivery, conclude
from ternmq.client.lease import Lease
from ternmq.client.reasons import safe_str
from ternmq.client.telling import outside
from ternmq.record.facts import Outcome

log: Final = logging.getLogger("ternmq")


class Named(Protocol):
    """What a call needs to know of its handler."""

    @property
    def name(self) -> str:
        """The function's."""

    @property
    def is_async(self) -> bool:
        """It runs in the client's loop, and ends with that at the latest; else in a thread."""


class Running:
    """A call of a handler. Loop only, save what says otherwise.

    Made for every message: what few of them need is an attribute of the class until it is set.

    Attributes:
        handler: Which.
        delivery: What it was called with.
        began: Monotonic time of the call.
        again: The same message, as it was handed out while the handler ran.
        threaded: A thread works on it.
        returned: The thread is through, and has said so to the loop. Any thread.
        over: It has ended. Any thread.
        error: What it raised; None: nothing. Any thread.
        left: Its client was closed before it ended: the keeper settles it. Any thread.
    """

    again: tuple[Delivery, ...] = ()
    threaded: bool = False
    returned: bool = False
    over: bool = False
    error: BaseException | None = None
    left: bool = False

    def __init__(self, handler: Named, delivery: Delivery, lease: Lease) -> None:
        self.handler = handler
        self.delivery = delivery
        self.began = monotonic()
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
        """How long it has run."""
        return monotonic() - self.began

    def came_again(self, delivery: Delivery) -> None:
        """Its message was handed out again: the outcome is for that delivery as well."""
        own = self.delivery
        if own.offset in own.lease.settled and not own.lost:
            log.info("%r came again because its handler gave it back; the handler is called again "
                     "when this call ends: %s", delivery, self)  # fmt: skip
        else:
            log.warning(
                "%r came again while its handler runs: it is not called twice at one time, and "
                "what becomes of this call counts: %s", delivery, self,
            )  # fmt: skip
        delivery.lease.running.add(delivery.offset)
        self.again = (*self.again, delivery)

    def ended(self) -> Delivery:
        """Nothing runs any more, nothing is extended for it; return the delivery to be settled.

        That is the one that came last: it shows that those before it are no longer held. If the
        handler settled its own, those that came after that are another attempt.
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
        """Settle the message as the call ended; return whether the error goes no further."""
        held = self.ended()
        if self.again:
            for delivery in (self.delivery, *self.again):
                if delivery is not held and not (delivery.lost or delivery.settled):
                    delivery.settle_soon(Outcome.RELEASED)
        return conclude(held, error)


def failure_of(error: BaseException) -> Exception:
    """Return what a handler raised as a failure of its message, whatever it raised.

    A library may raise what is no ``Exception`` where nobody expects it: parsers of arguments call
    ``sys.exit()``, test tools have base exceptions of their own. It is the message that failed;
    the worker goes on. A StopIteration (of ``next(...)``) has one text, in a ``def`` handler and in
    an ``async def`` handler: no future takes it, and Python makes another error of it in a
    coroutine.
    """
    made = isinstance(error, RuntimeError) and error.args == ("coroutine raised StopIteration",)
    if made and isinstance(error.__cause__, StopIteration):
        error = error.__cause__
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = error.code if isinstance(error, SystemExit) else error
    said = safe_str(told)
    text = f": {said}" if said else ""
    failure = RuntimeError(f"the handler raised {type(error).__name__}{text}")
    failure.__cause__ = error.with_traceback(outside(error.__traceback__))
    return failure


class Threads:
    """Threads that call one handler, at most so many; begun when they are needed.

    They do not keep the process alive: one that does not end is not waited for at exit. Loop only.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._busy = 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, work: Callable[[], None]) -> None:
        """Have a thread do something that raises nothing; then call ``done``.

        Raises:
            RuntimeError: There is no thread, and none can be started; it will not be done.
        """
        if len(self._threads) < min(self._busy + 1, self._most):
            name = f"{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there are too many in this machine, or the interpreter ends
                if not self._threads:
                    raise
            else:
                self._threads.append(thread)
        self._busy += 1
        self._work.put(work)

    def done(self) -> None:
        """Something that a thread was given is done."""
        self._busy -= 1

    def close(self) -> None:
        """Let each thread end when it has nothing to do; does not wait for any."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            if work is None:
                return
            work()
            del work  # and with it the message
