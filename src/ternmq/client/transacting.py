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

from ternmq.client.content.validation import check_topic, text, unsigned
from ternmq.client.declaration.topic import Topic
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.producer.lanes import TopicLanes
from ternmq.client.producer.load import Lane
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.sending import Sending
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


@looked_after("client")
class Transacting(Sending):
    """Prepares messages, commits them, rolls them back."""

    async def prepare(
        self,
        topic: str | Topic,
        messages: Iterable[object] | bytes,
        *,
        writer: str,
        batch_id: int,
        part: str = "",
        queue: int | None = None,
        timeout: float | timedelta | None = None,
    ) -> list[Prepared]:
        """Store messages for a transaction, invisible to consumers; returns when all are durable.

        Args:
            topic: The topic.
            messages: As for ``send_many`` (without ids of the application's own); or the bytes of
                one encoded batch, which may be prepared again as they are.
            writer: Name of the writer, 1 to 128 bytes; it belongs to the app that used it first.
            batch_id: Number of the writer's transaction.
            part: The writer's name for the source of the messages, such as ``"3/0"``.
            queue: Queue of messages that do not name one; None: as for ``send``.
            timeout: Seconds in all for each batch; by default the client's ``timeout``.

        Raises:
            TransactionDecided: It is committed: the only thing left is to repeat the commit.
            TransactionTooOld: It may have been committed.
            TransactionTooLarge, WriterTaken, TernMQError: The broker refused it.
            CannotConnect: There was no connection in time.
            ConnectionLost: No answer came in time. What was stored is dropped by the commit.
        """
        topic = check_topic(self._declarations.name_of(topic))
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
        encoded, failures = self._encoded(topic_name, items, queue)
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
        ids = self._prepared_ids
        return encode(
            cast("Sequence[Row]", messages),
            topic_seed=topic.seed,
            producer_id=ids.producer,
            first_sequence=ids.take(len(messages)),
            born_us=time.time_ns() // 1000,
            keyed=lane.keyed,
        )

    async def commit_prepared(
        self,
        writer: str,
        batch_id: int,
        prepared: Iterable[Prepared | int],
        *,
        digest: int,
        timeout: float | timedelta | None = None,
    ) -> Committed:
        """Turn prepared batches into messages, all at one moment; returns when that is durable.

        Repeating a commit does nothing and returns ``repeated``.

        Args:
            writer: As prepared.
            batch_id: As prepared.
            prepared: What ``prepare`` returned, or the ids, in the order in which the messages get
                their offsets. Prepared batches that are not listed are dropped.
            digest: 64 bits that identify this content, such as a hash of counts and checksums;
                repeating the commit requires the same digest.
            timeout: Seconds in all; by default the client's ``timeout``.

        Raises:
            TransactionConflict: It was committed with another digest.
            TransactionDecided: It was rolled back.
            TransactionTooOld: It may have been committed.
            UnknownTransaction: A listed batch is not part of it.
            ConnectionLost: No answer came in time: try again.
        """
        if not isinstance(prepared, Iterable):
            raise InvalidRequest(
                f"prepared is what prepare returned, not {type(prepared).__name__}"
            )
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

    async def abort_prepared(
        self, writer: str, batch_id: int, *, timeout: float | timedelta | None = None
    ) -> None:
        """Drop what was prepared; the batch id may be used again. Repeating it is allowed.

        With the right to manage everything, it also works on writers of other apps.

        Raises:
            TransactionDecided: It is committed, which is final.
            TransactionTooOld: It may have been committed.
            ConnectionLost: No answer came in time: try again.
        """
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
