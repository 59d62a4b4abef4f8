"""How much room there is for what clients send: the journal's, and what retention says of it."""

from __future__ import annotations

from ternmq.journal.journal import Journal
from ternmq.model.errors import Busy, DiskFull


class Room:
    """Whether sends find room, and what is raised when they do not.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        blocked: Retention is under pressure and must not remove what is unread.
        lacked_bytes: Size of the newest of all sends, if it was refused for want of room; else 0.
        refused: How many sends were refused for want of room since the start.
    """

    __slots__ = ("_journal", "blocked", "lacked_bytes", "refused")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.refused = 0
        self.blocked = False
        self.lacked_bytes = 0

    def block(self, *, blocked: bool) -> None:
        """Take note whether sends are refused because the oldest segment must stay."""
        self.blocked = blocked

    def lacks(self, size: int) -> bool:
        """Return whether a record of ``size`` bytes would take what is not for sends."""
        return self.blocked or self._journal.room() < size

    @property
    def refuses(self) -> bool:
        """Whether the newest send was refused for want of room, or any would be."""
        return self.blocked or self._journal.room() <= self.lacked_bytes

    @property
    def used_up(self) -> bool:
        """Whether sends are refused because what is left is the reserve."""
        journal = self._journal
        return journal.room() <= self.lacked_bytes and not journal.spare_is_coming

    def full(self, size: int) -> DiskFull:
        """Count the refusal of a record of ``size`` bytes; return what to raise."""
        self.lacked_bytes = size
        return self._refused()

    def no_segment(self, size: int | None = None) -> Busy | DiskFull:
        """Return what a client is told when the journal had no segment for its record.

        Args:
            size: Of the record, if it is a send: ``lacked_bytes`` from now on, if it is refused.
        """
        if self._journal.spare_is_coming:
            return Busy("the next segment is being made")
        return self._refused() if size is None else self.full(size)

    def _refused(self) -> DiskFull:
        self.refused += 1
        return DiskFull("no room for more messages")
