"""Appending records: their positions, the CRC chain, groups in memory, the next segment.

``append`` assigns a record's position and chain CRC and adds its bytes to the group that waits in
memory; ``flush`` writes the group to the file system. When a record does not fit its segment, PAD
fills that one and SEGMENT begins the next. Durability and removal are in ``journal``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.recent import RecentRecords
from ternmq.journal.log.segment import SEGMENT_BODY, SEGMENT_RECORD_BYTES, segment_name
from ternmq.journal.log.space import Space
from ternmq.model.errors import DiskError, JournalFailed, JournalFull, RecordTooLarge
from ternmq.model.types import NO_POSITION, Epoch, Position
from ternmq.record.fact.header import HEADER_BYTES, MAGIC, VERSION, Kind

DEFAULT_TAIL_BYTES: Final = 32 << 20

_CRC: Final = struct.Struct("<I")
_REST: Final = struct.Struct("<IIBBHQQqII")  # the header behind its CRC
_ZEROS: Final = tuple(bytes(count) for count in range(8))
_LAST_KINDS: Final = frozenset((int(Kind.EPOCH), int(Kind.MARK)))
_KEPT_BYTES: Final = 4096
"""Bytes at the end of the last segment kept free for ``_LAST_KINDS``; in segments below 64 KiB a
sixteenth of the segment."""
_JOIN_ABOVE_BYTES: Final = 16 << 10  # from here a second CRC call costs less than a second copy


@dataclass(slots=True, eq=False)
class _Group:
    """Consecutive records of one file that wait for ``flush``; ``offset`` is the first one's."""

    file: File
    offset: int
    records: list[bytes]


class Appender:
    """Appends records and writes them to the file system; ``Journal`` makes them durable.

    Attributes:
        epoch: Epoch of this reign; in the header of every record appended.
        end: Position of the next record, if it fits this segment.
        written: Position up to which bytes were written to the file system.
        durable: Position up to which bytes are on the disk; ``Journal`` moves it.
        segment_size: Bytes of every segment file.
        max_body: Largest body, in bytes, that a record may have.
        failure: Why the journal refuses everything, None while it works.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file, as chosen when the journal was made.
        end: End of the valid records; all below is durable.
        last_crc: CRC of the last valid record.
        epoch: Epoch of the reign that begins.
        spares: Number of segment files, ready for use, that follow the one that ``end`` is in.
        reserve_bytes: Free space that sends must leave; None is the default rule.
        tail_bytes: Bytes of the newest records that ``record`` keeps in memory.
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
        # If ``end`` is exactly a segment's end, that segment is still the active one: the next has
        # no SEGMENT record yet.
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
        """Assign a record's position and queue its bytes for ``flush``; about 1 us at 1 KiB.

        Args:
            kind: A ``record.fact.header.Kind``.
            body: The body without padding.
            time_us: Broker time.
            flags: Flags of the header.

        Returns:
            The record's position. A reply that depends on the record is sent once ``durable`` has
            reached ``end`` as it is then.

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
        """Return the position of a record near the segment's end: here if it fits, or in the next.

        While no segment follows, the last bytes are kept for EPOCH and MARK, so that a full disk
        never prevents a start.
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
        """Fill the segment from ``position`` with a PAD; only its header is written and checked."""
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
        """Set the newest complete STATE set, which the next SEGMENT records name.

        Args:
            begin: Position of its BEGIN record.
            end: Position of its END record. Until that record is durable, SEGMENT records name the
                previous set.
        """
        self._settle_state()
        self._newest_state = (begin, end)

    def _settle_state(self) -> tuple[Position, Position]:
        """Return the newest set whose END is durable."""
        if self._newest_state[1] < self.durable:
            self._durable_state = self._newest_state
        return self._durable_state

    def flush(self) -> None:
        """Write everything appended to the file system: one write per segment touched.

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
        """End the journal after a failed write or sync: all calls now raise ``JournalFailed``."""
        if self.failure is None:
            self.failure = error
        self._soft_end = -1  # sends every append to the check in _place

    # ------------------------------------------------------------------------------ what there is

    @property
    def base(self) -> Position:
        """Base of the active segment: the one that takes new records."""
        return Position(self._base)

    @property
    def appended(self) -> int:
        """Number of records appended in this reign, the journal's own included."""
        if len(self._groups) == 1:  # nearly always, and called in every turn
            return self._flushed + len(self._records)
        return self._flushed + sum([len(group.records) for group in self._groups])

    @property
    def last_crc(self) -> int:
        """CRC of the record last appended; the next record's header contains it."""
        return self._last_crc

    def record(self, position: int) -> bytes | None:
        """Return the whole record at ``position``, header and padding too, if memory holds it."""
        return self._recent.get(position)

    def gather(self, positions: Sequence[int]) -> list[bytes] | None:
        """Return the whole records at ascending positions, None if memory lacks one of them."""
        return self._recent.gather(positions)
