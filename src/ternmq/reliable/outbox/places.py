"""The transactions that take messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from ternmq.client.content.message import Receipt
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import DatabaseNotPrepared, hinted
from ternmq.reliable.database.port import AwaitedWork, Values, Work
from ternmq.reliable.libraries.attached import ApplicationDatabase, AtEnd, Attached
from ternmq.reliable.outbox.rows import Ref, receipt_of, values_of
from ternmq.reliable.outbox.steps import Step, Steps
from ternmq.reliable.outbox.table import PAGE_ROWS, Table

NewId = Callable[[], str]


class Written(Protocol):
    """Is told of rows that were inserted: the outbox."""

    def written(self, refs: Sequence[Ref], ordered: bool, at_end: AtEnd | None) -> None:
        """Note rows. ``ordered``: some have an ordering key; ``at_end``: who tells of the end."""


class _Writing:
    """Turns messages into statements, and their results into receipts."""

    def __init__(
        self,
        table: Table,
        new_id: NewId,
        steps: Steps,
        outbox: Written,
        at_end: AtEnd | None,
        *,
        digits: bool = False,
    ) -> None:
        self._table = table
        self._new_id = new_id
        self.steps = steps
        self._outbox = outbox
        self._at_end = at_end
        self._digits = digits

    def rows(self, topic: str, messages: Sequence[Outgoing]) -> list[dict[str, object]]:
        """Return the values of the rows; raises InvalidRequest."""
        seen = self._at_end is not None
        return [
            values_of(
                self._table.dialect, topic, message, message.application_id or self._new_id(),
                by_writer=seen and not message.ordering_key,
            )
            for message in messages
        ]  # fmt: skip

    def chunks(self, rows: Sequence[Values]) -> list[Sequence[Values]]:
        """Return the rows of each statement."""
        return [rows[start : start + PAGE_ROWS] for start in range(0, len(rows), PAGE_ROWS)]

    def ids(self, rows: Sequence[Values]) -> list[str]:
        """Return the ids of rows."""
        return [_id_of(row) for row in rows]

    def noted(self, rows: Sequence[Values], numbers: Sequence[int]) -> None:
        """Tell the outbox of rows that were inserted."""
        refs = [Ref(seq, _id_of(row)) for seq, row in zip(numbers, rows, strict=False)]
        ordered = any(not row["by_writer"] for row in rows)
        self._outbox.written(refs, ordered, self._at_end)

    def receipts(self, topic: str, rows: Sequence[Values]) -> list[Receipt]:
        """Return the receipts of the messages."""
        return [receipt_of(topic, _id_of(row), row["due_ms"]) for row in rows]

    def write(self, work: Work, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Insert messages."""
        rows = self.rows(topic, messages)
        for chunk in self.chunks(rows):
            self.steps.tell(Step.INSERT, self.ids(chunk))
            result = work.run(*self._table.insertion(chunk))
            self.noted(chunk, self._table.numbers(result, len(chunk)))
        return self.receipts(topic, rows)

    async def write_awaited(
        self, work: AwaitedWork, topic: str, messages: Sequence[Outgoing]
    ) -> list[Receipt]:
        """Insert messages with ``await``."""
        rows = self.rows(topic, messages)
        for chunk in self.chunks(rows):
            self.steps.tell(Step.INSERT, self.ids(chunk))
            result = await work.run(*self._table.insertion(chunk, digits=self._digits))
            self.noted(chunk, self._table.numbers(result, len(chunk)))
        return self.receipts(topic, rows)


def _id_of(row: Values) -> str:
    id_ = row["id"]
    assert isinstance(id_, bytes)
    return id_.decode()


class AttachedPlace:
    """A transaction of the application."""

    def __init__(
        self,
        attached: Attached,
        database: ApplicationDatabase,
        table: Table,
        new_id: NewId,
        steps: Steps,
        outbox: Written,
    ) -> None:
        self._attached = attached
        self._database = database
        self._writing = _Writing(
            table, new_id, steps, outbox, attached.at_end, digits=attached.digits
        )
        self.awaited = attached.work is None

    def write(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Insert messages; see ``Place``."""
        assert self._attached.work is not None
        self._tell()
        try:
            return self._writing.write(self._attached.work, topic, messages)
        except Exception as error:
            self._explain(error)
            raise

    async def write_awaited(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Insert messages; see ``Place``."""
        assert self._attached.awaited is not None
        self._tell()
        try:
            return await self._writing.write_awaited(self._attached.awaited, topic, messages)
        except Exception as error:
            self._explain(error)
            raise

    def _tell(self) -> None:
        if not self._attached.begun:
            self._writing.steps.tell(Step.BEGIN)
        self._writing.steps.tell(Step.WORK)

    def _explain(self, error: Exception) -> None:
        """Raise an error that says what to do, if the tables are missing."""
        if self._attached.is_unprepared(error):
            raise unprepared(self._database) from error


def unprepared(database: ApplicationDatabase) -> DatabaseNotPrepared:
    """Return the error for a database without the tables of this version."""
    error = DatabaseNotPrepared(
        f"{database.name} lacks the tables of the outbox, or a column of them: nothing was written"
    )
    return hinted(error, database.making or error.hint)


class OwnPlace:
    """A transaction for the messages alone, on a connection of the outbox.

    Args:
        awaited: The client runs in a loop, which must not wait for the database.
    """

    def __init__(
        self,
        database: ApplicationDatabase,
        table: Table,
        new_id: NewId,
        steps: Steps,
        outbox: Written,
        *,
        awaited: bool,
    ) -> None:
        self._database = database
        self._ended: list[Callable[[], None]] = []
        self._writing = _Writing(table, new_id, steps, outbox, self._ended.append)
        self.awaited = awaited

    def write(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Write messages and commit; see ``Place``."""
        self._writing.steps.tell(Step.BEGIN)
        try:
            with self._database.writing(durable=True) as work:
                receipts = self._writing.write(work, topic, messages)
        except Exception as error:
            if self._database.is_unprepared(error):
                raise unprepared(self._database) from error
            raise
        finally:
            for call in self._ended:
                call()
        return receipts

    async def write_awaited(self, topic: str, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Write messages and commit, in a thread; see ``Place``."""
        return await asyncio.to_thread(self.write, topic, messages)
