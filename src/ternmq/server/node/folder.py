"""The data folder of a broker in a broker group: is it the right one, and does it have enough?"""

from __future__ import annotations

from pathlib import Path

from ternmq.cluster.coordination.record import Floor, Leadership, Progress
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.scan import record_at
from ternmq.journal.log.segment import segment_bases
from ternmq.journal.recovery.ending import Ending, find_end
from ternmq.model.errors import FileMissing, SettingsError
from ternmq.model.types import Epoch
from ternmq.server.node import identity
from ternmq.server.node.identity import Identity


class NotThisFolder(SettingsError):
    """The data folder cannot be the one of this broker in its group; the text says what to do."""


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
            NotThisFolder: It is.
            SettingsError: Its IDENTITY is damaged.
        """
        found = identity.read(self._path)
        if found is None:
            return
        for what, here, wanted in (
            ("broker", found.broker, self._broker),
            ("broker group", found.group, self._group),
        ):
            if here != wanted:
                raise NotThisFolder(
                    f"{self._path} is the folder of {what} {here!r}, and the settings say "
                    f"{wanted!r}: use the folder of {wanted!r}, or an empty one"
                )

    def enter(self, record: Leadership) -> None:
        """Make sure that the folder holds the group's journal, or nothing; note whose it is.

        Raises:
            NotThisFolder: It holds another journal.
        """
        found = identity.read(self._path)
        if found is not None:
            if found.journal_number != record.journal:
                raise NotThisFolder(
                    f"{self._path} holds another journal than broker group {self._group!r} has: "
                    "an older group of the same name, perhaps. Use an empty folder"
                )
            return
        mine = record.primary == self._broker
        if mine and record.floor is not None and not self._has(record.floor):
            raise NotThisFolder(
                f"{self._path} is not the folder with which {self._broker!r} led broker group "
                f"{self._group!r}: messages that were answered are missing here. Use that folder"
            )
        if not mine and self._has_journal():
            raise NotThisFolder(
                f"{self._path} has a journal of its own, and broker group {self._group!r} has "
                "another: a broker joins with an empty folder"
            )
        self._path.mkdir(parents=True, exist_ok=True)
        identity.write(self._path, Identity.of(self._group, record.journal, self._broker))

    def epoch_to_begin_with(self) -> Epoch:
        """Return the epoch of a group that begins with this folder: that of its journal, or 0.

        Raises:
            NotThisFolder: The folder belonged to a group, so that the record must be there.
            JournalError: The journal is damaged.
        """
        if identity.read(self._path) is not None:
            raise NotThisFolder(
                f"the coordinator has no record of broker group {self._group!r}, and {self._path} "
                "belongs to it: it is another coordinator, or it has lost what it had. Nothing is "
                "started, since another copy may have more than this one"
            )
        ending = self._ending()
        return Epoch(0) if ending is None else ending.epoch

    def floor_to_begin_with(self) -> Floor | None:
        """Return the last record of the folder's journal, for a group that begins with it.

        With it in the leadership record, no other folder can take the place of this one. None:
        there is no journal.

        Raises:
            JournalError: The journal is damaged.
        """
        ending = self._ending()
        if ending is None or ending.last is None:
            return None
        return Floor(ending.last.epoch, ending.last.position, ending.last.crc)

    def check_to_lead(self, record: Leadership, progress: Progress | None) -> None:
        """Check that the journal has what was answered, as far as the coordinator knows; blocks.

        Raises:
            NotThisFolder: It is older, or of a reign that the coordinator does not know.
            JournalError: It is damaged.
        """
        disk = RealDisk(self._path, read_only=True)
        check_to_lead(disk, str(self._path), self._broker, self._group, record, progress)

    def _ending(self) -> Ending | None:
        return find_end(RealDisk(self._path, read_only=True)) if self._has_journal() else None

    def _has(self, floor: Floor) -> bool:
        """Return whether the folder's journal has the record of a floor."""
        ending = self._ending()
        if ending is None or not ending.first <= floor.position < ending.valid_end:
            return False
        disk = RealDisk(self._path, read_only=True)
        found = record_at(disk, floor.position, ending.segment_size)
        return found is not None and found.crc == floor.crc

    def _has_journal(self) -> bool:
        return self._path.is_dir() and _has_journal(RealDisk(self._path, read_only=True))


def check_to_lead(
    disk: Disk, path: str, broker: str, group: str, record: Leadership, progress: Progress | None
) -> None:
    """Check that a journal has what was answered, as far as the coordinator knows; blocks.

    Args:
        disk: The data root.
        path: Of the data folder, for people.
        broker: The broker that is to lead.
        group: Its broker group.
        record: The leadership record.
        progress: How far a reign said that it was committed; None: none did.

    Raises:
        NotThisFolder: The journal is older, or of a reign that the coordinator does not know.
        JournalError: It is damaged.
    """
    if not _has_journal(disk):
        if record.floor is not None:  # else no client was ever served, see ``Reigning``
            raise NotThisFolder(
                f"{path} is empty, and {broker!r} has led broker group {group!r} with another "
                "folder. Use that folder"
            )
        return
    ending = find_end(disk)
    end, epoch = (0, 0) if ending is None else (ending.valid_end, ending.epoch)
    if epoch > record.epoch:
        raise NotThisFolder(
            f"{path} has records of epoch {epoch}, and the coordinator knows of {record.epoch}: "
            "it is another coordinator, or it has lost what it had"
        )
    floor = record.floor
    if floor is not None and ending is not None:
        begun = record_at(disk, floor.position, ending.segment_size)
        if ending.first <= floor.position and (begun is None or begun.crc != floor.crc):
            end = 0
    wanted = 0 if progress is None or progress.epoch > record.epoch else progress.position
    if end < wanted or (floor is not None and end <= floor.position):
        raise NotThisFolder(
            f"{path} is older than what was answered: it ends at {end}, and epoch {record.epoch} "
            f"reached {max(wanted, 0 if floor is None else floor.position)}. It is a copy of "
            "another time; use the folder with which the broker ran last"
        )


def _has_journal(disk: Disk) -> bool:
    try:
        return bool(segment_bases(disk))
    except FileMissing:
        return False
