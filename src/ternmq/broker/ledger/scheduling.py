"""Applies the records of scheduled rows to the views: SCHEDULED and CANCELLED, live and at a start.

MESSAGES with FULFILS, which makes messages of them, is applied by `views`.
"""

from __future__ import annotations

from ternmq.broker.ledger.factkinds import CANCELLED, SCHEDULED, At
from ternmq.broker.ledger.views import Views
from ternmq.journal.index.batch_facts import facts_of
from ternmq.record.fact.messages import Messages
from ternmq.record.fact.schedule import Cancelled


class ScheduleViews:
    """The part of ``Views`` for scheduled rows. Deterministic; no I/O.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_views",)

    def __init__(self, views: Views) -> None:
        self._views = views

    def register(self) -> None:
        """Add the two kinds to the table of the views."""
        self._views.on(SCHEDULED, self.apply_scheduled)
        self._views.on(CANCELLED, self.apply_cancelled)

    def apply_scheduled(self, at: At, fact: Messages) -> None:
        """Apply a SCHEDULED record: rows that become messages when they are due."""
        views, position, time_us = self._views, at.position, at.time_us
        known = facts_of(fact.batch)
        if position >= views.index_from:
            views.index.add_unseen(
                fact.topic,
                known.rows,
                position,
                known.producer_id,
                known.first_sequence,
                known.key_hashes,
                known.ids,
                time_us,
            )
            if fact.origin is not None:
                views.index.note_fulfilled()
        if position >= views.begin and fact.origin is None:
            views.dedup.add(
                position, time_us, known.producer_id, known.first_sequence, known.rows, known.crc
            )
            if known.ids:
                views.add_ids(fact.topic, position, time_us, fact)
        views.schedule.apply_scheduled(position, time_us, fact)

    def apply_cancelled(self, at: At, fact: Cancelled) -> None:
        """Apply a CANCELLED record: rows that never become messages."""
        for row in fact.rows:
            self._views.schedule.apply_cancelled(at.position, row)
