"""The records of a page, found and checked at once: where each begins, and views of numbers.

A page is whole records, back to back, as the journal stores or a broker sends them. The fields of
headers, and of bodies of one kind, are read for all records at once from views: a u32 at byte ``b``
is ``u4[b >> 2]``. Records are multiples of 8 bytes, so all views fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from google_crc32c import value as crc32c

from ternmq.model.errors import ProtocolError
from ternmq.record.fact.header import HEADER_BYTES, MAGIC
from ternmq.record.page.pieces import starts_of

I64 = npt.NDArray[np.int64]


class Frames:
    """The records of a page; ``check`` compares their checksums, nothing else does.

    Args:
        records: Whole records, back to back.
        starts: Byte at which each begins; None finds them.

    Attributes:
        at: Byte at which each record begins.
        end: Byte at which each record ends.
        kinds: Kind of each record.

    Raises:
        ProtocolError: The bytes are not records.
    """

    __slots__ = ("at", "end", "i8", "kinds", "records", "u1", "u2", "u4")

    def __init__(self, records: bytes, starts: I64 | None = None) -> None:
        if len(records) & 7:
            raise ProtocolError(f"a page of {len(records)} bytes: records are multiples of 8")
        self.records = records
        self.at: I64 = np.array(starts_of(records), np.int64) if starts is None else starts
        self.u1 = np.frombuffer(records, np.uint8)
        self.u2 = np.frombuffer(records, "<u2")
        self.u4 = np.frombuffer(records, "<u4")
        self.i8 = np.frombuffer(records, "<i8")
        if (self.u4[(self.at >> 2) + 1] != MAGIC).any():
            raise ProtocolError("these are no records")
        self.end: I64 = np.append(self.at[1:], np.int64(len(records)))
        self.kinds: npt.NDArray[Any] = self.u1[self.at + 13]

    def __len__(self) -> int:
        return len(self.at)

    def positions(self) -> I64:
        """Return the position of each record in the journal."""
        found: I64 = self.i8[(self.at >> 3) + 2]
        return found

    def below(self, stop: int) -> Frames:
        """Return the records at positions below ``stop``."""
        if not len(self.at) or int(self.i8[(int(self.at[-1]) >> 3) + 2]) < stop:
            return self
        count = int(np.searchsorted(self.positions(), stop))
        records = self.records[: int(self.end[count - 1]) if count else 0]
        return Frames(records, self.at[:count])

    def body(self, number: int) -> bytes:
        """Return the body of a record, its padding included."""
        return self.records[int(self.at[number]) + HEADER_BYTES : int(self.end[number])]

    def sums(self) -> npt.NDArray[Any]:
        """Return the computed CRC32C of each record: of bytes 4 to its end."""
        records = self.records
        begins, ends = (self.at + 4).tolist(), self.end.tolist()
        return np.fromiter(
            map(crc32c, map(records.__getitem__, map(slice, begins, ends))), np.uint32, len(begins)
        )

    def check(self) -> None:
        """Compare every record with its checksum.

        Raises:
            ProtocolError: A record is damaged.
        """
        wrong = np.flatnonzero(self.sums() != self.u4[self.at >> 2])
        if len(wrong):
            raise ProtocolError(
                f"the checksum of a record of the journal is wrong, at position "
                f"{int(self.positions()[wrong[0]])}"
            )
