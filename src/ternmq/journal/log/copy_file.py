"""The file COPY: what a disk says of the copy of a journal that it has.

The records of a copied journal state positions that were durable on the disk of another broker, the
primary. They do not say what this disk has. While the file COPY exists, it says that: recovery then
takes the durable position from it, and from no record.

Ruler (little-endian; the same text is in ``docs/format/copy.md``). The file has 4,096 bytes: a slot
at byte 0, a slot at byte 2,048, and zeros. A slot::

     0  u32 crc32c     of bytes 4..64
     4  u32 magic      0x31434D54, "TMC1"
     8  u16 version    2
    10  u8  state      1 following, 2 cutting
    11  u8 0
    12  u32 told       largest epoch that this broker followed, or was told of
    16  u64 sequence   the valid slot with the larger one counts
    24  u64 synced     this disk has all bytes of the copy below this position
    32  u64 committed  the largest commit mark that this broker was told
    40  u64 cut_to     cutting: the copy ends here, and what follows is being removed; else 2^64-1
    48  u32 promise    longest promise not to stand for primary that may hold, in ms; 0: none
    52  12 bytes 0

The two slots are written in turn, in place, and each write is synced. So a write that is torn
leaves the slot that was written before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google_crc32c import value as crc32c

from ternmq.journal.disk.port import Disk, File
from ternmq.model.errors import CorruptJournal, FileMissing, UnknownRecordKind
from ternmq.model.types import NO_POSITION, Epoch, Position

COPY_NAME: Final = "COPY"
VERSION: Final = 2
"""To change the format: raise this number; keep a reader for the older one (``_note_of``); add a
golden file under ``tests/golden``; describe in ``docs/format/copy.md`` what changed, and since
when. Bytes 0 to 10 of a slot, and the range of its CRC, are the same in every version."""

_NEW_NAME: Final = "COPY.new"
_ROOT: Final = ""
_FILE_BYTES: Final = 4096
_SLOT_BYTES: Final = _FILE_BYTES // 2
"""Slots are far apart, so that no sector of a disk has bytes of both."""
_MAGIC: Final = 0x31434D54
_CRC: Final = struct.Struct("<I")
_REST: Final = struct.Struct("<IHBBIQQQQI12x")
_FIRST_VERSION: Final = 1
_FIRST_PROMISE_MS: Final = 3000
"""What brokers promised that wrote version 1, which has zeros in the place of it."""
_COVERED: Final = _CRC.size + _REST.size
_FOLLOWING: Final = 1
_CUTTING: Final = 2


@dataclass(slots=True, frozen=True)
class CopyNote:
    """What COPY says.

    Attributes:
        synced: This disk has all bytes of the copy below this position. It takes the place of the
            durable positions that the records state.
        committed: The largest commit mark that this broker was told. The copy is never cut below.
        told: The largest epoch that this broker followed, or was told of.
        cut_to: The copy is being cut: it ends here, and nothing behind counts. None: it is not.
        promise_ms: A process of this broker may have promised, just before it ended, not to stand
            for primary for so long. 0: none that counts when it has ended.
    """

    synced: Position
    committed: Position
    told: Epoch
    cut_to: Position | None = None
    promise_ms: int = 0


class CopyFile:
    """The file COPY, open for writing. One call at a time; ``write`` may run in any thread.

    Attributes:
        note: What the file says; durable.
    """

    def __init__(self, file: File, note: CopyNote, sequence: int) -> None:
        self.note = note
        self._file = file
        self._sequence = sequence

    @classmethod
    def make(cls, disk: Disk, note: CopyNote) -> CopyFile:
        """Make the file; it is durable at return, with its name. Blocks.

        It gets its name when its bytes are durable, so that a crash leaves no file, or a valid one.
        A file that exists already is replaced.

        Raises:
            DiskError: The disk failed; the file may be there or not.
        """
        file = disk.open(_NEW_NAME, create=True)
        try:
            file.pwrite(_slot(note, 0).ljust(_FILE_BYTES, b"\0"), 0)
            file.sync()
        finally:
            file.close()
        disk.rename(_NEW_NAME, COPY_NAME)
        disk.sync_folder(_ROOT)
        return cls(disk.open(COPY_NAME), note, 0)

    @classmethod
    def open(cls, disk: Disk) -> CopyFile | None:
        """Open the file, None if there is none; what it says is durable at return. Blocks.

        The newest slot is written again: a broker that was killed may have left it in the page
        cache only, and the next write goes to the other slot, which may be the durable one.

        Raises:
            CorruptJournal: Neither slot is valid.
            UnknownRecordKind: A newer version wrote the file.
            DiskError: The disk failed.
        """
        try:
            file = disk.open(COPY_NAME)
        except FileMissing:
            return None
        try:
            note, sequence = _newest(file)
            copy_file = cls(file, note, sequence)
            copy_file._put()
        except BaseException:
            file.close()
            raise
        disk.sync_folder(_ROOT)  # of a broker that was killed right after the rename in `make`
        return copy_file

    def write(self, note: CopyNote) -> None:
        """Say something else; durable at return. Blocks.

        Raises:
            DiskError: Fatal for the copy: what the file says is unknown until the next start.
        """
        self._sequence += 1
        self.note = note
        self._put()

    def _put(self) -> None:
        """Write the note to the slot of its sequence number, and sync it."""
        self._file.pwrite(_slot(self.note, self._sequence), self._sequence % 2 * _SLOT_BYTES)
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_note(disk: Disk) -> CopyNote | None:
    """Return what COPY says, None if there is no such file; changes nothing.

    Raises:
        CorruptJournal: Neither slot is valid.
        UnknownRecordKind: A newer version wrote the file.
        DiskError: The disk could not read.
    """
    try:
        file = disk.open(COPY_NAME)
    except FileMissing:
        return None
    try:
        return _newest(file)[0]
    finally:
        file.close()


def remove_copy_file(disk: Disk) -> None:
    """Remove COPY, so that the records of the journal say again what is durable; durable at return.

    Only if all records are on this disk, and nothing but zeros behind them.
    """
    disk.remove(COPY_NAME)
    disk.sync_folder(_ROOT)


def _slot(note: CopyNote, sequence: int) -> bytes:
    rest = _REST.pack(
        _MAGIC,
        VERSION,
        _FOLLOWING if note.cut_to is None else _CUTTING,
        0,
        note.told,
        sequence,
        note.synced,
        note.committed,
        NO_POSITION if note.cut_to is None else note.cut_to,
        note.promise_ms,
    )
    return _CRC.pack(crc32c(rest)) + rest


def _newest(file: File) -> tuple[CopyNote, int]:
    """Return what the valid slot with the largest sequence number says, and this number."""
    found: dict[int, CopyNote] = {}
    for offset in range(0, _FILE_BYTES, _SLOT_BYTES):
        data = file.pread(_COVERED, offset)
        if len(data) == _COVERED and _CRC.unpack_from(data)[0] == crc32c(data[4:]):
            _note_of(data, offset, found)
    if not found:
        error = CorruptJournal("the file COPY is damaged: neither slot is valid", file=COPY_NAME)
        error.hint = (
            "copy the journal from another broker of the group into an empty data folder; if there "
            "is none, delete the file COPY: the broker then starts only if the journal is whole"
        )
        raise error
    sequence = max(found)
    return found[sequence], sequence


def _note_of(data: bytes, offset: int, found: dict[int, CopyNote]) -> None:
    """Add what an undamaged slot says to ``found``, by its sequence number."""
    magic, version, state, _, told, sequence, synced, committed, cut_to, promise_ms = (
        _REST.unpack_from(data, 4)
    )
    if magic != _MAGIC:
        return
    if version == _FIRST_VERSION:
        promise_ms = _FIRST_PROMISE_MS
    elif version != VERSION:
        raise UnknownRecordKind(
            f"COPY has the format version {version}", file=COPY_NAME, byte=offset
        )
    if (state, cut_to == NO_POSITION) in ((_FOLLOWING, True), (_CUTTING, False)):
        found[sequence] = CopyNote(
            Position(synced),
            Position(committed),
            Epoch(told),
            None if cut_to == NO_POSITION else Position(cut_to),
            promise_ms,
        )
