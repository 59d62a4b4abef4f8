"""Rows that the broker leased to this client, until they are settled."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ternmq.client.causes import UNSAID
from ternmq.model.errors import AlreadySettled, LeaseExpired
from ternmq.model.specs import RetryPolicy
from ternmq.record.facts import Outcome
from ternmq.wire.bodies import LastFailure

if TYPE_CHECKING:
    import asyncio

    from ternmq.client.settler import Settler

Span = tuple[int, int]
"""Offsets ``[start, stop)``."""
Verdict = tuple[int, int | None, str]
"""Outcome, delay in µs (None: as the retry policy says), reason."""

_NONE: Final[dict[int, str]] = {}  # of every lease that lost no row; stays empty
_RELEASED: Final[Verdict] = (int(Outcome.RELEASED), None, "")


class LeaseOwner(Protocol):
    """Who is told when rows of a lease are settled, or the lease is lost."""

    def settled(self, lease: Lease, offset: int, stop: int, outcome: Outcome) -> None:
        """Rows ``[offset, stop)`` need no more attention."""

    def overdue(self, lease: Lease) -> None:
        """It lasts longer than ``max_processing_time``: give back what nobody works on."""


class Lease:
    """A lease. Loop only, save what says otherwise.

    Attributes:
        spans: Offsets ``[start, stop)`` of its rows, all of them.
        failures: How earlier attempts at its rows ended, by offset.
        left: Rows that are not settled.
        until: Monotonic time at which it ends; any thread.
        until_us: The same in broker time; any thread.
        began: Monotonic time at which it came.
        gone: Why, by offset, single rows were lost: "" where their settle was refused; else see
            ``ordering``. They are in ``settled`` as well, since nothing is left to do for them.
        loop: That it may be settled in: the client's.
        lost: It ended without us; any thread.
        settled: Offsets that were settled, or lost.
        running: Offsets that a handler runs on: not given back, and extended until it ends. Only
            whether there are any may be asked by any thread.
    """

    __slots__ = (
        "__weakref__", "acked", "began", "dirty", "duration", "epoch", "failures", "gone", "group",
        "left", "loop", "lost", "number", "owner", "queue", "rows", "running", "settled", "settler",
        "spans", "topic", "until", "until_us", "verdicts", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        settler: Settler,
        topic: str,
        group: str,
        queue: int,
        epoch: int,
        number: int,
        spans: list[tuple[int, int]],
        until_us: int,
        now_us: int,
        failures: Sequence[LastFailure] = (),
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
        self.began = time.monotonic()
        self.duration = (until_us - now_us) / 1e6
        self.until = self.began + self.duration
        self.until_us = until_us
        self.lost = False
        self.owner: LeaseOwner | None = None
        self.settled: set[int] = set()
        self.gone = _NONE
        self.running: set[int] = set()
        self.acked: list[int] = []
        self.verdicts: dict[Verdict, list[tuple[int, int]]] = {}
        self.waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self.dirty = False

    @property
    def policy(self) -> RetryPolicy | None:
        """The group's retry policy; None: it is not known. Loop only."""
        return self.settler.policies.of(self.topic, self.group)

    def last_reason(self, offset: int) -> str:
        """Return why the attempt at a row before this one failed, "" if nothing is known of one."""
        failures = self.failures
        at = bisect_right(failures, offset, key=lambda one: one.start) - 1
        if at < 0 or offset >= failures[at].start + failures[at].rows:
            return ""
        failure = failures[at]
        return failure.reason or UNSAID.get(failure.cause, "")

    def ack(self, offset: int) -> None:
        """Note that a row is done; it is told to the broker when this turn of the loop is over.

        Raises:
            AlreadySettled, LeaseExpired: It is not this client's to settle.
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
        """Note what became of rows ``[start, stop)``; as ``ack``."""
        self.settle_spans([(start, stop)], outcome, delay_us, reason)

    def settle_spans(
        self, spans: Sequence[Span], outcome: Outcome, delay_us: int | None = None, reason: str = ""
    ) -> None:
        """Note what became of rows, all of one outcome; as ``ack``."""
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

    def lose_rows(self, spans: Iterable[Span], why: str = "", *, tell: bool = False) -> None:
        """Rows are no longer this client's: their settle was refused, or they were taken back.

        Args:
            spans: Which.
            why: For the error of whoever settles one; "": their settle was refused.
            tell: Release them as well: they may be held under the lease all the same.
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
        """Settle every row that is left and that no handler runs on."""
        settled = self.settled | self.running if self.running else self.settled
        rest: Sequence[Span] = self.spans
        if settled:
            rows = [one for start, stop in rest for one in range(start, stop)]
            rest = [(one, one + 1) for one in rows if one not in settled]
        if rest:
            self.settle_spans(rest, outcome)

    def check(self, offset: int) -> None:
        """See that a row is this client's to settle.

        Raises:
            AlreadySettled, LeaseExpired: It is not.
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
        """Return a future of what the broker says of rows that are about to be settled.

        Raises:
            AlreadySettled, LeaseExpired: They are not this client's to settle.
            ClientForked, WrongEventLoop: The client lives elsewhere.
        """
        loop = self.settler.here()
        if self.lost or not self.settled.isdisjoint(range(start, stop)):
            self._refuse(start)
        future: asyncio.Future[None] = loop.create_future()
        self.waiters.append((start, stop, future))
        self.settler.hurry()
        return future
