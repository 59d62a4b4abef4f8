"""Repairing damage below the durable position: ``ternmq journal verify`` and ``repair``.

Recovery never cuts bytes that were durable; it stops. An operator then has two choices:

* with a **donor** (a replica's folder or a backup, with the same bytes): the damaged ranges are
  copied from it, but only if the donor's records connect, by chain and CRC, the record before a
  range with the record behind it;
* without one, by explicit **consent**: the journal is cut at the first damage. The bytes cut off
  are saved under ``repair/``, and the report lists the lost records. No message is ever invented.

The folder must not be in use; the caller holds its lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ternmq.journal.disk.port import Disk
from ternmq.journal.disk.real import RealDisk
from ternmq.journal.log.copy_file import CopyFile, read_note
from ternmq.journal.log.scan import CHUNK_BYTES, Scanner, segment_size_of
from ternmq.journal.log.segment import FOLDER, file_size, segment_bases, segment_name
from ternmq.journal.recovery.cutting import cut_note
from ternmq.journal.recovery.ending import search
from ternmq.journal.recovery.kept import REPAIR_FOLDER, keep, stretches
from ternmq.journal.recovery.lost import LostRecord, lost_records, proven_from
from ternmq.journal.recovery.recovery import open_journal
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position

__all__ = [
    "REPAIR_FOLDER", "Damage", "Inspection", "LostRecord", "RepairReport", "inspect", "losses",
    "open_folder", "repair",
]  # fmt: skip


@dataclass(slots=True, frozen=True)
class Damage:
    """Positions that hold no valid records though they once were durable.

    Attributes:
        start: End of the last valid record before the damage.
        stop: Position of the next valid record; equal to ``start`` if only the chain is broken.
        reason: What is wrong at ``start``.
        prev_crc: CRC of the last valid record before; None if there is none.
        next_crc: CRC of the record at ``stop``; None if there is none.
        epoch: Epoch of the last valid record before.
    """

    start: Position
    stop: Position
    reason: str
    prev_crc: int | None
    next_crc: int | None
    epoch: int


@dataclass(slots=True, frozen=True)
class Inspection:
    """The result of reading the whole journal, from its first segment on.

    Attributes:
        segment_size: Bytes of every segment.
        first: Base of the oldest segment.
        damage: Ranges below ``durable``, ascending; empty if the journal is sound.
        durable: D, the largest durable position that any valid record states; in a copy of a
            journal what COPY says.
        valid_end: Where recovery would end; with damage, where it would end after a repair.
        record_count: Number of valid records.
        epoch: Largest epoch of a valid record.
    """

    segment_size: int
    first: Position
    damage: tuple[Damage, ...]
    durable: Position
    valid_end: Position
    record_count: int
    epoch: Epoch


@dataclass(slots=True)
class RepairReport:
    """What ``repair`` did.

    Attributes:
        patched: Ranges restored from the donor.
        cut: Position where the journal was cut, None if it was not.
        saved: Files under ``repair/`` with the bytes that were cut off.
        lost: The records cut off, as far as they are known, in order.
        after: The journal after the repair.
    """

    patched: list[Damage] = field(default_factory=list)
    cut: Position | None = None
    saved: list[str] = field(default_factory=list)
    lost: list[LostRecord] = field(default_factory=list)
    after: Inspection | None = None


def open_folder(path: str, *, read_only: bool = False) -> RealDisk:
    """Open a data folder for ``inspect`` and ``repair``, and lock it.

    Args:
        path: The folder.
        read_only: For a donor: it is not locked, and nothing in it is changed.

    Raises:
        AlreadyRunning: A broker uses the folder.
        FileMissing: ``read_only``, and there is no such folder.
    """
    disk = RealDisk(path, read_only=read_only)
    if not read_only:
        try:
            disk.lock()
        except BaseException:
            disk.close()
            raise
    return disk


def inspect(disk: Disk) -> Inspection:
    """Read the whole journal and return its damage; changes nothing.

    Raises:
        CorruptJournal: There is no journal, or nothing in it can be read.
        UnknownRecordKind: A newer version wrote this journal.
    """
    bases = segment_bases(disk)
    if not bases:
        raise CorruptJournal(f"no segments in {FOLDER}/", file=FOLDER)
    size = _size(disk, bases)
    copy = read_note(disk)
    stop = None if copy is None else copy.cut_to
    chains = list(_chains(disk, bases, size, stop))
    if copy is None:
        durable = max((chain.durable for chain in chains), default=0)
    else:
        durable = copy.synced
    damage: list[Damage] = []
    end: int = bases[0]
    reason = "nothing readable at the start"
    prev_crc: int | None = None
    epoch = 0
    for chain in chains:
        if chain.start != bases[0]:
            if end >= durable:
                break
            damage.append(Damage(Position(end), chain.start, reason, prev_crc, chain.crc, epoch))
        end, reason = chain.end, chain.fault or "the record is blank"
        prev_crc, epoch = chain.last_crc, chain.epoch
    if end < durable:
        damage.append(Damage(Position(end), Position(durable), reason, prev_crc, None, epoch))
    return Inspection(
        segment_size=size,
        first=bases[0],
        damage=tuple(damage),
        durable=Position(durable),
        valid_end=Position(max(end, durable)),
        record_count=sum(chain.count for chain in chains),
        epoch=Epoch(max((chain.epoch for chain in chains), default=0)),
    )


def losses(disk: Disk, found: Inspection) -> list[LostRecord]:
    """Return the records that a cut at the first damage would remove; changes nothing."""
    if not found.damage:
        return []
    return list(lost_records(disk, segment_bases(disk), found.damage[0].start, found.segment_size))


def repair(disk: Disk, *, consent: bool = False, donor: Disk | None = None) -> RepairReport:
    """Repair damage below the durable position; blocks, reads the whole journal.

    Args:
        disk: The damaged folder.
        consent: Cut at the first damage that the donor cannot repair, losing all records behind it.
        donor: A folder with the same journal; it may be damaged elsewhere, be shorter or longer.

    Raises:
        CorruptJournal: Damage is left and there is no consent (ranges that the donor has were
            restored), or a cut would leave no record.
    """
    before = inspect(disk)
    report = RepairReport(after=before)
    if not before.damage:
        return report
    left: list[Damage] = []
    for damage in before.damage:
        if donor is not None and _donor_fits(donor, damage, before.segment_size):
            _patch(disk, donor, damage, before.segment_size)
            report.patched.append(damage)
        else:
            left.append(damage)
    if left:
        base = left[0].start - left[0].start % before.segment_size
        if not consent or left[0].prev_crc is None:
            raise CorruptJournal(
                f"damage from {left[0].start} to {left[0].stop}: {left[0].reason}"
                + ("" if not consent else "; there is nothing before it to keep"),
                file=segment_name(base),
                byte=left[0].start - base,
            )
        _cut(disk, left[0].start, before, report)
    report.after = inspect(disk)
    return report


# ------------------------------------------------------------------------------------------ reading


@dataclass(slots=True)
class _Chain:
    """Valid records that follow one another."""

    start: Position
    crc: int
    end: Position
    last_crc: int
    epoch: int
    durable: int
    count: int
    fault: str


def _size(disk: Disk, bases: list[Position]) -> int:
    """Return the segment size, from the first file if no SEGMENT record can be read."""
    try:
        return segment_size_of(disk, bases)
    except CorruptJournal:
        size = file_size(disk, bases[0])
        if size <= 0 or size % 8:
            raise
        return size


def _chains(
    disk: Disk, bases: list[Position], size: int, stop: Position | None
) -> Iterator[_Chain]:
    """Yield every stretch of valid records, from the first segment to the last, or to ``stop``."""
    position: int | None = bases[0]
    prev_crc: int | None = 0 if bases[0] == 0 else None
    while position is not None and (stop is None or position < stop):
        scanner = Scanner(disk, position, segment_size=size, prev_crc=prev_crc, stop=stop)
        chain: _Chain | None = None
        for record in scanner:
            if chain is None:
                chain = _Chain(record.position, record.crc, record.end, 0, 0, 0, 0, "")
            chain.end, chain.last_crc, chain.epoch = record.end, record.crc, record.epoch
            chain.durable = max(chain.durable, record.durable)
            chain.count += 1
        prev_crc = None
        if chain is None:
            position += 8
        else:
            chain.fault = scanner.fault
            yield chain
            position = chain.end
        following = next(proven_from(disk, bases, position), None)
        position = None if following is None else following.position


# ----------------------------------------------------------------------------------------- patching


def _donor_fits(donor: Disk, damage: Damage, size: int) -> bool:
    """Return whether the donor's records connect the record before the damage with the next one."""
    prev_crc = damage.prev_crc
    if prev_crc is None and damage.start == 0:
        prev_crc = 0
    for record in Scanner(
        donor, damage.start, segment_size=size, prev_crc=prev_crc, epoch=damage.epoch
    ):
        if record.position >= damage.stop:
            return record.position == damage.stop and record.crc == damage.next_crc
        if damage.next_crc is None and record.end >= damage.stop:
            return True
    return False


