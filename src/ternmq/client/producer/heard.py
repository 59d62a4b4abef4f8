"""Tracks whether the application notices that a message sent without waiting was not stored.

A failure that a caller waits for is raised there, and not logged. Any other failure is logged when
it happens, and raised as ``UnsentMessages`` by ``flush`` or at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ternmq.client.connection.raising import own
from ternmq.client.content.message import Failure, Receipt
from ternmq.model.errors import ClientForked


class SentSoon(Future[Receipt]):
    """The future that ``ternmq.sync`` returns for ``send_soon``. Usable from any thread.

    Attributes:
        heard: Whether a caller asked for the outcome, or will be notified of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard = False
        self._pid = os.getpid()

    def _here(self) -> None:
        """Check that it will be set in this process, also where a host forks without hooks.

        Raises:
            ClientForked: It was unset when this process was forked: the parent gets its outcome.
        """
        if self._pid != os.getpid() and getattr(self, "_state", "FINISHED") != "FINISHED":
            raise ClientForked("this was sent in the parent process, before a fork")

    def result(self, timeout: float | None = None) -> Receipt:
        """Return the receipt, waiting for it; raises the failure."""
        self.heard = True
        self._here()
        error = super().exception(timeout)
        if error is None:
            return super().result()
        try:
            raise own(error)
        finally:
            del self, error  # see ``raising``

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the failure, waiting for it; None: it is stored."""
        self.heard = True
        self._here()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Receipt]], object]) -> None:
        """Call a function when the outcome is known."""
        self.heard = True
        super().add_done_callback(fn)


class Unheard(NamedTuple):
    """A failure without a waiting caller when it happened.

    Attributes:
        holder: The future that the application has for the message; None: none.
        failure: The failure, for ``UnsentMessages``.
    """

    holder: object
    failure: Failure


class PassOn:
    """A callback that copies the outcome of a loop's future to a thread's future, ``told``."""

    __slots__ = ("told",)

    def __init__(self, told: SentSoon) -> None:
        self.told = told

    def __call__(self, asked: asyncio.Future[Receipt]) -> None:
        """Copy the outcome. Called in the client's loop."""
        if asked.cancelled():
            self.told.cancel()
            return
        error = asked.exception()
        if not self.told.set_running_or_notify_cancel():
            return
        if error is not None:
            self.told.set_exception(error)
        else:
            self.told.set_result(asked.result())


class Bystander:
    """A callback that gets the outcome, but does not count as a waiting caller."""

    __slots__ = ("tell",)

    def __init__(self, tell: Callable[[Receipt | BaseException], None]) -> None:
        self.tell = tell

    def __call__(self, asked: asyncio.Future[Receipt]) -> None:
        """Report the outcome. Called in the client's loop."""
        if asked.cancelled():
            self.tell(asyncio.CancelledError())
            return
        # exception() would mark the failure as noticed.
        error: BaseException | None = getattr(asked, "_exception", None)
        self.tell(asked.result() if error is None else error)


def who_holds(future: asyncio.Future[Receipt]) -> object:
    """Return the future that the application has for a message: this one, or a thread's."""
    for callback, *_ in _callbacks(future):
        if isinstance(callback, PassOn):
            return callback.told
    return future


def will_be_heard(future: asyncio.Future[Receipt]) -> bool:
    """Return whether a caller waits for the outcome of a message; called before it is set."""
    waiting = [one for one, *_ in _callbacks(future) if not isinstance(one, Bystander)]
    return any(one.told.heard if isinstance(one, PassOn) else True for one in waiting)


def was_heard(holder: object) -> bool:
    """Return whether a caller has looked at the failure since."""
    if isinstance(holder, SentSoon):
        return holder.heard
    # Looking at a loop's future clears its flag for "exception was never retrieved".
    return isinstance(holder, asyncio.Future) and not getattr(holder, "_log_traceback", True)


def _callbacks(future: asyncio.Future[Receipt]) -> list[tuple[Any, ...]]:
    # There is no public list. Without the attribute, everything counts as heard.
    found: list[tuple[Any, ...]] | None = getattr(future, "_callbacks", [(None, None)])
    return found or []
