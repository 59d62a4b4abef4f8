"""Decides how leases go on and end."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from ternmq.broker.catalog import Subscription
from ternmq.broker.context import DeliveryContext
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.lease import LEASE_BITS, LEASE_LIMIT
from ternmq.broker.runs import merge
from ternmq.broker.settling import Settling, released
from ternmq.model.errors import LeaseExpired
from ternmq.record import facts
from ternmq.record.facts import Cause, Extended, LeasedRun, Outcome, Settled
from ternmq.record.header import Kind

ENDED_ROWS_A_TURN: Final = 512
"""Rows whose leases may end in one turn, so that a lost session does not stop the loop."""


class Ended(NamedTuple):
    """What a look at the leases of a group queue did."""

    rows: int
    more: bool


class Leases:
    """Loop only."""

    __slots__ = ("_context", "_settling")

    def __init__(self, context: DeliveryContext, settling: Settling) -> None:
        self._context = context
        self._settling = settling

    def extend(
        self, now_us: int, session: int, held: GroupQueue, epoch: int, number: int, until_us: int
    ) -> int:
        """Let a lease last until ``until_us`` (never less than it does); return the record's end.

        Raises:
            LeaseExpired: it is over.
        """
        lease = held.leases.get(epoch << LEASE_BITS | number)
        if lease is None:
            raise LeaseExpired(f"lease {epoch}.{number} is over")
        until_us = max(until_us, lease.until_us)
        journal = self._context.journal
        fact = Extended(held.group, held.topic, held.queue, session, number, epoch, until_us)
        position = journal.append(Kind.EXTENDED, facts.pack_extended((fact,)), now_us)
        held.apply_extended(position, fact)
        return journal.end

    def end(
        self,
        now_us: int,
        subscription: Subscription,
        held: GroupQueue,
        cause: Cause,
        session: int | None = None,
        budget: int = ENDED_ROWS_A_TURN,
        kept: Container[int] = (),
    ) -> Ended:
        """End the leases whose time is over, or all of a session, within a budget of rows.

        Of a session's those in ``kept`` go on.

        By TIME and SESSION the attempt counts, and the rows come again at once (or are dead after
        the last); of a key's rows only the first counts. By DRAIN nothing counts.
        """
        rows = 0
        settled: list[Settled] = []
        more = False
        for lease in list(held.leases.values()):
            if session is not None:
                if lease.session != session or lease.id in kept:
                    continue
            elif lease.until_us > now_us:
                continue
            if rows >= budget:
                more = True
                break
            runs = _first_rows(lease.runs, budget - rows)
            taken = sum([run[1] - run[0] for run in runs])
            more = more or taken < sum([run[1] - run[0] for run in lease.runs])
            rows += taken
            counted, free = runs, []
            if cause is Cause.DRAIN:
                counted, free = [], runs
            elif held.lines is not None:
                counted, free = _heads(held, runs)
            if counted:
                settled += self._settling.settled(
                    now_us, lease.session, subscription, held, lease.id >> LEASE_BITS,
                    lease.id & LEASE_LIMIT - 1, Outcome.RETRY, counted, 0, b"", cause,
                )  # fmt: skip
            if free:
                settled.append(
                    released(held, lease, free, cause if cause is Cause.DRAIN else Cause.KEY)
                )
        if settled:
            self._settling.record(now_us, Kind.ENDED, held, settled)
            self._context.woken(held)
        return Ended(rows, more)


def _heads(held: GroupQueue, runs: Sequence[LeasedRun]) -> tuple[list[LeasedRun], list[LeasedRun]]:
    """Return (rows at the head of their key, the others: nobody can have handled them).

    Not each key's first row of the lease: of a large one that ends in pieces, every piece has one.
    """
    lines = held.lines
    assert lines is not None
    heads: list[LeasedRun] = []
    others: list[LeasedRun] = []
    for start, stop, attempt, deliveries in runs:
        for offset in range(start, stop):
            row = (offset, offset + 1, attempt, deliveries)
            head = lines.by_hash[lines.hash_of[offset]].offsets[0]
            (heads if head == offset else others).append(row)
    return merge(heads), merge(others)


def _first_rows(runs: Sequence[LeasedRun], limit: int) -> list[LeasedRun]:
    found: list[LeasedRun] = []
    for start, stop, attempt, deliveries in sorted(runs):
        if limit <= 0:
            break
        rows = min(stop - start, limit)
        found.append((start, start + rows, attempt, deliveries))
        limit -= rows
    return found
