"""Transactions that their writer names: prepare, commit, roll back.

For writers that can repeat their work: a job that wrote half of its rows and died starts over under
the same writer and batch id, and what it commits is stored once. Prepared messages are visible to
no consumer before the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from ternmq.client.connection.session import Session
from ternmq.client.content.validation import check_topic, text, timeout_of, unsigned
from ternmq.client.sending import Sender
from ternmq.client.transaction.batches import Batches
from ternmq.model.errors import InvalidRequest
from ternmq.model.words import article
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

_AT_ONCE: Final = 4
"""Prepared batches under way at one time."""


class Prepared(msgspec.Struct, frozen=True):
    """A batch that is prepared.

    Attributes:
        id: Its id, for ``commit_prepared``.
        topic: Its topic.
        queue: Number of its queue; 0 if the broker chooses it when the messages come due.
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
        batches: Makes batches of messages.
        sender: Encodes messages.
    """

    def __init__(self, session: Session, batches: Batches, sender: Sender) -> None:
        self._session = session
        self._batches = batches
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
            seconds = None if timeout is None else timeout_of("timeout", timeout)
            batches = await self._prepare_batches(topic, [*messages], queue, seconds)
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
        self, topic_name: str, items: Sequence[object], queue: int | None, seconds: float | None
    ) -> list[tuple[int | None, bytes]]:
        encoded = self._sender.all_encoded(topic_name, items, queue)
        made = await self._batches.made_of(topic_name, encoded, seconds)
        return [(one.queue, one.data) for one in made]

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