def _patch(disk: Disk, donor: Disk, damage: Damage, size: int) -> None:
    """Copy the damaged range and sync it; make or extend segment files where needed."""
    position: int = damage.start
    present = set(segment_bases(disk))
    stop = damage.stop
    while position < stop:
        base = Position(position - position % size)
        if base not in present:
            disk.allocate(segment_name(base), size)
        target = disk.open(segment_name(base))
        source = donor.open(segment_name(base))
        try:
            missing = size - target.size()
            if missing > 0:
                target.pwrite(bytes(missing), size - missing)
            while position < min(stop, base + size):
                length = min(CHUNK_BYTES, stop - position, base + size - position)
                target.pwrite(source.pread(length, position - base), position - base)
                position += length
            target.sync()
        finally:
            source.close()
            target.close()


# ------------------------------------------------------------------------------------------ cutting


def _cut(disk: Disk, cut: Position, before: Inspection, report: RepairReport) -> None:
    """Cut at ``cut``: list, save and zero what is behind, then begin an epoch above all others."""
    bases = segment_bases(disk)
    report.lost.extend(lost_records(disk, bases, cut, before.segment_size))
    dirt = search(disk, bases, cut, before.segment_size).dirt
    report.saved.extend(keep(disk, stretches(dirt, cut), cut))  # before the first byte is zeroed
    copy_file = CopyFile.open(disk)
    if copy_file is not None:  # else COPY would demand the bytes at the next start
        copy_file.write(cut_note(copy_file.note, cut))
        copy_file.close()
    for piece in dirt:
        file = disk.open(segment_name(piece.base))
        try:
            file.pwrite(bytes(piece.stop - piece.start), piece.start)
            file.sync()
        finally:
            file.close()
    journal, _ = open_journal(disk, wall_us=0, min_epoch=Epoch(before.epoch + 1))
    journal.close()
    report.cut = cut
