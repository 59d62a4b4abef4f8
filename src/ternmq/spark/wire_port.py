"""A port to a broker, by the commands that every client has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from ternmq.model.errors import UnknownCommand
from ternmq.spark.connecting import Broker
from ternmq.spark.offsets import Place
from ternmq.spark.port import Budget, Fetched, Outgoing, QueueState, TopicFacts, Transaction
from ternmq.spark.wire_connection import WireConnection
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

T = TypeVar("T", bound=msgspec.Struct)

_PAGE: Final = 1000
_ROWS: Final = 1_000_000


class WirePort:
    """See ``Port``."""

    def __init__(self, broker: Broker) -> None:
        self._connection = WireConnection(broker)

    def _control(self, command: Command, asked: msgspec.Struct, answer: type[T]) -> T:
        body = self._connection.ask(command, control.encode(asked))
        return control.decode_answer(body, answer)

    def _topics(self, names: Sequence[str] | None) -> Iterator[control.TopicInfo]:
        listed = None if names is None else list(names)
        after = ""
        while listed is None or listed:
            asked = control.TopicList(names=listed, after=after, limit=_PAGE)
            found = self._control(Command.TOPIC_LIST, asked, control.Topics)
            yield from found.topics
            if not found.more or not found.topics:
                return
            after = found.topics[-1].spec.name

    def topics(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """See ``Port``."""
        return [
            TopicFacts(info.spec.name, len(info.queues), info.spec.ordered)
            for info in self._topics(names)
        ]

    def ranges(
        self,
        topics: Sequence[str],
        *,
        times_us: Mapping[Place, int] | None = None,
        budgets: Mapping[Place, Budget] | None = None,
    ) -> list[QueueState]:
        """See ``Port``."""
        found: list[QueueState] = []
        for info in self._topics(topics):
            name = info.spec.name
            for number, queue in enumerate(info.queues):
                place = Place(name, number)
                at = None
                if times_us is not None and place in times_us:
                    asked = control.OffsetAt(topic=name, queue=number, time_us=times_us[place])
                    at = self._control(Command.OFFSET_AT, asked, control.OffsetFound).offset
                found.append(QueueState(place, queue.first, queue.next, at))
        return found

    def fetch(
        self, topic: str, queue: int, start: int, stop: int, wait_ms: int
    ) -> Iterator[Fetched]:
        """See ``Port``."""
        while start < stop:
            asked = bodies.Read(topic, queue, start, min(stop - start, _ROWS), 0, wait_ms)
            answer = self._connection.ask(Command.READ, bodies.pack_read(asked), wait_ms)
            rows = bodies.unpack_rows(answer)
            yield Fetched(rows.records, rows.start, rows.stop, rows.first, rows.next)
            start = max(start, rows.stop)

    def group_offsets(self, group: str, topics: Sequence[str]) -> dict[Place, int]:
        """See ``Port``."""
        found: dict[Place, int] = {}
        for topic in topics:
            asked = control.GroupList(topic=topic, group=group)
            for info in self._control(Command.GROUP_LIST, asked, control.Groups).groups:
                for number, queue in enumerate(info.queues):
                    found[Place(topic, number)] = queue.floor
        return found

    def commit_group(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """See ``Port``."""
        joining = control.GroupJoin(topic=topic, group=group)
        self._control(Command.GROUP_JOIN, joining, control.GroupJoined)
        for queue, offset in offsets.items():
            skip = control.GroupSkip(topic=topic, group=group, queue=queue, offset=offset)
            self._control(Command.GROUP_SKIP, skip, control.Nothing)

    def send(self, batches: Iterable[Outgoing], in_flight: int) -> Iterator[int]:
        """See ``Port``."""
        packed = (bodies.pack_send(one.topic, one.queue, one.batch) for one in batches)
        for answer in self._connection.ask_many(Command.SEND, packed, in_flight):
            receipt = bodies.unpack_receipt(answer)
            yield receipt.stored + len(receipt.others)

    def prepare(
        self, batches: Iterable[Outgoing], transaction: Transaction, part: str, in_flight: int
    ) -> Iterator[int]:
        """See ``Port``."""
        raise _no_transactions(transaction)

    def commit_prepared(self, transaction: Transaction, ids: Sequence[int], digest: int) -> bool:
        """See ``Port``."""
        raise _no_transactions(transaction)

    def abort_prepared(self, transaction: Transaction, ids: Sequence[int]) -> None:
        """See ``Port``."""
        raise _no_transactions(transaction)

    def close(self) -> None:
        """See ``Port``."""
        self._connection.close()


def _no_transactions(transaction: Transaction) -> UnknownCommand:
    return UnknownCommand(
        f"transaction {transaction.writer}/{transaction.batch_id}: this broker knows no "
        f"transactions that a writer names; option delivery=at_least_once does without"
    )


def connect(broker: Broker) -> WirePort:
    """Return a port; the connection is made when something is asked."""
    return WirePort(broker)
