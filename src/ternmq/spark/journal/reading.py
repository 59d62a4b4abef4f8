"""Reads of the journal, without Spark: positions, tasks, rows.

The offset of a stream is ``{"position": n}``: every record that begins below was read. Ranges are
cut at any byte: a task reads the records that begin in its stretch. A broker of an older version
lets a read begin only where a record begins: there, ranges are cut where segments begin.

The driver gets the names of the numbers in records, once for all tasks of a batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ternmq.model.errors import DataLoss, JournalExpired, OptionError
from ternmq.spark.journal.broker import BrokerJournal
from ternmq.spark.journal.events import Events
from ternmq.spark.journal.files import FileJournal
from ternmq.spark.journal.names import Names, named
from ternmq.spark.journal.options import EARLIEST, LATEST, JournalOptions
from ternmq.spark.journal.port import Bounds, JournalPort

if TYPE_CHECKING:
    import pyarrow as pa

log: Final = logging.getLogger("ternmq.spark")

Json = dict[str, int]


class Stretch(NamedTuple):
    """The records that begin in ``[start, stop)``."""

    start: int
    stop: int


class Plan(NamedTuple):
    """The tasks of a batch, and what all of them need."""

    stretches: list[Stretch]
    names: bytes
    """Names of the numbers in records, packed."""


def connect(options: JournalOptions) -> JournalPort:
    """Return a port to the journal that the options name."""
    if options.broker is None:
        return FileJournal(options.path)
    return BrokerJournal(options.broker)


@dataclass(frozen=True)
class JournalReading:
    """Reads stretches; is sent to workers.

    Attributes:
        options: Options of the reader.
        columns: The columns to return, with their types as Spark writes them.
        connect: Creates a port.
    """

    options: JournalOptions
    columns: Mapping[str, str]
    connect: Callable[[JournalOptions], JournalPort] = field(default=connect)

    def read(self, stretch: Stretch, names: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the facts of a stretch; runs on a worker.

        Args:
            stretch: What to read.
            names: Names as of ``Plan``; None: get them from the journal.

        Raises:
            DataLoss: The journal no longer has the whole stretch.
        """
        port = self.connect(self.options)
        try:
            known = port.names(stretch.start) if names is None else Names.unpacked(names)
            yield from self._read(port, stretch, known)
        finally:
            port.close()

    def _read(self, port: JournalPort, stretch: Stretch, names: Names) -> Iterator[pa.RecordBatch]:
        events = Events(names)
        start = stretch.start
        while start < stretch.stop:
            try:
                for page in port.pages(start, stretch.stop):
                    events.add(page)
                    start = int(page.positions()[-1]) + 1 if len(page) else start
                    if len(events) >= self.options.batch_rows:
                        yield from self._batches(events)
                start = stretch.stop
            except JournalExpired as error:
                # Retention removed the next records: the loss begins after the last record read.
                start = self._kept(Stretch(start, stretch.stop), error.oldest)
        if len(events):
            yield from self._batches(events)

    def _batches(self, events: Events) -> Iterator[pa.RecordBatch]:
        table = events.table(list(self.columns))
        most = self.options.batch_rows
        for at in range(0, table.num_rows, most):
            yield table.slice(at, most)

    def _kept(self, stretch: Stretch, oldest: int) -> int:
        """Return the first position that the journal still has of a stretch whose start is gone."""
        lost = min(oldest, stretch.stop) - stretch.start
        what = f"{lost} bytes of the journal from position {stretch.start} on are gone"
        if self.options.fail_on_data_loss:
            raise DataLoss(f"{what}: it begins at {oldest}")
        log.warning("%s", what)
        return oldest

    def tasks(self, start: int, stop: int, bounds: Bounds) -> list[Stretch]:
        """Split positions into tasks, at multiples of a task's bytes."""
        if stop <= start:
            return []
        step = _cut(self.options.task_bytes, bounds)
        if not step:
            return [Stretch(start, stop)]
        found: list[Stretch] = []
        while start < stop:
            end = min(stop, start - start % step + step)
            found.append(Stretch(start, end))
            start = end
        return found

    def plan(self) -> Plan:
        """Return the tasks of a batch read.

        Raises:
            OptionError: A position is beyond the end of the journal.
            DataLoss: The start is gone.
        """
        port = self.connect(self.options)
        try:
            stretches = self._planned(port.bounds())
            names = self.names(port, stretches[0].start) if stretches else b""
        finally:
            port.close()
        return Plan(stretches, names)

    def names(self, port: JournalPort, position: int) -> bytes:
        """Return the names that the columns need for records from a position on, packed."""
        return port.names(position).packed(self.columns) if named(self.columns) else b""

    def _planned(self, bounds: Bounds) -> list[Stretch]:
        start = self.start(bounds)
        end = bounds.end if self.options.end == LATEST else self.options.end
        if end > bounds.end:
            raise OptionError(f"option endingPosition={end}: the journal ends at {bounds.end}")
        if end < start:
            raise OptionError(f"option endingPosition={end}: it is before the start, {start}")
        return self.tasks(start, end, bounds)

    def start(self, bounds: Bounds) -> int:
        """Return where a new query begins.

        Raises:
            OptionError: The position is beyond the end of the journal.
            DataLoss: It is gone.
        """
        start = self.options.start
        if start == EARLIEST:
            return bounds.oldest
        if start == LATEST:
            return bounds.end
        if start > bounds.end:
            raise OptionError(f"option startingPosition={start}: the journal ends at {bounds.end}")
        if start < bounds.oldest:
            what = f"option startingPosition={start}: the journal begins at {bounds.oldest}"
            if self.options.fail_on_data_loss:
                raise DataLoss(what)
            log.warning("%s", what)
            return bounds.oldest
        return start


