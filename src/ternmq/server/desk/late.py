"""Requests that come last in a turn: reads of rows, look-ups, lists.

They take much work, change nothing, and no other work waits for them. However many callers read at
full speed, a sender waits for one read, not for all of them, and a reader waits for one read of
each app.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from ternmq.server.engine.fairqueue import FairQueue
from ternmq.server.engine.reading_core import ReadingCore
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller, Handler
from ternmq.wire.session import Request

log = logging.getLogger("ternmq.server")

LATE: Final = frozenset(
    {
        Command.READ,
        Command.FIND,
        Command.OFFSET_AT,
        Command.FAILED_LIST,
        Command.FAILED_QUERY,
        Command.TOPIC_LIST,
        Command.GROUP_LIST,
        Command.CLIENT_LIST,
        Command.APP_LIST,
        Command.RIGHTS_CHECK,
        Command.TRANSACTION_LIST,
        Command.TRANSACTION_READ,
        Command.TRANSACTION_SHOW,
        Command.PRODUCER_GROUP_LIST,
        Command.HOLD_LIST,
        Command.QUEUE_RANGES,
        Command.JOURNAL_CATALOG,
        Command.SCHEDULE_LIST,
        Command.SCHEDULE_HOURS,
        Command.ALARM_LIST,
        Command.STATUS,
    }
)
"""Commands that come last in a turn."""
READS_S: Final = 0.0002
"""When reads have taken this much of a turn, no further one begins in it: others come first."""


class _Late(NamedTuple):
    """A request that waits for its turn; ``go_on`` is called instead of carrying it out."""

    request: Request
    go_on: Callable[[], None] | None


class LateReads:
    """Requests that wait for the end of a turn, some of which are carried out in each.

    Args:
        core: The broker.

    Attributes:
        queue: The requests; the number of them is its length.
        running: Requests are being carried out now: a flush of answers follows.
    """

    def __init__(self, core: ReadingCore) -> None:
        self._core = core
        self.queue: FairQueue[Hashable, Caller, int, _Late] = FairQueue()
        self.running = False
        self._twice = 0
        """Number of requests that came under an id that was in use."""

    def put(
        self, caller: Caller, request: Request, go_on: Callable[[], None] | None = None
    ) -> None:
        """Have a request carried out behind the turn's sync and answers.

        Args:
            caller: Its caller.
            request: The request.
            go_on: Called instead of carrying it out, for work that is done in pieces.
        """
        key, share = request.id, caller.share
        if self.queue.get(share, caller, key) is not None:
            # An id twice at a time is its client's mistake: it cannot be cancelled, and waits too.
            self._twice += 1
            key = -self._twice
        self.queue.put(share, caller, key, _Late(request, go_on))
        if not self._core.in_turn and not self.running:  # else the flush is still to come
            self._core.touch()

    def hurry(self, caller: Caller, id_: int | None = None) -> None:
        """Have a request of a caller (None: all) wait for no messages when its turn comes."""
        queue, share = self.queue, caller.share
        for key in queue.keys_of(share, caller) if id_ is None else [id_]:
            one = queue.get(share, caller, key)
            if one is not None:
                queue.put(share, caller, key, one._replace(request=one.request.until(1)))

    def drop(self, caller: Caller) -> None:
        """Forget the requests of a caller that is gone."""
        self.queue.drop(caller.share, caller)

    def run(self, read: Handler) -> bool:
        """Carry some out, with ``read``; return whether they took all their time of this turn.

        If one fails, this concerns its caller alone.
        """
        queue, until, full = self.queue, time.perf_counter() + READS_S, False
        self.running = True
        try:
            while queue:
                caller, (request, go_on) = queue.pop()
                if caller.closed:
                    continue
                if not (caller.writable and caller.roomy):
                    caller.put_back(request)
                    continue
                try:
                    if go_on is None:
                        read(caller, request)
                    else:
                        go_on()
                except Exception:  # of no concern to the turn, and to others who read
                    log.exception("%s: a read failed", caller.address)
                    caller.abandon("a read failed")
                full = time.perf_counter() > until
                if full:
                    break
            self._core.release()  # a refusal may rest on something
        finally:
            self.running = False
        return full
