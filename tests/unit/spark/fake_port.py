"""A broker in a few lines, for what the connector asks: topics, offsets, transactions, losses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ternmq.model.errors import (
    ConnectionLost,
    IdConflict,
    OffsetExpired,
    RefusedError,
    TernMQError,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.record.batch.batch import Batch, Compression, Row, encode, topic_seed
from ternmq.record.fact import messages
from ternmq.record.fact.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.offsets import OffsetRange, TopicQueue, another
from ternmq.spark.broker.port import (
    Budget,
    CommittedError,
    Fetched,
    Outgoing,
    Port,
    QueueState,
    TopicFacts,
    Transaction,
)

# No classes of its own: every error that there is stands in a table.
TransactionConflict = IdConflict
TransactionDecided = RefusedError


@dataclass
class Stored:
    """A stored batch."""

    first: int
    count: int
    time_us: int
    record: bytes


@dataclass
class Queue:
    first: int = 0
    batches: list[Stored] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.batches[-1].first + self.batches[-1].count if self.batches else self.first


@dataclass
class Prepared:
    transaction: Transaction
    part: str
    outgoing: Outgoing


class FakeBroker:
    """Keeps topics; ``connect`` is handed to readers and writers."""

    def __init__(self, **topics: int) -> None:
        self.topics: dict[str, list[Queue]] = {}
        self.numbers: dict[str, int] = {}
        self.ordered: set[str] = set()
        self.groups: dict[tuple[str, str], dict[int, int]] = {}
        self.prepared: dict[int, Prepared] = {}
        self.committed: dict[Transaction, int] = {}
        self.time_us = 1_000_000
        self.calls: list[str] = []
        self.open = 0
        self.batch_rows = 1_000_000
        """A piece has at most so many rows; its records are whole all the same."""
        self.failures: dict[str, list[TernMQError]] = {}
        self.sizes_told = True
        self._sequence = 0
        self._next_prepared = 1
        self._next_number = 0
        for name, queues in topics.items():
            self.create(name, queues)

    def create(self, name: str, queues: int = 1, *, ordered: bool = False) -> None:
        """Make a topic; one of the same name is deleted first."""
        self.topics[name] = [Queue() for _ in range(queues)]
        self._next_number += 1
        self.numbers[name] = self._next_number
        if ordered:
            self.ordered.add(name)

    def add_queue(self, name: str) -> None:
        self.topics[name].append(Queue())

    @property
    def connect(self) -> Callable[[Broker], Port]:
        return partial(_connect, self)

    def queue(self, topic: str, number: int) -> Queue:
        if topic not in self.topics:
            raise UnknownTopic(topic)
        if number >= len(self.topics[topic]):
            raise UnknownQueue(str(number))
        return self.topics[topic][number]

    def put(self, topic: str, *rows: bytes | Row, queue: int = 0, **encoding: object) -> None:
        """Store rows as one batch."""
        made = [row if isinstance(row, Row) else Row(row) for row in rows]
        batch = encode(
            made,
            topic_seed=topic_seed(topic),
            producer_id=7,
            first_sequence=self._sequence,
            born_us=self.time_us - 1,
            compression=encoding.get("compression", Compression.NONE),  # type: ignore[arg-type]
            keyed=topic in self.ordered,
        )
        self._sequence += len(made)
        self.store(topic, queue, batch)

    def store(self, topic: str, number: int, batch: bytes) -> None:
        queue = self.queue(topic, number)
        first, count = queue.next, Batch(batch).count
        body = messages.pack(1, number, first, count, batch, ())
        queue.batches.append(Stored(first, count, self.time_us, record(body, self.time_us)))
        self.time_us += 1_000_000

    def expire(self, topic: str, queue: int, first: int) -> None:
        """Keep nothing below an offset (of a stored batch)."""
        there = self.queue(topic, queue)
        there.batches = [one for one in there.batches if one.first >= first]
        there.first = first

    def fail(self, what: str, *errors: TernMQError) -> None:
        """Have the next calls of a kind fail; ``commit_prepared.after``: when it is done."""
        self.failures.setdefault(what, []).extend(errors)

    def tell(self, what: str) -> None:
        self.calls.append(what)
        if self.failures.get(what):
            raise self.failures[what].pop(0)

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of all rows of a topic, queue by queue."""
        found: list[bytes] = []
        for queue in self.topics[topic]:
            for one in queue.batches:
                found += Batch(messages.of_record(one.record).batch).bodies()
        return found


def record(body: bytes, time_us: int, kind: Kind = Kind.MESSAGES) -> bytes:
    """Return a journal's record."""
    from google_crc32c import value

    padded = body + bytes(-len(body) % 8)
    head = HEADER.pack(0, MAGIC, HEADER_BYTES + len(padded), 1, kind, 0, 0, 0, time_us, 1, 0)
    rest = head[4:] + padded
    crc: bytes = value(rest).to_bytes(4, "little")
    return crc + rest


