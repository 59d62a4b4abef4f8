"""The journal as it was written: every record of the surviving reigns, byte for byte.

A ``Tape`` watches the writes to segment files. It checks what any reader would check (checksum, own
position, chain, epochs), keeps what retention removes, and tells where the valid records of an
image must end: at the first record that the image does not hold as it was written.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from typing import Final

from google_crc32c import value as crc32c

from ternmq.journal.log.scan import RawRecord
from ternmq.model.types import Position
from ternmq.record.fact.header import ALIGNMENT, HEADER, HEADER_BYTES, MAGIC, Kind

_PAD: Final = int(Kind.PAD)
_EPOCH: Final = struct.Struct("<IIQQ")


class Violation(AssertionError):
    """Something that must never be true is true."""


class Tape:
    """What stands in the journal from position 0 on.

    Args:
        segment_size: Of the journal.
        on_record: Called with each record when its bytes were handed to the disk.
    """

    def __init__(
        self, segment_size: int, on_record: Callable[[RawRecord], None] | None = None
    ) -> None:
        self.segment_size = segment_size
        self.data = bytearray()
        self.records: list[RawRecord] = []
        self.ends: list[int] = [0]
        self.on_record = on_record
        self._last_crc = 0
        self._epoch = 0

    @property
    def end(self) -> int:
        """Where the records end that were written."""
        return self.ends[-1]

    def prefix(self, end: int) -> Tape:
        """Return a tape of the records below ``end``, without a watcher."""
        other = Tape(self.segment_size)
        count = self.count_below(end)
        other.data = self.data[:end]
        other.records = self.records[:count]
        other.ends = self.ends[: count + 1]
        if other.records:
            other._last_crc = other.records[-1].crc
            other._epoch = other.records[-1].epoch
        return other

    def count_below(self, end: int) -> int:
        """Return how many records end at or below a position."""
        return bisect_right(self.ends, end) - 1

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Take in a write of the broker's."""
        if not name.startswith("journal/"):
            return
        position = int(name[8:28]) + offset
        end = position + len(data)
        if position >= self.end and not any(data):
            return  # zeros behind the end: a spare, or a tail that is cut
        if position < self.end:
            low = min(end, self.end)
            if self.data[position:low] != data[: low - position]:
                self._check_rewrite(position, data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        self._parse()

    def _check_rewrite(self, position: int, data: bytes) -> None:
        raise Violation(f"bytes at {position} were written again, and differ ({len(data)} bytes)")

    def _parse(self) -> None:
        data = self.data
        while len(data) - self.end >= HEADER_BYTES:
            at = self.end
            crc, magic, length, _, kind, flags, own, durable, time_us, epoch, prev = (
                HEADER.unpack_from(data, at)
            )
            if not magic and not length:
                return
            covered = HEADER_BYTES if kind == _PAD else length
            if magic != MAGIC or own != at:
                raise Violation(f"no record was written at {at}")
            short = at + covered - len(data)
            if short > 0:  # a write that fell short: nothing may follow it
                if short >= ALIGNMENT or crc32c(bytes(data[at + 4 :]) + bytes(short)) != crc:
                    return
                data.extend(bytes(short))  # only of its padding, which is zeros without it, too
            if crc32c(bytes(data[at + 4 : at + covered])) != crc or prev != self._last_crc:
                raise Violation(f"the record written at {at} does not fit the chain")
            if epoch < self._epoch or durable > at:
                raise Violation(f"the record written at {at} has epoch {epoch}, durable {durable}")
            body = b"" if kind == _PAD else bytes(data[at + HEADER_BYTES : at + length])
            record = RawRecord(
                Position(at), kind, flags, epoch, time_us, Position(durable), crc, body, length
            )
            if kind == Kind.EPOCH and _EPOCH.unpack_from(body)[0] != epoch:
                raise Violation(f"the EPOCH at {at} does not say its own epoch")
            self._last_crc, self._epoch = crc, epoch
            self.records.append(record)
            self.ends.append(at + length)
            if kind == _PAD and len(data) < at + length:
                data.extend(bytes(at + length - len(data)))
            if self.on_record is not None:
                self.on_record(record)

    def valid_end(self, files: Mapping[str, bytes], start: int, limit: int) -> int:
        """Return where the valid records of an image end.

        Args:
            files: The image.
            start: Below it is known to be whole.
            limit: Records were written up to here.
        """
        size = self.segment_size
        whole = self.ends[bisect_left(self.ends, limit, 0, len(self.ends) - 1)]
        if limit < whole < limit + ALIGNMENT and not any(self.data[limit:whole]):
            limit = whole  # a write fell short by a part of a record's padding
        position = min(start, limit)
        while position < limit:
            base = position - position % size
            held = files.get(f"journal/{base:020d}.seg", b"")
            stop = min(base + size, limit)
            theirs = held[position - base : stop - base]
            ours = self.data[position:stop]
            if theirs != ours:
                return self._last_whole(position + _first_difference(theirs, ours))
            position = stop
        return self._last_whole(limit)

    def _last_whole(self, damage: int) -> int:
        at = bisect_right(self.ends, damage) - 1
        if at < len(self.records):
            record = self.records[at]
            if record.kind == _PAD and damage >= record.position + HEADER_BYTES:
                at += 1  # only its header counts
        return self.ends[at]


def _first_difference(ours: bytes | bytearray, theirs: bytes | bytearray) -> int:
    length = min(len(ours), len(theirs))
    different = int.from_bytes(ours[:length], "little") ^ int.from_bytes(theirs[:length], "little")
    if not different:
        return length
    return ((different & -different).bit_length() - 1) // 8
