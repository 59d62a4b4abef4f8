"""A copy whose durable bytes are damaged: it is cut before the damage, and copied again from there.

What the copy was told stays in COPY: the largest epoch, and how far the journal was committed,
although the copy ends below that now. Who calls this makes sure that another broker has the bytes,
and that this one does not stand for primary before it has them again.

Steps, each durable before the next one; a crash on the way leaves a copy that is damaged as before,
or one that is being cut, which the next ``Copy.open`` finishes.

1. The whole journal is read, to find the first damage. All before it is synced.
2. COPY says that the copy is being cut there (``recovery.cutting``); or, if nothing valid comes
   before the damage, that nothing of the copy counts, and then the segments are removed.
"""

from __future__ import annotations

from dataclasses import replace

from ternmq.journal.copy.files import remove_segments
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.copy_file import CopyFile, CopyNote, read_note
from ternmq.journal.log.segment import FOLDER, segment_bases, segment_name
from ternmq.journal.recovery.repair import Inspection, inspect
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Position


def damage_of(disk: Disk) -> Inspection:
    """Read the whole journal, and return its damage, at least one; changes nothing. Blocks.

    Raises:
        CorruptJournal: It is not damaged in a way that copying again mends.
        UnknownRecordKind: A newer version wrote the folder.
        DiskError: The disk failed.
    """
    read_note(disk)  # if COPY is damaged, what was promised is not known
    found = inspect(disk)
    if not found.damage:
        raise CorruptJournal(f"no damaged record was found in {FOLDER}/", file=FOLDER)
    return found


def cut_before_damage(disk: Disk, found: Inspection) -> Position:
    """Have a damaged copy end before the damage. Blocks.

    A journal of a primary becomes a copy. Call ``Copy.open`` after it.

    Args:
        disk: The data root; the caller holds its lock.
        found: What ``damage_of`` has returned.

    Returns:
        Where the copy ends; the beginning of its first segment: nothing is left.

    Raises:
        DiskError: The disk failed.
    """
    at = max(found.first, found.damage[0].start)
    for base in segment_bases(disk):
        if base < at:
            _sync(disk, segment_name(base))
    copy_file = CopyFile.open(disk)
    if copy_file is None:
        cut = at if at > found.first else None
        note = CopyNote(Position(0) if cut is None else at, Position(0), found.epoch, cut)
        copy_file = CopyFile.make(disk, note)
    try:
        note = copy_file.note
        if at > found.first:
            copy_file.write(replace(note, synced=at, cut_to=at))
            return at
        copy_file.write(replace(note, synced=Position(0), cut_to=None))
    finally:
        copy_file.close()
    remove_segments(disk)
    return at


def _sync(disk: Disk, name: str) -> None:
    file = disk.open(name)
    try:
        file.sync()
    finally:
        file.close()
