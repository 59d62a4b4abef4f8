"""Keeping the bytes that a cut removes from the journal: files under ``repair/``.

``journal repair`` keeps all of them. A copy of another broker's journal is cut without a question,
and as often as the broker that leads the group changes; so what these cuts keep is bounded. So is
what is kept of damaged bytes that others take the place of (``mending.patch``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ternmq.journal.disk.port import Disk
from ternmq.journal.log.readable import readable
from ternmq.journal.log.scan import CHUNK_BYTES
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import Dirt
from ternmq.model.types import Position

REPAIR_FOLDER: Final = "repair"
KEPT_BYTES: Final = 1 << 30
"""Most bytes that the cuts of a copy keep, all of them together."""
_COPY: Final = "copy-"
"""Files of the cuts of a copy have names that begin so: ``copy-NNNNNNNN-CUT-BASE.bytes``, where N
counts the cuts. ``journal repair`` writes ``CUT-BASE-N.bytes``."""


class Stretch(NamedTuple):
    """Bytes of one segment file."""

    base: Position
    start: int
    stop: int


def stretches(dirt: Iterable[Dirt], cut: Position) -> list[Stretch]:
    """Return what to keep of each segment file: from the cut to its last byte that is not zero."""
    stops: dict[Position, int] = {}
    for piece in dirt:
        stops[piece.base] = max(stops.get(piece.base, 0), piece.stop)
    return [Stretch(base, max(cut - base, 0), stops[base]) for base in sorted(stops)]


def keep(disk: Disk, found: Iterable[Stretch], cut: Position) -> list[str]:
    """Copy bytes to new files under ``repair/``, durably; return their names. Blocks.

    Raises:
        DiskError: The disk failed; files may be there that are not complete.
    """
    before = set(disk.names(REPAIR_FOLDER))
    saved: list[str] = []
    for one in found:
        number = 1
        while (name := f"{cut:020d}-{one.base:020d}-{number}.bytes") in before:
            number += 1  # an interrupted cut may have saved bytes zeroed since: never overwrite
        saved.append(_save(disk, one, name))
    if saved:
        disk.sync_folder(REPAIR_FOLDER)
    return saved


def keep_some(disk: Disk, found: Iterable[Stretch], cut: Position) -> list[str]:
    """Copy bytes to new files under ``repair/``, durably, as far as there is room. Blocks.

    At most ``KEPT_BYTES``, and at most half of the free space of the disk. The files of older cuts
    of a copy are removed as far as they are in the way, the oldest first; those of this cut, which
    a crash interrupted before, are not.

    Returns:
        The names of the new files.

    Raises:
        DiskError: As ``keep``.
    """
    sizes = {name: _size(disk, name) for name in disk.names(REPAIR_FOLDER) if _number(name)}
    number = max(map(_number, sizes), default=0) + 1
    same = {name for name in sizes if _cut(name) == cut}
    left = KEPT_BYTES - sum(sizes[name] for name in same)
    wanted: list[tuple[Stretch, str]] = []
    for one in found:
        stop = min(one.stop, one.start + max(0, left))
        if stop > one.start:
            name = f"{_COPY}{number:08d}-{cut:020d}-{one.base:020d}.bytes"
            wanted.append((one._replace(stop=stop), name))
            left -= stop - one.start
    for name in sorted(sizes.keys() - same):
        if left >= 0 and sum(sizes[one] for one in sizes.keys() - same) <= left:
            break
        disk.remove(f"{REPAIR_FOLDER}/{name}")
        del sizes[name]
    room = disk.free_bytes() // 2
    saved: list[str] = []
    for one, name in wanted:
        stop = min(one.stop, one.start + room)
        if stop > one.start:
            saved.append(_save(disk, one._replace(stop=stop), name))
            room -= stop - one.start
    if saved:
        disk.sync_folder(REPAIR_FOLDER)
    return saved


def _number(name: str) -> int:
    """Return the number of the cut of a copy that wrote a file; 0 if none did."""
    number = name[len(_COPY) : len(_COPY) + 8]
    return int(number) if name.startswith(_COPY) and number.isdecimal() else 0


def _cut(name: str) -> int:
    """Return the position of the cut of a copy that wrote a file; -1 if the name has none."""
    cut = name[len(_COPY) + 9 : len(_COPY) + 29]
    return int(cut) if cut.isdecimal() else -1


def _size(disk: Disk, name: str) -> int:
    file = disk.open(f"{REPAIR_FOLDER}/{name}")
    try:
        return file.size()
    finally:
        file.close()


def _save(disk: Disk, found: Stretch, name: str) -> str:
    """Copy a stretch of a segment file to a new file under ``repair/``; return its name.

    Zeros take the place of what the disk cannot read.
    """
    source = disk.open(segment_name(found.base))
    target = disk.open(f"{REPAIR_FOLDER}/{name}", create=True)
    try:
        for offset in range(found.start, found.stop, CHUNK_BYTES):
            length = min(CHUNK_BYTES, found.stop - offset)
            target.pwrite(readable(source, length, offset), offset - found.start)
        target.sync()
    finally:
        source.close()
        target.close()
    return f"{REPAIR_FOLDER}/{name}"
