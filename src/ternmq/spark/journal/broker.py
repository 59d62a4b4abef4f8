"""The journal of a running broker, page by page; needs the right ``audit``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ternmq.client.bulk import Bulk, Records
from ternmq.model.errors import JournalExpired
from ternmq.record.fact import control
from ternmq.record.fact.header import Kind
from ternmq.record.page.frames import Frames
from ternmq.spark.broker.bulk_port import reach
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.journal.names import Client, Names
from ternmq.spark.journal.port import Bounds

_PEEK_BYTES: Final = 4096


class BrokerJournal:
    """Implements ``JournalPort``. Not thread-safe."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: Bulk | None = None
        self._segment = 0
        self._end = 0
        """A position that was durable: a record begins, or will begin, there."""

    def _bulk(self) -> Bulk:
        if self._made is None:
            self._made = reach(self._broker)
        return self._made

    def _page(self, position: int) -> Records:
        """Return the page at a position, or at the oldest if that one is gone."""
        bulk = self._bulk()
        while True:
            try:
                return bulk.journal(position, max_bytes=_PEEK_BYTES, with_bodies=False)
            except JournalExpired as error:
                position = error.oldest

    def bounds(self) -> Bounds:
        """Return the kept positions."""
        if not self._segment:
            page = self._page(0)
            frames = Frames(page.records)
            frames.check()
            if len(frames) and frames.kinds[0] == Kind.SEGMENT:
                self._segment = control.SEGMENT.unpack_from(frames.body(0))[1]
            self._end = page.durable
        page = self._page(self._end)
        self._end = page.durable
        anywhere = self._bulk().reads_journal_anywhere
        return Bounds(page.oldest, page.durable, self._segment, anywhere)

    def names(self, position: int) -> Names:
        """Return the names of the numbers in records from a position on."""
        told = self._bulk().catalog(position)
        return Names(
            {number: one.name for number, one in told.topics.items()},
            {number: one.name for number, one in told.groups.items()},
            {
                number: Client(one.app, one.client, one.address)
                for number, one in told.sessions.items()
            },
        )

    def pages(self, start: int, stop: int) -> Iterator[Frames]:
        """Yield the records that begin in ``[start, stop)``, checked."""
        bulk = self._bulk()
        for page in bulk.journal_pages(
            start, stop, with_bodies=False, anywhere=bulk.reads_journal_anywhere
        ):
            frames = Frames(page.records).below(stop)
            frames.check()
            yield frames

    def close(self) -> None:
        """Close the connection; may be called again."""
        if self._made is not None:
            self._made.close()
            self._made = None
