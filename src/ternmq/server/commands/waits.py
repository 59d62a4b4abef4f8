"""Requests that wait for messages: pulls, reads, reads of the journal.

A request waits at most for the time that it states. It ends earlier when there is something to
answer, when its client cancels it or leaves, and when its caller has no room for answers: then the
request goes back to the caller, which asks it again.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from ternmq.model.errors import Busy, InvalidRequest
from ternmq.server.desk.accounts import Places
from ternmq.server.engine.reading_core import ReadingCore
from ternmq.wire.port import Caller
from ternmq.wire.session import Request

MAX_WAIT_MS: Final = 300_000

T = TypeVar("T")


class Wait(msgspec.Struct, Generic[T], eq=False, gc=False):
    """A request that waits. Compared and hashed by identity.

    Attributes:
        caller: The caller that sent it.
        request: The request.
        until_us: The broker time at which its wait ends.
        what: What it waits for, as its command needs it.
        cancel: Cancels the timer of its end; None: it has none.
        over: It waits no longer.
    """

    caller: Caller
    request: Request
    until_us: int
    what: T
    cancel: Callable[[], None] | None = None
    over: bool = False

    @property
    def again(self) -> Request:
        """The request as it is carried out again: its wait ends at the same time."""
        return self.request.until(self.until_us)


class Waiting(Generic[T]):
    """The waiting requests of one command, by caller and request id.

    Args:
        core: The broker, for its time.
        places: The number of requests that may wait, in all and for each app.
        end: Answers a request that has just been removed: its client no longer waits.
        withdrawn: Called for a request that has just been removed because it goes back to its
            caller; None: nothing is to be done.
        over: Called for a request that still waits when its time is over; None: no timer is set,
            since the core watches the time.

    Attributes:
        of: The requests, by caller and request id. Two levels, so that no table grows with all that
            waits: a table of 50,000 takes milliseconds when it has to grow.
    """

    def __init__(
        self,
        core: ReadingCore,
        places: Places,
        end: Callable[[Wait[T]], None],
        *,
        withdrawn: Callable[[Wait[T]], None] | None = None,
        over: Callable[[Wait[T]], None] | None = None,
    ) -> None:
        self._core = core
        self._places = places
        self._end = end
        self._withdrawn = withdrawn
        self._over = over
        self.of: dict[Caller, dict[int, Wait[T]]] = {}

    def take_place(self, caller: Caller) -> None:
        """Count one more request of an app; ``add`` follows, or ``give_place``.

        Raises:
            Busy: Too many requests wait, of all apps or of this one.
        """
        places = self._places
        if not places.take(caller.app):
            raise Busy(
                f"{places.of(caller.app)} requests of this app wait, {places.taken} of all apps; "
                f"the limit is {places.limit}"
            )

    def give_place(self, caller: Caller) -> None:
        """Undo ``take_place``: the request does not wait after all."""
        self._places.give(caller.app)

    def add(self, caller: Caller, request: Request, until_us: int, what: T) -> Wait[T]:
        """Have a request wait that has a place."""
        wait = Wait(caller, request, until_us, what)
        self.of.setdefault(caller, {})[request.id] = wait
        caller.waiting.add(request.id)
        if self._over is not None:
            self._arm(wait)
        caller.park(request)
        return wait

    def remove(self, wait: Wait[T]) -> None:
        """End a wait: the request is about to be answered, or to go back to its caller."""
        caller, id_ = wait.caller, wait.request.id
        wait.over = True
        if wait.cancel is not None:
            wait.cancel()
        of_caller = self.of[caller]
        del of_caller[id_]
        if not of_caller:
            del self.of[caller]
        caller.waiting.discard(id_)
        self._places.give(caller.app)
        caller.unpark(wait.request)

    def all(self) -> list[Wait[T]]:
        """Return all requests that wait."""
        return [wait for of_caller in self.of.values() for wait in of_caller.values()]

    def end(self, caller: Caller, id_: int) -> None:
        """Answer a request at once; nothing happens if it does not wait here."""
        wait = self.of.get(caller, {}).get(id_)
        if wait is not None:
            self.remove(wait)
            self._end(wait)

    def end_all(self, caller: Caller) -> None:
        """Answer all requests of a caller at once."""
        for id_ in list(self.of.get(caller, ())):
            self.end(caller, id_)

    def withdraw(self, caller: Caller) -> list[Request]:
        """Remove all requests of a caller; return them as they are asked again."""
        waits = list(self.of.get(caller, {}).values())
        for wait in waits:
            self.remove(wait)
            if self._withdrawn is not None:
                self._withdrawn(wait)
        return [wait.again for wait in waits]

    # -- the end of their time --------------------------------------------------------------------

    def _arm(self, wait: Wait[T]) -> None:
        core = self._core
        at = core.clocks.monotonic_us() + max(0, wait.until_us - core.now_us())
        wait.cancel = core.clocks.call_at(at, partial(self._time_over, wait))

    def _time_over(self, wait: Wait[T]) -> None:
        """Handle a timer that has run out; the clocks may have drifted apart, so look again."""
        self._core.touch()
        if self._core.now_us() < wait.until_us:
            self._arm(wait)
        else:
            assert self._over is not None
            self._over(wait)


def wait_us(wait_ms: int) -> int:
    """Return a requested wait in microseconds.

    Raises:
        InvalidRequest: It is too long.
    """
    if wait_ms > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms may be at most {MAX_WAIT_MS}")
    return wait_ms * 1000


def check_id(caller: Caller, request: Request) -> None:
    """Refuse a second wait under one id: the first could no longer be found.

    Raises:
        InvalidRequest: A request waits under this id.
    """
    if request.id in caller.waiting:
        raise InvalidRequest(f"a request with id {request.id} waits already")
