"""The newest bytes of the journal, in memory: all followers that keep up are sent from here."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.pieces import Match, cut
from ternmq.model.types import Position
from ternmq.record.fact.header import HEADER_BYTES, header_of, length_of

PIECE_BYTES: Final = 1 << 20
"""Most bytes that are sent at a time, unless it is one record that is larger."""
TAIL_BYTES: Final = 32 << 20
_DROPPED: Final = 256


class Portion(NamedTuple):
    """Bytes of the journal for a follower: whole records, of a PAD only its header.

    Attributes:
        position: Where they begin in the journal.
        data: The bytes.
        end: Where they end in the journal.
    """

    position: Position
    data: bytes
    end: Position


class Tail:
    """What was last written to the journal, up to a limit of bytes. Not thread-safe.

    Args:
        end: Position of the next record that will be written.
        limit_bytes: Bytes to keep. The newest chunk is kept however large it is.

    Attributes:
        end: Position up to which everything that was written is, or was, here.
        held_bytes: Bytes in memory.
    """

    def __init__(self, end: Position, limit_bytes: int = TAIL_BYTES) -> None:
        self.end = end
        self.held_bytes = 0
        self._limit = limit_bytes
        # Chunk i begins at _begins[i] and ends where the next one begins; a PAD that it ends with
        # is longer in the journal than here. Those before _first are dropped.
        self._begins: list[Position] = []
        self._chunks: list[bytes] = []
        self._first = 0

    @property
    def begin(self) -> Position:
        """Position from which on the bytes are here."""
        return self._begins[self._first] if self._first < len(self._begins) else self.end

    def add(self, position: Position, data: bytes) -> None:
        """Take what was written: the records of one segment, whole, of a PAD only its header.

        Args:
            position: Where they begin. It is behind ``end`` if the records before end with a PAD.
            data: The records; not copied unless they are more than one piece.
        """
        if position < self.end:
            raise ValueError(f"bytes for position {position}, and the tail ends at {self.end}")
        at = 0
        while len(data) - at > PIECE_BYTES:
            index = _behind(data, at, PIECE_BYTES)
            if index == len(data):
                break
            self._put(Position(position + at), data[at:index])
            at = index
        self._put(Position(position + at), data[at:] if at else data)
        self.end = Position(position + len(data))
        self._drop()

    def piece(self, position: Position, most: int = PIECE_BYTES) -> Portion | None:
        """Return the records from a position on.

        Args:
            position: Where a record begins, or ``end``: then there is nothing.
            most: Most bytes; a first record that is larger is returned alone.

        Returns:
            None if the tail does not reach back so far.
        """
        if position >= self.end:
            return Portion(position, b"", position)
        i = bisect_right(self._begins, position, self._first) - 1
        if i < self._first:
            return None
        at = position - self._begins[i]
        data = self._chunks[i]
        size = len(data) - at
        if size > most:
            return self._part(i, at, most)
        parts = [data[at:] if at else data]
        i += 1
        while i < len(self._chunks) and size + len(self._chunks[i]) <= most:
            parts.append(self._chunks[i])
            size += len(self._chunks[i])
            i += 1
        end = self._begins[i] if i < len(self._begins) else self.end
        return Portion(position, parts[0] if len(parts) == 1 else b"".join(parts), end)

    def match(self, checkpoint: Checkpoint) -> Match | None:
        """Return a record if it is here, and is the one that another journal has; up to 1 ms.

        Bytes within a message that look like the record are not taken for it.
        """
        position = checkpoint.position
        i = bisect_right(self._begins, position, self._first) - 1
        if i < self._first or position >= self.end:
            return None
        data, at = self._chunks[i], position - self._begins[i]
        if at + HEADER_BYTES > len(data) or cut(data, 0, at).stop != at:
            return None  # no record begins there
        header = header_of(data, at)
        if (header.epoch, header.crc) != (checkpoint.epoch, checkpoint.crc):
            return None
        return Match(position, Position(position + header.length))

    def _part(self, i: int, at: int, most: int) -> Portion:
        """Return a part of one chunk, from an index on: at least one record."""
        data, begin = self._chunks[i], self._begins[i]
        index = _behind(data, at, most)
        end = Position(begin + index)
        if index == len(data):
            end = self._begins[i + 1] if i + 1 < len(self._begins) else self.end
        return Portion(Position(begin + at), data[at:index], end)

    def _put(self, position: Position, data: bytes) -> None:
        self._begins.append(position)
        self._chunks.append(data)
        self.held_bytes += len(data)

    def _drop(self) -> None:
        """Drop the oldest chunks beyond the limit."""
        last = len(self._chunks) - 1
        while self.held_bytes > self._limit and self._first < last:
            self.held_bytes -= len(self._chunks[self._first])
            self._chunks[self._first] = b""
            self._first += 1
        if self._first >= _DROPPED and self._first * 2 > len(self._chunks):
            del self._begins[: self._first], self._chunks[: self._first]
            self._first = 0


def _behind(data: bytes, at: int, most: int) -> int:
    """Return the index behind the records that fit, at least one; all of them are whole."""
    index = cut(data, at, most).stop
    return index if index > at else at + length_of(data, at)
