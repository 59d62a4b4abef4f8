"""Whether somebody learns that a message, sent without waiting for it, was not stored.

Whoever waits for a failure is told by the error, and it is not logged. One that nobody waits for is
logged when it happens, and raised as ``UnsentMessages`` by ``flush`` or at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ternmq.client.message import Failure, Receipt
from ternmq.model.errors import ClientForked


class SentSoon(Future[Receipt]):
    """What ``ternmq.sync`` returns for a message that it has not waited for. Any thread.

    Attributes:
        heard: Somebody asked for the outcome, or will be told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heard = False
        self._pid = os.getpid()

    def _here(self) -> None:
        """See that somebody in this process will set it, where a host forks without hooks as well.

        Raises:
            ClientForked: It waited when this process was forked: the parent knows its outcome.
        """
        if self._pid != os.getpid() and getattr(self, "_state", "FINISHED") != "FINISHED":
            raise ClientForked("this was sent in the process that this one was forked from")

    def result(self, timeout: float | None = None) -> Receipt:
        """Return the receipt, waiting for it; raises what became of it instead."""
        self.heard = True
        self._here()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what became of it instead, waiting for it; None: it is stored."""
        self.heard = True
        self._here()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Receipt]], object]) -> None:
        """Call a function when it is known."""
        self.heard = True
        super().add_done_callback(fn)


class Unheard(NamedTuple):
    """A failure that nobody has heard of when it happened.

    Attributes:
        holder: What the application has of the message: a future; None: nothing.
        failure: What it is told by ``UnsentMessages``.
    """

    holder: object
    failure: Failure


class PassOn:
    """The callback that brings the outcome of a loop's future to whoever holds ``told``."""

    __slots__ = ("told",)

    def __init__(self, told: SentSoon) -> None:
        self.told = told

    def __call__(self, asked: asyncio.Future[Receipt]) -> None:
        """The loop's future is done. Loop only."""
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
    """A callback that learns of the outcome, but is not who waits for it."""

    __slots__ = ("tell",)

    def __init__(self, tell: Callable[[Receipt | BaseException], None]) -> None:
        self.tell = tell

    def __call__(self, asked: asyncio.Future[Receipt]) -> None:
        """The loop's future is done. Loop only."""
        if asked.cancelled():
            self.tell(asyncio.CancelledError())
            return
        # exception() would count as hearing of it.
        error: BaseException | None = getattr(asked, "_exception", None)
        self.tell(asked.result() if error is None else error)


def who_holds(future: asyncio.Future[Receipt]) -> object:
    """Return the future that an application holds of a message: this one, or a thread's."""
    for callback, *_ in _callbacks(future):
        if isinstance(callback, PassOn):
            return callback.told
    return future


def will_be_heard(future: asyncio.Future[Receipt]) -> bool:
    """Return whether somebody waits for what becomes of a message; asked before it is told."""
    waiting = [one for one, *_ in _callbacks(future) if not isinstance(one, Bystander)]
    return any(one.told.heard if isinstance(one, PassOn) else True for one in waiting)


def was_heard(holder: object) -> bool:
    """Return whether somebody has looked at the failure since."""
    if isinstance(holder, SentSoon):
        return holder.heard
    # Whoever looks at the future of a loop lets it forget to complain that nobody does.
    return isinstance(holder, asyncio.Future) and not getattr(holder, "_log_traceback", True)


def _callbacks(future: asyncio.Future[Receipt]) -> list[tuple[Any, ...]]:
    # They have no public list. Where the attribute is missing, everything counts as heard.
    found: list[tuple[Any, ...]] | None = getattr(future, "_callbacks", [(None, None)])
    return found or []
