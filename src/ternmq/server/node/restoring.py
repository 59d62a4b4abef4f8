"""A broker group that begins again with the journal of a folder: a backup, or a copy that is left.

The group goes on under its name with another journal number, so no older folder takes part in it
any more, and with an epoch far above all that were, so nothing of the time before is taken for
something new. The steps, each durable before the next one:

1. The journal is copied into the data folder, up to its end, unless it is there.
2. IDENTITY says that the folder has this journal. From here on no broker of the group starts with
   the folder, because the record has another journal.
3. The leadership record names the broker as the primary, and the journal and its end.
4. The progress says how far this journal reaches. Until then a broker that starts with the folder
   may find it older than what was answered, and does not lead.

A command that was killed in between is run again: without a source, the folder itself is used.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ternmq import files
from ternmq.cluster.coordination.record import Floor, Leadership, Member, Progress, Writer
from ternmq.journal.disk.real import LOCK_NAME, RealDisk
from ternmq.journal.log.scan import record_at
from ternmq.journal.log.segment import FOLDER, segment_bases
from ternmq.journal.recovery.ending import find_end
from ternmq.journal.recovery.repair import inspect
from ternmq.model.errors import AlreadyRunning, CorruptJournal, FileMissing, SettingsError
from ternmq.model.types import Epoch, Position
from ternmq.server.node import identity
from ternmq.server.node.identity import Identity

EPOCHS_ABOVE: Final = 1_000_000
"""A restored group has so many epochs above all that were: more than brokers that were cut off from
the coordinator could have begun meanwhile."""
_LARGEST: Final = 2**32 - 1
_FILE_MODE: Final = 0o640
_FOLDER_MODE: Final = 0o750
_UNFINISHED: Final = f"{FOLDER}.unfinished"
_NO_DATA: Final = frozenset({LOCK_NAME, _UNFINISHED, "lost+found"})
"""What may be in a folder that counts as empty."""


class Reach(NamedTuple):
    """How far a journal reaches.

    Attributes:
        first: Base of its oldest segment.
        end: Behind its last record.
        epoch: The largest epoch in it.
        last: Its last record.
        time_us: The newest time in it, by the broker that wrote it; 0: none.
        records: Number of its records.
        floor_crc: CRC of the record at the position of the floor that was looked for; None: there
            is none.
        committed: How far the folder was told that the group is committed; 0: it is no copy.
    """

    first: Position
    end: Position
    epoch: Epoch
    last: Floor
    time_us: int
    records: int
    floor_crc: int | None
    committed: Position = Position(0)


def reach_of(folder: Path, floor: Floor | None) -> Reach:
    """Read the whole journal of a folder, and return how far it reaches; blocks.

    Args:
        folder: A data folder, or a backup. Nothing in it is changed.
        floor: Of the leadership record, to be looked for; None: there is none.

    Raises:
        FileMissing: There is no journal.
        CorruptJournal: It is damaged.
    """
    disk = RealDisk(folder, read_only=True)
    if not segment_bases(disk):
        raise FileMissing(f"there is no journal in {folder}")
    found = inspect(disk)
    if found.damage:
        first = found.damage[0]
        raise CorruptJournal(
            f"the journal in {folder} is damaged at position {first.start}: {first.reason}"
        )
    ending = find_end(disk)
    if ending is None or ending.last is None:
        raise FileMissing(f"the journal in {folder} has no records yet")
    if ending.first > 0 and not ending.sets:
        raise CorruptJournal(
            f"the journal in {folder} ends before a complete state, and its beginning is gone: no "
            "broker can start with it"
        )
    crc: int | None = None
    if floor is not None and ending.first <= floor.position < ending.valid_end:
        begun = record_at(disk, floor.position, ending.segment_size)
        crc = None if begun is None else begun.crc
    return Reach(
        ending.first,
        ending.valid_end,
        ending.epoch,
        Floor(ending.last.epoch, ending.last.position, ending.last.crc),
        ending.last_time_us,
        found.record_count,
        crc,
        Position(0) if ending.copy is None else ending.copy.committed,
    )


def missing_bytes(record: Leadership | None, progress: Progress | None, reach: Reach) -> int | None:
    """Return how many bytes of what was answered a journal lacks at least.

    The coordinator is told every 10 s how far a group is committed, so this may be too little. 0:
    it knows of nothing that the journal lacks. None: nobody knows.
    """
    end, told = reach.end, max(reach.committed, 0 if progress is None else progress.position)
    if record is None:
        return told - end if told > end else None
    floor = record.floor
    if floor is not None:
        told = max(told, floor.position)
        if reach.first <= floor.position < end and reach.floor_crc != floor.crc:
            end = floor.position  # from here on, or before, the journal has another history
    return max(0, told - end)


def restored(
    before: Leadership | None, reach: Reach, broker: str, journal: int, writer: Writer, at_us: int
) -> Leadership:
    """Return the record of a group that begins again with a journal.

    Args:
        before: The record that there is; None: there is none.
        reach: Of the journal.
        broker: The broker whose folder has it.
        journal: The new number of the group's journal.
        writer: Who makes the change.
        at_us: The time of the wall clock, for people.

    Raises:
        SettingsError: There is no epoch that is far enough above.
    """
    epoch = max(reach.epoch, 0 if before is None else before.epoch) + EPOCHS_ABOVE
    if epoch + EPOCHS_ABOVE > _LARGEST:
        raise SettingsError(f"this broker group was restored too often: there is no epoch {epoch}")
    return Leadership(
        version=1 if before is None else before.version + 1,
        writer=writer,
        journal=journal,
        epoch=Epoch(epoch),
        primary=broker,
        members=(Member(broker, writer.incarnation),),  # of no process: the broker starts anew
        floor=reach.last,
        why="an operator has restored a backup",
        at_us=at_us,
        kept={} if before is None else before.kept,
    )


@contextlib.contextmanager
def owned(data: Path) -> Iterator[None]:
    """Own a data folder, which is made if it is missing: no broker runs with it meanwhile.

    Raises:
        AlreadyRunning: One does.
        DiskError: The folder cannot be made or written to.
    """
    disk = RealDisk(data)
    disk.lock()
    try:
        yield
    finally:
        disk.close()


@contextlib.contextmanager
def at_rest(source: Path) -> Iterator[None]:
    """Keep brokers from starting with a folder that is read, if it is one of a broker.

    Raises:
        AlreadyRunning: A broker runs with it.
        OSError: Its lock cannot be read.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(FileNotFoundError):  # it is a backup, not a broker's folder
            try:
                stack.enter_context(files.locked(source / LOCK_NAME, shared=True))
            except BlockingIOError:
                raise AlreadyRunning(f"a broker runs with {source}") from None
        yield


