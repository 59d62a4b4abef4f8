"""Cutting the copy of a journal: records that the group did not keep are removed.

Steps; if a crash interrupts them after the first, whoever opens the folder for writing does the
others again, since COPY says that the copy is being cut:

1. COPY says where the cut is, synced (``cut_note``). From now on the journal ends there for
   everybody (``find_end``).
2. What is behind is kept under ``repair/``, synced, as far as there is room (``kept``).
3. Segment files that begin at the cut or behind it are removed; the folder is synced.
4. The rest of the segment becomes zeros, synced (``recovery.clear``).
5. COPY says that the journal is whole up to the cut; or COPY is removed, if the folder is opened
   as a journal of its own.
"""

from __future__ import annotations

from dataclasses import replace

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.copy_file import CopyFile, CopyNote
from ternmq.journal.log.segment import FOLDER, segment_bases, segment_name
from ternmq.journal.recovery.ending import Ending
from ternmq.journal.recovery.kept import keep_some, stretches
from ternmq.model.types import Position


def cut_note(note: CopyNote, cut: Position) -> CopyNote:
    """Return what COPY says while the copy is cut at a position; all before it is durable."""
    return replace(note, synced=cut, committed=min(note.committed, cut), cut_to=cut)


def take_away(disk: Disk, ending: Ending) -> Ending:
    """Do steps 2 and 3 of a cut that COPY states; return the ending for step 4. Blocks.

    What COPY says is synced first: the broker that began the cut may have been killed before that.

    Raises:
        DiskError: The disk failed; open the journal again.
    """
    copy_file = CopyFile.open(disk)
    if copy_file is None or copy_file.note.cut_to is None:
        raise ValueError("COPY states no cut")
    copy_file.close()
    cut = ending.valid_end
    keep_some(disk, stretches(ending.dirt, cut), cut)
    behind = [base for base in segment_bases(disk) if base >= cut]
    for base in behind:
        disk.remove(segment_name(base))
    if behind:
        disk.sync_folder(FOLDER)
    return replace(ending, dirt=tuple(one for one in ending.dirt if one.base < cut))
