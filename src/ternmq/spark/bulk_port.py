"""A port to a broker, by the client for bulk work."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

import msgspec

from ternmq.client.address import Address
from ternmq.client.bulk import Bulk, BulkOptions, RangesAsk, RangeStart
from ternmq.client.bulk_line import PAGE_BYTES, BulkLine
from ternmq.client.reports import Counts
from ternmq.model.errors import CannotConnect, InvalidRequest, TernMQError, TransactionDecided
from ternmq.record.batch_layout import HEADER as BATCH
from ternmq.spark.connecting import Broker
from ternmq.spark.offsets import Place
from ternmq.spark.port import (
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
"""Topics of one question: an answer tells of ten thousand queues at most."""


def bulk_options(broker: Broker, address: Address, read_bytes: int = PAGE_BYTES) -> BulkOptions:
    """Return the options of a client for bulk work at one of a broker's addresses."""
    return BulkOptions(
        url=f"{address}?ca={address.ca}" if address.ca else str(address),
        app=broker.app,
        token=broker.secret(),
        timeout=broker.timeout_ms / 1000,
        read_bytes=read_bytes,
    )


def reach(broker: Broker, read_bytes: int = PAGE_BYTES) -> Bulk:
    """Return a client that is connected to the first broker that answers.

    Args:
        broker: Where, and who asks.
        read_bytes: As in ``BulkOptions``.

    Raises:
        CannotConnect: None does.
        TernMQError: It does not want this client.
    """
    failure: CannotConnect | None = None
    for address in broker.addresses:
        bulk = Bulk(bulk_options(broker, address, read_bytes))
        try:
            bulk.connect()
            return bulk
        except CannotConnect as error:
            bulk.close()
            failure = error
        except BaseException:
            bulk.close()
            raise
    assert failure is not None
    raise failure


