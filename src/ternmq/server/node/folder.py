"""The data folder of a broker in a broker group: is it the right one, and does it have enough?"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ternmq.cluster.coordination.record import Leadership, Progress
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import record_at
from ternmq.journal.log.segment import segment_bases
from ternmq.journal.recovery.ending import find_end
from ternmq.model.errors import FileMissing, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.server.node import identity
from ternmq.server.node.identity import Identity


class Holding(NamedTuple):
    """What a journal has.

    Attributes:
        first: Base of its oldest segment.
        end: Behind its last record.
        epoch: The largest epoch in it.
        floor_crc: CRC of the record at the position of the floor; None: there is none.
    """

    first: Position
    end: Position
    epoch: Epoch
    floor_crc: int | None


class Folder:
    """A broker's data folder, looked at from outside while no journal is open in it.

    Args:
        path: The folder.
        group: The broker group of the settings.
        broker: The broker's name.
    """

    def __init__(self, path: Path, group: str, broker: str) -> None:
        self._path = path
        self._group = group
        self._broker = broker

    def check(self) -> None:
        """Check that the folder is not another broker's.

        Raises:
            SettingsError: It is, or its IDENTITY is damaged.
        """
        found = identity.read(self._path)
        if found is None:
            return
        for what, here, wanted in (
            ("broker", found.broker, self._broker),
            ("broker group", found.group, self._group),
        ):
            if here != wanted:
                raise SettingsError(
                    f"{self._path} is the folder of {what} {here!r}, and the settings say "
                    f"{wanted!r}: use the folder of {wanted!r}, or an empty one"
                )

    def enter(self, record: Leadership) -> None:
        """Make sure that the folder holds the group's journal, or nothing; note whose it is.

        Raises:
            SettingsError: It holds another journal.
        """
        found = identity.read(self._path)
        if found is not None:
            if found.journal_number != record.journal:
                raise SettingsError(
                    f"{self._path} holds another journal than broker group {self._group!r} has: "
                    "an older group of the same name, perhaps. Use an empty folder"
                )
            return
        mine = record.primary == self._broker
        if mine and record.floor is not None:
            raise SettingsError(
                f"{self._path} is not the folder with which {self._broker!r} led broker group "
                f"{self._group!r}: messages that were answered are missing here. Use that folder"
            )
        if not mine and self._has_journal():
            raise SettingsError(
                f"{self._path} has a journal of its own, and broker group {self._group!r} has "
                "another: a broker joins with an empty folder"
            )
        self._path.mkdir(parents=True, exist_ok=True)
        identity.write(self._path, Identity.of(self._group, record.journal, self._broker))

    def epoch_to_begin_with(self) -> Epoch:
        """Return the epoch of a group that begins with this folder: that of its journal, or 0.

        Raises:
            SettingsError: The folder belonged to a group, so that the record must be there.
            JournalError: The journal is damaged.
        """
        if identity.read(self._path) is not None:
            raise SettingsError(
                f"the coordinator has no record of broker group {self._group!r}, and {self._path} "
                "belongs to it: it is another coordinator, or it has lost what it had. Nothing is "
                "started, since another copy may have more than this one"
            )
        ending = find_end(RealDisk(self._path, read_only=True)) if self._has_journal() else None
        return Epoch(0) if ending is None else ending.epoch

    def holding(self, record: Leadership) -> Holding | None:
        """Return what the journal in the folder has, None if there is none; blocks.

        Raises:
            JournalError: It is damaged.
        """
        if not self._has_journal():
            return None
        disk = RealDisk(self._path, read_only=True)
        ending = find_end(disk)
        if ending is None:
            return None
        crc: int | None = None
        if record.floor is not None:
            begun = record_at(disk, record.floor.position, ending.segment_size)
            crc = None if begun is None else begun.crc
        return Holding(ending.first, ending.valid_end, ending.epoch, crc)

    def check_to_lead(
        self, record: Leadership, progress: Progress | None, holding: Holding | None
    ) -> None:
        """Check that the journal has what was answered, as far as the coordinator knows.

        Raises:
            SettingsError: It is older, or of a reign that the coordinator does not know.
        """
        floor = record.floor
        if holding is None:
            if floor is not None or record.epoch > 0:
                raise SettingsError(
                    f"{self._path} is empty, and {self._broker!r} has led broker group "
                    f"{self._group!r} with another folder. Use that folder"
                )
            return
        if holding.epoch > record.epoch:
            raise SettingsError(
                f"{self._path} has records of epoch {holding.epoch}, and the coordinator knows of "
                f"{record.epoch}: it is another coordinator, or it has lost what it had"
            )
        end = holding.end
        if floor is not None and holding.first <= floor.position and holding.floor_crc != floor.crc:
            end = Position(0)  # another history
        wanted = 0 if progress is None or progress.epoch > record.epoch else progress.position
        if end < wanted or (floor is not None and end <= floor.position):
            raise SettingsError(
                f"{self._path} is older than what was answered: it ends at {end}, and epoch "
                f"{record.epoch} reached {max(wanted, 0 if floor is None else floor.position)}. It "
                "is a copy of another time; use the folder with which the broker ran last"
            )

    def _has_journal(self) -> bool:
        try:
            return bool(segment_bases(RealDisk(self._path, read_only=True)))
        except FileMissing:
            return False
