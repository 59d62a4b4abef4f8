"""The journal in a folder: a broker's own, or a copy of it. Read-only."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.journal.reader.reader import JournalReader
from ternmq.model.errors import CorruptJournal, DataLoss, FileMissing, JournalExpired
from ternmq.model.types import Position
from ternmq.record.page.frames import Frames
from ternmq.spark.journal.names import Names
from ternmq.spark.journal.port import Bounds


class FileJournal:
    """Implements ``JournalPort``. Not thread-safe.

    Args:
        path: The data folder of a broker, or a copy of it.

    Raises:
        FileMissing: There is no such folder, or no journal in it.
        CorruptJournal: No segment states the size of segments.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reader = JournalReader(path)
        self._seen = Position(0)
        """The end was searched up to here."""
        self._durable = 0

    def bounds(self) -> Bounds:
        """Return the kept positions.

        The end is the durable position stated by the last records, not the last record itself: a
        broker that starts after a power cut may cut off later ones.
        """
        reader = self._reader
        oldest = reader.first()
        start = max(self._seen, oldest)
        if not self._seen:
            start = self._newest_segment(oldest)
        pages = reader.pages(start)
        for _ in pages:
            pass
        self._durable = max(self._durable, pages.durable)
        self._seen = Position(pages.position)
        return Bounds(oldest, max(oldest, self._durable), reader.segment_size)

    def _newest_segment(self, oldest: Position) -> Position:
        """Return the beginning of the newest segment with records."""
        size = self._reader.segment_size
        base = oldest
        while next(self._reader.records(Position(base + size)), None) is not None:
            base = Position(base + size)
        # The durable position stated by a segment's first record is at most its beginning.
        return base

    def pages(self, start: int, stop: int) -> Iterator[Frames]:
        """Yield the records that begin in ``[start, stop)``, checked."""
        try:
            first = self._reader.at_or_after(start, stop)
        except FileMissing as error:
            self._check_kept(start)
            raise DataLoss(f"the journal in {self._path} has no position {start}") from error
        except CorruptJournal:
            self._check_kept(start)
            raise
        if first >= stop:
            return
        pages = self._reader.pages(first)
        for page in pages:
            yield page.below(stop)
            if pages.position >= stop:
                return
        if pages.position < stop:
            self._check_kept(pages.position)
            raise DataLoss(
                f"the journal in {self._path} ends at {pages.position}, before {stop}: "
                f"{pages.fault or 'nothing follows'}"
            )

    def _check_kept(self, position: int) -> None:
        """Raise if retention has removed a position, as it may do while its segment is read.

        Raises:
            JournalExpired: The journal begins after it.
        """
        oldest = self._reader.first()
        if position < oldest:
            error = JournalExpired(
                f"the journal in {self._path} begins at {oldest}; {position} is gone"
            )
            error.oldest = oldest
            raise error

    def close(self) -> None:
        """Close the files."""
        self._reader.close()

    def names(self, position: int) -> Names:  # noqa: ARG002 - all that there are
        """Return all names: numbers are never reused, so later names do no harm."""
        told = self._reader.names()
        names = Names(
            {number: one.name for number, one in told.topics.items()},
            {number: one.name for number, one in told.groups.items()},
        )
        for number, one in told.sessions.items():
            names.joined(number, one.name, one.client, one.address)
        return names