def _connect(broker: FakeBroker, told: Broker) -> Port:
    broker.tell("connect")
    broker.open += 1
    return FakePort(broker)


class FakePort:
    """See ``Port``."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._closed = False

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        broker = self._broker
        broker.tell("topics")
        return [
            TopicFacts(name, len(queues), name in broker.ordered)
            for name, queues in sorted(broker.topics.items())
            if names is None or name in names
        ]

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[TopicQueue, int] | None = None,
        budgets: Mapping[TopicQueue, Budget] | None = None,
    ) -> list[QueueState]:
        broker = self._broker
        broker.tell("ranges")
        found: list[QueueState] = []
        for name in topics:
            for number, queue in enumerate(broker.topics.get(name, [])):
                place = TopicQueue(name, number)
                at = stop = size = None
                if times_us and place in times_us:
                    at = next(
                        (b.first for b in queue.batches if b.time_us >= times_us[place]),
                        queue.next,
                    )
                if budgets and place in budgets and broker.sizes_told:
                    start, most = budgets[place]
                    left = [b for b in queue.batches if b.first + b.count > start]
                    size, used, stop = sum(len(b.record) for b in left), 0, start
                    for one in left:
                        used += len(one.record)
                        if used > most and stop > start:
                            break
                        stop = one.first + one.count
                number_ = broker.numbers[name]
                found.append(QueueState(place, number_, queue.first, queue.next, at, stop, size))
        return found

    def fetch(self, span: OffsetRange, start: int, wait_ms: int) -> Iterator[Fetched]:
        while start < span.stop:
            found = self._piece(span.topic, span.queue, start, span.stop)
            number = self._broker.numbers[span.topic]
            if span.number not in (0, number):
                raise UnknownTopic(another(span.topic, span.number, number))
            yield found
            start = max(start, found.stop)

    def _piece(self, topic: str, queue: int, start: int, stop: int) -> Fetched:
        broker = self._broker
        broker.tell("fetch")
        there = broker.queue(topic, queue)
        if start < there.first:
            raise OffsetExpired(f"the oldest offset that is kept is {there.first}")
        records, end = b"", start
        stop = min(stop, start + broker.batch_rows)
        for one in there.batches:
            if one.first + one.count > start and one.first < stop:
                records += one.record
                end = min(stop, one.first + one.count)
        return Fetched(records, start, end, there.first, there.next)

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[TopicQueue, int]:
        self._broker.tell("group_offsets")
        return {
            TopicQueue(topic, queue): offset
            for (topic, name), offsets in self._broker.groups.items()
            if name == group and topic in topics
            for queue, offset in offsets.items()
        }

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        self._broker.tell("commit_group")
        there = self._broker.groups.setdefault((topic, group), {})
        for queue, offset in offsets.items():
            there[queue] = max(there.get(queue, 0), offset)

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        for one in batches:
            self._broker.tell("send")
            self._store(one)
            yield one.rows

    def _store(self, one: Outgoing) -> None:
        self._broker.store(one.topic, one.queue or 0, one.batch)

    def prepare(
        self, batches: Iterable[Outgoing], transaction: Transaction, part: str, in_flight: int
    ) -> Iterator[int]:
        broker = self._broker
        for one in batches:
            broker.tell("prepare")
            if transaction in broker.committed:
                raise CommittedError
            broker.queue(one.topic, one.queue or 0)
            number = broker._next_prepared
            broker._next_prepared += 1
            broker.prepared[number] = Prepared(transaction, part, one)
            yield number

    def commit_prepared(self, transaction: Transaction, ids: Sequence[int], digest: int) -> bool:
        broker = self._broker
        broker.tell("commit_prepared")
        known = broker.committed.get(transaction)
        if known is not None:
            if known != digest:
                raise TransactionConflict(f"{transaction} was committed with another digest")
            return False
        missing = [number for number in ids if number not in broker.prepared]
        if missing:
            raise TransactionDecided(f"{missing} were rolled back")
        for number in ids:
            self._store(broker.prepared[number].outgoing)
        broker.committed[transaction] = digest
        self._drop(transaction)
        broker.tell("commit_prepared.after")
        return True

    def _drop(self, transaction: Transaction) -> None:
        prepared = self._broker.prepared
        for number in [n for n, one in prepared.items() if one.transaction == transaction]:
            del prepared[number]

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        self._broker.tell("abort_prepared")
        if transaction in self._broker.committed:
            raise TransactionDecided(f"{transaction} was committed")
        self._drop(transaction)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._broker.open -= 1


LOST = ConnectionLost("the answer was lost")
