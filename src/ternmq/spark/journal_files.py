"""The journal in a folder: a broker's own, or a copy of it. Nothing is changed there."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.journal.reader import JournalReader
from ternmq.model.errors import DataLoss
from ternmq.model.types import Position
from ternmq.record.frames import Frames
from ternmq.spark.journal_names import Names
from ternmq.spark.journal_port import Bounds


class FileJournal:
    """See ``JournalPort``.

    Args:
        path: The data folder of a broker, or a copy of it.

    Raises:
        FileMissing: There is none, or no journal in it.
        CorruptJournal: No segment says how large segments are.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reader = JournalReader(path)
        self._seen = Position(0)
        """Up to here the end was looked for."""
        self._durable = 0

    def bounds(self) -> Bounds:
        """See ``JournalPort``.

        What the last records say is durable is believed, not that there are records: a broker that
        starts after a power cut may cut them off.
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
        """Return where the newest segment with records begins."""
        size = self._reader.segment_size
        base = oldest
        while next(self._reader.records(Position(base + size)), None) is not None:
            base = Position(base + size)
        # All that the first record of a segment says is durable stands before it.
        return base

    def pages(self, start: int, stop: int) -> Iterator[Frames]:
        """See ``JournalPort``."""
        reader = self._reader
        if start < reader.first():
            raise DataLoss(
                f"the journal in {self._path} begins at {reader.first()}, behind {start}"
            )
        pages = reader.pages(Position(start))
        for page in pages:
            yield page.below(stop)
            if pages.position >= stop:
                return
        if pages.position < stop:
            raise DataLoss(
                f"the journal in {self._path} ends at {pages.position}, before {stop}: "
                f"{pages.fault or 'nothing follows'}"
            )

    def close(self) -> None:
        """See ``JournalPort``."""
        self._reader.close()

    def names(self, position: int) -> Names:  # noqa: ARG002 - all that there are
        """See ``JournalPort``: numbers are never used again, so names of later ones do no harm."""
        told = self._reader.names()
        names = Names(
            {number: one.name for number, one in told.topics.items()},
            {number: one.name for number, one in told.groups.items()},
        )
        for number, one in told.sessions.items():
            names.joined(number, one.name, one.client, one.address)
        return names
