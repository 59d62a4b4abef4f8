"""Lists of scheduled rows: how many are due in each hour, and which they are.

May raise ``WouldBlock``: run the job and call again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.broker.query.held import Held
from ternmq.broker.schedule.rowpages import ScheduledRow
from ternmq.journal.cache.cold import WouldBlock
from ternmq.model.errors import CorruptJournal, DiskReadError, MessageNotFound
from ternmq.model.outcomes import message_id
from ternmq.model.types import HOUR_US
from ternmq.record.batch.batch import Batch
from ternmq.record.fact.header import time_us_of
from ternmq.record.fact.schedule import NO_QUEUE
from ternmq.record.fact.transactions import of_scheduled
from ternmq.wire.control.schedule import ScheduledHour, ScheduledInfo

PAGE_ROWS: Final = 250
"""Most rows of a page, even if its limit is higher: that many take about a millisecond."""
PAGE_BYTES: Final = 2 << 20
"""Bytes of records after which a page ends."""


class Hours(NamedTuple):
    """Hours of a topic; ``next``: the last hour if there are later ones, else None."""

    hours: list[ScheduledHour]
    next: int | None


class Rows(NamedTuple):
    """Scheduled rows of a topic; ``next``: the entry at which the next page begins, or None."""

    rows: list[ScheduledInfo]
    next: int | None


class ScheduledQueries:
    """Lists what is scheduled.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    def hours(self, topic_name: str, after: int, limit: int) -> Hours:
        """Return hours in which rows of a topic are due, the earliest first.

        Args:
            topic_name: The topic.
            after: Only hours (due time in µs // an hour) above this one.
            limit: Most hours.

        Raises:
            UnknownTopic.
        """
        views = self._held.views
        topic = views.schedule.topics.get(views.catalog.topic(topic_name).number)
        counts = {} if topic is None else topic.hours
        later = sorted([hour for hour in counts if hour > after])
        told = later[:limit]
        return Hours(
            [ScheduledHour(hour_us=hour * HOUR_US, messages=counts[hour]) for hour in told],
            told[-1] if len(later) > limit else None,
        )

    def rows(
        self, topic_name: str, since_us: int, until_us: int, first_entry: int, limit: int
    ) -> Rows:
        """Return pending rows of a topic that are due in ``[since_us, until_us)``, by entry.

        A page may have fewer rows than ``limit``, or none, and not be the last. Rows that cannot be
        read are left out: they are not delivered either.

        Args:
            topic_name: The topic.
            since_us: Broker time.
            until_us: Broker time.
            first_entry: Where to begin: 0, or the ``next`` of the page before.
            limit: Most rows.

        Raises:
            UnknownTopic, WouldBlock.
        """
        views = self._held.views
        topic = views.catalog.topic(topic_name).number
        most = min(limit, PAGE_ROWS)
        found, following = views.schedule.pages.scan(topic, since_us, until_us, first_entry, most)
        records = _Records(self._held)
        told: list[ScheduledInfo] = []
        for one in found:
            if records.bytes_read >= PAGE_BYTES:
                return Rows(told, one.entry)
            try:
                told.append(records.told(one))
            except WouldBlock:
                if told:
                    return Rows(told, one.entry)
                raise
            except (CorruptJournal, DiskReadError, MessageNotFound):
                continue
        return Rows(told, following)


class _Records:
    """Reads the records of a page; keeps the last one, as many rows may be in it."""

    __slots__ = ("_batch", "_held", "_position", "_stored_us", "bytes_read")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._position = -1
        self._stored_us = 0
        self._batch: Batch
        self.bytes_read = 0

    def told(self, one: ScheduledRow) -> ScheduledInfo:
        """Return a row as it is listed.

        Raises:
            CorruptJournal, DiskReadError, MessageNotFound: It cannot be read.
            WouldBlock: bytes must be read first.
        """
        if one.position != self._position:
            record = self._held.store.get(one.position)
            stored = of_scheduled(record)
            self._batch = Batch(stored.batch)
            origin = stored.origin
            self._stored_us = time_us_of(record) if origin is None else origin.time_us
            self._position = one.position
            self.bytes_read += len(record)
        batch = self._batch
        return ScheduledInfo(
            id=message_id(batch.producer_id, batch.first_sequence + one.row),
            due_us=one.due_us,
            stored_us=self._stored_us,
            application_id=batch.application_id(one.row),
            key=batch.key(one.row),
            ordering_key=batch.ordering_key(one.row),
            queue=None if one.queue == NO_QUEUE else one.queue,
        )
