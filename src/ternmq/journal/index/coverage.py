"""The tails and run files behind the index, and which positions each of them covers.

Positions are covered without a gap by *sources*, each inside one segment: a sealed segment by one
run file (``index/<base>.idx``), the active one by part runs (``index/<from>-<to>.part``, cut with
each STATE set) and the live ``Tail`` in memory. ``cut`` and ``unsealed`` freeze the tail and return
jobs (``RunJob``) for a worker thread, which write the file from sources that no longer change;
``installed`` then replaces these sources by the file's run. Until then, and if the job fails, the
frozen tail is used.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ternmq.journal.cache.cold import ColdCache, DamagedBlock, WouldBlock
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.idx_file import NO_HINT, StateHint, part_name, run_name
from ternmq.journal.index.run import Run, Source
from ternmq.journal.index.run_jobs import MendJob, RemoveJob, RunJob
from ternmq.journal.index.tail import Tail
from ternmq.model.types import NO_POSITION, Position

if TYPE_CHECKING:
    from ternmq.journal.index.columns import Columns


class QueueSegments:
    """The segments that hold messages of one queue, ascending.

    Attributes:
        numbers: Segment numbers (base divided by the segment size).
        first_offsets: The queue's first offset in each segment.
    """

    __slots__ = ("first_offsets", "numbers")

    def __init__(self) -> None:
        self.numbers = array("I")
        self.first_offsets = array("Q")


@dataclass(slots=True)
class SegmentSources:
    """The sources of one segment, without the live tail.

    Attributes:
        base: Base of the segment.
        sources: Ascending; without a gap, except while the index is being opened.
        job: The job that writes the run file of the sealed segment, None if none is at work.
    """

    base: Position
    sources: list[Source]
    job: RunJob | None = None


class Coverage:
    """The sources of an index, and what replaces them; ``Index`` looks things up in them.

    Args:
        disk: The data root.
        segment_size: Bytes of a segment.
        start: Position from which records will be added.
        cache: The cache that the record store uses too.
        rebuild: Returns the tail of some positions, read from the journal. Blocks; any thread.

    Attributes:
        live: The tail that records are added to.
        tails: What it holds of each queue.
        number: Number of its segment.
        limit: End of its segment: ``roll`` before a record there is added.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        segment_size: int,
        start: Position,
        cache: ColdCache,
        rebuild: Callable[[Position, Position], Tail],
    ) -> None:
        self.disk = disk
        self.cache = cache
        self.rebuild = rebuild
        self.segment_size = segment_size
        self.segments: dict[int, SegmentSources] = {}
        self.queues: dict[int, QueueSegments] = {}
        """By queue. Read it with ``segments_of``: an entry may name segments that were removed."""
        self.first_number = 0
        """Segments with a smaller number were removed."""
        self._serials = itertools.count()
        self._without_run: dict[int, SegmentSources] = {}
        self.mended: deque[tuple[Run, Run]] = deque()
        """(damaged run, its replacement); appended by a worker thread (the append is atomic)."""
        self._use(Tail(Position(start - start % segment_size), start))

    def sources(self, number: int) -> list[Source]:
        """Return the sources of a segment, ascending, the live tail included."""
        segment = self.segments.get(number)
        if segment is None:
            return []
        return [*segment.sources, self.live] if number == self.number else segment.sources

    def newest_first(self) -> Iterator[Source]:
        """Yield every source, newest first."""
        if self.mended:
            self.take_mended()
        for number in sorted(self.segments, reverse=True):
            yield from reversed(self.sources(number))

    def segments_of(self, key: int) -> QueueSegments | None:
        """Return the segments that hold messages of a queue, None if none does."""
        segments = self.queues.get(key)
        if segments is None or segments.numbers[0] >= self.first_number:
            return segments
        at = bisect_left(segments.numbers, self.first_number)
        del segments.numbers[:at], segments.first_offsets[:at]
        if segments.numbers:
            return segments
        del self.queues[key]
        return None

    # ------------------------------------------------------------------ tails, segments

    def _use(self, tail: Tail) -> None:
        """Make ``tail`` the live tail."""
        self.live = tail
        self.tails = tail.queues
        self.number = tail.base // self.segment_size
        self.limit = tail.base + self.segment_size
        self._segment(self.number)

    def _segment(self, number: int) -> SegmentSources:
        segment = self.segments.get(number)
        if segment is None:
            segment = SegmentSources(Position(number * self.segment_size), [])
            self.segments[number] = segment
            self._without_run[number] = segment
        return segment

    def register(self, key: int, number: int, first_offset: int) -> None:
        """Record that a queue has messages in a segment, the first at ``first_offset``."""
        segments = self.segments_of(key)
        if segments is None:
            segments = self.queues[key] = QueueSegments()
        numbers = segments.numbers
        at = bisect_left(numbers, number)
        if at == len(numbers) or numbers[at] != number:
            numbers.insert(at, number)
            segments.first_offsets.insert(at, first_offset)
        elif first_offset < segments.first_offsets[at]:
            segments.first_offsets[at] = first_offset  # a gap below a part run was rebuilt

    def _freeze(self, stop: Position) -> Tail | None:
        """End the live tail at ``stop`` and go on with a new one; None if it covered nothing."""
        live = self.live
        frozen = None
        if stop > live.start:
            frozen = live
            frozen.stop = stop
            self._segment(self.number).sources.append(frozen)
        self._use(Tail(Position(stop - stop % self.segment_size), stop))
        return frozen

    def roll(self, position: int) -> None:
        """Go on to the segment of ``position``, past segments without a message if need be."""
        while position >= self.limit:
            self._freeze(Position(self.limit))

    # ------------------------------------------------------------------ run files

    def cut(self, upto: Position, chain_crc: int, hint: StateHint = NO_HINT) -> RunJob | None:
        """Freeze the live tail and return the job that writes it as a part run.

        Args:
            upto: End of the last record that was added or skipped; in the active segment.
            chain_crc: CRC of that record.
            hint: The newest complete STATE set.

        Returns:
            None if nothing was appended since the last cut.
        """
        if upto <= self.live.start:
            return None
        self.roll(upto - 1)
        base = self.live.base
        frozen = self._freeze(upto)
        if frozen is None:
            return None
        return RunJob(
            self.cache,
            part_name(frozen.start, frozen.stop),
            base=base,
            sources=[frozen],
            chain_crc=chain_crc,
            hint=hint,
            rebuild=self.rebuild,
            serial=next(self._serials),
        )

    def unsealed(self, end: Position, hint: StateHint = NO_HINT) -> list[RunJob]:
        """Return the jobs that write run files of sealed segments: once each, again if one failed.

        Cheap when there is nothing to do: call it after every flush.

        Args:
            end: Position up to which the journal was written; segments that end before it take no
                more records.
            hint: The newest complete STATE set.
        """
        if end > self.limit:
            self.roll(end - 1)
        jobs: list[RunJob] = []
        for segment in self._without_run.values():
            if segment.base + self.segment_size < end and segment.job is None:
                segment.job = RunJob(
                    self.cache,
                    run_name(segment.base),
                    base=segment.base,
                    sources=list(segment.sources),
                    chain_crc=None,
                    hint=hint,
                    rebuild=self.rebuild,
                    serial=next(self._serials),
                )
                jobs.append(segment.job)
        return jobs

    def installed(self, job: RunJob) -> RemoveJob | None:
        """Replace the sources that the written run covers by the run.

        Returns:
            A job that removes files which are no longer needed, or None.
        """
        run = job.result
        assert run is not None, "the job has not run"
        segment = self.segments.get(job.base // self.segment_size)
        if segment is None:  # the segment was removed meanwhile
            return RemoveJob(self.disk, [job.name])
        if segment.job is job:
            segment.job = None
        sources = segment.sources
        covered = [one for one in sources if one.start >= run.start and one.stop <= run.stop]
        if not covered or _sealed(segment):  # a part run, ready after the sealed segment's run
            return RemoveJob(self.disk, [job.name])
        at = sources.index(covered[0])
        sources[at : at + len(covered)] = [run]
        if _sealed(segment):
            del self._without_run[segment.base // self.segment_size]
        self.cache.forget(run.name)
        old = [one.name for one in covered if isinstance(one, Run)]
        for name in old:
            self.cache.forget(name)
        return RemoveJob(self.disk, old) if old else None

    def failed(self, job: RunJob) -> None:
        """Record that a job raised: the sources that it should have replaced stay in use.

        ``unsealed`` returns a new job for a sealed segment. A missing part run is no loss.
        """
        segment = self.segments.get(job.base // self.segment_size)
        if segment is not None and segment.job is job:
            segment.job = None

    # ------------------------------------------------------------------ opening (``open``)

    def put(self, run: Run) -> None:
        """Add an existing run file; in the order of the journal."""
        number = run.head.base // self.segment_size
        segment = self._segment(number)
        segment.sources.append(run)
        if _sealed(segment):
            del self._without_run[number]

    def put_tail(self, tail: Tail) -> None:
        """Add the tail of a stretch that no run file covers, as read from the journal."""
        number = tail.base // self.segment_size
        if tail.start == self.live.start:
            self._use(tail)
        else:
            sources = self._segment(number).sources
            at = sum(one.start < tail.start for one in sources)
            sources.insert(at, tail)
        for key in sorted(tail.queues):
            self.register(key, number, tail.queues[key].first_offsets[0])

    # ------------------------------------------------------------------ retention

    def drop_segment(self, base: Position) -> RemoveJob:
        """Forget the oldest segment, which retention removes.

        ``queues`` still names it: each call of ``segments_of`` removes it for that queue.

        Returns:
            The job that removes its run files.
        """
        number = base // self.segment_size
        segment = self.segments.pop(number, None)
        self._without_run.pop(number, None)
        names = [one.name for one in segment.sources if isinstance(one, Run)] if segment else []
        for name in names:
            self.cache.forget(name)
        self.first_number = number + 1
        return RemoveJob(self.disk, names)

    def last_time_us(self, base: int) -> int:
        """Return the broker time of the newest indexed record of a segment; 0 if it has none."""
        newest = 0
        for source in self.sources(base // self.segment_size):
            one = source.head if isinstance(source, Run) else source
            newest = max(newest, one.last_time_us)
        return newest

    def hint(self) -> StateHint:
        """Return the newest STATE set that a run file names; ``NO_HINT`` if none does."""
        for source in self.newest_first():
            if isinstance(source, Run) and source.head.hint.end != NO_POSITION:
                return source.head.hint
        return NO_HINT

    # ------------------------------------------------------------------ damage, comparison

    def mend(self, error: DamagedBlock) -> WouldBlock:
        """Return the error to raise for a damaged run file; its job rebuilds the file."""
        for source in self.newest_first():
            if isinstance(source, Run) and source.name == error.name:
                serial = next(self._serials)
                return WouldBlock(MendJob(self.cache, source, self.rebuild, self.mended, serial))
        raise AssertionError(f"no run {error.name}")

    def take_mended(self) -> None:
        """Use the run files that were rebuilt; call it while ``mended`` is not empty."""
        while self.mended:
            old, new = self.mended.popleft()
            segment = self.segments.get(old.head.base // self.segment_size)
            if segment is not None and old in segment.sources:
                segment.sources[segment.sources.index(old)] = new
                self.cache.forget(old.name)

    def equal(self, other: Coverage) -> str | None:
        """Return the first difference in content between two indexes, or None. Blocks.

        How the content is spread over tails, part runs and run files makes no difference.
        """
        from ternmq.journal.index.columns import difference  # imported here: it needs numpy

        for number in sorted({*self.segments, *other.segments}):
            ours, theirs = self.content(number), other.content(number)
            found = difference(ours, theirs)
            if found is not None:
                return f"segment {number * self.segment_size}: {found}"
        for key in sorted({*self.queues, *other.queues}):
            pair = [
                None if one is None else (one.numbers.tolist(), one.first_offsets.tolist())
                for one in (self.segments_of(key), other.segments_of(key))
            ]
            if pair[0] != pair[1]:
                return f"queue {key >> 32}/{key & 0xFFFFFFFF}: {pair[0]} here, {pair[1]} there"
        return None

    def content(self, number: int) -> Columns:
        """Return the whole content of the index for a segment. Blocks."""
        from ternmq.journal.index.run_content import content  # imported here: it needs numpy

        base = Position(number * self.segment_size)
        return content(self.disk, self.sources(number) or [Tail(base, base)], self.rebuild)


def _sealed(segment: SegmentSources) -> bool:
    """Return whether one run file covers the segment."""
    sources = segment.sources
    return (
        len(sources) == 1
        and isinstance(sources[0], Run)
        and sources[0].name == run_name(segment.base)
    )
