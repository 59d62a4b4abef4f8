"""Opening a journal after a clean stop, a kill or a crash.

Six steps; if a crash interrupts any of them, the next start does them all again:

1. ``find_end`` (``ending``) reads: the valid end X, the durable position D, or corruption.
2. ``confirm`` writes the bytes from D to X again in place, as they are, and syncs them. (Bytes read
   after a failed sync or a kill may live in the page cache only; it is not believed. So this comes
   before the replay, which then reads what is on the disk.)
3. ``load_and_replay``: the newest complete STATE set and the facts after it go into the views.
   Any damage is found by now: a start that is refused has changed nothing.
4. ``clear`` makes the disk agree with X: everything behind X becomes zeros and half-made spares are
   removed; all that is synced before anything new is written.
5. EPOCH, one above the largest epoch seen, is appended, written and synced. Its time is that of the
   wall clock, unless the wall clock is behind the last record, or further ahead of it than is
   believed (``start_time``).
6. The views apply the EPOCH, and the journal is returned.

A follower that is promoted has the views already, and its copy was open until now (``Replayed``):
the steps 1 to 3 are left out.

In the folder of a copy of another broker's journal, COPY (``log.copy_file``) says what is durable,
and a cut that it states is finished in step 4 (``cutting``). COPY is removed between the steps 4
and 5: all records are on this disk by then, so what they state as durable is true here, too.

All other files of the data folder (indexes, hints) are caches: recovery needs none of them and
removes none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ternmq.journal.disk.port import Disk, File
from ternmq.journal.log.copy_file import COPY_NAME, read_note, remove_copy_file
from ternmq.journal.log.journal import DEFAULT_TAIL_BYTES, Journal
from ternmq.journal.log.scan import RawRecord, Scanner, record_at
from ternmq.journal.log.segment import (
    DEFAULT_SEGMENT_BYTES,
    FOLDER,
    file_size,
    segment_bases,
    segment_name,
)
from ternmq.journal.recovery.cutting import take_away
from ternmq.journal.recovery.ending import Ending, find_end, stated_sets
from ternmq.journal.state.sets import (
    CompleteSet,
    Replayable,
    StateKey,
    begin_of_end,
    directory_of,
    load,
)
from ternmq.model.errors import CorruptJournal
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.control import EPOCH, EPOCH_CLEAN
from ternmq.record.fact.header import KNOWN_KINDS, Kind

_REWRITE_BYTES: Final = 1 << 20
FACTS: Final = KNOWN_KINDS - {Kind.SEGMENT, Kind.PAD, Kind.MARK, Kind.STATE}
"""Kinds of records that a replay gives to the views."""


@dataclass(slots=True, frozen=True)
class RecoveryReport:
    """What opening the journal found and did.

    Attributes:
        fresh: There was no journal; this one is new.
        clean: The previous reign ended with a clean stop.
        epoch: Epoch of the reign that begins.
        epoch_position: Position of its EPOCH record.
        time_us: Broker time at start; see ``start_time``.
        disbelieved_us: How far the wall clock is ahead of ``time_us``, because it was too far ahead
            to be believed; else 0.
        start: Position where the walk began.
        valid_end: X, the end of the valid records.
        durable: D as found.
        cut: Positions (from, to) that were cut off, None if nothing was.
        fault: What was wrong with the bytes at X; empty where the journal just ended.
        record_count: Number of records walked.
        loaded_set: The STATE set that the views were loaded from, None if all was replayed.
        directory: Object -> position of the chunk that holds it, for ``StateWriter.remember``.
    """

    fresh: bool
    clean: bool
    epoch: Epoch
    epoch_position: Position
    time_us: int
    start: Position
    valid_end: Position
    durable: Position
    cut: tuple[Position, Position] | None
    fault: str
    record_count: int
    loaded_set: CompleteSet | None = None
    directory: dict[StateKey, int] = field(default_factory=dict)
    disbelieved_us: int = 0


@dataclass(slots=True, frozen=True)
class Replayed:
    """A copy whose records are all in the views already, so that opening it replays nothing.

    Attributes:
        ending: Where it ends. All of it is durable, and nothing is behind the end.
        directory: Object -> position of its chunk in the newest STATE set.
        newest: That set; None: there is none.
        apply: Applies the EPOCH of the new reign to the views.
    """

    ending: Ending
    directory: dict[StateKey, int]
    newest: CompleteSet | None
    apply: Callable[[RawRecord], None]


def start_time(wall_us: int, last_us: int, jump_us: int | None) -> int:
    """Return the broker time of a start.

    It never goes back. A wall clock that is wrong by years must not end every retention and bring
    every delayed message at once: beyond ``jump_us`` it is not believed at all, and time goes on
    from the last record.

    Args:
        wall_us: The wall clock.
        last_us: Broker time of the last record; 0: there is none.
        jump_us: How far ahead of the last record the wall clock is believed; None: however far.
    """
    if jump_us is not None and last_us and wall_us - last_us > jump_us:
        return last_us
    return max(wall_us, last_us)


def open_journal(
    disk: Disk,
    *,
    wall_us: int,
    replay: Replayable | None = None,
    prepare: Callable[[Ending | None], Replayable] | None = None,
    hint: Position | None = None,
    segment_size: int = DEFAULT_SEGMENT_BYTES,
    reserve_bytes: int | None = None,
    tail_bytes: int = DEFAULT_TAIL_BYTES,
    min_epoch: Epoch = Epoch(1),
    start_jump_us: int | None = None,
    replayed: Replayed | None = None,
) -> tuple[Journal, RecoveryReport]:
    """Open the journal of a data folder, or make one; blocks until its EPOCH is durable.

    If the folder holds a copy of another broker's journal, it is a copy no more: its own records
    follow from here.

    Args:
        disk: The data root; the caller holds its lock.
        wall_us: The wall clock.
        replay: The views to fill; None fills none (tools).
        prepare: Called instead of passing ``replay``: makes the views once the end is known. Its
            argument is None for a new journal.
        hint: BEGIN of a STATE set that an index file names.
        segment_size: For a journal that is made now; an existing one keeps its own.
        reserve_bytes: See ``Journal``.
        tail_bytes: See ``Journal``.
        min_epoch: Smallest value of the new epoch. Repair passes one above the epochs it cut off.
        start_jump_us: How far ahead of the last record the wall clock is believed; None: however
            far.
        replayed: A copy that was open until now: it is not searched for its end, and the steps 1
            to 3 are done. ``replay``, ``prepare`` and ``hint`` are not used then.

    Raises:
        CorruptJournal: Bytes that were durable are damaged, or the folder is that of a copy that
            has nothing yet; nothing was changed.
        UnknownRecordKind: A newer version wrote this journal; nothing was changed.
        JournalFull: The segment is at its end and the disk has no room for another.
        JournalFailed: Writing the EPOCH failed; open the journal again.
        DiskError: The disk failed; open the journal again.
    """
    ending = find_end(disk, hint) if replayed is None else replayed.ending
    if ending is None:
        _refuse_empty_copy(disk)
        if prepare is not None:
            replay = prepare(None)
        return _make(disk, wall_us, replay, segment_size, reserve_bytes, tail_bytes, min_epoch)
    directory: dict[StateKey, int] = {}
    loaded_set = None
    if replayed is not None:
        directory, loaded_set, replay = replayed.directory, replayed.newest, None
    else:
        confirm(disk, ending)
        if prepare is not None:
            replay = prepare(ending)
        if replay is not None:
            directory, loaded_set = load_and_replay(disk, ending, replay)
    spares = clear(disk, ending)  # not earlier: a start that is refused changes nothing
    if ending.copy is not None:
        remove_copy_file(disk)
    time_us = start_time(wall_us, ending.last_time_us, start_jump_us)
    journal = Journal(
        disk,
        segment_size=ending.segment_size,
        first=ending.first,
        end=ending.valid_end,
        last_crc=ending.last_crc,
        epoch=Epoch(max(ending.epoch + 1, min_epoch)),
        spares=spares,
        reserve_bytes=reserve_bytes,
        tail_bytes=tail_bytes,
    )
    if loaded_set is not None:
        journal.set_newest_state(loaded_set.begin, loaded_set.end)
    elif ending.sets:
        journal.set_newest_state(*ending.sets[-1])
    journal.prepare_spare()
    body = EPOCH.pack(
        journal.epoch, EPOCH_CLEAN if ending.clean else 0, ending.valid_end, ending.durable
    )
    position = journal.append(Kind.EPOCH, body, time_us)
    journal.flush()
    journal.sync_now()
    if replay is not None or replayed is not None:
        written = record_at(disk, position, ending.segment_size)
        if written is None:
            raise CorruptJournal(
                f"the EPOCH record just written at {position} does not read back",
                file=segment_name(position - position % ending.segment_size),
                byte=position % ending.segment_size,
            )
        if replayed is not None:
            replayed.apply(written)
        elif replay is not None:
            replay.apply(written)
            replay.finish(ending.valid_end)
    return journal, RecoveryReport(
        fresh=False,
        clean=ending.clean,
        epoch=journal.epoch,
        epoch_position=position,
        time_us=time_us,
        start=ending.start,
        valid_end=ending.valid_end,
        durable=ending.durable,
        cut=ending.cut,
        fault=ending.fault,
        record_count=ending.record_count,
        loaded_set=loaded_set,
        directory=directory,
        disbelieved_us=max(0, wall_us - time_us),
    )


def _refuse_empty_copy(disk: Disk) -> None:
    """Raise ``CorruptJournal`` if COPY says that records of a group's journal should come here."""
    if read_note(disk) is None:
        return
    error = CorruptJournal(
        "this folder is for a copy of a journal, and has none of its records yet", file=COPY_NAME
    )
    error.hint = (
        "start another broker of the group; to begin a new journal here, delete the file COPY"
    )
    raise error


