"""Giving records their places: the chain, the groups that wait in memory, the roll to a segment.

``append`` gives a record its place and its links and puts its bytes into the group that waits in
memory; ``flush`` hands the group to the file system. When a record does not fit its segment, PAD
fills that one and SEGMENT begins the next. What is durable, and how long it is kept, is told in
``journal``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from ternmq.journal.disk import Disk, File
from ternmq.journal.recent import RecentRecords
from ternmq.journal.segment import SEGMENT_BODY, SEGMENT_RECORD_BYTES, segment_name
from ternmq.journal.space import Space
from ternmq.model.errors import DiskError, JournalFailed, JournalFull, RecordTooLarge
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.header import HEADER_BYTES, MAGIC, VERSION, Kind

DEFAULT_TAIL_BYTES: Final = 32 << 20

_CRC: Final = struct.Struct("<I")
_REST: Final = struct.Struct("<IIBBHQQqII")  # the header behind its CRC
_ZEROS: Final = tuple(bytes(count) for count in range(8))
_LAST_KINDS: Final = frozenset((int(Kind.EPOCH), int(Kind.MARK)))
_KEPT_BYTES: Final = 4096
"""Kept of the last segment for ``_LAST_KINDS``; a sixteenth of a segment smaller than 64 KiB."""
_JOIN_ABOVE_BYTES: Final = 16 << 10  # from here a second CRC call costs less than a second copy


@dataclass(slots=True, eq=False)
class _Group:
    """Records that stand one after another in one file and wait for ``flush``."""

    file: File
    offset: int
    records: list[bytes]


class Appender:
    """The records of a reign, each in its place; what ``Journal`` makes durable.

    Attributes:
        epoch: Of the reign; in the header of every record appended.
        end: Where the next record will stand, if it fits this segment.
        written: Position up to which bytes were handed to the file system.
        durable: Position up to which bytes are on the disk; ``Journal`` moves it.
        segment_size: Bytes of every segment file.
        max_body: Largest body, in bytes, that a record may have.
        failure: Why the journal refuses everything, None while it works.

    Args:
        disk: Where the journal lies.
        segment_size: As the journal was made.
        end: End of the valid records; all below is durable.
        last_crc: CRC of the last valid record.
        epoch: Of the reign that begins.
        spares: Count of segment files, ready for use, that follow the one that ``end`` is in.
        reserve_bytes: What sends must leave; None is the default rule.
        tail_bytes: How much of the newest records ``record`` keeps in memory.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size: int,
        end: Position,
        last_crc: int,
        epoch: Epoch,
        spares: int,
        reserve_bytes: int | None = None,
        tail_bytes: int = DEFAULT_TAIL_BYTES,
    ) -> None:
        self.epoch = epoch
        self.end = end
        self.written = end
        self.durable = end
        self.segment_size = segment_size
        self.failure: Exception | None = None
        # After a record of the largest body a segment must still have room for a PAD header.
        self.max_body = segment_size - SEGMENT_RECORD_BYTES - 2 * HEADER_BYTES
        self._disk = disk
        self._last_crc = last_crc
        # At a segment's very end the segment before is still the active one: the next has no
        # SEGMENT record yet.
        self._base = end - end % segment_size
        if self._base == end and end > 0:
            self._base -= segment_size
        self._segment_end = self._base + segment_size
        self._kept_bytes = max(HEADER_BYTES, min(_KEPT_BYTES, segment_size // 16))
        self._soft_end = self._segment_end - self._kept_bytes
        self._file = disk.open(segment_name(self._base))
        self._records: list[bytes] = []
        self._groups = [_Group(self._file, end - self._base, self._records)]
        self._flushed = 0
        self._dirty: dict[str, File] = {}
        self._recent = RecentRecords(tail_bytes)
        self._young = self._recent.young
        self._newest_state = self._durable_state = (NO_POSITION, NO_POSITION)
        self._space = Space(disk, segment_size, self._segment_end, spares, reserve_bytes)

    def append(self, kind: int, body: bytes, time_us: int, flags: int = 0) -> Position:
        """Give a record its place and queue its bytes for ``flush``; about 1 us at 1 KiB.

        Args:
            kind: See ``record.header.Kind``.
            body: Without padding.
            time_us: Broker time.
            flags: Of the header.

        Returns:
            The record's position. What depends on the record waits until ``durable`` has reached
            ``last_record_end``.

        Raises:
            JournalFull: No segment is ready to take the record; nothing was appended.
            RecordTooLarge: The body is larger than ``max_body``.
            JournalFailed: The journal has ended.
        """
        size = len(body)
        length = (size + 55) & -8
        position = self.end
        end = position + length
        if end > self._soft_end:
            position = self._place(length, time_us, kind)
            end = position + length
        rest = _REST.pack(
            MAGIC,
            length,
            VERSION,
            kind,
            flags,
            position,
            self.durable,
            time_us,
            self.epoch,
            self._last_crc,
        )
        if size <= _JOIN_ABOVE_BYTES:
            rest += body
            if size & 7:
                rest += _ZEROS[-size & 7]
            crc = crc32c(rest)
            record = _CRC.pack(crc) + rest
        else:
            pad = _ZEROS[-size & 7]
            crc = crc32c_extend(crc32c_extend(crc32c(rest), body), pad)
            record = b"".join((_CRC.pack(crc), rest, body, pad))
        self._last_crc = crc
        self._records.append(record)
        self._young[position] = record
        self.end = end  # type: ignore[assignment]  # to call Position takes 60 ns
        return position

    def _place(self, length: int, time_us: int, kind: int) -> Position:
        """Find a place for a record near the segment's end: here if it fits, or in the next.

        While no segment follows, the last bytes are kept for EPOCH and MARK, so that a full disk
        never stands in the way of a start.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if length > self.max_body + HEADER_BYTES:
            raise RecordTooLarge(
                f"a record of {length} bytes in segments of {self.segment_size}; "
                f"bodies may have {self.max_body} bytes"
            )
        position = self.end
        left = self._segment_end - position - length
        if (left == 0 or left >= HEADER_BYTES) and (self._space.spares or kind in _LAST_KINDS):
            return position
        if not self._space.ready():
            raise JournalFull(f"no segment is ready to follow the one at {self._base}")
        base = self._segment_end
        try:
            file = self._disk.open(segment_name(base))
        except DiskError as error:
            self.failed(error)
            raise JournalFailed(f"the segment at {base} cannot be opened") from error
        left = base - position
        if left:
            self._put_pad(position, left, time_us)
        self._space.take()
        self._base = base
        self._segment_end = base + self.segment_size
        self._soft_end = self._segment_end - self._kept_bytes
        self._file = file
        self._records = []
        self._groups.append(_Group(file, 0, self._records))
        self.end = Position(base)
        body = SEGMENT_BODY.pack(base, self.segment_size, *self._settle_state())
        self.append(Kind.SEGMENT, body, time_us)
        return self.end

    def _put_pad(self, position: int, length: int, time_us: int) -> None:
        """Fill the segment from ``position`` on; only the header is written and covered."""
        rest = _REST.pack(
            MAGIC,
            length,
            VERSION,
            Kind.PAD,
            0,
            position,
            self.durable,
            time_us,
            self.epoch,
            self._last_crc,
        )
        self._last_crc = crc32c(rest)
        self._records.append(_CRC.pack(self._last_crc) + rest)

    def set_newest_state(self, begin: Position, end: Position) -> None:
        """Name the newest complete STATE set for the next SEGMENT records.

        Args:
            begin: Position of its BEGIN record.
            end: Position of its END record. A SEGMENT record names the set only when this is
                durable, and the set before until then.
        """
        self._settle_state()
        self._newest_state = (begin, end)

    def _settle_state(self) -> tuple[Position, Position]:
        """Return the newest set whose END is durable."""
        if self._newest_state[1] < self.durable:
            self._durable_state = self._newest_state
        return self._durable_state

    def flush(self) -> None:
        """Hand everything appended to the file system: one write per segment touched.

        Raises:
            JournalFailed: The write failed; the journal has ended.
        """
        if self.failure is not None:
            raise JournalFailed("the journal has failed") from self.failure
        if self.written == self.end:
            return
        for group in self._groups:
            records = group.records
            if not records:
                continue
            data = b"".join(records)
            try:
                group.file.pwrite(data, group.offset)
            except DiskError as error:
                self.failed(error)
                raise JournalFailed(f"writing to {group.file.name} failed") from error
            self._dirty[group.file.name] = group.file
            self._recent.count(len(data))
            self._flushed += len(records)
        self.written = self.end
        self._young = self._recent.young
        self._records = []
        self._groups = [_Group(self._file, self.end - self._base, self._records)]
        self._space.reached(self.end)

    def failed(self, error: Exception) -> None:
        """Take note of a failed write or sync: everything raises ``JournalFailed`` from now on."""
        if self.failure is None:
            self.failure = error
        self._soft_end = -1  # sends every append to the check in _place

    # ------------------------------------------------------------------------------ what there is

    @property
    def base(self) -> Position:
        """Base of the active segment: the one that records go to."""
        return Position(self._base)

    @property
    def last_record_end(self) -> Position:
        """The end of the record last appended: what a reply that rests on it waits for."""
        return self.end

    @property
    def appended(self) -> int:
        """How many records were appended in this reign, the journal's own included."""
        if len(self._groups) == 1:  # nearly always, and asked in every turn
            return self._flushed + len(self._records)
        return self._flushed + sum([len(group.records) for group in self._groups])

    @property
    def last_crc(self) -> int:
        """The CRC of the record last appended: what the next one chains to."""
        return self._last_crc

    def record(self, position: int) -> bytes | None:
        """Return the whole record at ``position``, header and padding too, if memory holds it."""
        return self._recent.get(position)

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the whole records at ascending positions, None if memory lacks one of them."""
        return self._recent.gather(positions)
