"""Copies the owed rows of the oldest segment into MOVED records, before it is removed."""

from __future__ import annotations

from typing import Final

from ternmq.broker.group.history import failure_entries
from ternmq.broker.group.owed import Owed, owed_row, told_row
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.factkinds import MOVED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.upkeep.copied import OwedRow
from ternmq.model.errors import CorruptJournal
from ternmq.record.batch.batch import Batch, Compression, slice_batch, uncompressed
from ternmq.record.fact import messages, moved
from ternmq.record.fact.header import HEADER_BYTES, time_us_of
from ternmq.record.fact.moved import MovedFailure, Piece

ROWS_A_STEP: Final = 64
BYTES_A_STEP: Final = 256 * 1024
TOLD_BYTES: Final = 1024 * 1024
"""Most bytes of one row's failures in a record beside its content: 4 MB in one turn take 25 ms."""


class OwedCopies:
    """Writes MOVED records: rows that a group queue is owed, and what is known of their failures.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.

    Attributes:
        copied_rows: Rows copied since the start.
        copied_bytes: Bytes of their records.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: list[OwedRow] = []
        self._told: list[tuple[Progress, int]] = []
        """Group queues and offsets whose content is in a MOVED record, but not yet the failures."""
        self._inflated: tuple[int, bytes] = (-1, b"")
        """Position of the record inflated last, and its batch; its next row often follows."""
        self.copied_rows = 0
        self.copied_bytes = 0

    @property
    def under_way(self) -> bool:
        """Whether rows were given to ``put`` that are not copied yet."""
        return bool(self._rows or self._told)

    def put(self, rows: list[OwedRow]) -> None:
        """Take rows of one group queue to be copied. All those before must have been copied."""
        self._rows = rows

    def step(self, now_us: int, progress: Progress) -> None:
        """Write one MOVED record of the rows; none if the group queue is gone.

        Raises:
            JournalFull: There is no room; call again later.
            CorruptJournal, DiskReadError: A row cannot be read, so its segment must stay.
            WouldBlock: bytes must be read first; call again after that.
        """
        if not self._is_there(progress):
            self._rows.clear()
            self._told.clear()
        elif self._told:
            self._write_told(now_us, progress)
        else:
            self._write(now_us, progress)

    def end(self) -> None:
        """Let go of what was read: all rows of the segment are copied."""
        self._inflated = -1, b""

    def _write(self, now_us: int, progress: Progress) -> None:
        """Write one MOVED record of the next rows, as many as fit.

        The failures known to every group are stored with a row's content: once this copy exists,
        the other groups do not copy the row again, and the records of its failures may be removed.
        A row that needs more than a step's bytes gets a record of its own; failures beyond
        ``TOLD_BYTES`` go into the next record (if that one is lost in a crash, ``Copied`` finds
        that they are missing).
        """
        ledger = self._ledger
        pieces: list[Piece] = []
        failures: list[MovedFailure] = []
        room = ledger.journal.max_body - moved.HEAD.size
        left = min(BYTES_A_STEP, room)
        rest: list[tuple[Progress, int]] = []
        done = 0
        others = self._others(progress)
        rows = max(1, ROWS_A_STEP * 8 // max(8, len(others)))
        for row in self._rows[:rows]:
            still = owed_row(progress, row.offset)
            piece = self._piece(progress, row.offset) if still is not None and row.content else None
            told: list[tuple[Progress, Owed]] = []
            if still is not None and still.position:
                told.append((progress, still))
            if piece is not None:
                told += [(other, one) for other in others if (one := told_row(other, row.offset))]
            known = [self._failure(*one) for one in told]
            size = sum([one.body_bytes for one in known]) + (piece.body_bytes if piece else 0)
            alone = size > left
            if alone:
                if pieces or failures:
                    break
                left = min(room, TOLD_BYTES + (piece.body_bytes if piece else 0))
            done += 1
            if piece is not None:
                pieces.append(piece)
                left -= piece.body_bytes
            for (of, one), failure in zip(told, known, strict=True):
                left -= failure.body_bytes
                if left < 0 and (pieces or failures):
                    rest.append((of, one.offset))
                else:
                    failures.append(failure)
            if alone:
                break
        self._append(now_us, progress, pieces, failures)
        del self._rows[:done]
        self._told += rest
        self.copied_rows += done

    def _write_told(self, now_us: int, progress: Progress) -> None:
        """Write one MOVED record of failures that did not fit beside their row's content."""
        failures: list[MovedFailure] = []
        left = min(BYTES_A_STEP, self._ledger.journal.max_body) - moved.HEAD.size
        done = 0
        for other, offset in self._told[:ROWS_A_STEP]:
            row = told_row(other, offset) if self._is_there(other) else None
            if row is not None:
                failure = self._failure(other, row)
                left -= failure.body_bytes
                if left < 0 and failures:
                    break
                failures.append(failure)
            done += 1
        self._append(now_us, progress, [], failures)
        del self._told[:done]

    def _append(
        self, now_us: int, progress: Progress, pieces: list[Piece], failures: list[MovedFailure]
    ) -> None:
        if pieces or failures:
            ledger = self._ledger
            fact = moved.Moved(
                progress.topic, progress.queue, tuple(_joined(pieces)), tuple(failures)
            )
            position = ledger.record(now_us, MOVED, fact)
            self.copied_bytes += ledger.end - position

    def _is_there(self, progress: Progress) -> bool:
        key = progress.group, progress.topic, progress.queue
        return self._ledger.views.progress.get(key) is progress

    def _others(self, progress: Progress) -> list[Progress]:
        """Return the same queue of the topic's other groups."""
        views = self._ledger.views
        topic = views.catalog.topics[progress.topic]
        keys = [(group, progress.topic, progress.queue) for group in topic.subscriptions]
        return [
            views.progress[key]
            for key in keys
            if key[0] != progress.group and key in views.progress
        ]

    def _failure(self, progress: Progress, row: Owed) -> MovedFailure:
        """Return everything that is known of a row's failures."""
        ledger = self._ledger
        entries = failure_entries(
            ledger.store, progress, row.offset, row.position, ledger.journal.first
        )
        return MovedFailure(
            progress.group, row.attempt, row.deliveries, row.offset, row.when_us, tuple(entries)
        )

    def _piece(self, progress: Progress, offset: int) -> Piece:
        """Return the row's content as a piece, with the time at which it was first stored."""
        ledger = self._ledger
        topic = ledger.views.catalog.topics[progress.topic]
        places = ledger.index.locate(progress.topic, progress.queue, offset, offset + 1, 1)
        if places.positions:
            position = places.positions[0]
            record = ledger.store.at_place(places, 0)
            stored = messages.of_record(record)
            batch, row, time_us = stored.batch, stored.row_of(offset), time_us_of(record)
        else:
            place = ledger.index.moved(progress.topic, progress.queue, offset)
            if place is None:
                raise CorruptJournal(
                    f"offset {offset} of queue {progress.queue} of topic {topic.name} is owed to a "
                    "group and kept nowhere"
                )
            position = place.position
            copy, row = moved.unpack(ledger.store.get(position)[HEADER_BYTES:]).row(place.row)
            batch, time_us = copy.batch, copy.time_us
        plain = batch
        if Batch(batch).compression is not Compression.NONE:
            if self._inflated[0] != position:
                self._inflated = position, uncompressed(batch, topic.seed)
            plain = self._inflated[1]
        piece = Piece(offset, time_us, 0, 1, slice_batch(plain, row, row + 1, topic.seed))
        if piece.body_bytes > ledger.journal.max_body - moved.HEAD.size:
            return Piece(offset, time_us, row, 1, batch)  # inflated, it fits into no segment
        return piece


def _joined(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces sorted by offset, as the index requires."""
    return sorted(pieces, key=lambda piece: piece.first_offset)