def _make(
    disk: Disk,
    wall_us: int,
    replay: Replayable | None,
    segment_size: int,
    reserve_bytes: int | None,
    tail_bytes: int,
    epoch: Epoch,
) -> tuple[Journal, RecoveryReport]:
    """Make a journal where there is none, or only a half-made one that was never used."""
    leftovers = segment_bases(disk)
    for base in leftovers:
        disk.remove(segment_name(base))
    if leftovers:
        disk.sync_folder(FOLDER)
    journal = Journal.create(
        disk,
        segment_size=segment_size,
        time_us=wall_us,
        reserve_bytes=reserve_bytes,
        tail_bytes=tail_bytes,
        epoch=epoch,
    )
    start = journal.first
    position = start
    if replay is not None:
        replay.loaded(start)
    for record in Scanner(disk, start, segment_size=segment_size, prev_crc=0):
        if record.kind == Kind.EPOCH:
            position = record.position
            if replay is not None:
                replay.apply(record)
    if replay is not None:
        replay.finish(start)
    return journal, RecoveryReport(
        fresh=True,
        clean=False,
        epoch=journal.epoch,
        epoch_position=position,
        time_us=wall_us,
        start=start,
        valid_end=start,
        durable=start,
        cut=None,
        fault="",
        record_count=0,
    )


