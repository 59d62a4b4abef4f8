"""Messages of the archive sent again, into a topic: each once, in the order of their queue.

A queue of the archive is a writer of transactions of its own (``Source.writer``), and the number of
a transaction is the offset behind its rows::

    the queue       |---- 1 ----|---- 2 ----|---- 3 ----|      rows [start, stop) that are meant
    transactions         w           2w        stop

So the broker itself remembers how far a replay is, in the same record that makes the rows visible.
A run that was killed, or is repeated, asks it and goes on behind; what was prepared and never
committed is dropped. To send the same rows once more, say another name.

The rows of a key stay in order: a queue is read by one worker, its transactions are committed one
after the other. In a topic with as many queues each row goes to the queue of the same number; in
another, where its key says. Rows are not given the application's id: the broker would take them
for the messages that they were.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.model.errors import InvalidRequest, OptionError, TableConflict, UnknownTopic
from ternmq.pipeline.archive_commit import Place
from ternmq.pipeline.files import DataFile
from ternmq.pipeline.folder import Folder
from ternmq.pipeline.replay_select import Counted, Reading, Selection
from ternmq.pipeline.rewrite import place_of_file
from ternmq.pipeline.schemas import ARCHIVE
from ternmq.pipeline.table import Table
from ternmq.spark.bulk_port import BulkPort
from ternmq.spark.connecting import Broker
from ternmq.spark.options import WriteOptions
from ternmq.spark.port import CommittedError, TopicFacts, Transaction
from ternmq.spark.stage import Stage

_ROWS: Final = 16_384
_BYTES: Final = 32 << 20
_COLUMNS: Final = ("value", "key", "order_key", "tags", "content_type", "headers")
MAX_NAME: Final = 80


class Source(msgspec.Struct, frozen=True):
    """A queue of the archive with rows that are meant.

    Attributes:
        topic: Name of the topic.
        topic_number: Its number.
        queue: The queue.
        files: Paths, in the order of their rows, with the first and last offset of each.
        rows: That are meant.
        stop: Behind the last row of the last file.
        window: Offsets of a transaction.
        queues: Of the topic, as far as the archive knows.
        first_us: When the first row that is meant was stored, µs since 1970.
        last_us: When the last one was.
    """

    topic: str
    topic_number: int
    queue: int
    files: tuple[tuple[str, int, int], ...]
    rows: int
    stop: int
    window: int
    queues: int
    first_us: int
    last_us: int

    def writer(self, name: str) -> str:
        """Return the writer of its transactions."""
        return f"replay/{name}/{self.topic_number}-{self.queue}"


class Sent(msgspec.Struct, frozen=True):
    """What became of a queue.

    Attributes:
        topic_number: Of the topic in the archive.
        queue: The queue.
        rows: Sent now.
        begun: Offset from which on rows were sent; what lay below had been sent before.
        transactions: That were committed now.
    """

    topic_number: int
    queue: int
    rows: int = 0
    begun: int = 0
    transactions: int = 0


@dataclass(frozen=True)
class Replay:
    """A replay into a topic; travels to workers.

    Attributes:
        name: Under which what was sent is known.
        tables: The folder of all tables.
        broker: Where the topic is.
        to_topic: The topic.
        selection: What is sent.
    """

    name: str
    tables: str
    broker: Broker
    to_topic: str
    selection: Selection
    _facts: dict[str, TopicFacts] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MAX_NAME:
            raise InvalidRequest(f"the name of a replay has 1 to {MAX_NAME} characters")

    def send(self, source: Source, between: Callable[[Sent], None] = lambda _sent: None) -> Sent:
        """Send what is meant of a queue, as far as it was not; on a worker, or here.

        Args:
            source: The queue, as ``plan`` gave it.
            between: Called behind each transaction; may raise, to end it there.

        Raises:
            UnknownTopic: The topic is not there.
            RowError: A row cannot be a message of it.
            TableConflict: Somebody else sends the same under this name.
        """
        port = BulkPort(self.broker)
        reading = Reading(Folder(self.tables).inside(ARCHIVE.name), self.selection)
        try:
            facts = topic_facts(port, self.to_topic)
            writer = source.writer(self.name)
            begun = port.highest(writer) or 0
            sent = Sent(source.topic_number, source.queue, 0, begun)
            behind = begun
            for stop, batches in windows(rows_of(reading, source, begun), source, begun):
                rows = self._transaction(
                    port, facts, Transaction(writer, stop), source, batches, behind
                )
                behind = stop
                sent = msgspec.structs.replace(
                    sent, rows=sent.rows + rows, transactions=sent.transactions + 1
                )
                between(sent)
            return sent
        finally:
            reading.close()
            port.close()

    def _transaction(
        self,
        port: BulkPort,
        facts: TopicFacts,
        transaction: Transaction,
        source: Source,
        batches: Iterable[pa.RecordBatch],
        behind: int,
    ) -> int:
        """Send the rows of a transaction, which comes behind another one; return how many."""
        columns = (*_COLUMNS, "partition") if not facts.ordered else _COLUMNS
        options = WriteOptions(self.broker, self.to_topic, transaction.writer)
        stage = Stage(options, columns, lambda _topic: facts)
        placed = (placed_in(one, facts, source) for one in batches)
        outgoing = stage.batches(placed)
        ids: list[int] = []
        try:
            ids += port.prepare(outgoing, transaction, "0/0", options.in_flight)
            if (port.highest(transaction.writer) or 0) not in {behind, transaction.batch_id}:
                raise TableConflict(
                    f"somebody else sends queue {source.queue} as {self.name}, too; let one of "
                    "them end, then do it again"
                )
        except CommittedError:
            # Somebody else did the same in this moment; the digest says whether it was the same.
            ids.clear()
            for _ in outgoing:
                pass
        fresh = port.commit_prepared(transaction, ids, stage.digest)
        return stage.rows if fresh else 0


def topic_facts(port: BulkPort, topic: str) -> TopicFacts:
    """Return how a topic is.

    Raises:
        UnknownTopic: It is not there.
    """
    for one in port.topics([topic]):
        if one.name == topic:
            return one
    raise UnknownTopic(f"there is no topic {topic!r}, or this app has no right on it")


def plan(tables: Folder, selection: Selection) -> list[Source]:
    """Return the queues of the archive that have rows that are meant, and how many.

    Raises:
        TableError: There is no archive.
        OptionError: A condition or expression cannot be run.
    """
    table = Table.open(tables, ARCHIVE, create=False)
    every = table.files(topic=selection.topic)
    files = [one for one in every if selection.may_be_in(one)]
    queues: dict[int, int] = {}
    for one in every:
        _, number, queue = place_of_file(one)
        queues[number] = max(queues.get(number, 0), queue + 1)
    reading = Reading(table.folder, selection)
    try:
        counted = {one.path: one for one in reading.counts(files)}
    finally:
        reading.close()
    chosen = sorted((one for one in files if one.path in counted), key=_order)
    found: list[Source] = []
    for place, some in itertools.groupby(chosen, key=lambda one: Place(*place_of_file(one))):
        kept = list(some)
        row_bytes = _row_bytes(table.folder, kept)
        found.append(_source(place, kept, counted, queues[place.topic_number], row_bytes))
    return sorted(found, key=lambda one: (one.topic_number, one.queue))


def _row_bytes(folder: Folder, files: Iterable[DataFile]) -> int:
    """Return the bytes of a row where rows are largest: of the row group with the largest ones."""
    most = 0
    for one in files:
        with folder.open(one.path) as source:
            known = pq.ParquetFile(source).metadata
        for number in range(known.num_row_groups):
            group = known.row_group(number)
            most = max(most, group.total_byte_size // max(1, group.num_rows))
    return most


def _order(one: DataFile) -> tuple[Place, int]:
    offset = one.low["offset"]
    assert isinstance(offset, int)
    return Place(*place_of_file(one)), offset


def _source(
    place: Place,
    files: Sequence[DataFile],
    counted: dict[str, Counted],
    queues: int,
    row_bytes: int,
) -> Source:
    some = [counted[one.path] for one in files]
    rows = sum(one.rows for one in some)
    most = max(1, min(_ROWS, _BYTES // max(1, row_bytes)))
    spans: list[tuple[str, int, int]] = []
    for one in files:
        low, high = one.low["offset"], one.high["offset"]
        assert isinstance(low, int)
        assert isinstance(high, int)
        spans.append((one.path, low, high))
    stop = spans[-1][2] + 1
    # As many offsets as are likely to hold that many rows that are meant.
    window = max(most, most * (stop - spans[0][1]) // max(1, rows))
    return Source(
        *place, tuple(spans), rows, stop, window, queues,
        min(one.first_us for one in some), max(one.last_us for one in some),
    )  # fmt: skip


def places(tables: Folder, selection: Selection, sources: Sequence[Source]) -> dict[int, list[int]]:
    """Return the offsets of the rows that are meant, by queue: for the group of a topic."""
    table = Table.open(tables, ARCHIVE, create=False)
    wanted = {path for one in sources for path, _, _ in one.files}
    reading = Reading(table.folder, selection)
    found: dict[int, list[int]] = {}
    try:
        for queue, offset in reading.offsets([f for f in table.files() if f.path in wanted]):
            found.setdefault(queue, []).append(offset)
    finally:
        reading.close()
    return found


def rows_of(reading: Reading, source: Source, start: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a queue that are meant, from an offset on, in order."""
    for path, low, high in source.files:
        if high >= start:
            yield from reading.rows(path, max(start, low), high + 1)


