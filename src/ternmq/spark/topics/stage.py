"""Turns Arrow batches into batches of the broker: rows are grouped by topic and queue."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from ternmq.model.errors import RowError
from ternmq.record.batch.batch import Compression, topic_seed
from ternmq.record.batch.columns import Columns
from ternmq.record.batch.hashes import key_hash
from ternmq.record.batch.layout import (
    CONTENT_TYPE,
    DUE_US,
    EXPIRY_US,
    KEY_HASH,
    ORDERING_HASH,
    PRIORITY,
)
from ternmq.spark.broker.port import Outgoing, TopicFacts
from ternmq.spark.topics.options import WriteOptions
from ternmq.spark.topics.rows_taken import TEXTS, Rows, Words, taken

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BYTES: Final = 512 << 10
_MOST_ROWS: Final = 10_000
_ROW_BYTES: Final = 32
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_SPREAD: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_COMPRESSIONS: Final = {
    "none": Compression.NONE,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_WORDS: Final = Words()


class Destination(NamedTuple):
    """Where rows go; those of one batch go to the same.

    Attributes:
        topic: The topic.
        queue: The queue; None: the broker chooses.
        scheduled: The rows have due times: a batch has one for all of its rows or for none.
        priority: Priority of the rows: all of a batch have the same.
    """

    topic: str
    queue: int | None
    scheduled: bool = False
    priority: int = 0


class _Rows:
    """Rows waiting for a queue, column by column."""

    __slots__ = ("bodies", "due_us", "expiry_us", "headers", "size", "texts")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.due_us: list[int] = []
        self.expiry_us: list[int] = []
        self.headers: list[Mapping[str, str]] = []
        self.texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        self.size = 0


class Stage:
    """Groups rows into batches; one for each task. Not thread-safe.

    Args:
        options: Options of the writer.
        columns: The columns to write.
        facts: Returns the facts of a topic.
        now_us: The time, for ``born``.
        producer_id: Id of the producer; None: a new one.
        words: Names of columns for errors.

    Attributes:
        options: Options of the writer.
        rows: Number of rows taken.
        bytes: Total size of their bodies.
        digest: Sum of a hash of each row, modulo 2**64; independent of the order.
    """

    def __init__(
        self,
        options: WriteOptions,
        columns: Sequence[str],
        facts: Callable[[str], TopicFacts],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        producer_id: int | None = None,
        words: Words = _WORDS,
    ) -> None:
        self.options = options
        self._words = words
        self._columns = frozenset(columns)
        self._facts = facts
        self._now_us = now_us
        self._producer = secrets.randbits(64) if producer_id is None else producer_id
        self._sequence = 0
        self._open: dict[Destination, _Rows] = {}
        self.rows = self.bytes = self.digest = 0

    def batches(self, tables: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        """Yield batches made of Arrow batches, each as soon as it is full.

        Raises:
            RowError: A row cannot be a message.
            MessageTooLarge, InvalidRequest: A row exceeds a limit of messages.
            UnknownTopic: A topic does not exist.
        """
        for table in tables:
            if table.num_rows:
                yield from self._take(table)
        for place, rows in self._open.items():
            yield self._batch(place, rows)
        self._open.clear()

    def check(self, tables: Iterable[pa.RecordBatch]) -> None:
        """Check that rows could be sent, without taking any.

        Raises:
            RowError, MessageTooLarge, InvalidRequest, UnknownTopic: As ``batches``.
        """
        for table in tables:
            if table.num_rows:
                topics = self._topics(table)
                rows = self._rows(table, topics)
                queues = self._given_queues(table)
                self._places(topics, queues, rows)

    # -- rows

    def _rows(self, table: pa.RecordBatch, topics: list[str] | None) -> Rows:
        topic = self.options.topic if topics is None else topics[0]
        return taken(table, self._columns, self._words, self._facts(topic).body_bytes)

    def _take(self, table: pa.RecordBatch) -> Iterator[Outgoing]:
        topics = self._topics(table)
        rows = self._rows(table, topics)
        queues = self._given_queues(table)
        self._count(rows, topics, queues)
        for place, chosen in self._places(topics, queues, rows).items():
            whole = len(chosen) == len(rows.bodies)
            yield from self._put(place, rows if whole else rows.some(chosen))

    def _topics(self, table: pa.RecordBatch) -> list[str] | None:
        """Return the topic of each row; None if all go to the topic of the options."""
        if self.options.topic:
            return None
        column = table.column("topic")
        if column.null_count:
            raise RowError("column topic: a row has none")
        found: list[str] = column.to_pylist()
        return found

    def _given_queues(self, table: pa.RecordBatch) -> list[int | None] | None:
        if "partition" not in self._columns:
            return None
        found: list[int | None] = table.column("partition").to_pylist()
        return found

    def _places(
        self,
        topics: list[str] | None,
        queues: list[int | None] | None,
        rows: Rows,
    ) -> dict[Destination, Sequence[int]]:
        """Return the rows of each topic, queue and priority, apart from those with due times."""
        count = len(rows.bodies)
        due_us, texts = rows.due_us or [0] * count, rows.texts
        priorities = rows.priorities or [0] * count
        if topics is None and not any(due_us) and not any(priorities):
            return self._of_topic(self.options.topic, queues, texts, range(count), 0)
        rows_of: dict[tuple[str, bool, int], list[int]] = {}
        for row, (due, priority) in enumerate(zip(due_us, priorities, strict=True)):
            topic = self.options.topic if topics is None else topics[row]
            rows_of.setdefault((topic, due > 0, priority), []).append(row)
        found: dict[Destination, Sequence[int]] = {}
        for (topic, scheduled, priority), some in rows_of.items():
            for place, chosen in self._of_topic(topic, queues, texts, some, priority).items():
                found[place._replace(scheduled=scheduled)] = chosen
        return found

    def _of_topic(
        self,
        topic: str,
        queues: list[int | None] | None,
        texts: Mapping[str, list[str]],
        rows: Sequence[int],
        priority: int,
    ) -> dict[Destination, Sequence[int]]:
        facts = self._facts(topic)
        self._check_level(facts, priority)
        keys = texts.get("order_key" if facts.ordered else "key")
        if facts.ordered and (keys is None or not all(keys[row] for row in rows)):
            more = f": {self._words.order_key}" if self._words.order_key else ""
            raise RowError(
                f"{self._words.of('order_key')}: topic {topic!r} is ordered, and a row has no "
                f"ordering key{more}"
            )
        order_keys = texts.get("order_key")
        if not (facts.ordered or facts.ignores_keys or order_keys is None) and any(
            order_keys[row] for row in rows
        ):
            raise RowError(
                f"{self._words.of('order_key')}: topic {topic!r} is not ordered, and a row has an "
                f"ordering key: no order would be kept; {self._words.no_order_key}, write to an "
                "ordered topic, or have the topic take them: `ternmq topic set NAME "
                "--ignore-ordering-keys`"
            )
        if queues is None and (keys is None or facts.queues == 1):
            queue = 0 if facts.queues == 1 else None
            return {Destination(topic, queue, priority=priority): rows}
        levels = facts.levels
        found: dict[Destination, list[int]] = {}
        for row in rows:
            queue = None if queues is None else queues[row]
            home = None
            if keys is not None and keys[row]:
                home = key_hash(keys[row].encode()) % (facts.queues // levels) * levels + priority
            if queue is None:
                queue = home
            elif not 0 <= queue < facts.queues:
                raise RowError(
                    f"column partition: topic {topic!r} has queues 0 to {facts.queues - 1}, "
                    f"not {queue}"
                )
            elif facts.ordered and queue != home:
                raise RowError(
                    f"column partition: topic {topic!r} is ordered: order key "
                    f"{keys[row] if keys else ''!r} belongs to queue {home}, not {queue}"
                )
            elif queue % levels != priority:
                raise RowError(
                    f"column partition: queue {queue} of topic {topic!r} is of level "
                    f"{queue % levels}, and the row has priority {priority}"
                )
            place = Destination(topic, queue, priority=priority)
            found.setdefault(place, []).append(row)
        return dict(found)

    def _check_level(self, facts: TopicFacts, priority: int) -> None:
        """Refuse a priority that the topic does not have.

        Raises:
            RowError: It has no levels, or fewer.
        """
        if 0 <= priority < facts.levels:
            return
        if facts.levels == 1:
            raise RowError(
                f"column priority: topic {facts.name!r} has no levels, and a row has priority "
                f"{priority}; write null or 0, or write to a topic with levels"
            )
        raise RowError(
            f"column priority: topic {facts.name!r} has {facts.levels} levels: priority is 0 to "
            f"{facts.levels - 1}, not {priority}"
        )

    # -- batches

    def _put(self, place: Destination, taken: Rows) -> Iterator[Outgoing]:
        """Add rows to those that wait for a place; yield full batches."""
        bodies, texts, headers = taken.bodies, taken.texts, taken.headers
        sizes = np.fromiter(map(len, bodies), np.int64, len(bodies)) + _ROW_BYTES
        for values in texts.values():
            sizes += np.fromiter(map(len, values), np.int64, len(bodies))
        ends = np.cumsum(sizes)
        start, done = 0, 0
        while start < len(bodies):
            rows = self._open.get(place)
            if rows is None:
                rows = self._open[place] = _Rows()
            room = _MOST_BYTES - rows.size
            stop = int(np.searchsorted(ends, done + room, side="right"))
            stop = min(stop, start + _MOST_ROWS - len(rows.bodies))
            if stop <= start and not rows.bodies:
                stop = start + 1  # larger than a batch should be: alone in one
            if stop > start:
                rows.bodies += bodies[start:stop]
                for name, values in texts.items():
                    rows.texts[name] += values[start:stop]
                if headers is not None:
                    rows.headers += headers[start:stop]
                if place.scheduled and taken.due_us is not None:
                    rows.due_us += taken.due_us[start:stop]
                if taken.expiry_us is not None:
                    rows.expiry_us += taken.expiry_us[start:stop]
                rows.size += int(ends[stop - 1]) - done
                start, done = stop, int(ends[stop - 1])
            if start < len(bodies):
                yield self._batch(place, self._open.pop(place))

    def _batch(self, place: Destination, rows: _Rows) -> Outgoing:
        topic, queue, scheduled, priority = place
        keyed = self._facts(topic).ordered
        columns = Columns(len(rows.bodies))
        try:
            columns.keys(KEY_HASH, rows.texts["key"])
            columns.keys(ORDERING_HASH, rows.texts["order_key"])
            columns.tags(rows.texts["tags"])
            columns.headers(rows.headers)
            columns.texts(CONTENT_TYPE, rows.texts["content_type"])
            columns.numbers(DUE_US, "q", rows.due_us)
            columns.numbers(PRIORITY, "B", [priority] * len(rows.bodies) if priority else ())
            columns.numbers(EXPIRY_US, "q", rows.expiry_us)
            columns.application_ids(rows.texts["application_id"], rows.bodies)
            compression = "none" if scheduled else self.options.compression
            used = columns.bodies(rows.bodies, _COMPRESSIONS[compression])
            batch = columns.batch(
                topic_seed(topic), self._producer, self._sequence, self._now_us(), used,
                keyed=keyed,
            )  # fmt: skip
        except ValueError as error:
            raise RowError(f"rows for topic {topic!r}: {error}") from error
        self._sequence += len(rows.bodies)
        return Outgoing(topic, queue, batch, len(rows.bodies))

    # -- what was taken

    def _count(
        self, rows: Rows, topics: Sequence[str] | None, queues: Sequence[int | None] | None
    ) -> None:
        """Add rows to the digest: equal rows give equal sums, however they are split into tasks."""
        bodies, texts, headers = rows.bodies, rows.texts, rows.headers
        hashed = _hashes(bodies)
        columns: list[Sequence[bytes]] = [
            [one.encode() for one in values] for values in texts.values()
        ]
        if headers is not None:
            columns.append([repr(sorted(one.items())).encode() for one in headers])
        if topics is not None:
            columns.append([one.encode() for one in topics])
        if queues is not None:
            columns.append([str(one).encode() for one in queues])
        if rows.due_us is not None:
            columns.append([str(one).encode() for one in rows.due_us])
        if rows.priorities is not None:
            columns.append([str(one).encode() for one in rows.priorities])
        if rows.expiry_us is not None:
            columns.append([str(one).encode() for one in rows.expiry_us])
        for values in columns:
            hashed = (hashed ^ (hashed >> np.uint64(29))) * _SPREAD + _hashes(values)
        hashed = (hashed ^ (hashed >> np.uint64(32))) * _MIX
        total = int(np.add.reduce(hashed, dtype=np.uint64))
        self.digest = (self.digest + total + len(bodies)) % 2**64
        self.rows += len(bodies)
        self.bytes += sum(map(len, bodies))


def _hashes(values: Sequence[bytes]) -> np.ndarray:
    return np.fromiter(map(xxh3_64_intdigest, values), np.uint64, len(values))
