"""The views of a copy of another broker's journal, which follow it up to the commit mark.

Theory of operation. ``load`` makes the views as a start does: the newest STATE set below the commit
mark, and the facts after it. ``apply`` then applies record after record through the table that a
running broker and a start use (`ledger.views`), and stops at the commit mark: what lies above it
may still be cut, and nothing that was applied is ever undone. At a promotion ``catch_up`` applies
the rest, and ``open_broker`` begins the reign with these views::

    first <= applied <= commit mark <= end of the copy

A running broker forgets in ticks and in steps of upkeep. These do not run here, so the same is
forgotten by the records: by their times (idle producers and writers, keys of rows that became
messages), with each STATE set (what the set has is not kept for the next one), with the segments
that are removed (names that are gone, floors of queues). Nothing is written but run files of the
index, which are a cache.

Deterministic. Not thread-safe: ``load`` may run in any thread before anything else is called, all
else is called from one thread. Jobs run in other threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from ternmq.broker.copyview import CopyMarks, CopyView
from ternmq.broker.ledger.removed import Removed
from ternmq.broker.ledger.views import Views
from ternmq.broker.schedule.pending import HORIZON_US
from ternmq.broker.schedule.topics import TopicSchedule
from ternmq.broker.start import Ready, views_of
from ternmq.journal.cache.cold import ColdCache, Job
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.idx_file import NO_HINT, StateHint
from ternmq.journal.index.open import hints
from ternmq.journal.index.run_jobs import RunJob
from ternmq.journal.log.scan import RawRecord, Scanner
from ternmq.journal.log.segment import segment_name
from ternmq.journal.recovery.ending import Ending
from ternmq.journal.recovery.prefix import prefix
from ternmq.journal.recovery.recovery import FACTS, Replayed, load_and_replay
from ternmq.journal.state.sets import (
    CompleteSet,
    StateKey,
    begin_of_end,
    directory_of,
    end_of_set,
    names_of,
)
from ternmq.journal.store.store import RecordStore
from ternmq.model.errors import CorruptJournal, JournalError
from ternmq.model.specs import Limits
from ternmq.model.types import SECOND_US, Position
from ternmq.record.fact.control import FLAG_CLEAN
from ternmq.record.fact.header import Kind
from ternmq.record.fact.state import DEDUP, FORGOTTEN

SWEPT: Final = 1024
"""Producers that are looked at for each second of the records, as by a running broker."""
TOPICS_SWEPT: Final = 256
PAGES: Final = 32
"""Pages of scheduled rows that are freed, or loaded, at once: a millisecond at most."""
FREED: Final = 1024
TIDIED: Final = 64
"""Objects that one slice looks at after a STATE set."""
PIECES: Final = 32
SETTLED_AT: Final = 256
"""Changed group queues at which the figures are brought up to date."""
RECORDS_A_LOOK: Final = 8
"""Records after which a slice asks whether it may go on."""
_LOOKS: Final = 4096
"""Objects and records after which a load asks whether it is still wanted."""
_LOAD_AHEAD_US: Final = HORIZON_US // 2
_WRITERS_US: Final = 60 * SECOND_US
_STATE: Final = int(Kind.STATE)
_MARK: Final = int(Kind.MARK)


class Unwanted(Exception):
    """A load was given up, because its caller needs the views no more."""


class Standby:
    """See the module.

    Args:
        disk: The data root.
        limits: Of the broker.
        segment_size: Bytes of every segment file.
        first: Base of the oldest segment.

    Attributes:
        first: Base of the oldest segment, as far as the views know.
        applied: Position up to which records are applied.
        time_us: Broker time of the newest record that is applied.
        newest: The newest STATE set that is complete below ``applied``; None: there is none.
        views: The views, there after ``load``; read only.
        view: The same for commands that only read. It is moved on at the end of ``apply``.
    """

    views: Views
    view: CopyView
    _removed: Removed

    def __init__(self, disk: Disk, limits: Limits, *, segment_size: int, first: Position) -> None:
        self.first = self.applied = first
        self.newest: CompleteSet | None = None
        self._marks = CopyMarks(segment_size, first)
        self._disk = disk
        self._cache = ColdCache(disk)
        self._limits = limits
        self._size = segment_size
        self._scanner: Scanner | None = None
        self._records: Generator[RawRecord] | Iterator[RawRecord] = iter(())
        self._stop = first
        """Where the scan ends."""
        self._crc: int | None = None if first else 0
        self._epoch = 0
        self.time_us = 0
        self._clean = False
        """Whether the last record is the MARK of a clean stop."""
        self._swept_us = self._writers_us = 0
        self._topics: Iterator[TopicSchedule] = iter(())
        self._tidied: Iterator[object] = iter(())
        """Objects that are still to be looked at after a STATE set."""
        self._loads = self._cleans = False
        """Scheduled rows are being loaded; something of removed segments is left."""
        self._runs: dict[int, set[tuple[int, int]]] = {}
        """BEGIN of a STATE set -> runs of deduplication in the part of its directory that came."""
        self._parts: dict[int, int] = {}
        """BEGIN of a STATE set -> number of DIRECTORY records that came."""
        self._jobs: deque[Job] = deque()
        self._out: Job | None = None
        self._seals_from = Position(0)
        """No run file is written before ``applied`` is there: the last one failed."""

    # -- loading ----------------------------------------------------------------------------------

    def load(self, commit: Position, wanted: Callable[[], bool] = lambda: True) -> None:
        """Make the views of all that lies below the commit mark. Blocks.

        Args:
            commit: The commit mark: where a record ends.
            wanted: Asked now and then; the load is given up when it returns False.

        Raises:
            Unwanted: It was given up.
            CorruptJournal: The records cannot be read; or the journal's beginning was removed, and
                no STATE set is complete below the commit mark.
            UnknownRecordKind: A newer version wrote the journal.
            DiskError: The disk could not read.
        """
        hint = next((one.begin for one in hints(self._disk) if one.end < commit), None)
        loading = _Loading(wanted)
        ending = prefix(
            self._disk,
            segment_size=self._size,
            first=self.first,
            end=max(commit, self.first),
            hint=hint,
            look=loading.look,
        )
        if not wanted():
            raise Unwanted
        views = self.views = loading.views = views_of(self._disk, ending, self._limits, self._cache)
        _, self.newest = load_and_replay(self._disk, ending, loading)
        views.finish(ending.valid_end)
        views.dedup.sweep(views.last_time_us, len(views.dedup.producers))
        self._removed = Removed(views)
        self.applied = ending.valid_end
        self._marks.move(self.applied)
        store = RecordStore(self._marks, self._disk, self._cache)
        self.view = CopyView(views, self._marks, store)
        self.time_us = max(ending.last_time_us, views.last_time_us)
        if ending.last is not None:
            self._crc, self._epoch = ending.last.crc, ending.last.epoch

    # -- applying ---------------------------------------------------------------------------------

    def apply(self, commit: Position, may_go_on: Callable[[], bool]) -> bool:
        """Apply records below the commit mark while ``may_go_on()``; return whether some are left.

        The records are read from the files, where they were written a moment ago.

        Args:
            commit: The commit mark, as this broker was told: where a record ends.
            may_go_on: Asked after every few records.

        Raises:
            CorruptJournal: The records cannot be read.
            UnknownRecordKind, DiskError: As from ``load``.
        """
        while self.applied < commit:
            self._some(commit)
            if not may_go_on():
                break
        self._marks.move(self.applied)
        self._keep_house()
        return self.applied < commit

    def _some(self, commit: Position) -> None:
        """Apply a few records."""
        scanner = self._scanner
        if scanner is None:
            scanner = self._scanner = Scanner(
                self._disk,
                self.applied,
                segment_size=self._size,
                prev_crc=self._crc,
                epoch=self._epoch,
                stop=commit,
            )
            self._stop = commit
            self._records = iter(scanner)
        count = 0
        for record in islice(self._records, RECORDS_A_LOOK):
            count += 1
            self._take(record)
        if count == RECORDS_A_LOOK:
            return
        self._end_scan()
        if self.applied != self._stop:
            at = self.applied
            raise CorruptJournal(
                f"position {at} cannot be read: {scanner.fault or 'the record is blank'}",
                file=segment_name(Position(at - at % self._size)),
                byte=at % self._size,
            )

    def _end_scan(self) -> None:
        records, self._records, self._scanner = self._records, iter(()), None
        if isinstance(records, Generator):
            records.close()  # and the file that it reads

    def _take(self, record: RawRecord) -> None:
        """Apply a record."""
        kind = record.kind
        if kind in FACTS:
            self.views.apply(record)
        elif kind == _STATE:
            self._state(record)
        self._crc, self._epoch = record.crc, record.epoch
        if record.time_us > self.time_us:
            self.time_us = record.time_us
        self._clean = (
            kind == _MARK and bool(record.flags & FLAG_CLEAN) and record.durable == record.position
        )
        self.applied = record.end

    # -- STATE sets -------------------------------------------------------------------------------

    def _state(self, record: RawRecord) -> None:
        """Take note of a record of a STATE set that the primary wrote.

        The views are what the set says, so nothing of it is loaded. But from its END on, it is the
        set that the next one is based on; and what it stores is not kept for the next one.
        """
        begin = begin_of_end(record)
        if begin is None:
            names = names_of(record)
            if names is not None:
                runs = {(key.d, key.c) for key, _ in names.objects if key.type == DEDUP}
                self._runs.setdefault(names.begin, set()).update(runs)
                self._parts[names.begin] = self._parts.get(names.begin, 0) + 1
            return
        ended = end_of_set(record)
        runs, parts = self._runs.get(begin, set()), self._parts.get(begin, 0)
        if parts != len(ended.directories):  # a part came before the views were loaded
            directory, _ = directory_of(self._disk, self._size, record.position)
            runs = {(key.d, key.c) for key in directory if key.type == DEDUP}
        self._runs = {one: known for one, known in self._runs.items() if one > begin}
        self._parts = {one: known for one, known in self._parts.items() if one > begin}
        self.newest = CompleteSet(begin, record.position, ended.oldest)
        views = self.views
        views.dedup.stored(begin, runs)
        job = views.index.coverage.cut(record.end, record.crc, self._hint)
        if job is not None:
            self._jobs.append(job)
        self._tidied = self._tidy(begin)

    @property
    def _hint(self) -> StateHint:
        newest = self.newest
        return NO_HINT if newest is None else StateHint(newest.begin, newest.end)

    def _tidy(self, begin: Position) -> Iterator[object]:
        """Yield the objects of STATE and the group queues, each after looking what it can forget.

        A broker that writes a set asks for the objects, and their owners forget what is not needed.
        Pulls take from the heaps of free lines, and ticks from those of due rows: here, both are
        derived again.
        """
        views = self.views
        for type_, owner in views.objects.table.items():
            if type_ not in (FORGOTTEN, DEDUP):  # these cut deduplication for a set of their own
                yield from owner.keys(begin)
        for progress in list(views.progress.values()):
            if progress.failures.waiting_rows or progress.mode.keyed:
                progress.failures.look_anew()
                progress.order.finish_load()
            yield progress

    # -- forgetting -------------------------------------------------------------------------------

    def _keep_house(self) -> None:
        """Forget a bounded piece of what a running broker would have forgotten by now."""
        views = self.views
        now_us = views.last_time_us
        if len(views.figures.changed) >= SETTLED_AT:
            views.figures.settle()
        views.discarded.free(FREED)
        for _ in islice(self._tidied, TIDIED):
            pass
        for _ in range(PIECES):
            if not self._cleans:
                break
            self._cleans = self._removed.clean_up()
        if now_us - self._swept_us >= SECOND_US:
            self._swept_us = now_us
            self._sweep(now_us)
        coverage = views.index.coverage
        if self.applied >= self._seals_from:
            self._jobs.extend(coverage.unsealed(self.applied, self._hint))

    def _sweep(self, now_us: int) -> None:
        """Forget by the time of the records, once for each second of it at most."""
        views = self.views
        schedule = views.schedule
        views.dedup.sweep(now_us, SWEPT)
        schedule.pages.sweep(PAGES)
        if now_us - self._writers_us >= _WRITERS_US:
            self._writers_us = now_us
            views.writers.sweep(now_us)
        if self._loads or now_us >= schedule.horizon_us - _LOAD_AHEAD_US:
            self._loads = schedule.load(now_us + HORIZON_US, PAGES)
            if not self._loads:
                while schedule.loaded:  # a broker that begins to lead looks at all topics
                    schedule.take_loaded(TOPICS_SWEPT)
        topics = list(islice(self._topics, TOPICS_SWEPT))
        if len(topics) < TOPICS_SWEPT:
            self._topics = iter(list(schedule.topics.values()))
        for topic in topics:
            schedule.next_due_us(topic)  # takes the keys of rows that are gone from the front

    def removed(self, first: Position) -> None:
        """Take note that the segments below a position were removed.

        Call it when everything is applied up to where the primary's journal was when it removed
        them.

        Args:
            first: Base of the oldest segment that is left; at or below ``applied``.

        Raises:
            ValueError: Records below it are not applied yet.
        """
        if first > self.applied:
            raise ValueError(f"records up to {first} are removed, and {self.applied} is applied")
        while self.first < first:
            base, self.first = self.first, Position(self.first + self._size)
            kept = [one for one in self._jobs if not (isinstance(one, RunJob) and one.base == base)]
            self._jobs = deque(kept)
            self._jobs.append(self._removed.drop(base, self.first))
            self._marks.first = self.first
            self.view.store.drop_segment(base)
            self._cleans = True

    # -- jobs -------------------------------------------------------------------------------------

    @property
    def at_work(self) -> bool:
        """Whether a thread has a job."""
        return self._out is not None

    def next_job(self) -> Job | None:
        """Return a job for a worker thread, which writes or removes files of the index.

        Returns:
            None while a job is at work, and if there is none.
        """
        if self._out is None and self._jobs:
            self._out = self._jobs.popleft()
            return self._out
        return None

    def finished(self, job: Job, error: Exception | None) -> None:
        """Note that a job has ended. If it failed, the index does without its file.

        Raises:
            Exception: The error, if it is neither the disk's nor one of what was read.
        """
        self._out = None
        if not isinstance(job, RunJob):
            return
        coverage = self.views.index.coverage
        if error is None:
            after = coverage.installed(job)
            if after is not None:
                self._jobs.append(after)
            return
        coverage.failed(job)
        self._seals_from = Position(self.applied + self._size // 4)
        if not isinstance(error, JournalError):
            raise error

    # -- promotion --------------------------------------------------------------------------------

    def catch_up(self, end: Position) -> None:
        """Apply everything up to the end of the copy, also what is not committed. Blocks.

        It becomes part of the reign that begins: call it when this broker is to lead.

        Raises:
            CorruptJournal, UnknownRecordKind, DiskError: As from ``apply``.
        """
        while self.apply(end, lambda: True):
            pass
        views = self.views
        views.figures.settle()
        for key, progress in views.progress.items():
            progress.finish_load(views.catalog.topics[key[1]].queues[key[2]].next)
        for topic in views.catalog.topics.values():
            for queue in topic.queues:
                queue.recovered = queue.next
        views.expired_rows = views.missed_rows = 0

    def ready(self, ending: Ending) -> Ready:
        """Return the views for the broker that begins to lead; this object is used no more.

        Args:
            ending: Where the copy ends; everything below is applied, and durable.

        Raises:
            CorruptJournal: The newest STATE set cannot be read.
            DiskError: The disk could not read.
        """
        newest, directory = self.newest, dict[StateKey, int]()
        if newest is not None:
            directory, newest = directory_of(self._disk, self._size, newest.end)
        self.close()
        stated = () if newest is None else ((newest.begin, newest.end),)
        ending = replace(ending, last_time_us=self.time_us, clean=self._clean, sets=stated)
        replayed = Replayed(ending, directory, newest, self.views.apply)
        return Ready(self.views, self._cache, replayed)

    def close(self) -> None:
        """Close the file that is read; no job may be at work."""
        self._end_scan()


class _Loading:
    """The views while they are loaded, as long as they are wanted."""

    views: Views

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._count = 0

    def look(self) -> None:
        """Give the load up, now and then, if it is not wanted any more."""
        self._count += 1
        if not self._count % _LOOKS and not self._wanted():
            raise Unwanted

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self.look()
        self.views.load_object(key, payload, stamp)

    def loaded(self, begin: Position) -> None:
        self.views.loaded(begin)

    def apply(self, record: RawRecord) -> None:
        self.look()
        self.views.apply(record)

    def finish(self, end: Position) -> None:
        self.views.finish(end)