def windows(
    rows: Iterable[pa.RecordBatch], source: Source, start: int
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yield what each transaction holds: the offset behind it, and its rows, to be taken at once.

    Where one ends does not depend on where reading began: whoever sends the same rows at the same
    time, by a task that runs twice, cuts them in the same places.

    Raises:
        OptionError: Rows are not in the order of their offsets.
    """
    for end, some in itertools.groupby(_pieces(rows, source, start), key=lambda one: one[0]):
        yield end, (piece for _, piece in some)


def _pieces(
    rows: Iterable[pa.RecordBatch], source: Source, start: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of one transaction each, with the offset behind that."""
    known = start - 1
    for batch in rows:
        offsets = batch.column("offset").to_numpy()
        if len(offsets) and (offsets[0] <= known or (offsets[1:] <= offsets[:-1]).any()):
            raise OptionError(f"rows of queue {source.queue} are not in the order of their offsets")
        at = 0
        while at < len(offsets):
            window = int(offsets[at]) // source.window + 1
            end = min(window * source.window, source.stop)
            to = int(offsets.searchsorted(end))
            yield end, batch.slice(at, to - at)
            at, known = to, int(offsets[to - 1])


def placed_in(batch: pa.RecordBatch, facts: TopicFacts, source: Source) -> pa.RecordBatch:
    """Return rows with the queue that they go to; null: where the key says."""
    columns = {name: batch.column(name) for name in _COLUMNS}
    columns["value"] = columns["value"].cast(pa.binary())
    if not facts.ordered:
        home = pa.scalar(source.queue % facts.queues, pa.int32())
        if facts.queues == source.queues:
            columns["partition"] = pa.repeat(home, batch.num_rows)
        else:
            keyless = pc.equal(pc.fill_null(columns["key"].cast(pa.string()), ""), "")
            columns["partition"] = pc.if_else(keyless, home, pa.scalar(None, pa.int32()))
    return pa.RecordBatch.from_pydict(columns)