def is_empty(data: Path) -> bool:
    """Return whether a folder has nothing that a broker, or somebody else, has put there."""
    return not data.exists() or not {one.name for one in data.iterdir()} - _NO_DATA


def copy_journal(source: Path, data: Path, reach: Reach) -> int:
    """Copy a journal up to its end into an empty folder that is ``owned``; durable at return.

    Returns:
        Number of bytes.

    Raises:
        OSError: It cannot be copied; the target is empty then.
    """
    new = data / _UNFINISHED
    shutil.rmtree(new, ignore_errors=True)  # of a command that was killed
    try:
        new.mkdir(_FOLDER_MODE)
        size = 0
        for segment in sorted((source / FOLDER).glob("*.seg")):
            if reach.first <= (base := int(segment.stem)) < reach.end:
                size += files.copy(segment, new / segment.name, reach.end - base, _FILE_MODE)
        files.sync(new)
        new.rename(data / FOLDER)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    files.sync(data)
    return size


def check_whose(data: Path, group: str) -> None:
    """Check that a folder is not that of another broker group.

    Raises:
        SettingsError: It is, or its IDENTITY is damaged.
    """
    found = identity.read(data)
    if found is not None and found.group != group:
        raise SettingsError(
            f"{data} is a folder of broker group {found.group!r}, and this is about {group!r}: "
            "--broker-group names the group. To begin another group with the journal, copy it: "
            "--from"
        )


def identify(data: Path, group: str, journal: int, broker: str) -> Identity | None:
    """Say in a folder that is ``owned`` whose it is from now on; durable at return.

    Returns:
        Whose it was before.

    Raises:
        OSError: It cannot be written.
    """
    before = identity.read(data)
    identity.write(data, Identity.of(group, journal, broker))
    return before


def put_back(data: Path, before: Identity | None) -> None:
    """Undo ``identify``, since the group did not change; durable at return."""
    if before is not None:
        identity.write(data, before)
    else:
        (data / identity.NAME).unlink()
        files.sync(data)
