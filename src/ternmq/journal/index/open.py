"""Opening the index: use the run files that the journal confirms, and find the gaps.

A run file is used if its head and directory have the checksums they state, if its range is inside
the recovered journal, and if the record at its ``stop`` states the file's ``chain_crc`` as the CRC
of the record before it. The chain of CRCs covers every earlier record, so a file that describes
records which were cut off is detected even if other records are at the same positions now. Blocks
that are read later are checked then (``run``). If index and journal differ, the journal is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ternmq.journal.cache.cold import ColdCache
from ternmq.journal.disk.port import Disk, File
from ternmq.journal.index import idx_file
from ternmq.journal.index.coverage import QueueSegments
from ternmq.journal.index.idx_file import Head, StaleRun, StateHint
from ternmq.journal.index.index import Index
from ternmq.journal.index.run import Run
from ternmq.journal.index.run_file import open_run, read_head
from ternmq.journal.index.run_jobs import crc_before, remove
from ternmq.model.errors import FileMissing
from ternmq.model.types import NO_POSITION, Position


@dataclass(slots=True, frozen=True)
class Gap:
    """Positions ``[start, stop)`` of one segment that no run file covers."""

    start: Position
    stop: Position


def open_index(
    disk: Disk,
    *,
    segment_size: int,
    first: Position,
    end: Position,
    last_crc: int,
    cache: ColdCache | None = None,
) -> tuple[Index, list[Gap]]:
    """Return the index of the confirmed run files, and the gaps to ``fill``. Blocks.

    Run files that are not confirmed are removed. The index is complete once every gap is filled;
    then ``Coverage.unsealed`` returns the jobs that write the missing run files.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.
        end: End of the valid records, as recovery found it.
        last_crc: CRC of the last valid record.
        cache: The cache that the record store uses too; None makes a new one.

    Raises:
        DiskError: The disk could not read.
    """
    cache = ColdCache(disk) if cache is None else cache
    chain = JournalChain(disk, segment_size, end, last_crc)
    runs: list[tuple[Run, bytes]] = []
    at = first
    stale: list[str] = []
    # Sorted so that within a segment its whole run comes before its parts.
    for name in sorted(disk.names(idx_file.FOLDER), key=lambda one: (one[:20], "-" in one, one)):
        path = f"{idx_file.FOLDER}/{name}"
        found = believed(cache, path, chain, at)
        if found is None:
            stale.append(path)
        else:
            runs.append(found)
            at = found[0].stop
    remove(disk, stale)
    gaps = list(_gaps([run for run, _ in runs], first, end, segment_size))
    start = gaps[-1].start if gaps and gaps[-1].stop == end else end
    index = Index(disk, segment_size=segment_size, start=start, cache=cache)
    for run, _ in runs:
        index.coverage.put(run)
    _register(index, runs)
    return index, gaps


def fill(index: Index, gap: Gap) -> None:
    """Read a gap from the journal into the index. Blocks; about 2 us for each MESSAGES record.

    Raises:
        CorruptJournal: The records do not reach the gap's end.
        DiskError: The disk could not read.
    """
    index.coverage.put_tail(index.rebuild_tail(gap.start, gap.stop))


def hints(disk: Disk) -> list[StateHint]:
    """Return the STATE sets that run files name, newest first. Blocks; the caller checks them.

    Raises:
        DiskError: The disk could not read.
    """
    found: dict[int, StateHint] = {}
    for name in disk.names(idx_file.FOLDER):
        try:
            file = disk.open(f"{idx_file.FOLDER}/{name}")
        except FileMissing:
            continue
        try:
            hint = read_head(file).hint
        except StaleRun:
            continue
        finally:
            file.close()
        if hint.end != NO_POSITION:
            found[hint.end] = hint
    return [found[end] for end in sorted(found, reverse=True)]


class JournalChain:
    """Looks up the CRC of the record before a position: the record at that position states it.

    Args:
        disk: The data root.
        segment_size: Bytes of every segment file.
        end: End of the valid records.
        last_crc: CRC of the last valid record.
    """

    def __init__(self, disk: Disk, segment_size: int, end: Position, last_crc: int) -> None:
        self.end = end
        self.segment_size = segment_size
        self._disk = disk
        self._last_crc = last_crc

    def before(self, position: int) -> int | None:
        """Return the CRC of the record that ends at ``position``, None if none does."""
        if position == self.end:
            return self._last_crc
        return crc_before(self._disk, position, position - position % self.segment_size)


def believed(
    cache: ColdCache, path: str, chain: JournalChain, at: Position
) -> tuple[Run, bytes] | None:
    """Return a file's run and directory if the journal confirms it; else None. Blocks.

    None also if the run starts below ``at``.

    Raises:
        FileMissing: There is no such file.
        DiskError: The disk could not read.
    """
    file: File = cache.disk.open(path)
    try:
        head = read_head(file)
        if head.start < at or not _fits(path, head, chain):
            return None
        return open_run(cache, file, head)
    except StaleRun:
        return None
    finally:
        file.close()


def _fits(path: str, head: Head, chain: JournalChain) -> bool:
    """Return whether the file's name, its range and the journal's chain agree."""
    size = chain.segment_size
    base, start, stop = head.base, head.start, head.stop
    if base % size or not base <= start < stop <= min(base + size, chain.end):
        return False
    whole = (start, stop) == (base, base + size) and path == idx_file.run_name(base)
    if not whole and path != idx_file.part_name(start, stop):
        return False
    if start != base and chain.before(start) is None:
        return False
    return chain.before(stop) == head.chain_crc


def _gaps(runs: list[Run], first: Position, end: Position, segment_size: int) -> Iterator[Gap]:
    """Yield the stretches of ``[first, end)`` that no run covers, cut at segment boundaries."""
    at = first
    for start, stop in [*((run.start, run.stop) for run in runs), (end, end)]:
        while at < start:
            to = Position(min(start, at - at % segment_size + segment_size))
            yield Gap(at, to)
            at = to
        at = stop


def _register(index: Index, runs: list[tuple[Run, bytes]]) -> None:
    """Record which queues have messages in which segments, column-wise for many queues at once."""
    if not any(rows for _, rows in runs):
        return
    # Imported here: a start on a folder without run files needs no numpy.
    import numpy as np

    from ternmq.journal.index.columns import QUEUE

    found = [(run, np.frombuffer(rows, QUEUE)) for run, rows in runs if rows]
    directories = [rows for _, rows in found]
    keys = np.concatenate([rows["key"] for rows in directories])
    firsts = np.concatenate([rows["first_offset"] for rows in directories])
    numbers = np.concatenate(
        [
            np.full(len(rows), run.head.base // index.coverage.segment_size, np.uint32)
            for run, rows in found
        ]
    )
    order = np.argsort(keys, kind="stable")
    keys, firsts, numbers = keys[order], firsts[order], numbers[order]
    # Several part runs of one segment: the first offset of the first part is the segment's.
    kept = np.ones(len(keys), dtype=bool)
    kept[1:] = (keys[1:] != keys[:-1]) | (numbers[1:] != numbers[:-1])
    keys, firsts, numbers = keys[kept], firsts[kept], numbers[kept]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    stops = [*starts[1:].tolist(), len(keys)]
    first_bytes, number_bytes = firsts.tobytes(), numbers.tobytes()
    for key, start, stop in zip(keys[starts].tolist(), starts.tolist(), stops, strict=True):
        segments = index.coverage.queues[key] = QueueSegments()
        segments.first_offsets.frombytes(first_bytes[8 * start : 8 * stop])
        segments.numbers.frombytes(number_bytes[4 * start : 4 * stop])
