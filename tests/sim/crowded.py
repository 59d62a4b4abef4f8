"""A volume that others fill and empty, so that many segments go one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.disk import CAPACITY, FOLDER, LINK, UNLINK

if TYPE_CHECKING:
    from tests.sim.world import World

_JOURNAL: Final = "journal"


class Others:
    """Take much of the volume when the journal has grown, and give it back when it is small.

    Args:
        world: Its retention has a watermark of ``watermark``.
        watermark: Share of the volume above which segments go.
        segments: The volume is taken when the journal has so many.
        every_us: How often they look.
    """

    def __init__(self, world: World, *, watermark: float, segments: int, every_us: int) -> None:
        self.world = world
        self.watermark = watermark
        self.segments = segments
        self.every_us = every_us
        world.restart_hooks.append(self._again)

    def _again(self) -> None:
        self.world.after(1 + self.world.chance.randrange(self.every_us), self._act)

    def _act(self) -> None:
        self._again()
        faults, journal = self.world.faults, self.world.broker.journal
        count = (journal.end - journal.first) // journal.segment_size
        if faults.capacity == CAPACITY and count >= self.segments:
            used = sum(len(inode.data) for inode in self.world.disk.files.values())
            faults.capacity = int(used / (2 * self.watermark))  # half of it is to go
            self.world.reached("others take the volume")
        elif faults.capacity != CAPACITY and count <= self.segments // 2:
            faults.capacity = CAPACITY


class Removals:
    """Follows the log of a reign's disk: is a segment gone whose removal no sync has followed?

    Args:
        world: In a reign; the next reign wants another.
    """

    def __init__(self, world: World) -> None:
        self._log = world.disk.log
        self._at = 0
        self.pending = False
        self.count = 0
        """Segments removed in this reign before a file was made."""
        self._made = False

    def look(self) -> bool:
        """Take in what is new; return whether a removal is not durable yet."""
        while self._at < len(self._log):
            what, name, _, _ = self._log[self._at]
            self._at += 1
            if what == FOLDER and name == _JOURNAL:
                self.pending = False
            elif what == LINK and str(name).startswith(_JOURNAL):
                self._made = True
            elif what == UNLINK and str(name).startswith(_JOURNAL):
                self.pending = True
                self.count += not self._made
        return self.pending
