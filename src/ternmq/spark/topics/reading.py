"""Batch and streaming reads, without Spark.

``source`` wraps these for Spark. They are sent to workers, so they hold a port only while they use
one, and their constructors do nothing. Spark creates two of each streaming reader: one that lives
as long as the query and returns offsets, and one that is only sent to workers.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ternmq.model.errors import DataLoss, TernMQError
from ternmq.spark import schema
from ternmq.spark.broker.bulk_port import connect as connect_bulk
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.offsets import (
    Numbers,
    OffsetRange,
    Offsets,
    Progress,
    TopicQueue,
    another,
)
from ternmq.spark.broker.port import Budget, Port, QueueState
from ternmq.spark.topics.admission import shares, split
from ternmq.spark.topics.fetch import read_span
from ternmq.spark.topics.filters import Filters
from ternmq.spark.topics.options import ReadOptions
from ternmq.spark.topics.plan import Planner

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq.spark")

Connect = Callable[[Broker], Port]
_NONE: Final = Filters()


@dataclass(frozen=True)
class Reading:
    """Reads ranges; the common part of batch and stream. Is sent to workers.

    Attributes:
        options: Options of the reader.
        columns: The columns to return, with their types as Spark writes them.
        connect: Creates a port.
        filters: Only rows that pass are returned.
    """

    options: ReadOptions
    columns: Mapping[str, str]
    connect: Connect = connect_bulk
    filters: Filters = _NONE

    def read(self, span: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; runs on a worker."""
        if self.options.emit == "ranges":
            yield self._range(span)
            return
        wanted = {**self.columns, **self.filters.columns(self.columns)}
        port = self.connect(self.options.broker)
        try:
            for batch in read_span(port, self.options, span, wanted):
                kept = self.filters.keep(batch)
                yield (
                    kept
                    if wanted.keys() == self.columns.keys()
                    else kept.select(list(self.columns))
                )
        finally:
            port.close()

    def _range(self, span: OffsetRange) -> pa.RecordBatch:
        import pyarrow as pa

        told = (span.topic, span.queue, span.start, span.stop)
        values = dict(zip(schema.RANGES, told, strict=True))
        names = schema.arrow(self.columns)
        return pa.RecordBatch.from_pylist([{name: values[name] for name in names.names}], names)

    def tasks(self, spans: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Split ranges into tasks."""
        return split(spans, self.options.max_records, self.options.min_partitions)


@dataclass(frozen=True)
class BatchRead(Reading):
    """A batch read: one plan, then its tasks."""

    def plan(self) -> list[OffsetRange]:
        """Return the tasks; they end where the queues end now, or where options say.

        Raises:
            OptionError: An option does not fit the broker's topics.
            DataLoss: Named rows are gone.
        """
        port = self.connect(self.options.broker)
        try:
            planner = Planner(self.options, port)
            starts, states = planner.starts()
            ends = planner.ends(starts, states)
        finally:
            port.close()
        spans = [
            OffsetRange(place.topic, place.queue, start, ends[place], states[place].number)
            for place, start in starts.items()
        ]
        return self.tasks(self.filters.narrow(spans))

    def filtered(self, filters: Filters) -> BatchRead:
        """Return the same read with filters."""
        return replace(self, filters=filters)


class StreamRead:
    """The driver's side of a streaming read: its progress, and the end of the next batch.

    Args:
        reading: Reads the ranges.
        clock: Returns seconds.
    """

    def __init__(self, reading: Reading, clock: Callable[[], float] = time.monotonic) -> None:
        self.reading = reading
        self.options = reading.options
        self._clock = clock
        self._port: Port | None = None
        self._initial: Progress | None = None
        self._begun = False
        """The query's start is stored by Spark, or about to be."""
        self._known: dict[TopicQueue, QueueState] = {}
        self._known_until = float("-inf")
        self._frozen: dict[TopicQueue, int] | None = None
        self._moved: float | None = None
        """When the last batch began, for ``maxTriggerDelay``."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the connection."""
        return {**self.__dict__, "_port": None}

    def _planner(self) -> Planner:
        if self._port is None:
            self._port = self.reading.connect(self.options.broker)
        return Planner(self.options, self._port)

    def initial(self) -> Progress:
        """Return where a new query begins; the same at every call."""
        if self._initial is None:
            starts, states = self._planner().starts()
            self._initial = Progress(starts, _numbers(states))
            self._learn(states)
        return self._initial

    def _learn(self, states: dict[TopicQueue, QueueState]) -> None:
        self._known = states
        self._known_until = self._clock() + self.options.watermark_cache_ms / 1000

    def _states(self) -> dict[TopicQueue, QueueState]:
        """Return the state of the queues, at most ``watermarkCacheMs`` old."""
        if self._clock() >= self._known_until:
            self._learn(self._planner().states(lenient=True))
        return self._known

    def freeze(self) -> None:
        """Read no further than the present end (``availableNow``)."""
        states = self._planner().states(lenient=True)
        self._learn(states)
        self._frozen = {place: one.next for place, one in states.items()}

    def only_batch(self) -> None:
        """Return rows in the first batch: there is only one, although its start is not stored."""
        self._begun = True

    def newest(self) -> Progress:
        """Return the ends of the queues."""
        states = self._states()
        return Progress({place: one.next for place, one in states.items()}, _numbers(states))

    def latest(self, start: Progress, max_rows: int | None = None) -> Progress:
        """Return the end of the next batch; ``start`` if there is nothing to read.

        A new queue is added empty, at its oldest row: its rows come with the following batch, so
        that Spark stores its start before any row of it is read. For the same reason the first
        batch of a query is empty: after a crash in it, Spark calls ``initial`` again, and by then
        the newest or oldest row may be another one.

        A topic that was deleted and made again has another number. With ``failOnDataLoss=false``
        its queues are added like new ones, in place of the old ones.

        Raises:
            DataLoss: A queue is gone, or the topic is another one of the same name.
        """
        now = self._clock()
        if self._moved is None:
            self._moved = now
        if not self._begun:
            self._begun = True
            if start == self._initial:
                return start
        states = self._states()
        numbers = {**start.numbers, **_numbers(states)}
        kept = self._kept(start, numbers, states)
        found = dict(kept)
        backlog: dict[TopicQueue, int] = {}
        for place, state in states.items():
            if place not in kept:
                found[place] = state.first
                if self._frozen is not None:
                    self._frozen.setdefault(place, state.next)
                continue
            end = state.next if self._frozen is None else self._frozen.get(place, state.next)
            if state.next < found[place]:
                self._missing(place, f"it ends at {state.next}, before {found[place]}")
            elif end > found[place]:
                backlog[place] = end - found[place]
        for place in kept:
            if place not in states:
                self._missing(place, "it is gone")
        if not backlog or self._waits(sum(backlog.values()), now):
            return Progress(found, numbers)
        most = (
            self.options.max_offsets
            if max_rows is None
            else min(self.options.max_offsets, max_rows)
        )
        for place, rows in self._by_bytes(kept, shares(backlog, most)).items():
            found[place] = kept[place] + rows
        self._moved = now
        return Progress(found, numbers)

    def _kept(
        self, start: Progress, numbers: Numbers, states: Mapping[TopicQueue, QueueState]
    ) -> Offsets:
        """Return the offsets without those of topics that were deleted and made again.

        Raises:
            DataLoss: There is such a topic.
        """
        topics = {place.topic for place in start.offsets}
        made = sorted(topic for topic in topics if not start.same(topic, numbers.get(topic, 0)))
        if not made:
            return start.offsets
        for topic in made:
            what = another(topic, start.numbers[topic], numbers[topic])
            if self.options.fail_on_data_loss:
                raise DataLoss(f"{what}: the query cannot continue in the new topic")
            log.warning("%s: it is read from its first row", what)
        if self._frozen is not None:
            for place, state in states.items():
                if place.topic in made:
                    self._frozen[place] = state.next
        return {place: at for place, at in start.offsets.items() if place.topic not in made}

    def _missing(self, place: TopicQueue, why: str) -> None:
        what = f"the rest of {place} cannot be read: {why}"
        if self.options.fail_on_data_loss:
            raise DataLoss(what)
        log.warning("%s", what)

    def _waits(self, rows: int, now: float) -> bool:
        """Return whether there are too few rows for a batch yet (``minOffsetsPerTrigger``)."""
        if self._frozen is not None or rows >= self.options.min_offsets or self._moved is None:
            return False
        return now - self._moved < self.options.max_trigger_delay_ms / 1000

    def _by_bytes(self, start: Offsets, rows: Mapping[TopicQueue, int]) -> dict[TopicQueue, int]:
        """Reduce rows to ``maxBytesPerTrigger``, rounded to whole stored batches."""
        most = self.options.max_bytes
        planner = self._planner()
        whole = {place: Budget(start[place], most) for place in rows}
        states = planner.states(budgets=whole, lenient=True)
        sizes = {
            place: states[place].bytes or 0
            for place in rows
            if place in states and states[place].stop is not None
        }
        if sum(sizes.values()) <= most:
            return dict(rows)
        divided = shares(sizes, most)
        asked = {place: Budget(start[place], size) for place, size in divided.items()}
        states = planner.states(budgets=asked, lenient=True)
        found = dict(rows)
        for place in asked:
            stop = states[place].stop if place in states else None
            if stop is not None:
                found[place] = max(1, min(rows[place], stop - start[place]))
        return found

    def spans(self, start: Progress, end: Progress) -> list[OffsetRange]:
        """Return the tasks of a batch that Spark has stored, without calling the broker."""
        self._begun = True
        found: list[OffsetRange] = []
        for (topic, queue), stop in sorted(end.offsets.items()):
            number = end.numbers.get(topic) or start.numbers.get(topic, 0)
            first = start.offsets.get(TopicQueue(topic, queue), stop)
            if first < stop and start.same(topic, number):
                found.append(OffsetRange(topic, queue, first, stop, number))
        return self.reading.tasks(found)

    # -- progress

    @property
    def group(self) -> str:
        """The group whose offsets are committed."""
        return self.options.group or group_name(self.options)

    def committed(self, end: Progress) -> None:
        """Spark has finished everything below ``end``: report it to the broker, if possible."""
        if self.options.report:
            report(self._planner(), self._port, self.group, end)

    def stop(self) -> None:
        """Close the connection."""
        if self._port is not None:
            self._port.close()
            self._port = None


def group_name(options: ReadOptions) -> str:
    """Return a query's default group: derived from its topics, so the same at each start."""
    topics = options.topics
    if len(topics.names) == 1:
        return f"{options.group_prefix}.{topics.names[0]}"[:127]
    digest = hashlib.blake2b(str(topics).encode(), digest_size=4).hexdigest()
    return f"{options.group_prefix}.{digest}"


def _numbers(states: Mapping[TopicQueue, QueueState]) -> dict[str, int]:
    return {place.topic: one.number for place, one in states.items()}


def report(planner: Planner, port: Port | None, group: str, end: Progress) -> None:
    """Commit a group's offsets, unless the topic is another one now; errors are only logged."""
    try:
        numbers = planner.numbers(end.numbers)
    except TernMQError as error:
        log.warning("the progress of group %s is not reported: %s", group, error)
        return
    by_topic: dict[str, dict[int, int]] = {}
    for place, offset in end.offsets.items():
        if end.same(place.topic, numbers.get(place.topic, 0)):
            by_topic.setdefault(place.topic, {})[place.queue] = offset
    for topic, offsets in sorted(by_topic.items()):
        try:
            if port is not None:
                planner.ask(
                    lambda topic=topic, offsets=offsets: port.commit_group(topic, group, offsets)  # type: ignore[misc]
                )
        except TernMQError as error:
            log.warning("the progress of group %s on %s is not reported: %s", group, topic, error)
