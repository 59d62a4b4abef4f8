"""What a client that nobody closed still had to send when its event loop, or the process, ended.

An event loop that ends takes with it what was to be sent in it: nobody awaits ``send_soon``, so
nobody would learn of that. A producer that is freed, or is there when the process ends, with
messages of ``send_soon`` that are not answered logs one warning, with their number and topics.
Nothing is sent and nothing is waited for. A loop that runs holds its producers, so a client that is
merely forgotten goes on sending.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ternmq.client.exiting import at_end_of_child
from ternmq.client.forking import watch, watched
from ternmq.client.outgoing import Load
from ternmq.client.singles import Singles
from ternmq.model.words import counted

if TYPE_CHECKING:
    from ternmq.client.session import Session

log: Final = logging.getLogger("ternmq")

_MOST_NAMED: Final = 5
"""Topics that the warning names."""


class Unsent:
    """Says what was left of the loads of a producer; base of ``Producer``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told = False
        watch(self)

    def loads(self) -> Iterable[Load]:
        """Return those that are not over."""
        raise NotImplementedError

    def begins(self) -> None:
        """It is used for the first time, in this process."""
        if self._session.home is not None:  # else ``ternmq.sync`` closes its client at the end
            at_end_of_child(_tell_all, priority=0)

    def after_fork(self) -> None:
        """See ``forking.Watched``: what waits is the parent's, as ``Session.forked`` tells."""

    def tell_unsent(self) -> None:
        """Log what nobody will send any more, once. Any thread, when the loop has no more turns."""
        if self._told or self._session.forked:
            return
        self._told = True
        waiting: Counter[str] = Counter()
        unknown = 0
        for load in self.loads():
            if isinstance(load, Singles) and not load.one_way:
                count = sum([one.future is not None and not one.future.done()
                             for one in load.messages])  # fmt: skip
                waiting[load.lane.topic.name] += count
                unknown += count if load.asked or load.uncertain else 0
        waiting = +waiting
        if waiting:
            log.warning("%s", _said(waiting, unknown))

    def __del__(self) -> None:
        # At the very end of the interpreter modules are gone already; `_tell_all` came before.
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
    """The process ends."""
    for one in watched(Unsent):
        one.tell_unsent()


atexit.register(_tell_all)
