"""The order that a group queue keeps among the rows it owes.

``Order`` keeps none: each row may be handed out whatever the others do, so each method answers that
nothing waits for anything. A mode that keeps an order overrides them (`keyorder`, `queueorder`). An
order is derived from the rows of the group queue: facts change both, and a start computes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.runs import first_rows
from ternmq.broker.group.stamps import Admission
from ternmq.record.fact.facts import LeasedRun, Outcome, Pulled, Settled, Span
from ternmq.record.fact.replay import Replayed


class Rows(Protocol):
    """The rows that a group queue owes: leased, ready and waiting ones. Dead rows do not count."""

    leases: dict[int, Lease]

    def first_owed(self) -> int | None:
        """Return the first of the rows, or None."""
        ...

    def owed_spans(self) -> list[Span]:
        """Return all of them; sorted, disjoint."""
        ...

    def waiting_offsets(self) -> list[int]:
        """Return the waiting ones, by offset."""
        ...

    def ready_offsets(self) -> list[int]:
        """Return the ready ones, by offset."""
        ...


class Order:
    """No order. ``UNORDERED`` is the only object of this class: it stores nothing."""

    __slots__ = ()

    # -- facts ------------------------------------------------------------------------------------
    # `progress` calls ``pulled`` and ``settled`` only in keyed modes: other orders store nothing,
    # and pulls and settles of shared groups are the hot path.

    def pulled(self, position: int, fact: Pulled, admission: Admission) -> None:
        """Apply a PULLED fact to the rows that the admission lets through."""

    def settled(
        self, outcome: Outcome, given_back: Sequence[LeasedRun], runs: Sequence[LeasedRun]
    ) -> None:
        """Apply a settle of ``runs``; the rows of ``given_back`` were leased until now."""

    def replayed(self, position: int, fact: Replayed, admission: Admission) -> None:
        """Apply a REPLAY fact; its rows are ready, and no longer leased."""

    def give_back(self, runs: Iterable[LeasedRun]) -> None:
        """Note that rows are no longer leased."""

    def forget(self, spans: Iterable[Span]) -> None:
        """Remove rows, none of them leased, that the group is not owed any more."""

    def come_due(self, offsets: Sequence[int]) -> Sequence[int]:
        """Note that waiting rows have come due; return those that a pull does not find here."""
        return offsets

    def emptied(self, discarded: Discarded) -> Order:
        """Return the order of a group queue without rows; this one must not be used any more."""
        del discarded
        return self

    # -- STATE ------------------------------------------------------------------------------------

    def hashes(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return (offset, ordering hash) of the rows of a span whose hash is known."""
        del start, stop
        return []

    def load(self, hashes: Sequence[tuple[int, int]], leased: Sequence[Span]) -> None:
        """Add the rows of a shard: what ``hashes`` returned, and which rows are leased."""

    def finish_load(self) -> None:
        """Compute what is derived, once everything is replayed."""

    # -- what is there ----------------------------------------------------------------------------

    def hash_of(self, offset: int) -> int | None:
        """Return the ordering hash of a row, if it is known."""
        del offset
        return None

    # ``rows`` are those of the group queue, for orders that keep none of their own.

    def first_before(self, rows: Rows, offset: int) -> int | None:
        """Return the first row that a row waits for, or None."""
        del rows, offset
        return None

    def before(self, rows: Rows, offset: int) -> Iterable[int]:
        """Return the rows that a row waits for, the first one first."""
        del rows, offset
        return ()

    def idle_lines(self, rows: Rows) -> Iterator[Sequence[int]]:
        """Yield rows that wait for the first one of them, where none is leased."""
        del rows
        return iter(())

    # -- decisions --------------------------------------------------------------------------------

    def handled(self, taken: Sequence[LeasedRun]) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Split rows of a failing settle: those that can have been handled, and the others.

        The others are released, and no attempt is counted for them.
        """
        return taken, []

    def behind(
        self,
        lease: Lease,
        settled: Sequence[Settled],
        others: list[LeasedRun],
        taken: Sequence[LeasedRun],
    ) -> list[LeasedRun]:
        """Return the rows of a lease that have to be released with a failing settle.

        Args:
            lease: The lease.
            settled: The facts of the settle.
            others: Rows that the settle names and that ``handled`` split off; all are returned.
            taken: All rows that the settle names.
        """
        del lease, settled, taken
        return others

    def begun(
        self, rows: Rows, runs: Sequence[LeasedRun]
    ) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Split leased rows: those that a consumer may have begun, and the others.

        A lease that ends by time or with its session costs the first an attempt; the others are
        released.
        """
        del rows
        return runs, []

    def end_first(self, runs: Sequence[LeasedRun], limit: int) -> list[LeasedRun]:
        """Return the rows of a lease that end first if it ends in pieces, at most ``limit``."""
        return first_rows(runs, limit)

    def behind_replayed(
        self, leases: Iterable[Lease], runs: Sequence[LeasedRun], hashes: Sequence[int]
    ) -> list[tuple[Lease, list[LeasedRun]]]:
        """Return the leased rows that have to be released before rows are replayed.

        Args:
            leases: All leases of the group queue.
            runs: The rows that are replayed.
            hashes: Their ordering hashes, if the mode needs them.
        """
        del leases, runs, hashes
        return []


UNORDERED: Final = Order()
