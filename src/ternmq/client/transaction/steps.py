"""The requests of a transaction: prepares, settles, moves, decisions. No state but what they need.

A request is repeated by the session over the next connection if the answer was lost, with the same
bytes: the broker finds the transaction by its name, and a batch by its sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq.client.connection.session import Session
from ternmq.client.consumer.lease import Lease, Span
from ternmq.client.content.delays import at
from ternmq.client.content.message import Receipt
from ternmq.client.transaction.batches import Batch
from ternmq.client.transaction.decision import Decision
from ternmq.client.transaction.start import PendingStart
from ternmq.model.transaction_ids import transaction_number
from ternmq.record.fact.facts import Outcome
from ternmq.wire import bodies, control
from ternmq.wire.commands import Command

_OUTCOMES: Final = {"committed": Decision.COMMIT, "rolled-back": Decision.ROLLBACK}
_AT_ONCE: Final = 4
"""Batches under way at one time."""


@dataclass(slots=True, frozen=True)
class Opening:
    """What every prepare of a transaction states: its name, and how it is checked.

    Attributes:
        producer: First half of its name.
        counter: Second half of its name.
        group: Producer group.
        query_id: The application's name for what it is about.
        check_after_us: Time until the first question; 0: as the group says.
    """

    producer: int
    counter: int
    group: str
    query_id: str
    check_after_us: int


class Steps:
    """Sends the requests of transactions. Not thread-safe: call it from the client's loop.

    Args:
        session: The client's session.
        start: No transaction is opened while it is pending: its checker is not offered yet.
    """

    def __init__(self, session: Session, start: PendingStart) -> None:
        self._session = session
        self._start = start

    async def open(self, opening: Opening, timeout: float) -> int:
        """Open a transaction without messages; return its number."""
        answer = await self._prepare(opening, 0, "", None, b"", timeout)
        return answer.transaction

    async def prepare(
        self,
        opening: Opening,
        number: int,
        topic: str,
        batches: Sequence[Batch],
        timeout: float,
    ) -> list[bodies.TransactionPrepared]:
        """Prepare batches of a topic; return an answer for each.

        Args:
            opening: The transaction's name.
            number: Its number; 0: the first batch opens it, and the others wait for that.
            topic: The topic.
            batches: The batches.
            timeout: Seconds for all of them together.
        """
        until = self._session.loop.time() + timeout
        answers: list[bodies.TransactionPrepared] = []
        if not number:
            first = batches[0]
            answers.append(await self._prepare(opening, 0, topic, first.queue, first.data, timeout))
            number, batches = answers[0].transaction, batches[1:]
        if not batches:
            return answers
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(one: Batch) -> bodies.TransactionPrepared:
            async with slots:
                left = max(0.0, until - self._session.loop.time())
                return await self._prepare(opening, number, topic, one.queue, one.data, left)

        if len(batches) == 1:
            return [*answers, await ask(batches[0])]
        tasks = [self._session.loop.create_task(ask(one)) for one in batches]
        try:
            return [*answers, *await asyncio.gather(*tasks)]
        finally:
            for task in tasks:
                task.cancel()  # no effect on those that are done

    async def _prepare(
        self,
        opening: Opening,
        number: int,
        topic: str,
        queue: int | None,
        batch: bytes,
        timeout: float,
    ) -> bodies.TransactionPrepared:
        if not number and self._start.pending:
            until = self._session.loop.time() + timeout
            await self._start.wait(timeout)
            timeout = max(0.0, until - self._session.loop.time())
        asked = bodies.TransactionPrepare(
            topic,
            queue,
            opening.producer,
            opening.counter,
            opening.group,
            opening.query_id,
            number,
            opening.check_after_us,
            batch,
        )
        body = bodies.pack_transaction_prepare(asked)
        answer = await self._session.ask(Command.TRANSACTION_PREPARE, body, timeout)
        return bodies.unpack_transaction_prepared(answer)

    async def settle(
        self,
        number: int,
        lease: Lease,
        spans: Sequence[Span],
        outcome: Outcome,
        delay_us: int | None,
        reason: str,
        timeout: float,
    ) -> None:
        """Settle rows of a lease when a transaction commits: all of them, or none."""
        asked = bodies.TransactionSettle(
            number,
            lease.topic,
            lease.group,
            lease.queue,
            lease.epoch,
            lease.number,
            int(outcome),
            tuple(spans),
            delay_us,
            reason,
        )
        body = bodies.pack_transaction_settle(asked)
        await self._session.ask(Command.TRANSACTION_SETTLE, body, timeout)

    async def move(
        self, number: int, topic: str, group: str, queue: int, offset: int, timeout: float
    ) -> None:
        """Move the cursor of a group when a transaction commits."""
        asked = control.TransactionMove(
            transaction=number, topic=topic, group=group, queue=queue, offset=offset
        )
        await self._session.control(Command.TRANSACTION_MOVE, asked, control.Nothing, timeout)

    async def decide(
        self, opening: Opening | None, number: int, timeout: float, *, commit: bool
    ) -> control.TransactionDone:
        """Commit a transaction or roll it back; ``number`` 0: it is found by its name."""
        if number or opening is None:
            asked = control.TransactionDecide(transaction=number, commit=commit)
        else:
            asked = control.TransactionDecide(
                producer=opening.producer, counter=opening.counter, commit=commit
            )
        return await self._session.control(
            Command.TRANSACTION_DECIDE, asked, control.TransactionDone, timeout, definite=True
        )


def receipts_of(
    topic: str, producer: int, batch: Batch, answer: bodies.TransactionPrepared
) -> list[Receipt]:
    """Return the receipts of the messages of a prepared batch; they have no offsets yet."""
    return [
        Receipt(
            topic,
            answer.queue,
            None,
            durable=True,
            duplicate=answer.duplicate,
            producer=producer,
            sequence=batch.first_sequence + row,
            due_at=at(message.due_us) if message.due is not None else None,
        )
        for row, message in enumerate(batch.messages)
    ]


async def outcome_of(session: Session, id_: str) -> Decision:
    """Return what became of a transaction; see ``Client.transaction_outcome``."""
    asked = control.TransactionShow(transaction=transaction_number(id_))
    found = await session.control(Command.TRANSACTION_SHOW, asked, control.CheckedTransaction)
    return _OUTCOMES.get(found.state, Decision.UNKNOWN)
