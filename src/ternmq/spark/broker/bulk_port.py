"""A port to a broker that uses the client for bulk work."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from ternmq.client.bulk import Bulk, BulkOptions, RangesAsk, RangeStart
from ternmq.client.connection.address import url_of
from ternmq.client.connection.line import PAGE_BYTES, BulkLine
from ternmq.client.producer.reports import Counts
from ternmq.model.errors import InvalidRequest, TernMQError, TransactionDecided
from ternmq.record.batch.layout import HEADER as BATCH
from ternmq.spark.broker.connecting import Broker
from ternmq.spark.broker.offsets import OffsetRange, TopicQueue
from ternmq.spark.broker.port import (
    Budget,
    CommittedError,
    Fetched,
    Outgoing,
    QueueState,
    TopicFacts,
    Transaction,
)
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

log: Final = logging.getLogger("ternmq.spark")

T = TypeVar("T", bound=msgspec.Struct)

_SOON: Final = 0.5
_TOPICS: Final = 100
"""Topics of one request: an answer can list ten thousand queues at most."""


def bulk_options(broker: Broker, read_bytes: int = PAGE_BYTES) -> BulkOptions:
    """Return the options of a client for bulk work at the broker that serves."""
    return BulkOptions(
        url=url_of(broker.addresses, ca=True),
        app=broker.app,
        token=broker.secret(),
        timeout=broker.timeout_ms / 1000,
        read_bytes=read_bytes,
    )


def reach(broker: Broker, read_bytes: int = PAGE_BYTES) -> Bulk:
    """Connect to the broker that serves.

    Args:
        broker: The broker's addresses and the app.
        read_bytes: As in ``BulkOptions``.

    Raises:
        CannotConnect: No address answers.
        TernMQError: The broker refuses this client.
    """
    bulk = Bulk(bulk_options(broker, read_bytes))
    try:
        bulk.connect()
    except BaseException:
        bulk.close()
        raise
    return bulk


class BulkPort:
    """Implements ``Port``. Not thread-safe."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: Bulk | None = None
        self._line: BulkLine | None = None

    def _bulk(self) -> Bulk:
        if self._made is None:
            self._made = reach(self._broker)
        return self._made

    def _sender(self) -> BulkLine:
        """Return the connection for requests that the client for bulk work does not offer."""
        if self._line is None:
            self._line = BulkLine(self._bulk().options)
        return self._line

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """Return the facts of topics."""
        bulk = self._bulk()
        return [
            TopicFacts(
                info.spec.name,
                len(info.queues),
                info.spec.ordered,
                info.spec.ignore_ordering_keys,
                bulk.body_bytes,
                info.spec.levels,
            )
            for info in bulk.topics(names)
        ]

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[TopicQueue, int] | None = None,
        budgets: Mapping[TopicQueue, Budget] | None = None,
    ) -> list[QueueState]:
        """Return the state of the topics' queues."""
        asks: list[RangesAsk] = []
        for topic in topics:
            starts = [
                RangeStart(queue=place.queue, offset=start, max_bytes=most)
                for place, (start, most) in sorted((budgets or {}).items())
                if place.topic == topic
            ]
            times: set[int | None] = {
                us for place, us in (times_us or {}).items() if place.topic == topic
            }
            # Queues of a topic may have different times: one request for each time.
            for time_us in times or {None}:
                asks.append(RangesAsk(topic=topic, time_us=time_us, starts=starts))
        found: dict[TopicQueue, QueueState] = {}
        for first in range(0, len(asks), _TOPICS):
            piece = asks[first : first + _TOPICS]
            for ask, told in zip(piece, self._bulk().ranges(piece), strict=True):
                for number, queue in enumerate(told.queues):
                    place = TopicQueue(told.topic, number)
                    wanted = (times_us or {}).get(place)
                    if place in found and wanted != ask.time_us:
                        continue
                    found[place] = _state(place, told.number, queue, wanted is not None)
        return list(found.values())

    def fetch(self, span: OffsetRange, start: int, wait_ms: int) -> Iterator[Fetched]:
        """Yield pieces of rows."""
        topic, queue, stop = span.topic, span.queue, span.stop
        while start < stop:
            asked = time.monotonic()
            try:
                pages = self._bulk().fetch(topic, queue, start, stop, topic_number=span.number)
                for page in pages:
                    yield Fetched(page.records, page.start, page.stop, page.first, page.next)
                    start = page.stop
            except InvalidRequest:
                if time.monotonic() - asked < _SOON:
                    raise  # not the error for "no rows arrived in time", which comes later
                for state in self.ranges([topic]):
                    if state.place == span.place:
                        yield Fetched(b"", start, start, state.first, state.next)

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[TopicQueue, int]:
        """Return the floor of a group on each queue."""
        found: dict[TopicQueue, int] = {}
        for topic in topics:
            asked = control.encode(control.GroupList(topic=topic, group=group))
            answer = self._sender().ask(Command.GROUP_LIST, asked)
            for info in control.decode_answer(answer, control.Groups).groups:
                for number, queue in enumerate(info.queues):
                    found[TopicQueue(topic, number)] = queue.floor
        return found

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit a group's offsets."""
        self._bulk().commit(topic, group, offsets)

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        """Send batches; yield the number of rows stored for each."""
        told = _Told()
        packed = (
            bodies.pack_send(one.topic, one.queue, told.leaving(one).batch) for one in batches
        )
        try:
            with closing(self._in_turn(Command.SEND, packed, in_flight)) as answers:  # type: ignore[type-var]
                for answer in answers:
                    receipt = bodies.unpack_receipt(answer)
                    told.answered(receipt)
                    yield receipt.stored + len(receipt.others)
        finally:
            self._report(told)

    def _report(self, told: _Told) -> None:
        """Report the messages sent, for the audit; without a report it marks them unverified."""
        try:
            for report in told.reports():
                self._sender().ask(Command.REPORT, control.encode(report))
        except TernMQError as error:
            log.warning("the counts of sent messages are not reported: %s", error)

    def _in_turn(
        self, command: Command, packed: Iterable[bytes], in_flight: int
    ) -> Iterator[bytes]:
        """Send requests ahead of their answers, at most ``in_flight``; yield answers in order."""
        line = self._sender()
        waiting = 0
        try:
            for body in packed:
                line.send(command, body)
                waiting += 1
                if waiting >= in_flight:
                    waiting -= 1
                    yield line.take()
            while waiting:
                waiting -= 1
                yield line.take()
        finally:
            line.drop()

    def prepare(
        self, batches: Iterable[Outgoing], transaction: Transaction, part: str, in_flight: int
    ) -> Iterator[int]:
        """Prepare batches; yield their ids."""
        packed = (
            bodies.pack_prepare(bodies.Prepare(one.topic, one.queue, *transaction, part, one.batch))
            for one in batches
        )
        try:
            for answer in self._in_turn(Command.PREPARE, packed, in_flight):
                yield bodies.unpack_prepared(answer).prepared
        except TransactionDecided:
            raise CommittedError from None

    def commit_prepared(self, transaction: Transaction, ids: Sequence[int], digest: int) -> bool:
        """Commit prepared batches; return whether it was new."""
        asked = control.TransactionCommit(
            writer=transaction.writer,
            batch_id=transaction.batch_id,
            ids=list(ids),
            digest=digest,
        )
        answer = self._sender().ask(Command.TRANSACTION_COMMIT, control.encode(asked))
        return not control.decode_answer(answer, control.TransactionDone).repeated

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        """Drop prepared batches."""
        asked = control.TransactionAbort(writer=transaction.writer, batch_id=transaction.batch_id)
        self._sender().ask(Command.TRANSACTION_ABORT, control.encode(asked))

    def highest(self, writer: str) -> int | None:
        """Return the highest batch id that a writer has committed; None: none, or forgotten."""
        known = self.committed(writer)
        return None if known is None else known.highest

    def committed(self, writer: str) -> control.WriterInfo | None:
        """Return the broker's entry of a writer; None: it is new, or was idle for too long."""
        asked = control.TransactionList(writer=writer)
        answer = self._sender().ask(Command.TRANSACTION_LIST, control.encode(asked))
        for one in control.decode_answer(answer, control.Transactions).writers:
            if one.writer == writer:
                return one
        return None

    def close(self) -> None:
        """Close the connections."""
        for one in (self._made, self._line):
            if one is not None:
                one.close()
        self._made = self._line = None


