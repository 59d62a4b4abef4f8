"""The data folder of a broker in a broker group: is it the right one, and does it have enough?"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from ternmq.cluster.coordination.loss import recorded
from ternmq.cluster.coordination.record import Floor, Leadership, Progress, Reach
from ternmq.cluster.replication.forcing import Held
from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.journal.log.scan import record_at
from ternmq.journal.log.segment import segment_bases
from ternmq.journal.recovery.ending import Ending, find_end
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
        floor: The floor that was looked for.
        floor_crc: CRC of the record at its position; None: there is none.
        last: Its last record.
        committed: The largest commit mark that it was told; the end if it is no copy.
    """

    first: Position
    end: Position
    epoch: Epoch
    floor: Floor | None
    floor_crc: int | None
    last: Checkpoint | None
    committed: Position

    @property
    def held(self) -> Held | None:
        """The same as the rules of an accepted loss take it; None if there is no record."""
        if self.last is None:
            return None
        return Held(Reach(self.epoch, self.end, self.committed), floor_of(self.last))


class Folder:
    """A broker's data folder, looked at from outside while no journal is open in it.

    Args:
        path: The folder.
        group: The broker group of the settings.
        broker: The broker's name.
        disk: What is looked at in the place of the folder, whose path then only names it; None: the
            folder.
    """

    def __init__(self, path: Path, group: str, broker: str, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk
        self._identity: Identity | None = None
        self._group = group
        self._broker = broker

    def check(self) -> None:
        """Check that the folder is not another broker's.

        Raises:
            SettingsError: It is, or its IDENTITY is damaged.
        """
        found = self._read()
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
        found = self._identity = self._read()
        if found is not None:
            if found.journal_number != record.journal:
                raise SettingsError(
                    f"{self._path} holds another journal than broker group {self._group!r} has: "
                    "the group was restored from a backup since, or this folder is of an older "
                    "group of the same name. Use an empty folder"
                )
            return
        mine = record.primary == self._broker
        if mine and record.floor is not None and not self._has(record.floor):
            raise SettingsError(
                f"{self._path} is not the folder with which {self._broker!r} led broker group "
                f"{self._group!r}: messages that were answered are missing here. Use that folder"
            )
        if not mine and self._has_journal():
            raise SettingsError(
                f"{self._path} has a journal of its own, and broker group {self._group!r} has "
                "another: a broker joins with an empty folder"
            )
        self._write(Identity.of(self._group, record.journal, self._broker, whole=mine))

    @property
    def is_whole(self) -> bool:
        """Whether the folder has had everything that was committed, once; known after ``enter``."""
        return self._identity is not None and self._identity.whole

    def make_whole(self) -> None:
        """Note that the folder has everything that was committed, durably.

        Raises:
            OSError: The file cannot be written.
        """
        self._put_whole(whole=True)

    def make_partial(self) -> None:
        """Note that the folder will lack what was committed, durably. Callable from a thread.

        Raises:
            OSError: The file cannot be written.
        """
        self._put_whole(whole=False)

    def _put_whole(self, *, whole: bool) -> None:
        assert self._identity is not None
        self._write(msgspec.structs.replace(self._identity, whole=whole))

    def epoch_to_begin_with(self) -> Epoch:
        """Return the epoch of a group that begins with this folder: that of its journal, or 0.

        Raises:
            SettingsError: The folder belonged to a group, so that the record must be there.
            JournalError: The journal is damaged.
        """
        if self._read() is not None:
            raise SettingsError(
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
        return floor_of(ending.last)

    def holding(self, floor: Floor | None) -> Holding | None:
        """Return what the journal in the folder has, None if there is none; blocks.

        Raises:
            JournalError: It is damaged.
        """
        disk = self._looked_at()
        return None if disk is None else holding_of(disk, floor)

    def check_to_lead(
        self, record: Leadership, progress: Progress | None, holding: Holding | None
    ) -> None:
        """Check that the journal has what was answered; see ``check_holding``."""
        check_holding(str(self._path), self._broker, self._group, record, progress, holding)

    def _ending(self) -> Ending | None:
        disk = self._looked_at()
        return find_end(disk) if disk is not None and _has_journal(disk) else None

    def _has(self, floor: Floor) -> bool:
        """Return whether the folder's journal has the record of a floor."""
        found = self.holding(floor)
        return found is not None and found.floor_crc == floor.crc

    def _has_journal(self) -> bool:
        disk = self._looked_at()
        return disk is not None and _has_journal(disk)

    def _looked_at(self) -> Disk | None:
        """Return the disk to look at; None: there is no folder."""
        if self._disk is not None:
            return self._disk
        return RealDisk(self._path, read_only=True) if self._path.is_dir() else None

    def _read(self) -> Identity | None:
        if self._disk is not None:
            return identity.read_on(self._disk)
        return identity.read(self._path)

    def _write(self, found: Identity) -> None:
        if self._disk is not None:
            identity.write_on(self._disk, found)
        else:
            self._path.mkdir(parents=True, exist_ok=True)
            identity.write(self._path, found)
        self._identity = found


def floor_of(last: Checkpoint) -> Floor:
    """Return the floor of a group that goes on with a journal, whose last record this is."""
    return Floor(last.epoch, last.position, last.crc)


def holding_of(disk: Disk, floor: Floor | None) -> Holding | None:
    """Return what the journal on a disk has, None if there is none; blocks.

    Raises:
        JournalError: It is damaged.
    """
    ending = find_end(disk) if _has_journal(disk) else None
    if ending is None:
        return None
    crc: int | None = None
    if floor is not None and ending.first <= floor.position < ending.valid_end:
        begun = record_at(disk, floor.position, ending.segment_size)
        crc = None if begun is None else begun.crc
    end = ending.valid_end
    committed = end if ending.copy is None else min(end, ending.copy.committed)
    return Holding(ending.first, end, ending.epoch, floor, crc, ending.last, committed)


def check_holding(
    path: str,
    broker: str,
    group: str,
    record: Leadership,
    progress: Progress | None,
    holding: Holding | None,
) -> None:
    """Check that a journal has what was answered, as far as the coordinator knows.

    Args:
        path: Of the data folder, for people.
        broker: The broker that is to lead.
        group: Its broker group.
        record: The leadership record.
        progress: How far a reign said that it was committed; None: none did.
        holding: What the journal has, and of the floor of this record; None: there is no journal.

    Raises:
        SettingsError: The journal is older, or of a reign that the coordinator does not know.
    """
    floor = record.floor
    if holding is None:
        if floor is not None:  # else no client was ever served, see ``Reigning``
            raise SettingsError(
                f"{path} is empty, and {broker!r} has led broker group {group!r} with another "
                "folder. Use that folder. If it is lost, `ternmq cluster restore` begins the group "
                "again with a backup"
            )
        return
    if holding.epoch > record.epoch:
        raise SettingsError(
            f"{path} has records of epoch {holding.epoch}, and the coordinator knows of "
            f"{record.epoch}: it is another coordinator, or it has lost what it had"
        )
    end = holding.end
    if floor is not None and holding.first <= floor.position and holding.floor_crc != floor.crc:
        end = Position(0)  # another history
    wanted = recorded(record, progress)
    if end < wanted or (floor is not None and end <= floor.position):
        raise SettingsError(
            f"{path} is older than what was answered: it ends at {end}, and epoch {record.epoch} "
            f"reached {max(wanted, 0 if floor is None else floor.position)}. It is a copy of "
            "another time: use the folder with which the broker ran last. If that is lost, `ternmq "
            f"cluster promote {broker} --accept-loss` has it lead with this one"
        )


def _has_journal(disk: Disk) -> bool:
    try:
        return bool(segment_bases(disk))
    except FileMissing:
        return False
