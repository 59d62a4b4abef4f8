"""Applies the records of transactions to the views: PREPARED and RESOLVED, live and at a start."""

from __future__ import annotations

from array import array

from ternmq.broker.catalog.catalog import PAGE_BITS as PAGES
from ternmq.broker.catalog.catalog import QUEUE_BITS
from ternmq.broker.ledger.checks import CheckedViews
from ternmq.broker.ledger.factkinds import PREPARED, RESOLVED, At
from ternmq.broker.ledger.views import Views
from ternmq.broker.transaction.duetimes import Times
from ternmq.broker.transaction.undecided import PAGE_BITS
from ternmq.journal.index.batch_facts import facts_of
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact.state import EXPIRING, PREPARED_ROWS, TRANSACTION, WRITER
from ternmq.record.fact.transactions import Prepared, Resolution, Resolved


class TransactionViews:
    """The part of ``Views`` for transactions. Deterministic; no I/O.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_checked", "_views")

    def __init__(self, views: Views) -> None:
        self._views = views
        self._checked = CheckedViews(views)

    def register(self) -> None:
        """Add the two kinds, and CHECKED, to the table of the views."""
        self._checked.register()
        self._views.on(PREPARED, self.apply_prepared)
        self._views.on(RESOLVED, self.apply_resolved)

    def apply_prepared(self, at: At, fact: Prepared) -> None:
        """Apply a PREPARED record: invisible rows of a transaction."""
        if fact.group:
            self._checked.apply_prepared(at, fact)
            return
        views, position, time_us = self._views, at.position, at.time_us
        known = facts_of(fact.batch)
        views.catalog.note_prepared(position, fact.topic, fact.batch)
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
        if position >= views.begin:
            views.dedup.add(
                position, time_us, known.producer_id, known.first_sequence, known.rows, known.crc
            )
        undecided, writers = views.undecided, views.writers
        undecided.next_number = max(undecided.next_number, fact.transaction + 1)
        writers.next_number = max(writers.next_number, fact.writer + 1)
        if position >= views.objects.stamp(WRITER, fact.writer):
            writers.apply_prepared(position, time_us, fact)
        page = fact.ordinal >> PAGE_BITS
        if fact.scheduled:
            times = Times(position, array("q", due_times_of(fact.batch)))
            undecided.times.add(fact.transaction, fact.ordinal, times)
        if position >= views.objects.stamp(TRANSACTION, 0, 0, page, fact.transaction):
            undecided.apply_prepared(position, at.length, time_us, fact, known.tag_mask)

    def apply_resolved(self, at: At, fact: Resolved) -> None:
        """Apply a RESOLVED record: the rows become messages, are scheduled, or are dropped."""
        views, position, time_us = self._views, at.position, at.time_us
        end = position + at.length
        checked = bool(fact.group)
        if position >= views.index_from:
            views.index.add_resolved(
                position,
                time_us,
                fact.parts,
                fact.dropped,
                fact.due,
                fact.transaction if checked else 0,
                committed=fact.outcome is Resolution.COMMITTED,
            )
        rows = views.prepared_rows
        for part in fact.parts:
            stop = part.first_offset + part.rows
            topic = views.catalog.topics.get(part.topic)
            if topic is not None and part.queue < len(topic.queues):
                queue = topic.queues[part.queue]
                places = part.topic >> PAGES, part.queue >> QUEUE_BITS
                if topic.queues[0].expiring_stop and position >= views.objects.stamp(
                    EXPIRING, *places
                ):
                    views.catalog.note_expiring(position, queue, stop)
                if position >= queue.stamp:
                    queue.next = stop
                    queue.end = end
                    queue.page[0] = position
            page = rows.page_of(part.position, part.topic, part.queue)
            if position >= views.objects.stamp(PREPARED_ROWS, page[1], page[2], 0, page[0]):
                rows.add(position, page, part.topic, part.queue, stop, time_us)
        for due in fact.due:
            views.schedule.apply_decided(position, due)
        if checked:
            self._checked.apply_resolved(at, fact)
            return
        views.undecided.apply_resolved(fact.transaction)
        views.writers.next_number = max(views.writers.next_number, fact.writer + 1)
        if position >= views.objects.stamp(WRITER, fact.writer):
            views.writers.apply_resolved(position, end, time_us, fact)