def _state(place: TopicQueue, number: int, queue: control.QueueRange, timed: bool) -> QueueState:
    at = queue.at if timed else None
    return QueueState(place, number, queue.first, queue.next, at, queue.stop, queue.bytes)


def connect(broker: Broker) -> BulkPort:
    """Return a port; it connects at the first request."""
    return BulkPort(broker)


class _Told:
    """Counts the messages that a task sends, for its reports; its producers send nothing later."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}
        self._waiting: deque[tuple[str, int, int, int, int]] = deque()

    def leaving(self, one: Outgoing) -> Outgoing:
        """Count a batch; return it."""
        *_, rows, producer, first, born_us = BATCH.unpack_from(one.batch)
        counts = self._counts.setdefault(producer, Counts())
        counts.sent(one.topic, born_us, first, rows)
        self._waiting.append((one.topic, producer, born_us, first, rows))
        return one

    def answered(self, receipt: bodies.Receipt) -> None:
        """Process the answer to the oldest batch."""
        topic, producer, born_us, first, rows = self._waiting.popleft()
        counts = self._counts[producer]
        counts.answered(topic, receipt.topic, born_us, first, rows)
        others = (first + one.row for one in receipt.others)
        counts.left_out(topic, receipt.topic, born_us, others)

    def reports(self) -> Iterator[control.Report]:
        """Yield the reports; batches without an answer are reported as given up."""
        while self._waiting:
            topic, producer, born_us, first, rows = self._waiting.popleft()
            self._counts[producer].given_up(topic, born_us, first, rows)
        for producer, counts in self._counts.items():
            yield from counts.reports(producer, 0, ends=True)