class BulkPort:
    """See ``Port``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._made: Bulk | None = None
        self._line: BulkLine | None = None

    def _bulk(self) -> Bulk:
        if self._made is None:
            self._made = reach(self._broker)
        return self._made

    def _sender(self) -> BulkLine:
        """Return a connection for what the client for bulk work does not ask itself."""
        if self._line is None:
            self._line = BulkLine(self._bulk().options)
        return self._line

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """See ``Port``."""
        bulk = self._bulk()
        return [
            TopicFacts(
                info.spec.name,
                len(info.queues),
                info.spec.ordered,
                info.spec.ignore_ordering_keys,
                bulk.body_bytes,
            )
            for info in bulk.topics(names)
        ]

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[Place, int] | None = None,
        budgets: Mapping[Place, Budget] | None = None,
    ) -> list[QueueState]:
        """See ``Port``."""
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
            # Queues of one topic may be asked about at times of their own: a question for each.
            for time_us in times or {None}:
                asks.append(RangesAsk(topic=topic, time_us=time_us, starts=starts))
        found: dict[Place, QueueState] = {}
        for first in range(0, len(asks), _TOPICS):
            piece = asks[first : first + _TOPICS]
            for ask, told in zip(piece, self._bulk().ranges(piece), strict=True):
                for number, queue in enumerate(told.queues):
                    place = Place(told.topic, number)
                    wanted = (times_us or {}).get(place)
                    if place in found and wanted != ask.time_us:
                        continue
                    found[place] = _state(place, queue, wanted is not None)
        return list(found.values())

    def fetch(
        self, topic: str, queue: int, start: int, stop: int, wait_ms: int
    ) -> Iterator[Fetched]:
        """See ``Port``."""
        while start < stop:
            asked = time.monotonic()
            try:
                for page in self._bulk().fetch(topic, queue, start, stop):
                    yield Fetched(page.records, page.start, page.stop, page.first, page.next)
                    start = page.stop
            except InvalidRequest:
                if time.monotonic() - asked < _SOON:
                    raise  # something else is wrong than that nothing came in its time
                place = Place(topic, queue)
                for state in self.ranges([topic]):
                    if state.place == place:
                        yield Fetched(b"", start, start, state.first, state.next)

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[Place, int]:
        """See ``Port``."""
        found: dict[Place, int] = {}
        for topic in topics:
            asked = control.encode(control.GroupList(topic=topic, group=group))
            answer = self._sender().ask(Command.GROUP_LIST, asked)
            for info in control.decode_answer(answer, control.Groups).groups:
                for number, queue in enumerate(info.queues):
                    found[Place(topic, number)] = queue.floor
        return found

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """See ``Port``."""
        self._bulk().commit(topic, group, offsets)

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        """See ``Port``."""
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
        """Say what was sent, for the audit; if that fails, the audit says that nobody said it."""
        try:
            for report in told.reports():
                self._sender().ask(Command.REPORT, control.encode(report))
        except TernMQError as error:
            log.warning("what was sent is not reported: %s", error)

    def _in_turn(
        self, command: Command, packed: Iterable[bytes], in_flight: int
    ) -> Iterator[bytes]:
        """Ask, some requests ahead of the answers; yield these in order."""
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
        """See ``Port``."""
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
        """See ``Port``."""
        asked = control.TransactionCommit(
            writer=transaction.writer,
            batch_id=transaction.batch_id,
            ids=list(ids),
            digest=digest,
        )
        answer = self._sender().ask(Command.TRANSACTION_COMMIT, control.encode(asked))
        return not control.decode_answer(answer, control.TransactionDone).repeated

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        """See ``Port``."""
        asked = control.TransactionAbort(writer=transaction.writer, batch_id=transaction.batch_id)
        self._sender().ask(Command.TRANSACTION_ABORT, control.encode(asked))

    def highest(self, writer: str) -> int | None:
        """Return the highest batch id that a writer has committed; None: none, or long ago."""
        known = self.committed(writer)
        return None if known is None else known.highest

    def committed(self, writer: str) -> control.WriterInfo | None:
        """Return what is remembered of a writer; None: it is new, or was idle for too long."""
        asked = control.TransactionList(writer=writer)
        answer = self._sender().ask(Command.TRANSACTION_LIST, control.encode(asked))
        for one in control.decode_answer(answer, control.Transactions).writers:
            if one.writer == writer:
                return one
        return None

    def close(self) -> None:
        """See ``Port``."""
        for one in (self._made, self._line):
            if one is not None:
                one.close()
        self._made = self._line = None


def _state(place: Place, queue: control.QueueRange, timed: bool) -> QueueState:
    return QueueState(
        place, queue.first, queue.next, queue.at if timed else None, queue.stop, queue.bytes
    )


def connect(broker: Broker) -> BulkPort:
    """Return a port; the connection is made when something is asked."""
    return BulkPort(broker)


class _Told:
    """What a task says to have sent; its producers send nothing more."""

    def __init__(self) -> None:
        self._counts: dict[int, Counts] = {}
        self._waiting: deque[tuple[str, int, int, int, int]] = deque()

    def leaving(self, one: Outgoing) -> Outgoing:
        """Count a batch."""
        *_, rows, producer, first, born_us = BATCH.unpack_from(one.batch)
        counts = self._counts.setdefault(producer, Counts())
        counts.sent(one.topic, born_us, first, rows)
        self._waiting.append((one.topic, producer, born_us, first, rows))
        return one

    def answered(self, receipt: bodies.Receipt) -> None:
        """The oldest batch was answered."""
        topic, producer, born_us, first, _ = self._waiting.popleft()
        self._counts[producer].left_out(topic, born_us, (first + one.row for one in receipt.others))

    def reports(self) -> Iterator[control.Report]:
        """Yield what is to be said; what was not answered is given up."""
        while self._waiting:
            topic, producer, born_us, first, rows = self._waiting.popleft()
            self._counts[producer].given_up(topic, born_us, first, rows)
        for producer, counts in self._counts.items():
            yield from counts.reports(producer, 0, ends=True)
