"""Sends messages of the archive again, into a topic: each once, in the order of their queue.

Each queue of the archive is a writer of transactions (``Source.writer``), and the number of a
transaction is the offset after its rows::

    the queue       |---- 1 ----|---- 2 ----|---- 3 ----|      selected rows [start, stop)
    transactions         w           2w        stop

So the broker itself stores how far a replay is, in the same record that makes the rows visible. A
run that was killed or is repeated reads that number and continues after it; rows that were prepared
but never committed are dropped. To send the same rows once more, use another name.

The rows of a key stay in order: one worker reads a queue, and its transactions are committed one
after the other. If the topic has as many queues, each row goes to the queue of the same number;
otherwise its key decides. Rows do not keep the application's id: the broker would take them for
duplicates of the original messages.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from ternmq.model.errors import (
    InvalidRequest,
    OptionError,
    RowError,
    TableConflict,
    TransactionConflict,
    UnknownTopic,
)
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.replay.plan import Source
from ternmq.pipeline.replay.select import Reading, Selection
from ternmq.pipeline.tables.folder import Folder
from ternmq.spark.broker.bulk_port import BulkPort
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.port import CommittedError, TopicFacts, Transaction
from ternmq.spark.topics.options import WriteOptions
from ternmq.spark.topics.rows_taken import Words
from ternmq.spark.topics.stage import Stage

_COLUMNS: Final = ("value", "key", "order_key", "tags", "content_type", "headers")
_WORDS: Final = Words(
    {"value": "body", "key": "key", "order_key": "ordering_key", "tags": "tag",
     "content_type": "content_type", "headers": "headers", "partition": "queue"},
    no_order_key="say --set 'ordering_key NULL'",
    order_key="give the new value, such as --set 'ordering_key key'",
)  # fmt: skip
MAX_NAME: Final = 80
_DAY_NS: Final = 86_400 * 10**9


class Sent(msgspec.Struct, frozen=True):
    """The result of sending a queue.

    Attributes:
        topic_number: Number of the topic in the archive.
        queue: The queue.
        rows: Rows sent by this run.
        begun: Offset at which this run began; earlier rows had been sent before.
        transactions: Transactions committed by this run.
    """

    topic_number: int
    queue: int
    rows: int = 0
    begun: int = 0
    transactions: int = 0


@dataclass(frozen=True)
class Replay:
    """A replay into a topic; is sent to workers.

    Attributes:
        name: Name under which the broker stores its progress.
        tables: The folder of all tables.
        broker: The broker of the topic.
        to_topic: The topic.
        selection: The messages to send.
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

    def request(self) -> int:
        """Return a 64-bit hash of the request: which messages, and into which topic."""
        return request_of(Folder(self.tables), self.selection, self.to_topic)

    def check_name(self, port: BulkPort) -> None:
        """Check that the name does not belong to another request.

        Raises:
            TransactionConflict: It does; nothing was sent.
        """
        self._known_as(port)

    def _known_as(self, port: BulkPort) -> int:
        """Return the highest batch id stored for the name, 0 if the name is not taken."""
        known = port.committed(self._named)
        if known is not None and known.digest != self.request():
            raise self._conflict()
        return 0 if known is None or known.highest is None else known.highest

    def take_name(self, port: BulkPort, day: int | None = None) -> None:
        """Reserve the name for this request at the broker, by a transaction without rows.

        Called when the first rows are prepared: a request that has sent nothing may be changed.

        Args:
            port: The broker.
            day: Days since 1970; None: today.

        Raises:
            TransactionConflict: The name belongs to another request; nothing was sent.
        """
        # Once a day: the broker forgets a writer that commits nothing, while those of queues go on.
        number = max(self._known_as(port), time.time_ns() // _DAY_NS if day is None else day)
        try:
            port.commit_prepared(Transaction(self._named, number), [], self.request())
        except TransactionConflict:
            raise self._conflict() from None

    @property
    def _named(self) -> str:
        return f"replay/{self.name}"

    def _conflict(self) -> TransactionConflict:
        error = TransactionConflict(
            f"the name {self.name} belongs to another replay, with other messages, another topic "
            "or another --set"
        )
        error.hint = "use another --name, or repeat the same request; nothing was sent now"
        return error

    def check(self, source: Source) -> None:
        """Check that the rest of a queue could be sent, without sending it.

        Raises:
            UnknownTopic, RowError, InvalidRequest, MessageTooLarge: As ``send``.
        """
        port = BulkPort(self.broker)
        reading = Reading(Folder(self.tables).inside(ARCHIVE.name), self.selection)
        try:
            facts = topic_facts(port, self.to_topic)
            begun = port.highest(source.writer(self.name)) or 0
            stage = self._stage(facts, source.writer(self.name))
            for _, batches in windows(rows_of(reading, source, begun), source, begun):
                for batch in batches:
                    placed = placed_in(batch, facts, source)
                    with _naming(stage, source, [placed]):
                        stage.check([placed])
        finally:
            reading.close()
            port.close()

    def _stage(self, facts: TopicFacts, writer: str) -> Stage:
        columns = (*_COLUMNS, "partition") if not facts.ordered else _COLUMNS
        options = WriteOptions(self.broker, self.to_topic, writer)
        return Stage(options, columns, lambda _topic: facts, words=_WORDS)

    def send(self, source: Source, between: Callable[[Sent], None] = lambda _sent: None) -> Sent:
        """Send the selected rows of a queue that were not sent yet; on a worker, or here.

        Args:
            source: The queue, from ``plan``.
            between: Called after each transaction; it may raise to end the run.

        Raises:
            UnknownTopic: The topic does not exist.
            RowError: A row cannot be a message of the topic.
            MessageTooLarge, InvalidRequest: A row exceeds a limit of messages.
            TableConflict: Another process sends the same under this name.
            TransactionConflict: The name belongs to another request.
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
                    port, facts, Transaction(writer, stop), source, batches, behind,
                    first=behind == begun,
                )  # fmt: skip
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
        *,
        first: bool,
    ) -> int:
        """Send the rows of a transaction that follows ``behind``; return their number."""
        stage = self._stage(facts, transaction.writer)
        last: list[pa.RecordBatch] = []

        def placed() -> Iterator[pa.RecordBatch]:
            for one in batches:
                last[:] = [placed_in(one, facts, source)]
                yield last[0]

        outgoing = stage.batches(placed())
        ids: list[int] = []
        try:
            with _naming(stage, source, last):
                ids += port.prepare(outgoing, transaction, "0/0", stage.options.in_flight)
            if (port.highest(transaction.writer) or 0) not in {behind, transaction.batch_id}:
                raise TableConflict(
                    f"another process sends queue {source.queue} as {self.name}, too; wait until "
                    "it has ended, then run the command again"
                )
        except CommittedError:
            # Another process committed it just now; the digest shows whether it is the same.
            ids.clear()
            for _ in outgoing:
                pass
        if first:
            self.take_name(port)
        fresh = port.commit_prepared(transaction, ids, stage.digest)
        return stage.rows if fresh else 0


@contextmanager
def _naming(stage: Stage, source: Source, last: Sequence[pa.RecordBatch]) -> Iterator[None]:
    """Add the place of the message that cannot be sent to the error: one of the newest batch.

    Raises:
        RowError, InvalidRequest, MessageTooLarge: The original error, with the place.
    """
    try:
        yield
    except (RowError, InvalidRequest) as error:
        for batch in last:
            low, high = 0, batch.num_rows
            while low < high:
                middle = (low + high) // 2
                try:
                    stage.check([batch.slice(low, middle + 1 - low)])
                except (RowError, InvalidRequest):
                    high = middle
                else:
                    low = middle + 1
            if low < batch.num_rows:
                offset = batch.column("offset")[low].as_py()
                place = f"{source.topic}/{source.queue}/{offset}"
                raise type(error)(f"message {place} of the archive: {error.args[0]}") from None
        raise


def request_of(tables: Folder, selection: Selection, to_topic: str) -> int:
    """Return a 64-bit hash of a replay into a topic; the headers that mark it are not included."""
    parts: list[object] = [
        tables.uri, to_topic, selection.topic, selection.since_us, selection.until_us,
        sorted(selection.keys), sorted(selection.ids), selection.where,
        sorted(selection.sets.items()),
    ]  # fmt: skip
    return xxh3_64_intdigest(msgspec.json.encode(parts))


def topic_facts(port: BulkPort, topic: str) -> TopicFacts:
    """Return the properties of a topic.

    Raises:
        UnknownTopic: It does not exist.
    """
    for one in port.topics([topic]):
        if one.name == topic:
            return one
    raise UnknownTopic(f"there is no topic {topic!r}, or this app has no right on it")


def rows_of(reading: Reading, source: Source, start: int) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of a queue, from an offset on, in order."""
    for path, low, high in source.files:
        if high >= start:
            place = source.topic_number, source.queue
            yield from reading.rows(path, place, max(start, low), high + 1)


def windows(
    rows: Iterable[pa.RecordBatch], source: Source, start: int
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Split rows into transactions: yield the offset after each, and its rows, to be read at once.

    The end of a transaction does not depend on where reading began: two tasks that send the same
    rows at the same time split them in the same places.

    Raises:
        OptionError: Rows are not in the order of their offsets.
    """
    for end, some in itertools.groupby(_pieces(rows, source, start), key=lambda one: one[0]):
        yield end, (piece for _, piece in some)


def _pieces(
    rows: Iterable[pa.RecordBatch], source: Source, start: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield pieces of rows, each within one transaction, with the offset after that."""
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
    """Return rows with the queue they go to; null: the key decides."""
    columns = {name: batch.column(name) for name in ("offset", *_COLUMNS)}
    columns["value"] = columns["value"].cast(pa.binary())
    if not facts.ordered:
        # Rows of the archive have no priority: on a topic with levels, they go to the lowest.
        queue = source.queue - source.queue % facts.levels
        home = pa.scalar(queue % facts.queues, pa.int32())
        if facts.queues == source.queues:
            columns["partition"] = pa.repeat(home, batch.num_rows)
        else:
            keyless = pc.equal(pc.fill_null(columns["key"].cast(pa.string()), ""), "")
            columns["partition"] = pc.if_else(keyless, home, pa.scalar(None, pa.int32()))
    return pa.RecordBatch.from_pydict(columns)
