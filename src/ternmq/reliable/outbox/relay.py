"""Passes over the table: rows are read, sent, and deleted once they are stored at the broker.

The rows in hand are answered and deleted before others are read. No transaction is open while the
network is used.
"""

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
from ternmq.reliable.database.port import Database
from ternmq.reliable.database.prepare import verify
from ternmq.reliable.outbox.backlog import Backlog, Change, Fate, is_of_the_broker
from ternmq.reliable.outbox.rows import Ref, Row, wall_ms
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Step, Steps
from ternmq.reliable.outbox.table import PAGE_ROWS, Table
from ternmq.sync.client import Client

log: Final = logging.getLogger("ternmq.reliable")

PAGE_S: Final = 5.0
"""A page that is older is not sent any more: this process may have been frozen."""
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

    def note(self, changes: Sequence[Change], *, resent: bool) -> None:
        """Write down what became of rows; one transaction."""
        sent = [one.row.ref for one in changes if one.fate is Fate.SENT]
        other = [one for one in changes if one.fate in {Fate.REFUSED, Fate.FAILED}]
        self.stats.refused += len(other)
        if resent:
            other += self._late(changes)
        if not sent and not other:
            return
        ids = [ref.id for ref in sent]
        self.steps.tell(Step.DELETE_RESENT if resent else Step.DELETE, ids)
        with self.database.writing() as work:
            if sent and self.settings.keep_sent is None:
                self.table.delete(work, sent)
            elif sent:
                self.table.keep(work, sent, resent=resent)
            noted = [
                change for change in other
                if self.table.refused(
                    work, change.row, tries=change.tries, wait_ms=round(change.wait_s * 1000),
                    error=change.error, failed=change.fate is Fate.FAILED,
                )
            ]  # fmt: skip
        self._gone(sent)
        for change in noted:
            if change.fate is Fate.FAILED:
                self.stats.failed += 1
                log.error(
                    "outbox row %d (%s to %s) has failed: %s; `ternmq outbox resend` or `discard` "
                    "decides", change.row.seq, change.row.id, change.row.topic, change.error,
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


class OwnRows:
    """Sends the rows of this process once their transactions have ended. Not thread-safe."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._backlog = Backlog(sending.settings.attempts)

    def send(self, refs: Sequence[Ref]) -> list[Ref]:
        """Send rows; return those that cannot be read yet, or were rolled back.

        What is not stored is left to the compensator. Raises ``Database.errors``.
        """
        sending = self._sending
        with sending.database.reading() as work:
            rows = sending.table.own(work, refs)
        for part in sending.parts(rows):
            self._send(part)
        if len(rows) == len(refs):
            return []
        found = {row.ref for row in rows}
        return [ref for ref in refs if ref not in found]

    def _send(self, rows: list[Row]) -> None:
        sending = self._sending
        rows = sending.whole(rows)
        if not rows:
            return
        ids = [row.id for row in rows]
        sending.steps.tell(Step.SEND, ids)
        outcomes = sending.send(rows, _nothing, 1.0)
        sending.steps.tell(Step.RESPONSE, ids)
        now = steady_s()
        changes = [
            self._backlog.answered(row, outcome, now)
            for row, outcome in zip(rows, outcomes, strict=True)
        ]
        _count(sending.stats, outcomes, resent=False)
        sending.note(changes, resent=False)


class Compensator:
    """Sends what no other process sends, and what has an order. Not thread-safe.

    Args:
        sending: Sends.
        lease: Without it, nothing is sent.
    """

    def __init__(self, sending: Sending, lease: Lease) -> None:
        self._sending = sending
        self._lease = lease
        self._backlog = Backlog(sending.settings.attempts)
        self._epoch = -1

    def lead(self) -> bool:
        """Take or renew the lease; return whether it is held. Raises ``Database.errors``."""
        sending, lease = self._sending, self._lease
        try:
            # No transaction: a process that is frozen in it would hold the row as well.
            with sending.database.reading() as work:
                held = lease.take(work)
        except sending.database.errors:
            sending.stats.leader = False
            raise
        if held and lease.epoch != self._epoch:
            self._take_over()
        sending.stats.leader, sending.stats.epoch = held, lease.epoch
        return held

    def _take_over(self) -> None:
        """Begin with what the table says: other compensators may have blocked or held rows.

        Raises:
            DatabaseNotPrepared: The tables belong to another version of TernMQ.
        """
        table = self._sending.table
        verify(self._sending.database, table.schema)
        with self._sending.database.writing() as work:
            keys = table.blocked_keys(work)
            table.release(work)
        self._backlog.take_over(keys)
        self._epoch = self._lease.epoch

    def give_back(self) -> None:
        """Let others lead at once. Raises ``Database.errors``."""
        if self._lease.held:
            with self._sending.database.writing() as work:
                self._lease.give_back(work)
        self._sending.stats.leader = False

    def scan(self) -> bool:
        """Send one page; return whether there may be more. Raises ``Database.errors``."""
        sending, backlog = self._sending, self._backlog
        sending.steps.tell(Step.SCAN)
        began = steady_s()
        for topic in backlog.to_release(began):
            with sending.database.writing() as work:
                sending.table.release(work, topic)
        with sending.database.reading() as work:
            rows = sending.table.page(
                work, resend_after_ms=round(sending.settings.resend_after * 1000)
            )
        sending.stats.scans += 1
        sending.stats.scan_s = steady_s() - began
        sending.stats.page_rows = len(rows)
        if not rows:
            return False
        plan = backlog.plan(rows, began)
        if plan.hold:
            with sending.database.writing() as work:
                sending.table.hold(work, plan.hold)
        if plan.doubtful:
            self._look_again(sorted(set(plan.doubtful)))
        sent = False
        for wave in plan.waves:
            for part in sending.parts(wave):
                if not self._may_send(began):
                    return False
                sent = self._send(part) or sent
        return (sent or bool(plan.hold)) and len(rows) == PAGE_ROWS

    def _look_again(self, doubtful: list[int]) -> None:
        """Release the rows of keys whose blocking row an operator discarded, or has sent again."""
        sending = self._sending
        with sending.database.writing() as work:
            for begin in range(0, len(doubtful), PAGE_ROWS):
                some = doubtful[begin : begin + PAGE_ROWS]
                found = sending.table.blocking(work, some)
                for topic, key in self._backlog.still_blocking(some, found):
                    sending.table.release(work, topic, key)

    def _may_send(self, began: float) -> bool:
        return (
            self._lease.held and steady_s() - began < PAGE_S and not self._sending.ending.is_set()
        )

    def _send(self, rows: list[Row]) -> bool:
        """Send rows of a wave; return whether any is stored."""
        sending, backlog = self._sending, self._backlog
        now = steady_s()
        rows = sending.whole([row for row in rows if not backlog.is_waiting(row, now)])
        if not rows:
            return False
        ids = [row.id for row in rows]
        sending.steps.tell(Step.RESEND, ids)
        outcomes = sending.send(rows, self._renew, self._lease.seconds * 0.3)
        sending.steps.tell(Step.RESPONSE, ids)
        now = steady_s()
        changes = [
            backlog.answered(row, outcome, now) for row, outcome in zip(rows, outcomes, strict=True)
        ]
        stored = _count(sending.stats, outcomes, resent=True)
        sending.note(changes, resent=True)
        for row, change in zip(rows, changes, strict=True):
            if change.fate is Fate.SENT and row.ordering_key and row.tries:
                with sending.database.writing() as work:
                    sending.table.release(work, row.topic, row.ordering_key)
        return stored > 0

    def _renew(self) -> None:
        try:
            self.lead()
        except self._sending.database.errors as error:
            log.warning("the lease of the compensator was not renewed: %s", error)


def _count(stats: OutboxStats, outcomes: Sequence[Receipt | Exception], *, resent: bool) -> int:
    """Count outcomes; return how many messages are stored."""
    receipts = [one for one in outcomes if isinstance(one, Receipt)]
    stats.duplicates += sum([one.duplicate for one in receipts])
    if resent:
        stats.resent += len(receipts)
    else:
        stats.sent += len(receipts)
    errors = [one for one in outcomes if not isinstance(one, Receipt)]
    if errors:
        left = counted(len(errors), "message")
        away = is_of_the_broker(errors[0])
        log.warning(
            "%s not sent from the outbox, will be tried again: %s%s", left,
            "" if away else f"{type(errors[0]).__name__}: ", errors[0],
        )  # fmt: skip
    return len(receipts)


def _nothing() -> None:
    """Do nothing while answers are awaited."""
