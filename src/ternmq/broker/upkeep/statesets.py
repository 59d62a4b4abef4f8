"""When the state is written into the journal: in sets as it grows, and once at a clean stop."""

from __future__ import annotations

from collections.abc import Callable

from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.log.journal import Journal
from ternmq.journal.state.sets import StateWriter
from ternmq.model.errors import DiskError, JournalFull


class StateSets:
    """Begins STATE sets, and writes them in pieces.

    Not thread-safe: call it from the broker's loop.

    Args:
        journal: The journal that they are written to.
        writer: Writes the sets.
    """

    __slots__ = ("_journal", "writer")

    def __init__(self, journal: Journal, writer: StateWriter) -> None:
        self._journal = journal
        self.writer = writer

    @property
    def wanted(self) -> bool:
        """Whether ``step`` has something to do. Called in every turn."""
        return self.writer.active or self.writer.due()

    def step(self, now_us: int, may_go_on: Callable[[], bool], refresh_below: int = 0) -> bool:
        """Begin a set when one is due, and write a piece of the one begun.

        Returns:
            Whether a set ended in this call.

        Raises:
            JournalFull, WouldBlock: see ``StateWriter.step``.
        """
        writer = self.writer
        if not writer.active:
            if not writer.due():
                return False
            writer.begin(now_us, refresh_below)
        return writer.step(now_us, may_go_on)

    def close(self, now_us: int, refresh_below: int = 0, copy_below: int = 0) -> None:
        """Stop cleanly: a whole STATE set if there is room, then a MARK; blocks on the disk.

        Args:
            now_us: Broker time.
            refresh_below: See ``StateWriter.begin``.
            copy_below: Likewise; if not 0, a set is written even into the reserve: a segment is
                freed by it.
        """
        writer = self.writer
        begun = writer.active
        try:
            if begun and (copy_below or self._journal.room() > 0):
                _finish(writer, now_us)
            if copy_below or (not begun and self._journal.room() > 0):
                writer.begin(now_us, refresh_below, copy_below)
                _finish(writer, now_us)
        except JournalFull:
            pass  # the disk is full: the next start replays from an older set
        self._journal.close(now_us)


def _finish(writer: StateWriter, now_us: int) -> None:
    """Write the rest of the set; blocks if something must be read for it."""
    while True:
        try:
            writer.step(now_us, lambda: True)
        except WouldBlock as blocked:
            try:
                blocked.job.run()
            except DiskError:
                writer.unreadable()
        else:
            return
