"""Transactions that their writer names: prepare, commit, roll back.

For writers that can repeat their work: a job that wrote half of its rows and died starts over under
the same writer and batch id, and what it commits is stored once. Prepared messages are visible to
no consumer before the commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, cast

import msgspec

from ternmq.client.connection.session import Session
from ternmq.client.content.validation import check_topic, text, unsigned
from ternmq.client.prepared_ids import PreparedIds
from ternmq.client.producer.lanes import TopicLanes
from ternmq.client.producer.load import Lane
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.producer.producer import Producer
from ternmq.client.sending import Sender
from ternmq.model.errors import InvalidRequest
from ternmq.model.words import article
from ternmq.record.batch.batch import Row, encode
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

_AT_ONCE: Final = 4
"""Prepared batches under way at one time."""


class Prepared(msgspec.Struct, frozen=True):
    """A batch that is prepared.

    Attributes:
        id: Its id, for ``commit_prepared``.
        topic: Its topic.
        queue: Number of its queue.
        rows: Number of its messages.
        duplicate: Whether it had been prepared before.
    """

    id: int
    topic: str
    queue: int
    rows: int
    duplicate: bool


class Committed(msgspec.Struct, frozen=True):
    """A transaction is committed.

    Attributes:
        rows: Number of messages it stored.
        repeated: Whether it had been committed before, and nothing was done now.
    """

    rows: int
    repeated: bool


class Transactions:
    """Prepares messages, commits them, rolls them back.

    Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        producer: Knows the queues of topics.
        sender: Encodes messages.
    """

    def __init__(self, session: Session, producer: Producer, sender: Sender) -> None:
        self.ids = PreparedIds()
        self._session = session
        self._producer = producer
        self._sender = sender

    async def prepare(
        self,
        topic: str,
        messages: Iterable[object] | bytes,
        *,
        writer: str,
        batch_id: int,
        part: str = "",
        queue: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> list[Prepared]:
        """Store messages for a transaction; see ``Client.prepare``."""
        check_topic(topic)
        text("writer", writer)
        unsigned("batch_id", batch_id)
        text("part", part)
        self._session.bind()
        batches: list[tuple[int | None, bytes]]
        if isinstance(messages, bytes):
            batches = [(queue, messages)]
        else:
            if isinstance(messages, str | bytearray | Mapping) or not isinstance(
                messages, Iterable
            ):
                raise InvalidRequest(
                    "prepare takes a list of messages, or a batch, not "
                    f"{article(type(messages).__name__)}"
                )
            batches = await self._prepare_batches(topic, [*messages], queue)
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(number: int | None, batch: bytes) -> Prepared:
            asked = bodies.Prepare(topic, number, writer, batch_id, part, batch)
            async with slots:
                answer = await self._session.ask(
                    Command.PREPARE, bodies.pack_prepare(asked), timeout
                )
            told = bodies.unpack_prepared(answer)
            return Prepared(told.prepared, topic, told.queue, told.rows, told.duplicate)

        tasks = [self._session.loop.create_task(ask(*one)) for one in batches]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # no effect on those that are done

    async def _prepare_batches(
        self, topic_name: str, items: Sequence[object], queue: int | None
    ) -> list[tuple[int | None, bytes]]:
        encoded, failures = self._sender.encoded(topic_name, items, queue)
        if failures:
            raise failures[0].error
        topic = await self._producer.known_topic(topic_name)
        by_lane: dict[Lane, list[Outgoing]] = {}
        for message in encoded:
            by_lane.setdefault(topic.lane_of(message), []).append(message)
        return [
            (lane.queue, self._encode(topic, lane, some))
            for lane, messages in by_lane.items()
            for some in _cut(lane, messages)
        ]

    def _encode(self, topic: TopicLanes, lane: Lane, messages: Sequence[Outgoing]) -> bytes:
        ids = self.ids
        return encode(
            cast("Sequence[Row]", messages),
            topic_seed=topic.seed,
            producer_id=ids.producer,
            first_sequence=ids.take(len(messages)),
            born_us=time.time_ns() // 1000,
            keyed=lane.keyed,
        )

    async def commit(
        self,
        writer: str,
        batch_id: int,
        prepared: Iterable[Prepared | int],
        *,
        digest: int,
        timeout: float | timedelta | None = None,
    ) -> Committed:
        """Turn prepared batches into messages; see ``Client.commit_prepared``."""
        if not isinstance(prepared, Iterable):
            raise InvalidRequest(
                f"prepared is what prepare returned, not {type(prepared).__name__}"
            )
        text("writer", writer)
        unsigned("batch_id", batch_id)
        unsigned("digest", digest)
        ids = [one.id if isinstance(one, Prepared) else one for one in prepared]
        done = await self._session.control(
            Command.TRANSACTION_COMMIT,
            control.TransactionCommit(writer=writer, batch_id=batch_id, ids=ids, digest=digest),
            control.TransactionDone,
            timeout,
        )
        return Committed(done.rows, done.repeated)

    async def abort(
        self, writer: str, batch_id: int, *, timeout: float | timedelta | None = None
    ) -> None:
        """Drop what was prepared; see ``Client.abort_prepared``."""
        text("writer", writer)
        unsigned("batch_id", batch_id)
        await self._session.control(
            Command.TRANSACTION_ABORT,
            control.TransactionAbort(writer=writer, batch_id=batch_id),
            control.TransactionDone,
            timeout,
        )


def _cut(lane: Lane, messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    """Yield messages in batches of at most ``batch_bytes`` and ``batch_rows``, one at least.

    While the queues of the keys are unknown, each batch has messages of one key only.
    """
    by_key: dict[str, list[Outgoing]] = {}
    for message in messages:
        by_key.setdefault(message.ordering_key if lane.alone else "", []).append(message)
    limits = lane.limits
    for same in by_key.values():
        some: list[Outgoing] = []
        size = 0
        for message in same:
            more = message.size_bytes + MESSAGE_BYTES
            if some and (size + more > limits.batch_bytes or len(some) >= limits.batch_rows):
                yield some
                some, size = [], 0
            some.append(message)
            size += more
        yield some
