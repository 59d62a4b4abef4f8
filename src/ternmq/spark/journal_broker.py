"""The journal of a broker that works, page by page; needs the right ``audit``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from google_crc32c import value as crc32c

from ternmq.client.bulk import Bulk, Records
from ternmq.model.errors import JournalExpired, ProtocolError
from ternmq.record import control
from ternmq.record.header import HEADER, HEADER_BYTES, Kind
from ternmq.spark.bulk_port import reach
from ternmq.spark.connecting import Broker
from ternmq.spark.journal_events import Record
from ternmq.spark.journal_names import Client, Names
from ternmq.spark.journal_port import Bounds

_PEEK_BYTES: Final = 4096


class BrokerJournal:
    """See ``JournalPort``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: Bulk | None = None
        self._segment = 0
        self._end = 0
        """A position that was durable, and is where a record begins or will begin."""

    def _bulk(self) -> Bulk:
        if self._made is None:
            self._made = reach(self._broker)
        return self._made

    def _page(self, position: int) -> Records:
        """Return a page from a position on, or from the oldest if that is gone."""
        bulk = self._bulk()
        while True:
            try:
                return bulk.journal(position, max_bytes=_PEEK_BYTES, with_bodies=False)
            except JournalExpired as error:
                position = error.oldest

    def bounds(self) -> Bounds:
        """See ``JournalPort``."""
        if not self._segment:
            page = self._page(0)
            for record in _records(page.records):
                if record.kind == Kind.SEGMENT:
                    self._segment = control.SEGMENT.unpack_from(record.body)[1]
                break
            self._end = page.durable
        page = self._page(self._end)
        self._end = page.durable
        return Bounds(page.oldest, page.durable, self._segment)

    def names(self, position: int) -> Names:
        """See ``JournalPort``."""
        told = self._bulk().catalog(position)
        return Names(
            {number: one.name for number, one in told.topics.items()},
            {number: one.name for number, one in told.groups.items()},
            {
                number: Client(one.app, one.client, one.address)
                for number, one in told.sessions.items()
            },
        )

    def records(self, start: int, stop: int) -> Iterator[Record]:
        """See ``JournalPort``."""
        for page in self._bulk().journal_pages(start, stop, with_bodies=False):
            for record in _records(page.records):
                if record.position >= stop:
                    return
                yield record

    def close(self) -> None:
        """See ``JournalPort``."""
        if self._made is not None:
            self._made.close()
            self._made = None


def _records(data: bytes) -> Iterator[Record]:
    """Yield the records of a page.

    Raises:
        ProtocolError: They are damaged.
    """
    at, end = 0, len(data)
    while at < end:
        if end - at < HEADER_BYTES:
            raise ProtocolError("the journal's page ends within a record")
        crc, _, length, _, kind, _, position, _, time_us, epoch, _ = HEADER.unpack_from(data, at)
        if length < HEADER_BYTES or at + length > end:
            raise ProtocolError("the journal's page ends within a record")
        if crc32c(data[at + 4 : at + length]) != crc:
            raise ProtocolError("the checksum of a record of the journal is wrong")
        yield Record(position, kind, epoch, time_us, data[at + HEADER_BYTES : at + length])
        at += length
