"""From a broker into the archive, without Spark: the new rows of every queue, up to its end.

    with Bulk(BulkOptions(url=url)) as broker:
        job = ArchiveJob(broker, Archive(Folder("tables")))
        job.once(now_us)

The table alone knows which rows it holds, so it decides where to continue, never the broker. The
progress of group ``spark.archive`` is committed to the broker afterwards: it keeps the journal from
removing rows that are not archived yet, and it shows the lag.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import pyarrow as pa

from ternmq.client.bulk import RangesAsk, RangeStart, Rows
from ternmq.model.errors import DataLoss, OffsetExpired, UnknownTopic
from ternmq.pipeline.archive.columns import TAKEN
from ternmq.pipeline.archive.commit import Archive, ArchivedQueue, Committed
from ternmq.pipeline.archive.file import Sizes
from ternmq.pipeline.archive.ranges import BUNDLE_BYTES, Bundle, Range, bundled, write_ranges
from ternmq.record.coalesce import Coalescer, check
from ternmq.wire.control import TopicInfo, TopicRanges

log: Final = logging.getLogger("ternmq.pipeline")

GROUP: Final = "spark.archive"
PAGE_BYTES: Final = 1 << 19
"""Size of a fetched page: larger than elsewhere, as a page is compressed before the next fetch."""
_ASKED_TOPICS: Final = 500
_ASKED_QUEUES: Final = 5000
_LEAST_BYTES: Final = 1 << 20


class Source(Protocol):
    """What the archive needs of a broker; ``ternmq.client.bulk.Bulk`` implements it."""

    def topics(self, names: Sequence[str] | None = None) -> list[TopicInfo]:
        """Return topics."""

    def ranges(self, topics: Sequence[RangesAsk]) -> list[TopicRanges]:
        """Return the ranges of rows that queues hold."""

    def fetch(
        self, topic: str, queue: int, start: int, stop: int, *, topic_number: int = 0
    ) -> Iterator[Rows]:
        """Yield pages of rows of the topic that has this number."""

    def commit(self, topic: str, group: str, places: Mapping[int, int]) -> dict[int, int]:
        """Commit a group's progress."""


class Workers(Protocol):
    """Writers of large passes; ``spark.SparkWorkers`` is one.

    Attributes:
        from_bytes: Smallest pass, in bytes, that they write.
    """

    from_bytes: int

    @property
    def tasks(self) -> int:
        """How many of them write at the same time."""

    def write(self, groups: Sequence[Sequence[Range]]) -> list[Bundle]:
        """Write groups of ranges; one that is alone, in any number of pieces."""


