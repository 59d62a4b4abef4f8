"""MOVED: rows that are still owed, copied from a segment that is about to be removed.

Ruler of the body::

     0  u32 topic, u32 queue
     8  u32 piece_count, u32 failure_count
    16  pieces:   u64 first_offset, i64 time_us, u32 row_start, u32 row_count, u32 batch_length,
                  u32 0, the batch, zero padded to 8
     .  failures: u32 group, u16 attempt, u16 deliveries, u64 offset, i64 when_us,
                  u32 entry_count, u32 0, then the entries, oldest first:
                  i64 time_us, u32 session, u16 attempt, u8 outcome, u8 cause, u32 reason_length,
                  u32 0, the reason, zero padded to 8

Rows ``row_start`` to ``row_start + row_count`` of a piece have the offsets from ``first_offset``
on; ``time_us`` is the broker time at which they were first stored.
The rows of a MOVED are numbered through its pieces in order: row 0 is the first of the first piece.
A failure contains the newest ``MAX_HISTORY`` failures of an owed row; from here on the failure
store names this record for it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

HEAD: Final = struct.Struct("<IIII")
PIECE: Final = struct.Struct("<QqIIII")
FAILURE: Final = struct.Struct("<IHHQqII")
ENTRY: Final = struct.Struct("<qIHBBII")
MAX_HISTORY: Final = 16
"""Most failures of a row that are copied: the newest ones."""


@dataclass(slots=True, frozen=True)
class Piece:
    """Consecutive rows of one batch, first stored at ``time_us``."""

    first_offset: int
    time_us: int
    row_start: int
    row_count: int
    batch: bytes

    @property
    def body_bytes(self) -> int:
        """Bytes of this piece in a body."""
        size = len(self.batch)
        return PIECE.size + size + -size % 8


@dataclass(slots=True, frozen=True)
class FailureEntry:
    """One failure of a row."""

    time_us: int
    session: int
    attempt: int
    outcome: int
    cause: int
    reason: bytes


@dataclass(slots=True, frozen=True)
class MovedFailure:
    """The failures of an owed row, oldest first."""

    group: int
    attempt: int
    deliveries: int
    offset: int
    when_us: int
    entries: tuple[FailureEntry, ...]

    @property
    def body_bytes(self) -> int:
        """Bytes of this failure in a body."""
        sizes = [len(entry.reason) for entry in self.entries]
        return FAILURE.size + sum(ENTRY.size + size + -size % 8 for size in sizes)


@dataclass(slots=True, frozen=True)
class Moved:
    """A decoded MOVED body."""

    topic: int
    queue: int
    pieces: tuple[Piece, ...]
    failures: tuple[MovedFailure, ...]

    def row(self, row: int) -> tuple[Piece, int]:
        """Return the piece that holds a row of the record, and the row's number in its batch.

        Raises:
            IndexError: There is no such row.
        """
        for piece in self.pieces:
            if row < piece.row_count:
                return piece, piece.row_start + row
            row -= piece.row_count
        raise IndexError(row)

    def offsets(self) -> list[int]:
        """Return the offset of every row, in the order of the rows."""
        return [piece.first_offset + row for piece in self.pieces for row in range(piece.row_count)]


def pack(moved: Moved) -> bytes:
    """Return the body of a MOVED record."""
    parts = [HEAD.pack(moved.topic, moved.queue, len(moved.pieces), len(moved.failures))]
    for piece in moved.pieces:
        size = len(piece.batch)
        parts.append(
            PIECE.pack(piece.first_offset, piece.time_us, piece.row_start, piece.row_count, size, 0)
        )
        parts.append(piece.batch)
        parts.append(bytes(-size % 8))
    for failure in moved.failures:
        parts.append(
            FAILURE.pack(
                failure.group,
                failure.attempt,
                failure.deliveries,
                failure.offset,
                failure.when_us,
                len(failure.entries),
                0,
            )
        )
        for entry in failure.entries:
            parts.append(
                ENTRY.pack(
                    entry.time_us,
                    entry.session,
                    entry.attempt,
                    entry.outcome,
                    entry.cause,
                    len(entry.reason),
                    0,
                )
            )
            parts.append(entry.reason)
            parts.append(bytes(-len(entry.reason) % 8))
    return b"".join(parts)


def unpack(body: bytes) -> Moved:
    """Return the parts of a MOVED body.

    Raises:
        struct.error, ValueError: The body is cut short.
    """
    topic, queue, piece_count, failure_count = HEAD.unpack_from(body)
    at = HEAD.size
    pieces: list[Piece] = []
    for _ in range(piece_count):
        first, time_us, start, rows, size, _ = PIECE.unpack_from(body, at)
        at += PIECE.size
        pieces.append(Piece(first, time_us, start, rows, body[at : at + size]))
        at += size + -size % 8
    failures: list[MovedFailure] = []
    for _ in range(failure_count):
        group, attempt, deliveries, offset, when_us, entry_count, _ = FAILURE.unpack_from(body, at)
        at += FAILURE.size
        entries: list[FailureEntry] = []
        for _ in range(entry_count):
            time_us, session, tried, outcome, cause, size, _ = ENTRY.unpack_from(body, at)
            at += ENTRY.size
            entries.append(
                FailureEntry(time_us, session, tried, outcome, cause, body[at : at + size])
            )
            at += size + -size % 8
        failures.append(MovedFailure(group, attempt, deliveries, offset, when_us, tuple(entries)))
    if at > len(body):
        raise ValueError("MOVED body shorter than what it holds")
    return Moved(topic, queue, tuple(pieces), tuple(failures))
