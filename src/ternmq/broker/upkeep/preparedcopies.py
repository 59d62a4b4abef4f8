"""Copies prepared rows of undecided transactions out of the oldest segment, before it is removed.

A transaction with check-back may be parked for weeks, and must not keep the journal for so long. A
copy is a PREPARED that names the record it replaces; the transaction then has its rows there, so
that its RESOLVED never names a record that is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from ternmq.broker.ledger.factkinds import PREPARED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.transactions import unpack_prepared

RECORDS_A_STEP: Final = 64
BYTES_A_STEP: Final = 256 * 1024


class PreparedCopies:
    """Copies prepared rows out of the oldest segment.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        copied_rows: Rows copied since the start.
        copied_bytes: Bytes of their records.
    """

    __slots__ = ("_ledger", "_left", "copied_bytes", "copied_rows")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._left: deque[tuple[int, int]] | None = None
        """Transactions and ordinals that were not copied yet; None: they are not listed."""
        self.copied_rows = 0
        self.copied_bytes = 0

    def begin(self) -> None:
        """Begin with another segment."""
        self._left = None

    def step(self, now_us: int, number: int, may_go_on: Callable[[], bool]) -> bool:
        """Copy some rows of segment ``number``; return whether all are copied.

        Raises:
            JournalFull: There is no room; call again later.
            CorruptJournal, DiskReadError: A row cannot be read, so its segment must stay.
            WouldBlock: bytes must be read first; call again after that.
        """
        checked = self._ledger.views.checked
        if self._left is None:
            self._left = deque(
                [(one.number, ordinal) for one, ordinal in checked.in_segment(number)]
            )
        records = size = 0
        while self._left:
            if records and (records >= RECORDS_A_STEP or size >= BYTES_A_STEP or not may_go_on()):
                return False
            size += self._copy(now_us, number, *self._left[0])
            self._left.popleft()
            records += 1
        return True

    def _copy(self, now_us: int, segment: int, number: int, ordinal: int) -> int:
        """Copy the rows of a PREPARED, if they are in the segment still; return bytes written."""
        ledger = self._ledger
        transaction = ledger.views.checked.by_number.get(number)
        batch = None if transaction is None else transaction.batches.get(ordinal)
        if batch is None or batch.position // ledger.journal.segment_size != segment:
            return 0  # it was decided meanwhile
        stored = unpack_prepared(ledger.store.get(batch.position)[HEADER_BYTES:])
        fact = msgspec.structs.replace(stored, replaced=batch.position, settles=(), moves=())
        position = ledger.record(now_us, PREPARED, fact)
        self.copied_rows += batch.rows
        self.copied_bytes += ledger.end - position
        return ledger.end - position