def rows_of(source: Source, span: Range, *, lenient: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, a few megabytes at a time; every record's checksum is checked.

    Args:
        source: The broker.
        span: The range.
        lenient: Skip rows that have expired.

    Raises:
        DataLoss: Rows expired before they were read, and ``lenient`` is not set.
        UnknownTopic: The topic was deleted; there may be another one of the same name.
        ProtocolError: A record is damaged.
    """
    gather = Coalescer(TAKEN)
    start = span.start
    while start < span.stop:
        try:
            pages = source.fetch(
                span.topic, span.queue, start, span.stop, topic_number=span.topic_number
            )
            for page in pages:
                check(page.records)
                yield from gather.add(page.records, page.start, page.stop)
                start = page.stop
        except OffsetExpired as error:
            if not lenient:
                raise DataLoss(
                    f"{span}: messages from offset {start} on are no longer kept"
                ) from error
            start = max(start + 1, _oldest(source, span))
            log.warning("%s: messages below %d had expired", span, start)
    yield from gather.finish()


def _oldest(source: Source, span: Range) -> int:
    (found,) = source.ranges([RangesAsk(topic=span.topic)])
    return found.queues[span.queue].first if span.queue < len(found.queues) else span.stop


@dataclass(slots=True)
class Done:
    """The result of a run of the job.

    Attributes:
        rows: Rows added to the archive.
        lost: Missing rows, recorded in ``archive_gaps``.
        commits: Commits to the table.
        bytes: Total size of the files written.
        stands: For each queue, the offset after its last archived row.
    """

    rows: int = 0
    lost: int = 0
    commits: int = 0
    bytes: int = 0
    stands: dict[ArchivedQueue, int] = field(default_factory=dict)

    def add(self, one: Committed) -> None:
        """Count a commit."""
        self.rows += one.added
        self.lost += one.lost
        self.commits += 1
        self.stands |= one.stands


class ArchiveJob:
    """Archives the new rows of every queue. Can be run at any time, even twice at once.

    Args:
        source: The broker.
        archive: The tables.
        topics: Topics to archive; None: all that the app may read, except the broker's own.
        group: Group whose progress is committed.
        lenient: Rows may be missing; they are recorded in ``archive_gaps``.
        pass_bytes: Approximate size of the records of one commit.
        sizes: Size limits of files.
        workers: Writers of large passes.
        between: Called after each commit with the totals so far; it may raise to end the run.
    """

    def __init__(
        self,
        source: Source,
        archive: Archive,
        *,
        topics: Sequence[str] | None = None,
        group: str = GROUP,
        lenient: bool = False,
        pass_bytes: int = 256 << 20,
        sizes: Sizes | None = None,
        workers: Workers | None = None,
        between: Callable[[Done], None] = lambda _done: None,
    ) -> None:
        self._source = source
        self._archive = archive
        self._topics = topics
        self._group = group
        self._lenient = lenient
        self._pass_bytes = pass_bytes
        self._sizes = sizes
        self._workers = workers
        self._between = between
        self._told: dict[ArchivedQueue, int] = {}
        self._spread = False
        self._broadcast: set[str] = set()
        """Broadcast topics: they have no groups, so there is no position to commit."""

    def once(self, now_us: int) -> Done:
        """Archive everything that is there now; rows that arrive meanwhile wait for the next run.

        Raises:
            DataLoss: Rows are missing, and ``lenient`` is not set.
            UnknownTopic: A named topic does not exist, or this app may not read it.
        """
        ends = self._ends()
        stands = self._archive.all_stand(ends)
        self._check(ends, stands)
        starts = {
            place: self._begin(place, first, stands.get(place))
            for place, (first, _) in ends.items()
        }
        self._tell({place: at for place, at in starts.items() if at <= ends[place][1]})
        done = Done()
        while groups := self._plan(starts, ends):
            written = self._written(groups)
            committed = self._archive.commit(written, now_us, lenient=self._lenient)
            done.add(committed)
            done.bytes += sum(file.size for one in written for file in one.files)
            starts |= committed.stands
            self._tell(committed.stands)
            self._between(done)
        return done

    def _written(self, groups: Sequence[Sequence[Range]]) -> list[Bundle]:
        """Write ranges: all of them, or none."""
        if self._spread:
            assert self._workers is not None
            return self._workers.write(groups)
        folder = self._archive.table.folder
        read = partial(rows_of, self._source, lenient=self._lenient)
        done: list[Bundle] = []
        try:
            for spans in groups:
                done.append(write_ranges(folder, spans, read, self._sizes, lenient=self._lenient))
        except BaseException:
            folder.remove(file.path for one in done for file in one.files)
            raise
        return done

    def _ends(self) -> dict[ArchivedQueue, tuple[int, int]]:
        """Return (first, next) of every queue that is to be archived."""
        found: dict[ArchivedQueue, tuple[int, int]] = {}
        for info in self._source.topics(self._topics):
            if self._topics is None and info.spec.name.startswith("$"):
                continue
            if info.spec.broadcast:
                self._broadcast.add(info.spec.name)
            for queue, one in enumerate(info.queues):
                found[ArchivedQueue(info.spec.name, info.number, queue)] = one.first, one.next
        known = {place.topic for place in found}
        missing = sorted(set(self._topics or ()) - known)
        if missing:
            raise UnknownTopic(f"there is no topic {missing[0]!r}, or this app may not read it")
        return found

    def _check(
        self, ends: Mapping[ArchivedQueue, tuple[int, int]], stands: Mapping[ArchivedQueue, int]
    ) -> None:
        """Check that this can be the broker from which the archive was made."""
        for place, known in stands.items():
            end = ends[place][1]
            if known > end:  # or another runner has archived rows that arrived since
                infos = self._source.topics([place.topic])
                same = [one for one in infos if one.number == place.topic_number]
                end = same[0].queues[place.queue].next if same else known
            if known <= end:
                continue
            what = (
                f"queue {place.queue} of {place.topic!r} ends at {end}, and the archive has "
                f"rows up to {known}: this is another broker, or it has lost messages"
            )
            if not self._lenient:
                raise DataLoss(what)
            log.error("%s", what)

    def _begin(self, place: ArchivedQueue, first: int, stands: int | None) -> int:
        """Return where to continue: the end of the archived rows, or the oldest row if none are."""
        if stands is not None and stands < first and not self._lenient:
            raise DataLoss(
                f"rows {stands} to {first - 1} of queue {place.queue} of {place.topic!r} "
                "expired before they were archived"
            )
        return first if stands is None else max(first, stands)

    def _plan(
        self, starts: Mapping[ArchivedQueue, int], ends: Mapping[ArchivedQueue, tuple[int, int]]
    ) -> list[tuple[Range, ...]]:
        """Return the ranges of the next commit, by files; none when all is done."""
        behind = {place: start for place, start in starts.items() if start < ends[place][1]}
        if not behind:
            return []
        share = max(_LEAST_BYTES, self._pass_bytes // len(behind))
        asks: list[RangesAsk] = []
        for topic in sorted({place.topic for place in behind}):
            places = sorted(place for place in behind if place.topic == topic)
            asks.append(
                RangesAsk(
                    topic=topic,
                    starts=[
                        RangeStart(queue=place.queue, offset=behind[place], max_bytes=share)
                        for place in places
                    ],
                )
            )
        spans: list[tuple[Range, int]] = []
        sizes = Counter(place.topic for place in ends)
        for found in self._asked(asks, sizes):
            for queue, one in enumerate(found.queues):
                place = ArchivedQueue(found.topic, found.number, queue)
                if place not in behind or one.stop is None:
                    continue
                stop = min(one.stop, ends[place][1])
                if behind[place] < stop:
                    spans.append((Range(*place, behind[place], stop), one.stop_bytes))
        size = sum(size for _, size in spans)
        workers = self._workers
        self._spread = workers is not None and size >= workers.from_bytes
        return bundled(spans, size // workers.tasks if workers and self._spread else BUNDLE_BYTES)

    def _asked(self, asks: Sequence[RangesAsk], sizes: Mapping[str, int]) -> Iterator[TopicRanges]:
        """Request ranges in batches of allowed size; an answer lists all queues of a topic."""
        some: list[RangesAsk] = []
        queues = 0
        for ask in asks:
            if some and (len(some) == _ASKED_TOPICS or queues + sizes[ask.topic] > _ASKED_QUEUES):
                yield from self._source.ranges(some)
                some, queues = [], 0
            some.append(ask)
            queues += sizes[ask.topic]
        yield from self._source.ranges(some)

    def _tell(self, stands: Mapping[ArchivedQueue, int]) -> None:
        """Commit the archive's progress to the broker; it never goes back."""
        by_topic: dict[str, dict[int, int]] = {}
        for place, stop in stands.items():
            if self._told.get(place) == stop or place.topic in self._broadcast:
                continue
            by_topic.setdefault(place.topic, {})[place.queue] = stop
        for topic, places in sorted(by_topic.items()):
            self._source.commit(topic, self._group, places)
        self._told |= stands
