"""What becomes of the rows that a transaction settles: at its commit, and at its roll back.

Until then they are leased to the transaction. In an ordered group, no row must be done while an
earlier row of its key may come again. So rows behind one that comes again are released with it,
those of the transaction and those that consumers hold; and until the decision, rows behind one of
an undecided transaction can only be settled in that transaction (``Settling.open_rows``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.delivery.settles import (
    LONGEST_US,
    Disposition,
    Settling,
    behind,
    others_lend,
    released,
)
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import RunList, merge, split_all
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome, Settled


class Settles(NamedTuple):
    """The settles of a RESOLVED."""

    own: list[Settled]
    """Of the rows that the transaction settles."""
    others: list[Settled]
    """Releases of rows in other leases, behind rows of their key that come again. A transaction
    does not count them in its size: what others hold changes until its decision."""


class Outcomes:
    """Builds the settles of a RESOLVED.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_settling")

    def __init__(self, ledger: Ledger, settling: Settling) -> None:
        self._ledger = ledger
        self._settling = settling

    def of_commit(self, now_us: int, opened: CheckedTransaction) -> Settles:
        """Return what becomes of the rows that the transaction settles and still holds."""
        found: list[Settled] = []
        others: list[Settled] = []
        for progress, own, made in _held(self._ledger, opened):
            subscription = self._ledger.views.catalog.consumer_of(progress)
            if subscription is None:
                continue
            settles = _newest(own, made)
            lowest = self._come_again(subscription, progress, settles)
            closed = progress.mode.blocks and others_lend(progress, own.id)
            later: list[LeasedRun] = []
            again: list[LeasedRun] = []
            for one, taken in settles:
                runs = taken
                if lowest:
                    runs, waiting = _split(progress, taken, lowest)
                    later += waiting
                if closed:
                    runs, waiting = self._open(subscription, progress, one.outcome, runs, own)
                    later += waiting
                    again += waiting
                if not runs:
                    continue
                # One of an earlier version may be longer than a record can say.
                delay_us = None if one.due_us < 0 else min(one.due_us, LONGEST_US)
                settle = Disposition(
                    one.session, 0, opened.number, one.outcome, Cause.CONSUMER, delay_us,
                    one.reason.decode(),
                )  # fmt: skip
                settled = self._settling.settled(now_us, subscription, progress, settle, runs)
                found += settled
                again += [
                    run for fact in settled for run in fact.runs
                    if fact.outcome in {Outcome.RETRY, Outcome.HELD}
                ]  # fmt: skip
            if later:
                found.append(released(progress, own, merge(later), Cause.KEY))
            others += _behind(progress, own, again)
        return Settles(found, others)

    def of_roll_back(self, opened: CheckedTransaction) -> Settles:
        """Return the releases of all rows that it holds; no attempt is counted."""
        found: list[Settled] = []
        others: list[Settled] = []
        for progress, own, _ in _held(self._ledger, opened):
            runs = list(own.runs)
            others += _behind(progress, own, runs)
            found.append(released(progress, own, runs, Cause.CONSUMER))
        return Settles(found, others)

    def _open(
        self,
        subscription: Subscription,
        progress: Progress,
        outcome: Outcome,
        runs: list[LeasedRun],
        own: Lease,
    ) -> tuple[list[LeasedRun], list[LeasedRun]]:
        """Split rows: those that may be settled, and those that must wait for a transaction.

        When they were settled in this one, no other had a row of their key in front of them, or
        they would have come again by the settings of then.
        """
        free, closed = self._settling.open_rows(subscription, progress, outcome, runs, [], own.id)
        return (free, split_all(runs, closed)[1]) if closed else (runs, [])

    def _come_again(
        self,
        subscription: Subscription,
        progress: Progress,
        settles: Sequence[tuple[Settled, list[LeasedRun]]],
    ) -> dict[int, int]:
        """Return ordering hash -> the first row of the key that may come again by the commit."""
        lowest: dict[int, int] = {}
        if not progress.mode.blocks:
            return lowest
        for one, taken in settles:
            if one.outcome is not Outcome.RETRY:
                continue
            for start, stop, attempt, _ in taken:
                if self._settling.may_come_again(subscription, attempt):
                    for offset in range(start, stop):
                        hash_ = progress.order.hash_of(offset) or 0
                        lowest[hash_] = min(lowest.get(hash_, offset), offset)
        return lowest


def _held(
    ledger: Ledger, opened: CheckedTransaction
) -> Iterator[tuple[Progress, Lease, Sequence[Settled]]]:
    """Yield the group queues of which the transaction still holds rows.

    Each with its lease, and with the settles of it in the transaction, in their order.
    """
    made: dict[tuple[int, int, int], list[Settled]] = {}
    for _, settles in sorted(opened.settles.items()):
        for one in settles:
            made.setdefault((one.group, one.topic, one.queue), []).append(one)
    for key, of_queue in made.items():
        progress = ledger.views.progress.get(key)
        own = None if progress is None else progress.leases.get(opened.number)
        if progress is not None and own is not None and own.runs:
            yield progress, own, of_queue


def _newest(own: Lease, made: Sequence[Settled]) -> list[tuple[Settled, list[LeasedRun]]]:
    """Return the settles of a group queue, each with its rows that the transaction still holds.

    A row that was taken away by a reset and settled again belongs to the later settle. Settles that
    are alike become one: a thousand acks of single rows are one fact of the RESOLVED.
    """
    left = RunList(own.runs)
    alike: dict[tuple[int, Outcome, int, bytes], tuple[Settled, list[LeasedRun]]] = {}
    for one in reversed(made):
        taken = left.take_all([run[:2] for run in one.runs])
        if taken:
            what = one.session, one.outcome, one.due_us, one.reason
            alike.setdefault(what, (one, []))[1].extend(taken)
    return [(one, merge(taken)) for one, taken in reversed(alike.values())]


def _split(
    progress: Progress, taken: Sequence[LeasedRun], lowest: dict[int, int]
) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Split rows: those that may be settled, and those behind one of their key in ``lowest``."""
    free: list[LeasedRun] = []
    later: list[LeasedRun] = []
    for start, stop, attempt, deliveries in taken:
        for offset in range(start, stop):
            first = lowest.get(progress.order.hash_of(offset) or 0, offset)
            (later if first < offset else free).append((offset, offset + 1, attempt, deliveries))
    return merge(free), merge(later)


def _behind(progress: Progress, own: Lease, again: Sequence[LeasedRun]) -> list[Settled]:
    """Return the releases of rows in other leases, behind rows of their key that come again.

    Their consumer must not go on with them: the rows before them are not done.
    """
    if not progress.mode.blocks or not again:
        return []
    return behind(progress, [one for one in progress.leases.values() if one.id != own.id], again)
