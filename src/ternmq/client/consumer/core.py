"""What is held, settled, under way, sent again and given up: functions of time over data.

No loop, clock or connection: the settler passes the time in, sends the settles of ``to_send`` and
``again``, and reports the ``outcomes`` to the callers. Times are monotonic seconds, as in leases.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ternmq.client.consumer.lease import Lease, RowSettle, Span
from ternmq.client.consumer.settles import Ask, AskOwner
from ternmq.model.errors import (
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    LeaseExpired,
    TernMQError,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies

_DONE: Final[RowSettle] = (int(Outcome.DONE), None, "")
_COME_AGAIN: Final = (Outcome.RETRY, Outcome.RELEASED)
_MOST_SPANS: Final = 4096
_PAUSE: Final = 0.2
"""Seconds until a settle that was refused for now is sent again."""
UNKNOWN: Final = "whether this was settled is not known: the connection was lost before the answer"
_LOSING: Final = (LeaseExpired, UnknownGroup, UnknownTopic, ClientClosed)
"""Errors after which rows are certainly not settled, and no longer held."""


class Ended(NamedTuple):
    """The end of a settle: the broker answered it, or it was given up.

    Attributes:
        ask: The settle.
        refused: Rows that the broker did not settle, if it answered.
        error: Why it was given up, otherwise.
    """

    ask: Ask
    refused: Sequence[Span]
    error: TernMQError | None


class SettleCore:
    """The leases of a client, and its settles until their outcome. Not thread-safe.

    A settle is in one of four states: to be sent (``to_send``, ``again``), under way
    (``Ask.asked``), resting after it was refused for now, or waiting for a connection. After a
    connection without an answer it is ``uncertain``: its error says that the outcome is unknown.

    Args:
        owner: Receives the answers of the settles.

    Attributes:
        recorded: Leases with outcomes that ``to_send`` has not returned yet.
        outcomes: Outcomes that the caller has not taken yet: all but those that concern nobody,
            of settled rows without a waiting caller.
    """

    def __init__(self, owner: AskOwner) -> None:
        self.recorded: list[Lease] = []
        self.outcomes: list[Ended] = []
        self._owner = owner
        self._asks: dict[Ask, None] = {}
        self._again: list[Ask] = []
        self._rests: deque[tuple[float, Ask]] = deque()
        self._leases: dict[tuple[int, int], weakref.ref[Lease]] = {}

    @property
    def unfinished(self) -> bool:
        """Whether a settle has no outcome yet."""
        return bool(self._asks)

    # -- leases

    def began(self, lease: Lease) -> None:
        """Hold a lease, as long as it is referenced and has unsettled rows."""
        key = (lease.epoch, lease.number)
        self._leases[key] = weakref.ref(lease, lambda _: self._leases.pop(key, None))

    def over(self, lease: Lease) -> None:
        """Hold a lease no longer."""
        self._leases.pop((lease.epoch, lease.number), None)

    def held(self) -> list[Lease]:
        """Return the leases with unsettled rows. Callable from any thread."""
        return [lease for ref in list(self._leases.values()) if (lease := ref()) is not None]

    def kept(self) -> list[tuple[int, int]]:
        """Return (epoch, number) of the leases that are to live on over a new connection."""
        leases = [*self.held(), *[ask.lease for ask in self._asks], *self.recorded]
        return list(dict.fromkeys([(one.epoch, one.number) for one in leases if not one.lost]))

    # -- sending

    def to_send(self, *, connected: bool, closed: bool) -> list[Ask]:
        """Return the settles of the recorded outcomes, to be sent now; each has its ``body``.

        Args:
            connected: Whether there is a connection; otherwise they wait for ``opened``.
            closed: Whether the client is closed: they are given up.
        """
        recorded, self.recorded = self.recorded, []
        asks: list[Ask] = []
        for lease in recorded:
            lease.dirty = False
            self._cut(lease, asks)
        return self._sendable(asks, connected=connected, closed=closed)

    def again(self, *, connected: bool, closed: bool) -> list[Ask]:
        """Return the settles to be sent again now; the arguments are those of ``to_send``."""
        again, self._again = self._again, []
        waiting = [ask for ask in dict.fromkeys(again) if ask in self._asks and not ask.asked]
        return self._sendable(waiting, connected=connected, closed=closed)

    def _cut(self, lease: Lease, asks: list[Ask]) -> None:
        """Append the settles of what a lease has recorded: one for each outcome."""
        acked = lease.acked
        verdicts = lease.verdicts
        whole = not verdicts and len(acked) == lease.rows
        if acked:
            lease.acked = []
            verdicts.setdefault(_DONE, []).extend(_spans(acked))
        elif len(verdicts) == 1 and not lease.left:
            (spans,) = verdicts.values()
            whole = sum([stop - start for start, stop in spans]) == lease.rows
        lease.verdicts = {}
        waiters, lease.waiters = lease.waiters, []
        if not lease.left:
            self.over(lease)
        for verdict, spans in _in_order(verdicts):
            for at in range(0, len(spans), _MOST_SPANS):
                some = spans if len(spans) <= _MOST_SPANS else spans[at : at + _MOST_SPANS]
                ask = Ask(self._owner, lease, verdict, some, whole=whole)
                if waiters:
                    ask.waiters = [
                        one for one in waiters
                        if any(start <= one[0] < stop for start, stop in some)
                    ]  # fmt: skip
                self._asks[ask] = None
                asks.append(ask)

    def _sendable(self, asks: list[Ask], *, connected: bool, closed: bool) -> list[Ask]:
        """Return those that can be sent, marked as under way; give up those that never can."""
        if closed:
            for ask in asks:
                self._give_up(ask, ClientClosed("the client was closed before this was settled"))
            return []
        if not connected:
            return []
        some = asks
        for ask in asks:
            try:
                ask.encode()
                ask.asked = True
            except InvalidRequest as error:
                some = [one for one in some if one is not ask]
                self._give_up(ask, error)
        return some

    # -- outcomes

    def answered(self, ask: Ask, body: bytes) -> None:
        """Handle the answer to a settle; the refused rows are lost.

        Raises:
            ProtocolError: The answer cannot be read: the outcome is unknown.
        """
        ask.asked = False
        try:
            refused = bodies.unpack_settled(body).refused
        except BaseException:
            ask.uncertain = True
            raise
        if ask not in self._asks:
            return
        del self._asks[ask]
        if refused and not ask.uncertain:
            ask.lease.lose_rows(refused)
        if refused or ask.waiters:
            self.outcomes.append(Ended(ask, refused, None))

    def refused(self, ask: Ask, error: TernMQError, now: float, *, closed: bool) -> None:
        """Handle a refusal: the settle is sent again after a pause, or given up."""
        ask.asked = False
        if ask not in self._asks:
            return
        if not error.retriable:
            self._give_up(ask, error)
        elif closed or now > ask.lease.until:
            self._give_up(
                ask, LeaseExpired("the lease ended before the broker accepted the settle")
            )
        else:
            self._rests.append((now + _PAUSE, ask))

    def _give_up(self, ask: Ask, error: TernMQError) -> None:
        """Give a settle up. If it may have counted, its error says that this is not known."""
        del self._asks[ask]
        if ask.uncertain and not isinstance(error, ConnectionLost):
            # A repeated settle is refused like one that is too late: the first may have counted.
            error = ConnectionLost(f"{UNKNOWN}: {error.args[0] if error.args else error}")
        if isinstance(error, _LOSING):
            ask.lease.lose_rows(ask.spans)
        self.outcomes.append(Ended(ask, (), error))

    # -- time

    def next_due(self) -> float:
        """Return the time at which ``rested`` must be called; infinity: not at all."""
        return self._rests[0][0] if self._rests else math.inf

    def rested(self, now: float) -> None:
        """Have the settles sent again that were refused for now and have rested."""
        while self._rests and self._rests[0][0] <= now:
            self._again.append(self._rests.popleft()[1])

    # -- connections

    def lost(self) -> None:
        """Handle the end of a connection: whether the settles under way counted is unknown."""
        for ask in self._asks:
            if ask.asked:
                ask.asked = False
                ask.uncertain = True

    def opened(self, *, resumed: bool) -> None:
        """Have the unfinished settles sent again over a new connection of the same session.

        In another session the leases have ended: the settles are given up.
        """
        self.lost()  # if the session did not report it
        for ask in list(self._asks):
            if resumed:
                self._again.append(ask)
            elif ask.uncertain:
                self._give_up(ask, ConnectionLost("whether this was settled is not known"))
            else:
                known = "the session ended before the broker accepted the settle"
                self._give_up(ask, LeaseExpired(known))

    def give_up_all(self, error: TernMQError) -> None:
        """Give up all settles: no connection will come."""
        self.lost()  # if the session did not report it
        for ask in list(self._asks):
            self._give_up(ask, error)

    def end(self) -> None:
        """Give up all settles: the client closes."""
        self._rests.clear()
        for ask in list(self._asks):
            self._give_up(
                ask,
                ConnectionLost("the client was closed: whether this was settled is not known")
                if ask.asked or ask.uncertain
                else ClientClosed("the client was closed before this was settled"),
            )


def _in_order(verdicts: dict[RowSettle, list[Span]]) -> Iterable[tuple[RowSettle, list[Span]]]:
    """Return verdicts in the order in which they are sent.

    Acks and rejects come first: in an ordered group, the broker takes back the rows behind a row
    that is retried or released, and refuses later settles of them.
    """
    return verdicts.items() if len(verdicts) < 2 else sorted(verdicts.items(), key=_comes_again)


def _comes_again(told: tuple[RowSettle, list[Span]]) -> bool:
    return told[0][0] in _COME_AGAIN


def _spans(offsets: list[int]) -> list[Span]:
    """Return offsets as spans."""
    offsets.sort()
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    spans: list[Span] = []
    start = previous = first
    for offset in offsets[1:]:
        if offset != previous + 1:
            spans.append((start, previous + 1))
            start = offset
        previous = offset
    spans.append((start, previous + 1))
    return spans
