"""Applies the records of transactions with check-back: PREPARED, RESOLVED and CHECKED.

`resolving` calls it for the first two.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from ternmq.broker.ledger.factkinds import CHECKED, At
from ternmq.broker.ledger.views import Views
from ternmq.broker.transaction.checked import PAGE_BITS
from ternmq.journal.index.batch_facts import facts_of
from ternmq.record.batch.batch import Column, flags_of
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact import state
from ternmq.record.fact.checked import Checked
from ternmq.record.fact.facts import Settled
from ternmq.record.fact.transactions import Prepared, Resolved

_WITH_DUE: Final = 1 << Column.DUE_US
_NO_TIMES: Final = array("q")


class CheckedViews:
    """The part of ``Views`` for transactions with check-back. Deterministic; no I/O.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_views",)

    def __init__(self, views: Views) -> None:
        self._views = views

    def register(self) -> None:
        """Add CHECKED to the table of the views."""
        self._views.on(CHECKED, self.apply_checked)

    def apply_prepared(self, at: At, fact: Prepared) -> None:
        """Apply a PREPARED record: invisible rows, settles and moves; or a copy of rows."""
        views, position, time_us = self._views, at.position, at.time_us
        tag_mask, due_us = 0, _NO_TIMES
        copied = fact.replaced is not None
        if fact.count:
            known = facts_of(fact.batch)
            views.catalog.note_prepared(position, fact.topic, fact.batch)
            tag_mask = known.tag_mask
            if position >= views.index_from:
                views.index.add_unseen(
                    fact.topic,
                    known.rows,
                    position,
                    known.producer_id,
                    known.first_sequence,
                    known.key_hashes,
                    b"",
                    time_us,
                )
                if copied:
                    views.index.note_fulfilled()
            if position >= views.begin and not copied:
                views.dedup.add(
                    position,
                    time_us,
                    known.producer_id,
                    known.first_sequence,
                    known.rows,
                    known.crc,
                )
            if flags_of(fact.batch) & _WITH_DUE:
                due_us = array("q", due_times_of(fact.batch))
        number = fact.transaction
        views.undecided.next_number = max(views.undecided.next_number, number + 1)
        page = fact.ordinal >> PAGE_BITS
        if position >= views.objects.stamp(state.CHECKED, 0, 0, page, number):
            views.checked.apply_prepared(position, at.length, time_us, fact, tag_mask, due_us)
        for settle in () if copied else fact.settles:
            progress = views.progress.get((settle.group, settle.topic, settle.queue))
            if progress is not None:
                progress.apply_lent(position, settle, number)

    def apply_resolved(self, at: At, fact: Resolved) -> None:
        """Apply what only these transactions have: settles and moves.

        Their rows: see ``TransactionViews.apply_resolved``.
        """
        views, position = self._views, at.position
        if fact.settles:
            self._apply_settles(position, fact.settles)
        for move in fact.moves:
            progress = views.progress.get((move.group, move.topic, move.queue))
            if progress is not None:
                progress.apply_cursor(position, move)
        views.checked.apply_resolved(fact.transaction)

    def _apply_settles(self, position: int, settles: Sequence[Settled]) -> None:
        progress_of = self._views.progress
        if len(settles) == 1:  # as of most transactions
            (one,) = settles
            progress = progress_of.get((one.group, one.topic, one.queue))
            if progress is not None:
                progress.apply_settled(position, one)
            return
        by_queue: dict[tuple[int, int, int], list[Settled]] = {}
        for one in settles:
            by_queue.setdefault((one.group, one.topic, one.queue), []).append(one)
        for key, some in by_queue.items():
            progress = progress_of.get(key)
            if progress is not None:
                progress.apply_decided(position, some)

    def apply_checked(self, at: At, fact: Checked) -> None:
        """Apply a CHECKED record."""
        views = self._views
        if at.position >= views.objects.stamp(state.CHECKED, 0, 0, 0, fact.transaction):
            views.checked.apply_checked(at.position, at.time_us, fact)