def records(disk: Disk, ending: Ending, start: Position | None = None) -> Iterator[RawRecord]:
    """Iterate over the valid records from ``start`` (default: ``ending.start``) to the valid end.

    Raises:
        CorruptJournal: The disk returns other bytes than it did to ``find_end``.
    """
    position = ending.start if start is None else start
    end = ending.valid_end
    scanner = Scanner(
        disk,
        position,
        segment_size=ending.segment_size,
        prev_crc=None if position else 0,
        stop=end,
    )
    yield from scanner
    if scanner.position != end:
        at = scanner.position
        base = at - at % ending.segment_size
        raise CorruptJournal(
            f"position {at} was readable a moment ago: {scanner.fault}",
            file=segment_name(base),
            byte=at - base,
        )


def load_and_replay(
    disk: Disk, ending: Ending, replay: Replayable
) -> tuple[dict[StateKey, int], CompleteSet | None]:
    """Fill the views: the newest complete STATE set, then every fact from its BEGIN on.

    If a set cannot be read completely, the next older one is used (two are always kept). If none
    can, replay begins at the journal's beginning, provided that it was not removed.

    Returns:
        Object -> position of its chunk, and the set; empty and None if no set was used.

    Raises:
        CorruptJournal: No set can be read and the journal's beginning was removed.
    """
    directory: dict[StateKey, int] = {}
    loaded_set: CompleteSet | None = None
    broken: CorruptJournal | None = None
    for end in _set_ends(disk, ending):
        try:
            directory, loaded_set = directory_of(disk, ending.segment_size, end)
            payload_bytes = load(disk, ending.segment_size, directory, replay)
            loaded_set = loaded_set._replace(payload_bytes=payload_bytes)
            break
        except CorruptJournal as error:  # it is raised before the views get the first object
            directory, loaded_set, broken = {}, None, error
    if loaded_set is None and ending.first > 0:
        raise CorruptJournal(
            "no complete STATE set can be read, and the journal's beginning is gone",
            file=segment_name(ending.first),
        ) from broken
    begin = ending.first if loaded_set is None else loaded_set.begin
    replay.loaded(begin)
    apply = replay.apply
    for record in records(disk, ending, begin):
        if record.kind in FACTS:
            apply(record)
    return directory, loaded_set


