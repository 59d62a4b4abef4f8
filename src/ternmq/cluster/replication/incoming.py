"""What a follower checks of a stream of records before it writes them.

The bytes of a stream are those of the journal, whole records one after the other; of a PAD only the
header is sent, since its length says how far the next record is away. A record that is valid, and
that chains to the one before it, has the same records before it in every journal of the group: an
epoch has one writer, which never goes back.

    primary's file   | record | record | PAD header ....... | SEGMENT | record |
    stream           | record | record | PAD header | SEGMENT | record |
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from ternmq.model.types import Epoch, Position
from ternmq.record.fact.control import SEGMENT
from ternmq.record.fact.header import (
    FLAG_SKIPPABLE,
    HEADER,
    HEADER_BYTES,
    KNOWN_KINDS,
    MAGIC,
    VERSION,
    Kind,
)

_SEGMENT: Final = int(Kind.SEGMENT)
_PAD: Final = int(Kind.PAD)


class BadStream(Exception):
    """The bytes are not the next records of the journal; nothing of them may be written.

    The connection is closed, and the follower begins again with what it has. It reaches no client.
    """


class NewerRecord(BadStream):
    """A record is of a format or kind of a newer version: this broker cannot follow further."""


class Piece(NamedTuple):
    """Bytes for one segment file.

    Attributes:
        position: Where they belong.
        data: Whole records; a PAD is the last one, as its header.
    """

    position: Position
    data: bytes


class Place(NamedTuple):
    """A place in the stream; see the attributes of ``Incoming``."""

    end: Position
    last_crc: int | None
    last_epoch: Epoch
    last_position: Position


class Incoming:
    """Checks a stream that goes on where a copy ends. Not thread-safe; does no I/O.

    Args:
        segment_size: Bytes of every segment file of the group's journal.
        end: End of the copy: the position of the next record.
        last_crc: CRC of the record before it; 0 at the beginning of the journal. None: the copy is
            empty, and begins with a later segment, since the primary has removed those before.
        last_epoch: Epoch of that record; 0 if the copy is empty.
        followed: Epoch that the follower follows. Records of the stream are of this epoch, or of
            the earlier ones that this reign found in its file.

    Attributes:
        end: Position behind the last record that was checked.
        last_crc: Its CRC; None before the first record.
        last_epoch: Its epoch.
        last_position: Where it begins, once a record was taken.
    """

    def __init__(
        self,
        *,
        segment_size: int,
        end: Position,
        last_crc: int | None,
        last_epoch: Epoch,
        followed: Epoch,
    ) -> None:
        if last_crc is None and end % segment_size:
            raise ValueError(f"no segment begins at {end}")
        self.end = end
        self.last_crc = last_crc
        self.last_epoch = last_epoch
        self.last_position = end
        self._size = segment_size
        self._followed = followed

    @property
    def place(self) -> Place:
        """How far the stream was checked; set it back if what was checked could not be written."""
        return Place(self.end, self.last_crc, self.last_epoch, self.last_position)

    @place.setter
    def place(self, place: Place) -> None:
        self.end, self.last_crc, self.last_epoch, self.last_position = place

    def take(self, position: Position, epoch: Epoch, data: bytes) -> list[Piece]:
        """Return what is to be written, in order, once all of it was checked.

        Args:
            position: Where the sender says that the bytes begin.
            epoch: Epoch of the sender's reign.
            data: Whole records.

        Raises:
            BadStream: They are not what follows; nothing was taken.
            NewerRecord: A newer version of TernMQ wrote them.
        """
        if epoch != self._followed:
            raise BadStream(f"bytes of epoch {epoch}, and epoch {self._followed} is followed")
        if position != self.end:
            raise BadStream(f"bytes for position {position}, and the copy ends at {self.end}")
        pieces: list[Piece] = []
        at, begun, begun_at = 0, position, 0
        end, last_crc, last_epoch = self.end, self.last_crc, self.last_epoch
        last_position = self.last_position
        while at < len(data):
            last_position = end
            kind, length, last_crc, last_epoch = self._checked(data, at, end, last_crc, last_epoch)
            at += HEADER_BYTES if kind == _PAD else length
            end = Position(end + length)
            if end % self._size == 0:  # the segment is full
                pieces.append(Piece(begun, data[begun_at:at]))
                begun, begun_at = end, at
        if at > begun_at:
            pieces.append(Piece(begun, data[begun_at:at]))
        self.end, self.last_crc, self.last_epoch = end, last_crc, last_epoch
        self.last_position = last_position
        return pieces

    def _checked(
        self, data: bytes, at: int, position: Position, last_crc: int | None, last_epoch: Epoch
    ) -> tuple[int, int, int, Epoch]:
        """Return (kind, length, CRC, epoch) of the record at an index, if it is the next one."""
        left = len(data) - at
        if left < HEADER_BYTES:
            raise BadStream(f"{left} bytes at position {position} are no record")
        crc, magic, length, version, kind, flags, own, _, _, epoch, prev = HEADER.unpack_from(
            data, at
        )
        if magic != MAGIC or own != position:
            raise BadStream(f"no record begins at position {position}")
        offset = position % self._size
        behind = self._size - offset - length
        if length < HEADER_BYTES or length & 7 or (behind and behind < HEADER_BYTES):
            raise BadStream(f"a record of {length} bytes at position {position}")
        covered = HEADER_BYTES if kind == _PAD else length
        if covered > left or crc32c(data[at + 4 : at + covered]) != crc:
            raise BadStream(f"the record at position {position} is damaged or not whole")
        if version != VERSION or (kind not in KNOWN_KINDS and not flags & FLAG_SKIPPABLE):
            raise NewerRecord(f"a record of kind {kind}, format {version}, at position {position}")
        if last_crc is not None and prev != last_crc:
            raise BadStream(f"the record at position {position} does not follow the one before it")
        if not last_epoch <= epoch <= self._followed:
            raise BadStream(f"a record of epoch {epoch} at position {position}")
        if kind == _PAD and behind:
            raise BadStream(f"a PAD at position {position} that does not fill its segment")
        if (kind == _SEGMENT) != (offset == 0) or (
            not offset and not self._fits(data[at + HEADER_BYTES : at + length], position)
        ):
            raise BadStream(f"SEGMENT is missing, misplaced or of another journal at {position}")
        return kind, length, crc, Epoch(epoch)

    def _fits(self, body: bytes, base: Position) -> bool:
        """Return whether the body of a SEGMENT names this segment."""
        if len(body) != SEGMENT.size:
            return False
        stated, size, _, _ = SEGMENT.unpack(body)
        return bool(stated == base and size == self._size)
