"""The outbox: an application changes its database and sends messages, both or neither."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from ternmq.client.client import Client as AwaitedClient
from ternmq.client.content.validation import check_positive, flag, length_of, seconds_of, text
from ternmq.client.process.forking import watch, watched
from ternmq.client.producer.within import Place, bind, bound, unbind
from ternmq.model.errors import ClientClosed, InvalidRequest, UnsentMessages, hinted
from ternmq.model.words import counted, verb
from ternmq.reliable.database import tables
from ternmq.reliable.database.lease import steady_s
from ternmq.reliable.ids.text import text_id
from ternmq.reliable.libraries import bare
from ternmq.reliable.libraries.attached import ApplicationDatabase, AtEnd, Attached
from ternmq.reliable.libraries.choice import database_of, django_database
from ternmq.reliable.outbox.backlog import ATTEMPTS
from ternmq.reliable.outbox.block import Transaction
from ternmq.reliable.outbox.places import AttachedPlace, OwnPlace
from ternmq.reliable.outbox.rows import Ref, Row
from ternmq.reliable.outbox.sending import Settings
from ternmq.reliable.outbox.stats import OutboxStats
from ternmq.reliable.outbox.steps import Observer, Step, Steps
from ternmq.reliable.outbox.table import Table
from ternmq.reliable.outbox.threads import Threads
from ternmq.sync.client import Client

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

CLOSE_S: Final = 5.0
"""How long ``close`` waits for rows of this process."""
_FLUSH_POLL_S: Final = 0.02


class Outbox:
    """Sends messages within the transactions of one database.

    A message becomes a row in the application's own transaction. After the commit, the row is read
    back and sent, by this process at once (within milliseconds), or by the *compensator*: one
    process of all that have an outbox on this database. A row goes only when its message is stored
    at the broker. So a message is sent if and only if its transaction is committed, whoever is
    killed, at least once, and with one id: the broker stores a repeat only beyond its window.

    Making it does no I/O. Two threads, with a client and connections of their own, begin at the
    first write or with ``start``; in a forked child they begin anew. Callable from any thread.

    Args:
        client: The client whose ``send`` may be given ``within=``; of either kind.
        database: An ``Engine`` or ``AsyncEngine`` of SQLAlchemy, or a URL as SQLAlchemy takes it.
        require: Topics, or patterns such as ``payments.*``, that may be sent within a transaction
            only.
        resend_after: How long a row is left to the process that wrote it, before the compensator
            sends it.
        poll: How often the compensator looks for rows.
        attempts: How often the broker may refuse a row definitely before it has failed.
        keep_sent: How long rows are kept as *sent*; None: they are deleted.
        compensate: This process may be the compensator.
        schema: Schema (or database) of the tables, if it is not that of the connections.
        relay: An engine for the outbox's own connections, where the URL of an ``AsyncEngine`` says
            too little.

    Raises:
        InvalidRequest: A value is not valid, the database is in memory, or the client has an
            outbox on it already.
        ClientClosed: The client is closed.
    """

    is_of_steps: ClassVar[bool] = False
    """Whether ``Steps`` has made it, for its own rows: the application may make one beside it."""

    def __init__(
        self,
        client: AwaitedClient | Client,
        database: object,
        *,
        require: Iterable[str] = (),
        resend_after: float | timedelta = 10.0,
        poll: float | timedelta = 0.1,
        attempts: int = ATTEMPTS,
        keep_sent: float | timedelta | None = None,
        compensate: bool = True,
        schema: str = "",
        relay: Engine | None = None,
    ) -> None:
        given: object = client
        if not isinstance(given, AwaitedClient | Client):
            kind = type(given).__name__
            raise InvalidRequest(f"an outbox needs a client of ternmq.connect(), not {kind}")
        if client.closed:
            raise ClientClosed("the client of the outbox is closed")
        given = require
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise InvalidRequest("require is a list of topics, such as ['payments.*']")
        check_positive("attempts", attempts)
        self._client = client
        self._database = database_of(database, relay)
        self._require = tuple([text("require", one) for one in require])
        self._settings = Settings(
            resend_after=length_of("resend_after", resend_after),
            poll=length_of("poll", poll),
            attempts=attempts,
            keep_sent=None if keep_sent is None else length_of("keep_sent", keep_sent),
            compensate=flag("compensate", compensate),
        )
        self._table = Table(self._database.dialect, schema)
        self._steps = Steps()
        self._stats = OutboxStats()
        self._threads: Threads | None = None
        self._pid = 0
        self._locks: dict[int, threading.Lock] = {}
        self._closed = False
        self._check_only_one(schema)
        client.stores.add(self)
        watch(self)

    @classmethod
    def django(cls, client: Client, using: str = "default", **options: Any) -> Self:  # noqa: ANN401
        """Return an outbox on a database of Django's settings.

        Inside ``transaction.atomic()`` each ``send`` of the client becomes a row; outside, it is
        sent at once. In a ``TestCase``, rows stay in the transaction of the test: ``rows`` returns
        them.

        Args:
            client: A client of ``ternmq.sync``.
            using: Alias of the database.
            options: As for ``Outbox``, but ``relay``.

        Raises:
            InvalidRequest: A value is not valid, or Django is not installed.
        """
        if not isinstance(client, Client):
            raise InvalidRequest("Django's transactions block: give a client of ternmq.sync")
        return cls(client, django_database(using), **options)

    def _check_only_one(self, schema: str) -> None:
        """Check that the application has made no outbox of the client on the same tables."""
        for one in self._client.stores:
            if not isinstance(one, Outbox) or one.is_of_steps or one.schema != schema:
                continue
            if one.database.is_same(self._database):
                raise InvalidRequest(
                    f"this client has an outbox on {self._database.name} already: use that one, or "
                    "close it before you make another"
                )

    def __repr__(self) -> str:
        return f"<Outbox at {self._database.name}>"

    # -- start and end ----------------------------------------------------------------------------

    def start(self) -> Self:
        """Begin to send, and to compensate; the first write does the same. No I/O here.

        Raises:
            ClientClosed: The outbox was closed.
        """
        self._reach()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def close(self, timeout: float | timedelta = CLOSE_S) -> None:
        """Send what this process wrote, for so long at most, and give the lease back.

        What is left stays in the table: another process sends it, or the next start. May be
        repeated. The client stays open.
        """
        seconds = seconds_of("timeout", timeout)
        with self._lock():
            self._closed = True
            threads, self._threads = self._threads, None
            mine = self._pid == os.getpid()
        self._client.stores.remove(self)
        if threads is not None and mine:
            threads.close(seconds)

    def after_fork(self) -> None:
        """Start over in the child, at the next use."""
        self._threads = None
        self._locks = {}
        self._database.leave()

    def _lock(self) -> threading.Lock:
        """Return the lock of this process: another thread may have held the parent's at a fork."""
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def _reach(self) -> Threads:
        threads, pid = self._threads, os.getpid()
        if threads is not None and self._pid == pid:
            return threads
        with self._lock():
            if self._closed:
                raise ClientClosed("the outbox is closed")
            if self._threads is None or self._pid != pid:
                self._database.leave()
                self._threads = Threads(
                    self._database, self._table, Client(self._client.options), self._settings,
                    self._steps, self._stats,
                )  # fmt: skip
                self._pid = pid
            return self._threads

    # -- transactions -----------------------------------------------------------------------------

    @contextmanager
    def bound(self, within: object) -> Iterator[None]:
        """Bind the sends of a block to a transaction, as ``within=`` of each would.

        Context-local: tasks and threads that are begun inside with the context are bound as well,
        and must not use a session at the same time. Blocks nest.

        Args:
            within: A session or connection, or this outbox.

        Raises:
            InvalidRequest: It is none.
            NotThisDatabase, OutsideTransaction: It cannot take messages.
        """
        self.check(within)
        token = bind(self, within)
        try:
            yield
        finally:
            unbind(token)

    def transaction(self, connection: object) -> Transaction:
        """Return a block that begins a transaction, binds it, and commits it or rolls it back.

        For connections of ``sqlite3``, psycopg and PyMySQL (``async with`` for psycopg's
        ``AsyncConnection``). Its messages are sent right after the commit, since the block knows
        when that is. A transaction that is open already is joined, and ends with the block.

        Raises:
            InvalidRequest: It is another connection; or, when it is entered, it is inside a block
                of the same one.
            NotThisDatabase: When it is entered: it belongs to another database.
        """
        return Transaction(self, connection)

    def committed(self) -> None:
        """Tell that a transaction of a bare connection was committed: its messages are sent now.

        Without it the compensator finds them at its next look.
        """
        self._reach().look()

    def flush(self, timeout: float | timedelta = 10.0) -> None:
        """Wait until the messages that this process wrote and committed are stored at the broker.

        Blocks; from a loop, call it with ``asyncio.to_thread``.

        Args:
            timeout: Seconds, or a timedelta.

        Raises:
            UnsentMessages: Some are not stored in time; they stay in the table.
            ClientClosed: The outbox is closed.
        """
        seconds = length_of("timeout", timeout)
        threads = self._reach()
        until = steady_s() + seconds
        threads.look()
        pause = threading.Event()
        while True:
            left = threads.left() if len(threads.open) or threads.open.beyond else 0
            if not left:
                return
            if steady_s() >= until:
                raise hinted(
                    UnsentMessages(
                        f"{counted(left, 'row')} of the outbox {verb(left, 'is', 'are')} not "
                        f"stored at the broker after {seconds:g} s"
                    ),
                    "they stay in the table and are sent later; `ternmq outbox list` shows them",
                )
            pause.wait(_FLUSH_POLL_S)

    # -- what it did ------------------------------------------------------------------------------

    def rows(self, limit: int = 100) -> list[Row]:
        """Return the first rows of the table, as the present transaction sees them. Blocks.

        For tests: inside a block, or inside ``transaction.atomic()`` of Django, it sees what was
        written there and not committed.

        Args:
            limit: Most rows.

        Raises:
            Exception: The database's own.
        """
        within = bound(self)
        if isinstance(within, Transaction):
            within = within.connection
        if within is None or within is self:
            attached = self._database.ambient()
        else:
            attached = self._attach(within)
        if attached is not None and attached.work is not None:
            return self._table.rows(attached.work, limit)
        with self._database.reading() as work:
            return self._table.rows(work, limit)

    def stats(self) -> OutboxStats:
        """Return counts of this process; they go on changing. No I/O."""
        return self._stats

    def observe(self, observer: Observer) -> None:
        """Call a function at each step of messages, in the thread that takes it; see ``Step``.

        The logger ``ternmq.reliable`` tells the same at DEBUG. An error that it raises is raised in
        that step: this is for tests.
        """
        self._steps.observe(observer)

    def prepare(self) -> list[str]:
        """Make or upgrade the tables, and check them; return what was done. Blocks.

        `ternmq outbox prepare` does the same.

        Raises:
            DatabaseNotPrepared: They cannot be used; the text says why.
            Exception: The database's own.
        """
        from ternmq.reliable.database.prepare import prepare

        return prepare(self._database, self._table.schema).lines()

    # -- Store ------------------------------------------------------------------------------------

    def place_of(self, within: object) -> Place | None:
        """Return the transaction that ``within`` means; see ``Store``."""
        if within is self:
            return OwnPlace(
                self._database, self._table, self._new_id, self._steps, self,
                awaited=isinstance(self._client, AwaitedClient),
            )  # fmt: skip
        block = bound(self)
        if isinstance(within, Transaction) and within.outbox is self:
            block, within = within, within.connection
        attached = self._attach(within)
        if attached is None:
            return None
        if isinstance(block, Transaction) and block.connection is within:
            attached = block.told(attached)
        return self._attached_place(attached)

    def knows(self, within: object) -> bool:
        """Return whether a value is of a kind that takes messages; see ``Store``."""
        if isinstance(within, Transaction):
            return within.outbox is self
        return within is self or self._database.knows(within) or bare.is_known(within)

    def current(self) -> Place | None:
        """Return the transaction in which the caller is, of Django; see ``Store``."""
        ambient = self._database.ambient()
        return None if ambient is None else self._attached_place(ambient)

    def requires(self, topic: str) -> bool:
        """Return whether a topic needs a transaction; see ``Store``."""
        return any(fnmatchcase(topic, one) for one in self._require)

    def strangeness(self, within: object) -> Exception:
        """Return the error for what is no transaction; see ``Store``."""
        kind = type(within)
        return InvalidRequest(
            "within= takes a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy, a "
            "connection of sqlite3, psycopg or PyMySQL, or an outbox of this client; not "
            f"{kind.__module__}.{kind.__qualname__}"
        )

    def written(self, refs: Sequence[Ref], ordered: bool, at_end: AtEnd | None) -> None:
        """Note rows that were inserted; see ``places``."""
        self._stats.written += len(refs)
        if self._database.alone:  # a test's database: nobody else could read the rows
            return
        self._reach().open.add(refs)
        if at_end is None:
            self._stats.unseen += len(refs)
        else:
            at_end(partial(self._ended, refs, ordered))

    def _ended(self, refs: Sequence[Ref], ordered: bool) -> None:
        """Have rows sent: their transaction has ended. Called by hooks: it raises nothing."""
        self._steps.tell(Step.COMMIT, [ref.id for ref in refs])
        with contextlib.suppress(ClientClosed):  # the next process with an outbox sends them
            threads = self._reach()
            if ordered:
                threads.look()
            else:
                threads.ended(refs)

    def _new_id(self) -> str:
        return text_id()

    def check(self, within: object) -> None:
        """Check that a value means a transaction of this database; raises as ``bound``."""
        if within is not self and self._attach(within) is None:
            raise self.strangeness(within)

    def _attach(self, within: object) -> Attached | None:
        return self._database.attach(within) or bare.attach(self._database, within)

    def _attached_place(self, attached: Attached) -> Place:
        return AttachedPlace(attached, self._database, self._table, self._new_id, self._steps, self)

    @property
    def steps(self) -> Steps:
        """Who is told of steps."""
        return self._steps

    @property
    def schema(self) -> str:
        """Where the tables are; empty: where the connections look."""
        return self._table.schema

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def client(self) -> AwaitedClient | Client:
        """The client whose sends it takes."""
        return self._client

    @property
    def database(self) -> ApplicationDatabase:
        """The database."""
        return self._database


def ddl(dialect: str, schema: str = "") -> list[str]:
    """Return the statements that make the tables, for a migration of the application's own.

    Args:
        dialect: ``postgresql``, ``mysql``, ``mariadb`` or ``sqlite``.
        schema: Where the tables go; empty: where the connection looks.

    Raises:
        InvalidRequest: There is no such dialect.
    """
    from ternmq.reliable.database.dialect import dialect_of

    return tables.migration(dialect_of(dialect), schema)


def _close_all() -> None:
    """Close the outboxes that are still open, while threads can still run."""
    for outbox in watched(Outbox):
        outbox.close()


atexit.register(_close_all)
