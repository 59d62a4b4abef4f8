"""Rows that the broker leased to this client, until they are settled."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.client.content.causes import UNSAID
from ternmq.model.errors import AlreadySettled, LeaseExpired
from ternmq.model.specs import INSTANCE_GROUPS, RetryPolicy
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import LastFailure

if TYPE_CHECKING:
    import asyncio
    from datetime import timedelta

    from ternmq.client.consumer.learning import Policies


Span = tuple[int, int]
"""Offsets ``[start, stop)``."""
RowSettle = tuple[int, int | None, str]
"""Outcome, delay in µs (None: by the retry policy), reason."""

_NONE: Final[dict[int, str]] = {}  # of every lease that lost no row; stays empty
_RELEASED: Final[RowSettle] = (int(Outcome.RELEASED), None, "")


class Settles(Protocol):
    """What a lease needs to have its settles sent: the client's settler."""

    policies: Policies

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The client's loop."""

    def here(self) -> asyncio.AbstractEventLoop:
        """Return the client's loop; raises in another loop or process."""

    def dirty(self, lease: Lease) -> None:
        """Schedule the settles of a lease."""

    def hurry(self) -> None:
        """Send the settles of this turn at its end: a caller waits for them."""

    def lose_soon(self, lease: Lease) -> None:
        """Lose a lease, unless its own settles ended it. Callable from any thread."""

    def lose(self, lease: Lease) -> None:
        """Mark a lease that ended without a settle. Call it from the client's loop."""

    def doubts(self, lease: Lease) -> bool:
        """Return whether a lease may have ended in a freeze. Callable from any thread."""

    async def heard(self, told: asyncio.Future[None]) -> None:
        """Wait for the broker's answer to a settle."""

    async def extend(self, lease: Lease, seconds: float | timedelta) -> None:
        """Make a lease last this long from now on."""


