"""Sends rows, and writes down what became of them. No transaction waits for the broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq.client.client import Client as Engine
from ternmq.client.content.message import Message, Receipt
from ternmq.model.errors import TernMQError, TopicNotDurable
from ternmq.model.specs import Durability
from ternmq.model.words import counted
from ternmq.reliable.database.lease import Lease, steady_s
from ternmq.reliable.database.port import Database, Work
from ternmq.reliable.outbox.backlog import Change, Fate, is_of_the_broker
from ternmq.reliable.outbox.rows import Ref, Row, wall_ms
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step, Steps
from ternmq.reliable.outbox.table import Table
from ternmq.sync.client import Client

log: Final = logging.getLogger("ternmq.reliable")

_PART_BYTES: Final = 4 * 1024 * 1024
"""Bodies that are sent together; one that is not read yet goes alone."""
_DURABLE_S: Final = 60.0
"""How long the durability of a topic is remembered."""
_NOTE_S: Final = 10.0
"""How often the error of rows that wait is written down, of each topic."""


@dataclass(slots=True, frozen=True)
class Settings:
    """Settings of an outbox, in seconds; see ``Outbox``."""

    resend_after: float
    poll: float
    attempts: int
    keep_sent: float | None
    compensate: bool


class Sending:
    """Sends rows through a client of its own, and notes what becomes of them. Not thread-safe.

    Args:
        database: Where the rows are.
        table: Their table.
        client: Sends; nobody else uses it.
        settings: Those of the outbox.
        steps: Are told.
        stats: Count.
        gone: Is called with rows that are stored at the broker.
    """

    def __init__(
        self,
        database: Database,
        table: Table,
        client: Client,
        settings: Settings,
        steps: Steps,
        stats: OutboxStats,
        gone: Callable[[Sequence[Ref]], None],
    ) -> None:
        self.database = database
        self.table = table
        self.settings = settings
        self.steps = steps
        self.stats = stats
        self.ending = threading.Event()
        """Set: a send is not waited for any more."""
        self._client = client
        self._gone = gone
        self._durable: dict[str, float] = {}
        self._noted: dict[str, float] = {}

    def send(
        self, rows: Sequence[Row], meanwhile: Callable[[], None], every_s: float
    ) -> list[Receipt | Exception]:
        """Send rows; return the outcome of each.

        Args:
            rows: Rows, with their bodies.
            meanwhile: Is called while the answers are awaited.
            every_s: How often.
        """
        now_ms = wall_ms()
        by_topic: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            by_topic.setdefault(row.topic, []).append(number)
        batches = [
            (topic, [rows[number].message(now_ms) for number in numbers])
            for topic, numbers in by_topic.items()
        ]
        try:
            answers = self._answers(batches, meanwhile, every_s)
        except TernMQError as error:  # of the client as a whole: it is closed, say
            return [error] * len(rows)
        outcomes: list[Receipt | Exception] = [TernMQError()] * len(rows)
        for numbers, told in zip(by_topic.values(), answers, strict=True):
            for number, outcome in zip(numbers, told, strict=True):
                outcomes[number] = outcome
        return outcomes

    def _answers(
        self,
        batches: Sequence[tuple[str, list[Message]]],
        meanwhile: Callable[[], None],
        every_s: float,
    ) -> list[list[Receipt | Exception]]:
        thread, engine = self._client.reach()
        asked = asyncio.run_coroutine_threadsafe(self._all(engine, batches), thread.loop)
        while True:
            try:
                return asked.result(every_s)
            except TimeoutError:
                if asked.done():
                    raise
                meanwhile()
            except concurrent.futures.CancelledError:
                raise TernMQError("the client was closed") from None
            if self.ending.is_set():
                asked.cancel()

    async def _all(
        self, engine: Engine, batches: Sequence[tuple[str, list[Message]]]
    ) -> list[list[Receipt | Exception]]:
        return await asyncio.gather(*[self._to(engine, *batch) for batch in batches])

    async def _to(
        self, engine: Engine, topic: str, messages: list[Message]
    ) -> list[Receipt | Exception]:
        try:
            await self._check_durable(engine, topic)
            return await engine.send_many(topic, messages, return_errors=True)
        except TernMQError as error:
            return [error] * len(messages)

    async def _check_durable(self, engine: Engine, topic: str) -> None:
        """Refuse a topic that may lose what it answered: the rows would be deleted.

        Raises:
            TopicNotDurable: It is of durability ``fast``.
        """
        now = steady_s()
        if self._durable.get(topic, 0.0) > now:
            return
        for info in await engine.admin.topics([topic]):
            if info.spec.durability is Durability.FAST:
                raise TopicNotDurable(f"topic {topic!r} is of durability fast")
        self._durable[topic] = now + _DURABLE_S

    def note(self, changes: Sequence[Change], lease: Lease | None = None) -> None:
        """Write down what became of rows; one transaction. Raises ``Database.errors``.

        Args:
            changes: What became of them.
            lease: Of the compensator that sent them; None: they are own rows of this process. If
                another one took it meanwhile, refusals are not written down: the other one would
                not know of rows that are left out of its pages, and would send those behind them.
        """
        resent = lease is not None
        sent = [one.row.ref for one in changes if one.fate is Fate.SENT]
        freed = {(one.row.topic, one.row.ordering_key): None for one in changes if one.frees}
        other = [one for one in changes if one.fate in {Fate.REFUSED, Fate.FAILED}]
        self.stats.refused += len(other)
        if resent:
            other += self._late(changes)
        if not sent and not other:
            return
        self.steps.tell(Step.DELETE_RESENT if resent else Step.DELETE, [ref.id for ref in sent])
        noted: list[Change] = []
        with self.database.writing() as work:
            may_note = bool(other) and (lease is None or lease.is_mine(work))
            if sent and self.settings.keep_sent is None:
                self.table.delete(work, sent)
            elif sent:
                self.table.keep(work, sent, resent=resent)
            for topic, key in freed:
                self.table.release(work, topic, key)
            if may_note:
                noted = [one for one in other if self._refused(work, one)]
        self._gone(sent)
        for change in noted:
            if change.fate is Fate.FAILED:
                self.stats.failed += 1
                log.error(
                    "outbox row %d (%s to %s) has failed: %s; `ternmq outbox resend` or `discard` "
                    "decides", change.row.seq, change.row.id, change.row.topic, change.error,
                )  # fmt: skip

    def _refused(self, work: Work, change: Change) -> bool:
        return self.table.refused(
            work, change.row, tries=change.tries, wait_ms=round(change.wait_s * 1000),
            error=change.error, failed=change.fate is Fate.FAILED,
        )  # fmt: skip

    def _late(self, changes: Sequence[Change]) -> list[Change]:
        """Return rows that wait with their topics and are written down, of each now and then."""
        now = steady_s()
        late = [one for one in changes if one.fate is Fate.LATER]
        topics = {one.row.topic for one in late if self._noted.get(one.row.topic, 0.0) <= now}
        self._noted.update(dict.fromkeys(topics, now + _NOTE_S))
        return [one for one in late if one.row.topic in topics]

    def parts(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return rows in parts whose bodies are read and sent together."""
        found: list[list[Row]] = []
        room = 0
        for row in rows:
            size = _PART_BYTES if row.body is None else len(row.body)
            if not found or size > room:
                found.append([])
                room = _PART_BYTES
            found[-1].append(row)
            room -= size
        return found

    def whole(self, rows: list[Row]) -> list[Row]:
        """Return those of some rows that are still there, with their bodies."""
        if all(row.body is not None for row in rows):
            return rows
        with self.database.reading() as work:
            return [row for row in rows if self.table.read_body(work, row)]


def count(
    stats: OutboxStats,
    outcomes: Sequence[Receipt | Exception],
    changes: Sequence[Change],
    *,
    resent: bool,
) -> int:
    """Count outcomes, and log those that are tried again; return how many messages are stored.

    Args:
        stats: Count.
        outcomes: Of the rows that were sent.
        changes: What becomes of each. Rows that have failed are logged when that is written down.
        resent: The compensator sent them.
    """
    receipts = [one for one in outcomes if isinstance(one, Receipt)]
    stats.duplicates += sum([one.duplicate for one in receipts])
    if resent:
        stats.resent += len(receipts)
    else:
        stats.sent += len(receipts)
    again = [
        outcome
        for outcome, change in zip(outcomes, changes, strict=True)
        if not isinstance(outcome, Receipt) and change.fate is not Fate.FAILED
    ]
    if again:
        away = is_of_the_broker(again[0])
        log.warning(
            "%s not sent from the outbox, will be tried again: %s%s",
            counted(len(again), "message"), "" if away else f"{type(again[0]).__name__}: ",
            again[0],
        )  # fmt: skip
    return len(receipts)
