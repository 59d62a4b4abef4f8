"""The order of a queue: its rows are handed out one after another, to one consumer at a time.

All rows that are owed and not dead wait for the first one of them. Nothing is stored: what waits
for what follows from the rows that are leased, ready and waiting. ``QUEUE_ORDER`` is the only
object of this class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ternmq.broker.group.lease import Lease
from ternmq.broker.group.order import Order, Rows
from ternmq.broker.group.runs import last_rows, merge, split
from ternmq.record.fact.facts import LeasedRun, Outcome, Settled

_FOREVER: Final = 1 << 63
_KEY: Final = 0
"""The ordering hash of every row: the whole queue is one line."""


class QueueOrder(Order):
    """See the module."""

    __slots__ = ()

    # -- facts ------------------------------------------------------------------------------------

    def come_due(self, offsets: Sequence[int]) -> Sequence[int]:
        """Return nothing: pulls look at the first rows that wait."""
        del offsets
        return ()

    # -- what is there ----------------------------------------------------------------------------

    def hash_of(self, offset: int) -> int | None:
        """Return the hash that all rows share, owed or not."""
        del offset
        return _KEY

    def first_before(self, rows: Rows, offset: int) -> int | None:
        """Return the first owed row, if it is before the row."""
        first = rows.first_owed()
        return first if first is not None and first < offset else None

    def before(self, rows: Rows, offset: int) -> Iterable[int]:
        """Yield the owed rows before a row, the first one first."""
        for start, stop in rows.owed_spans():
            yield from range(start, min(stop, offset))

    def idle_lines(self, rows: Rows) -> Iterator[Sequence[int]]:
        """Yield all ready rows behind each row that waits, unless a row is leased.

        Also ready rows with smaller offsets wait, as after a replay: the queue is closed until the
        waiting row is due.
        """
        if not rows.leases:
            ready = rows.ready_offsets()
            for offset in rows.waiting_offsets():
                yield [offset, *ready]

    # -- decisions --------------------------------------------------------------------------------

    def handled(self, taken: Sequence[LeasedRun]) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Return the first of the rows, and the others."""
        first = min(taken)[0]
        others, handled = split(sorted(taken), first, first + 1)
        return handled, others

    def behind(
        self,
        lease: Lease,
        settled: Sequence[Settled],
        others: list[LeasedRun],
        taken: Sequence[LeasedRun],
    ) -> list[LeasedRun]:
        """Return the others, and the rows of the lease behind a row that comes again.

        A row comes again if it failed or is released; a dead row blocks nothing.
        """
        again = [run for one in settled if one.outcome is not Outcome.DEAD for run in one.runs]
        again += others
        if not again:
            return []
        behind = _after(lease.runs, min(again)[0])
        for start, stop, _, _ in taken:
            behind, _ = split(behind, start, stop)
        return merge([*others, *behind])

    def begun(
        self, rows: Rows, runs: Sequence[LeasedRun]
    ) -> tuple[Sequence[LeasedRun], list[LeasedRun]]:
        """Return the first owed row of the queue, if it is among the rows, and the others.

        Not the first row of the lease: if a large lease ends in pieces, every piece would have one.
        """
        first = rows.first_owed()
        if first is None:
            return [], list(runs)
        others, begun = split(list(runs), first, first + 1)
        return begun, others

    def end_first(self, runs: Sequence[LeasedRun], limit: int) -> list[LeasedRun]:
        """Return the last rows, so that no row stays leased behind a freed one."""
        return last_rows(runs, limit)

    def behind_replayed(
        self, leases: Iterable[Lease], runs: Sequence[LeasedRun], hashes: Sequence[int]
    ) -> list[tuple[Lease, list[LeasedRun]]]:
        """Return the leased rows behind the first replayed row, so that none overtakes it.

        Leased rows that are replayed themselves are returned too: a crash may leave this release as
        the last record.
        """
        del hashes
        if not runs:
            return []
        first = min(runs)[0]
        found = [(lease, _after(lease.runs, first)) for lease in leases]
        return [(lease, behind) for lease, behind in found if behind]


def _after(runs: Sequence[LeasedRun], offset: int) -> list[LeasedRun]:
    """Return the parts of the runs after a row."""
    return split(list(runs), offset + 1, _FOREVER)[1]


QUEUE_ORDER: Final = QueueOrder()