class LeaseOwner(Protocol):
    """Is notified when rows of a lease are settled, or the lease is lost."""

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome | None) -> None:
        """Handle that rows ``[offset, stop)`` are settled, or that ``lease.lost`` is true.

        Outcome None: a transaction holds the rows, and ``decided`` follows.
        """

    def decided(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """Handle the end of a transaction that held rows: go on with those behind them."""

    def overdue(self, lease: Lease) -> None:
        """Give back rows not begun: the lease lasts longer than ``max_processing_time``."""


class Lease:
    """A lease. Not thread-safe: call it from the client's loop, except where noted.

    Attributes:
        spans: Offsets ``[start, stop)`` of all its rows.
        failures: How earlier attempts at its rows ended, by offset.
        left: Number of rows that are not settled.
        until: Monotonic time at which it ends; readable from any thread.
        until_us: The same in broker time; readable from any thread.
        confirmed: Monotonic time from which on the broker's word about it is newer; readable from
            any thread.
        began: Monotonic time at which it arrived, at the earliest.
        gone: Rows that were lost singly: offset -> reason; "" if their settle was refused, else see
            ``ordering``. They are in ``settled`` as well, since they need no settle.
        loop: The client's loop; it may be settled only there.
        lost: Whether it ended without a settle; readable from any thread.
        over: Whether it has ended, though the loop may not know yet; readable from any thread.
        settled: Offsets that were settled, or lost.
        running: Offsets that a handler runs on: not given back, and extended until it ends. Other
            threads may only test whether it is empty.
    """

    __slots__ = (
        "__weakref__", "acked", "began", "confirmed", "dirty", "duration", "epoch", "failures",
        "gone", "group", "left", "loop", "lost", "number", "over", "owner", "queue", "rows",
        "running", "settled", "settler",
        "spans", "topic", "until", "until_us", "verdicts", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        settler: Settles,
        topic: str,
        group: str,
        queue: int,
        epoch: int,
        number: int,
        spans: list[tuple[int, int]],
        until_us: int,
        now_us: int,
        failures: Sequence[LastFailure] = (),
        began: float | None = None,
    ) -> None:
        self.settler = settler
        self.loop = settler.loop
        self.topic = topic
        self.group = group
        self.queue = queue
        self.epoch = epoch
        self.number = number
        self.spans = spans
        self.failures = failures
        self.rows = self.left = sum([stop - start for start, stop in spans])
        self.began = time.monotonic() if began is None else began
        self.duration = (until_us - now_us) / 1e6
        self.until = self.began + self.duration
        self.confirmed = self.began
        self.until_us = until_us
        self.lost = False
        self.over = False
        self.owner: LeaseOwner | None = None
        self.settled: set[int] = set()
        self.gone = _NONE
        self.running: set[int] = set()
        self.acked: list[int] = []
        self.verdicts: dict[RowSettle, list[tuple[int, int]]] = {}
        self.waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self.dirty = False

    @property
    def policy(self) -> RetryPolicy | None:
        """The group's retry policy; None: not known. Call it from the client's loop."""
        return self.settler.policies.of(self.topic, self.group)

    @property
    def broadcast(self) -> bool:
        """Whether it is a lease of a broadcast instance, where a failed message is done."""
        return self.group.startswith(INSTANCE_GROUPS)

    def last_reason(self, offset: int) -> str:
        """Return why the previous attempt at a row failed; "" if none did, or if unknown."""
        failures = self.failures
        at = bisect_right(failures, offset, key=lambda one: one.start) - 1
        if at < 0 or offset >= failures[at].start + failures[at].rows:
            return ""
        failure = failures[at]
        return failure.reason or UNSAID.get(failure.cause, "")

    def extended(self, until_us: int, now_us: int, asked: float) -> None:
        """Store its new end. Callable from any thread.

        Args:
            until_us: The end, in broker time.
            now_us: Broker time of the answer.
            asked: Monotonic time of the request: the answer may have waited.
        """
        left = (until_us - now_us) / 1e6
        self.until_us = until_us
        self.until = asked + left
        self.confirmed = asked

    def end(self) -> None:
        """Note that it has ended, before the loop loses it. Callable from any thread."""
        self.over = True
        self.until = min(self.until, time.monotonic())

    @property
    def ended(self) -> bool:
        """Whether it has ended, if ``until`` has passed. Callable from any thread.

        Without a freeze the broker may have kept it: in an outage, until this client is back.
        """
        return self.lost or (self.left > 0 and (self.over or self.settler.doubts(self)))

    def ack(self, offset: int) -> None:
        """Record that a row is done; it is reported to the broker with the next settles.

        Raises:
            AlreadySettled, LeaseExpired: This client may not settle it.
        """
        settled = self.settled
        if self.lost or offset in settled:
            self._refuse(offset)
        settled.add(offset)
        self.acked.append(offset)
        self.left -= 1
        if not self.dirty:
            self.settler.dirty(self)
        if self.owner is not None:
            self.owner.settled(self, offset, offset + 1, Outcome.DONE)

    def settle(
        self, start: int, stop: int, outcome: Outcome, delay_us: int | None = None, reason: str = ""
    ) -> None:
        """Record the outcome of rows ``[start, stop)``. Raises as ``ack``."""
        self.settle_spans([(start, stop)], outcome, delay_us, reason)

    def settle_spans(
        self, spans: Sequence[Span], outcome: Outcome, delay_us: int | None = None, reason: str = ""
    ) -> None:
        """Record one outcome of several spans of rows. Raises as ``ack``."""
        settled = self.settled
        for start, stop in spans:
            if self.lost or (settled and not settled.isdisjoint(range(start, stop))):
                self._refuse(start)
        for start, stop in spans:
            settled.update(range(start, stop))
            self.left -= stop - start
        self.verdicts.setdefault((int(outcome), delay_us, reason), []).extend(spans)
        if not self.dirty:
            self.settler.dirty(self)
        if self.owner is not None:
            for start, stop in spans:
                self.owner.settled(self, start, stop, outcome)

    def hand_over(self, spans: Sequence[Span]) -> None:
        """Let nobody settle rows any more: a transaction is asked to hold them.

        They still belong to the lease, which is kept, until ``handed_over``.

        Raises:
            AlreadySettled, LeaseExpired: This client may not settle them; nothing was changed.
        """
        settled = self.settled
        for start, stop in spans:
            if self.lost or not settled.isdisjoint(range(start, stop)):
                self._refuse(start)
        for start, stop in spans:
            settled.update(range(start, stop))

    def keep(self, spans: Sequence[Span]) -> None:
        """Undo ``hand_over``: the transaction was refused, and the lease still holds the rows."""
        for start, stop in spans:
            self.settled.difference_update(
                [one for one in range(start, stop) if one not in self.gone]
            )

    def handed_over(self, spans: Sequence[Span], outcome: Outcome) -> list[Span]:
        """Count rows of ``hand_over`` as settled, without a settle: the transaction holds them.

        Returns:
            Those on which a handler runs: ``decided`` must be called for them. Until then, no
            handler is called with the later messages of their keys, since it could not settle them.
        """
        for start, stop in spans:
            self.left -= stop - start
        if not self.dirty:
            self.settler.dirty(self)  # a lease without other rows is not held any longer
        later: list[Span] = []
        for start, stop in spans:
            waits = not self.running.isdisjoint(range(start, stop))
            if waits:
                later.append((start, stop))
            if self.owner is not None:
                self.owner.settled(self, start, stop, None if waits else outcome)
        return later

    def decided(self, spans: Sequence[Span], outcome: Outcome) -> None:
        """Note what became of rows that ``handed_over`` returned; RETRY also if it is not known."""
        if self.owner is not None:
            for start, stop in spans:
                self.owner.decided(self, start, stop, outcome)

    def lose_rows(self, spans: Iterable[Span], why: str = "", *, tell: bool = False) -> None:
        """Mark rows as lost: their settle was refused, or the broker took them back.

        Args:
            spans: The rows.
            why: Text for the error of a later settle; "": their settle was refused.
            tell: Release them as well, since the lease may still include them.
        """
        if self.gone is _NONE:
            self.gone = {}
        for start, stop in spans:
            rows = range(start, stop)
            self.left -= sum([one not in self.settled for one in rows])
            for offset in rows:
                self.gone.setdefault(offset, why)
            self.settled.update(rows)
            if tell:
                self.verdicts.setdefault(_RELEASED, []).append((start, stop))

    def settle_rest(self, outcome: Outcome) -> None:
        """Settle every row that is left, except those that a handler runs on."""
        settled = self.settled | self.running if self.running else self.settled
        rest: Sequence[Span] = self.spans
        if settled:
            rows = [one for start, stop in rest for one in range(start, stop)]
            rest = [(one, one + 1) for one in rows if one not in settled]
        if rest:
            self.settle_spans(rest, outcome)

    def check(self, offset: int) -> None:
        """Check that this client may settle a row.

        Raises:
            AlreadySettled, LeaseExpired: It may not.
        """
        if self.lost or offset in self.settled:
            self._refuse(offset)

    def _refuse(self, offset: int) -> None:
        why = self.gone.get(offset)
        if self.lost or why is not None:
            because = f": {why}" if why else ""
            raise LeaseExpired(f"offset {offset} of {self.topic!r} is no longer held{because}")
        raise AlreadySettled(f"offset {offset} of {self.topic!r} was settled before")

    def wait(self, start: int, stop: int) -> asyncio.Future[None]:
        """Return a future of the broker's answer for rows that are about to be settled.

        Raises:
            AlreadySettled, LeaseExpired: This client may not settle them.
            ClientForked, WrongEventLoop: This is not the client's process or loop.
        """
        loop = self.settler.here()
        if self.lost or not self.settled.isdisjoint(range(start, stop)):
            self._refuse(start)
        future: asyncio.Future[None] = loop.create_future()
        self.waiters.append((start, stop, future))
        self.settler.hurry()
        return future
