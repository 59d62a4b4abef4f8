"""A database as the store: the id of a message is a row of the handler's own transaction.

First the row, then the effect. Of two transactions with one id, the second waits at the key until
the first has ended: after its commit the message is known, after its rollback the handler runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ternmq.model.errors import DatabaseNotPrepared
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.inbox import operating
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.inbox.operating import CLEAN_S, CLEAN_TASK
from ternmq.reliable.inbox.store import Asked, InProgress, Visit
from ternmq.reliable.inbox.table import InboxTable
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.libraries.choice import database_of, transactions_of
from ternmq.reliable.libraries.opening import Opened, Wanted
from ternmq.reliable.libraries.refusals import asks_again, waited_in_vain
from ternmq.reliable.tasks.task import Task

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


@dataclass(slots=True, frozen=True)
class _Entered:
    """What the first statements of a transaction found.

    Attributes:
        new: The message was not known.
        result: Of a known one: its result, if it is wanted and was kept.
    """

    new: bool
    result: bytes | None = None


class SqlStore:
    """Remembers messages in one database; see ``Store``.

    Args:
        database: An engine, a URL, or what ``django_database`` returns.
        wait_s: How long to wait for another handler.
        schema: Where the tables are.
        relay: An engine for connections of this package's own.
        clean: Remove rows whose time is over, in this process or another one.

    Raises:
        InvalidRequest: It is no database, or one in memory.
    """

    def __init__(
        self, database: object, *, wait_s: float, schema: str, relay: Engine | None, clean: bool
    ) -> None:
        self.own: ApplicationDatabase = database_of(database, relay)
        self.schema = schema
        self._transactions = transactions_of(database)
        self._table = InboxTable(self.own.dialect, schema)
        self._wait_s = wait_s
        self._cleaner: Task | None = None
        if clean:
            self._cleaner = Task(
                self._clean_all, database_of(database, relay), CLEAN_TASK, seconds=CLEAN_S,
                schema=schema,
            )  # fmt: skip

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a handler can work with this database; see ``Store``."""
        self._transactions.check(name, wanted, awaited=awaited)

    # -- visits -----------------------------------------------------------------------------------

    @contextmanager
    def visit(self, entry: Entry, asked: Asked) -> Iterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        enter = partial(self._enter, entry, asked)
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(
                    self._transactions.opened(asked.wanted, enter, self._wait_s)
                )
            except Exception as error:
                self._explain(error)
                raise
            visit = self._visit(opened, entry)
            yield visit

    @asynccontextmanager
    async def visit_awaited(self, entry: Entry, asked: Asked) -> AsyncIterator[Visit]:
        """Return the visit of a message; see ``Store``."""
        enter = partial(self._enter, entry, asked)
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(
                    self._transactions.opened_awaited(asked.wanted, enter, self._wait_s)
                )
            except Exception as error:
                self._explain(error)
                raise
            visit = self._visit(opened, entry)
            yield visit

    def _enter(self, entry: Entry, asked: Asked, work: Work) -> _Entered:
        if self._table.enter(work, entry, asked.keep_ms, self._wait_s):
            return _Entered(new=True)
        return _Entered(new=False, result=self._table.result(work, entry) if asked.result else None)

    def _visit(self, opened: Opened[_Entered], entry: Entry) -> Visit:
        known = not opened.entered.new
        visit = Visit(known, opened.entered.result, opened.given, opened.within, self.own)
        opened.undo = known

        def keep(work: Work) -> None:
            if visit.result is not None:
                self._table.keep(work, entry, visit.result)

        opened.before_commit = keep
        return visit

    def _explain(self, error: Exception) -> None:
        """Raise an error that says what to do, if there is something to do."""
        if waited_in_vain(error):
            raise InProgress(self.own.name) from error
        if self.own.is_unprepared(error):
            raise DatabaseNotPrepared(f"{self.own.name} lacks the table of the inbox") from error

    def asks_again(self, error: Exception) -> bool:
        """Return whether the transaction may succeed at once; see ``Store``."""
        return asks_again(error)

    # -- besides handlers -------------------------------------------------------------------------

    def forget(self, entries: Iterable[Entry]) -> int:
        """Delete the rows of messages; see ``Store``."""
        with self._writing(durable=True) as work:
            return self._table.forget(work, entries)

    @contextmanager
    def _writing(self, *, durable: bool) -> Iterator[Work]:
        """Return a transaction; in a ``TestCase`` of Django, that of the test."""
        ambient = self.own.ambient()
        if ambient is not None and ambient.work is not None:
            yield ambient.work
            return
        with self.own.writing(durable=durable) as work:
            yield work

    def begin(self) -> None:
        """Begin to clean, in this process or another one; see ``Store``."""
        if self._cleaner is not None:
            self._cleaner.start()

    def prepare(self, *, moved: bool) -> list[str]:
        """Make or upgrade the tables; see ``Inbox.prepare``."""
        del moved
        return prepare(self.own, self.schema).lines()

    def clean(self, now_ms: int | None) -> int:
        """Delete rows whose time is over, in statements of 1,000; see ``Inbox.clean``."""
        return operating.clean(self._table, self.own, now_ms)

    def _clean_all(self) -> None:
        self.clean(None)

    def close(self) -> None:
        """End the cleaning, and close the connections; see ``Store``."""
        if self._cleaner is not None:
            self._cleaner.close()
        self._transactions.close()
        self.own.close()

    async def close_awaited(self) -> None:
        """Close connections of the present loop; see ``Store``."""
        await self._transactions.close_awaited()
        await asyncio.to_thread(self.close)

    def leave(self) -> None:
        """Forget the connections in a forked child; the cleaner does so itself."""
        self._transactions.leave()
        self.own.leave()
