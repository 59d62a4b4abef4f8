"""Warning about unsent messages of a client that was not closed, at the end of its loop or process.

When an event loop ends, what was to be sent in it is lost: no caller awaits ``send_soon``, so none
would notice. A producer with unanswered messages of ``send_soon`` that is freed, or exists when the
process ends, logs one warning, with their number and topics. Nothing is sent and nothing is waited
for. A running loop holds its producers, so a client without references goes on sending.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ternmq.client.process.exiting import at_end_of_child
from ternmq.client.process.forking import watch, watched
from ternmq.client.producer.load import Load
from ternmq.client.producer.singles import Singles
from ternmq.model.words import counted

log: Final = logging.getLogger("ternmq")

_MOST_NAMED: Final = 5
"""Most topics that the warning names."""


class Process(Protocol):
    """The session of a producer: in which thread and process it is used."""

    home: int | None

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the session's process."""


class Unsent:
    """Logs the loads that a producer left unsent. The producer holds it, and is freed with it.

    Args:
        session: The producer's session.
        loads: Returns the unfinished loads.
    """

    def __init__(self, session: Process, loads: Callable[[], Iterable[Load]]) -> None:
        self._session = session
        self._loads = loads
        self._told = False
        watch(self)

    def begins(self) -> None:
        """Prepare for the end of this process, at the first use in it."""
        if self._session.home is not None:  # else ``ternmq.sync`` closes its client at the end
            at_end_of_child(_tell_all, priority=0)

    def after_fork(self) -> None:
        """Do nothing: what waits is the parent's, which ``Session.forked`` reports."""

    def tell_unsent(self) -> None:
        """Log what will not be sent any more, once. From any thread, after the loop's end."""
        if self._told or self._session.forked:
            return
        self._told = True
        waiting: Counter[str] = Counter()
        unknown = 0
        for load in self._loads():
            if isinstance(load, Singles) and not load.one_way:
                count = sum([one.future is not None and not one.future.done()
                             for one in load.messages])  # fmt: skip
                waiting[load.lane.topic] += count
                unknown += count if load.asked or load.uncertain else 0
        waiting = +waiting
        if waiting:
            log.warning("%s", _said(waiting, unknown))

    def __del__(self) -> None:
        # At the very end of the interpreter, modules are gone; `_tell_all` ran before.
        with contextlib.suppress(AttributeError):
            self.tell_unsent()


def _said(waiting: Counter[str], unknown: int) -> str:
    total = waiting.total()
    topics = [f"{topic}: {count}" for topic, count in waiting.most_common(_MOST_NAMED)]
    if len(waiting) > _MOST_NAMED:
        topics.append(f"and {counted(len(waiting) - _MOST_NAMED, 'topic')} more")
    if unknown == total:
        known = "whether they are stored is not known"
    else:
        known = "they are not stored" + (f", of {unknown} that is not known" if unknown else "")
    return (
        f"{counted(total, 'message')} of send_soon ({', '.join(topics)}) had no answer when the "
        f"client's event loop ended: {known}. Nobody closed the client: use `async with`, or "
        "await client.close() or client.flush() before the loop ends"
    )


def _tell_all() -> None:
    """Warn for all producers: the process ends."""
    for one in watched(Unsent):
        one.tell_unsent()


atexit.register(_tell_all)
