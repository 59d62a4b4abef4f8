"""How much room there is for sends: what is left of the journal, and whether retention blocks."""

from __future__ import annotations

from ternmq.journal.log.journal import Journal
from ternmq.model.errors import Busy, DiskFull


class Room:
    """Whether sends find room, and the errors to raise if they do not.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        blocked: Retention is under pressure and must not remove the oldest segment.
        lacked_bytes: Size of the last send if it was refused for lack of room; else 0.
        refused: Sends refused for lack of room since the start.
    """

    __slots__ = ("_journal", "blocked", "lacked_bytes", "refused")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.refused = 0
        self.blocked = False
        self.lacked_bytes = 0

    def block(self, *, blocked: bool) -> None:
        """Set whether sends are refused because the oldest segment must stay."""
        self.blocked = blocked

    def lacks(self, size: int, *, frees: bool = False) -> bool:
        """Return whether a record would take room that is not for sends.

        Args:
            size: Bytes of the record.
            frees: It helps to end what may keep the oldest segment: a batch of a transaction that
                has begun. Such records are only refused if the journal itself has no room.
        """
        return (self.blocked and not frees) or self._journal.room() < size

    @property
    def left(self) -> int:
        """Bytes that sends may still take."""
        return 0 if self.blocked else self._journal.room()

    @property
    def refuses(self) -> bool:
        """Whether the last send was refused for lack of room, or any would be."""
        return self.blocked or self._journal.room() <= self.lacked_bytes

    @property
    def used_up(self) -> bool:
        """Whether sends are refused because only the reserve is left."""
        journal = self._journal
        return journal.room() <= self.lacked_bytes and not journal.spare_is_coming

    def full(self, size: int) -> DiskFull:
        """Count the refusal of a record of ``size`` bytes; return the error to raise."""
        self.lacked_bytes = size
        return self._refused()

    def no_segment(self, size: int | None = None) -> Busy | DiskFull:
        """Return the error for a client whose record found no segment in the journal.

        Args:
            size: Size of the record if it is a send; stored as ``lacked_bytes`` if it is refused.
        """
        if self._journal.spare_is_coming:
            return Busy("the next file of the journal is being created")
        return self._refused() if size is None else self.full(size)

    def _refused(self) -> DiskFull:
        self.refused += 1
        return DiskFull("no room for more messages")
