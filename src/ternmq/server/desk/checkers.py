"""Which callers offer to answer questions about transactions; the questions go to them.

An offer belongs to a connection and ends with it. A client that comes back to its session over a
new connection offers again; the end of the old connection, which may be noticed later, does not
withdraw that.

Not thread-safe: call it from the broker's loop.
"""

from __future__ import annotations

import logging
from typing import Final

from ternmq.broker.checkback.questions import Question
from ternmq.server.engine.engine import Core
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller

log = logging.getLogger("ternmq.server")


MOST_OPEN: Final = 1024
"""Most questions without an answer that are remembered, for tests that wait for the answers."""


class Checkers:
    """The callers that offer, by session.

    Args:
        core: The broker.

    Attributes:
        asked: Number of questions that were sent.
        open: Session and transaction of the newest questions without an answer, oldest first.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._offers: dict[int, tuple[Caller, set[str]]] = {}
        self.asked = 0
        self.open: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return len(self._offers)

    def offer(self, caller: Caller, groups: list[str]) -> int:
        """Add groups to the offer of a caller; return the position that the answer depends on.

        Raises:
            ProducerGroupTaken: A group belongs to another app; the offer stays as it was.
            Busy, DiskFull: There is no room for the groups that are new; the offer stays as it was.
            UnknownSession: The caller's session is over.
        """
        before = self._offers.get(caller.session)
        offered = before[1] if before is not None and before[0] is caller else set()
        wanted = offered | set(groups)
        reply = self._core.broker.checking.offered(
            self._core.now_us(), caller.app, caller.session, sorted(wanted)
        )
        self._offers[caller.session] = caller, wanted
        return reply.position

    def gone(self, caller: Caller) -> None:
        """End the offer of a caller that is gone, or whose session is over."""
        offer = self._offers.get(caller.session)
        if offer is not None and offer[0] is caller:
            del self._offers[caller.session]
            self.open = {one: None for one in self.open if one[0] != caller.session}
            self._core.broker.checking.withdrawn(caller.session)

    def answered(self, session: int, transaction: int) -> None:
        """Note that a session answered a question, whatever it said."""
        self.open.pop((session, transaction), None)

    def groups(self) -> dict[str, int]:
        """Return the number of sessions that offer each group."""
        counts: dict[str, int] = {}
        for _, groups in self._offers.values():
            for group in groups:
                counts[group] = counts.get(group, 0) + 1
        return counts

    def ask(self, session: int, question: Question) -> None:
        """Send a question to the caller of a session; if it is gone, the core asks again later."""
        offer = self._offers.get(session)
        if offer is None or offer[0].closed:
            return
        self.asked += 1
        self.open[session, question.transaction] = None
        if len(self.open) > MOST_OPEN:
            del self.open[next(iter(self.open))]
        offer[0].push(
            Command.TRANSACTION_CHECK,
            control.encode(
                control.TransactionCheck(
                    transaction=question.transaction,
                    group=question.group,
                    query_id=question.query_id,
                    attempt=question.attempt,
                    opened_us=question.opened_us,
                    topics=list(question.topics),
                    rows=question.rows,
                    bytes=question.bytes,
                )
            ),
        )