def _set_ends(disk: Disk, ending: Ending) -> Iterator[Position]:
    """Yield the END positions of complete STATE sets, newest first."""
    for _, end in reversed(ending.sets):
        yield end
    for begin in stated_sets(disk, segment_bases(disk)):
        if ending.first < begin < ending.start:
            ends = [
                record.position
                for record in records(disk, ending, begin)
                if begin_of_end(record) == begin
            ]
            yield from ends


def mend(disk: Disk, ending: Ending) -> int:
    """Make the disk agree with ``ending``, durably; doing it twice does no harm.

    Returns:
        Number of spare segments that follow the one that the valid end is in.
    """
    confirm(disk, ending)
    return clear(disk, ending)


def confirm(disk: Disk, ending: Ending) -> None:
    """Make the records up to the valid end durable; no byte changes."""
    touched: dict[Position, File] = {}
    try:
        _rewrite(disk, ending, touched)
        for file in touched.values():
            file.sync()
    finally:
        for file in touched.values():
            file.close()


def clear(disk: Disk, ending: Ending) -> int:
    """Overwrite what lies behind the valid end with zeros and sync; remove unusable spares.

    If COPY says that the journal is being cut there, what lies behind is kept first.

    Returns:
        Number of spare segments that follow the one that the valid end is in.
    """
    if ending.copy is not None and ending.copy.cut_to is not None:
        ending = take_away(disk, ending)
    touched: dict[Position, File] = {}
    try:
        _lengthen(disk, ending, touched)
        for dirt in ending.dirt:
            file = _touch(disk, dirt.base, touched)
            file.pwrite(bytes(dirt.stop - dirt.start), dirt.start)
        for file in touched.values():
            file.sync()
    finally:
        for file in touched.values():
            file.close()
    return _keep_spares(disk, ending)


def _touch(disk: Disk, base: Position, touched: dict[Position, File]) -> File:
    """Open a segment's file once and add it to ``touched``, the files that are synced later."""
    file = touched.get(base)
    if file is None:
        file = touched[base] = disk.open(segment_name(base))
    return file


def _rewrite(disk: Disk, ending: Ending, touched: dict[Position, File]) -> None:
    """Write the bytes from D to the valid end again, in place."""
    size = ending.segment_size
    position = Position(max(ending.durable, ending.start))
    while position < ending.valid_end:
        base = Position(position - position % size)
        file = _touch(disk, base, touched)
        length = min(_REWRITE_BYTES, base + size - position, ending.valid_end - position)
        file.pwrite(file.pread(length, position - base), position - base)
        position = Position(position + length)


def _lengthen(disk: Disk, ending: Ending, touched: dict[Position, File]) -> None:
    """Extend the file of the last segment with zeros to the segment size, if it is shorter."""
    size = ending.segment_size
    base = Position((ending.valid_end - 1) // size * size)
    found = file_size(disk, base)
    if found < size:
        _touch(disk, base, touched).pwrite(bytes(size - found), found)


def _keep_spares(disk: Disk, ending: Ending) -> int:
    """Count the spares behind the valid end; remove half-made ones and those beyond a gap."""
    size = ending.segment_size
    expected = Position(-(-max(ending.valid_end, 1) // size) * size)
    spares = 0
    removed = False
    for base in segment_bases(disk):
        if base < ending.valid_end:
            continue
        if base == expected and file_size(disk, base) == size:
            spares += 1
            expected = Position(expected + size)
        else:
            disk.remove(segment_name(base))
            removed = True
    if removed:
        disk.sync_folder(FOLDER)
    return spares