class JournalStream:
    """The driver's side of a streaming read.

    Args:
        reading: Reads the stretches.
        clock: Returns seconds.
    """

    def __init__(
        self, reading: JournalReading, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.reading = reading
        self._clock = clock
        self._port: JournalPort | None = None
        self._initial: int | None = None
        self._begun = False
        """The query's start is stored by Spark, or about to be."""
        self._known: Bounds | None = None
        self._known_until = float("-inf")
        self._frozen: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the connection."""
        return {**self.__dict__, "_port": None}

    def _connected(self) -> JournalPort:
        if self._port is None:
            self._port = self.reading.connect(self.reading.options)
        return self._port

    def _bounds(self, *, fresh: bool = False) -> Bounds:
        now = self._clock()
        if self._known is None or fresh or now >= self._known_until:
            self._known = self._connected().bounds()
            self._known_until = now + self.reading.options.watermark_cache_ms / 1000
        return self._known

    def initial(self) -> int:
        """Return where a new query begins; the same at every call."""
        if self._initial is None:
            self._initial = self.reading.start(self._bounds())
        return self._initial

    def freeze(self) -> None:
        """Read no further than the present end (``availableNow``)."""
        self._frozen = self._bounds(fresh=True).end

    def only_batch(self) -> None:
        """Return rows in the first batch: there is only one, although its start is not stored."""
        self._begun = True

    def newest(self) -> int:
        """Return the end of the journal."""
        return self._bounds().end

    def latest(self, start: int) -> int:
        """Return the end of the next batch; ``start`` if there is nothing to read.

        The first batch of a query is empty, so that Spark stores its start before anything is read:
        after a crash in it, Spark calls ``initial`` again, which may differ by then.

        Raises:
            DataLoss: The journal ends before ``start``: it is another one.
        """
        if not self._begun:
            self._begun = True
            if start == self._initial:
                return start
        bounds = self._bounds()
        if bounds.end < start:
            raise DataLoss(
                f"the journal ends at {bounds.end}, before {start}, where the query is: it is "
                f"another journal"
            )
        end = bounds.end if self._frozen is None else min(self._frozen, bounds.end)
        most, segment = self.reading.options.max_bytes, bounds.segment_bytes
        if end - start > most:
            if bounds.anywhere:
                end = start + most
            elif segment:  # up to the beginning of a segment, at least the next one
                step = max(1, (start % segment + most) // segment)
                end = min(end, start - start % segment + step * segment)
        return max(start, end)

    def plan(self, start: int, end: int) -> Plan:
        """Return the tasks of a batch that Spark has stored."""
        self._begun = True
        if end <= start:
            return Plan([], b"")
        stretches = self.reading.tasks(start, end, self._bounds())
        return Plan(stretches, self.reading.names(self._connected(), start))

    def stop(self) -> None:
        """Close the connection."""
        if self._port is not None:
            self._port.close()
            self._port = None


def _cut(wanted: int, bounds: Bounds) -> int:
    """Return how many bytes a task has, at most about ``wanted``; 0: all go into one task."""
    if bounds.anywhere:
        return wanted
    if not bounds.segment_bytes:
        return 0
    return max(1, wanted // bounds.segment_bytes) * bounds.segment_bytes


def to_json(position: int) -> Json:
    """Return a position in the form that Spark stores."""
    return {"position": position}


def of_json(told: Mapping[str, Any]) -> int:
    """Return the position of a stored offset.

    Raises:
        OptionError: There is none: the checkpoint belongs to another source.
    """
    position = told.get("position")
    if not isinstance(position, int):
        raise OptionError(
            f"option checkpointLocation: its offsets belong to another source: "
            f"{str(told)[:200]}; give this query a checkpoint of its own"
        )
    return position
