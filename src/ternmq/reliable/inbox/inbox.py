"""The inbox: where an application remembers messages that it has handled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ternmq.client.content.validation import check_positive, flag, length_of, text
from ternmq.client.process.forking import watch
from ternmq.model.errors import InvalidRequest
from ternmq.reliable.inbox.claims import ClaimStore
from ternmq.reliable.inbox.entry import Entry, consumer_of, id_bytes
from ternmq.reliable.inbox.memory import MemoryClaims
from ternmq.reliable.inbox.redis import claims_of
from ternmq.reliable.inbox.shards import Shards, check_alone, check_names, note_alone
from ternmq.reliable.inbox.sql import SqlStore
from ternmq.reliable.inbox.stats import InboxStats
from ternmq.reliable.inbox.store import Store
from ternmq.reliable.libraries.choice import django_database

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

DEFAULT_ALIAS: Final = "default"
"""Alias of Django's first database."""
WAIT_S: Final = 5.0
"""How long a handler waits for another one with the same id."""
CLAIM_S: Final = 300.0
"""How long a claim in Redis lasts."""
MEMORY: Final = 1_000_000
"""Most messages that an inbox in memory remembers."""


class Inbox:
    """Remembers messages that were handled, for ``idempotent``.

    In a database, the memory of a message and the effect of its handler are one transaction: the
    effect happens once. ``Inbox.memory`` is for tests, and for effects that end with the process.
    ``Inbox.redis`` is for effects that are in no database.

    Making it does no I/O. A thread that removes old rows begins with the first message: of all
    processes with an inbox on a database, one removes them at a time. Callable from any thread.

    Args:
        database: An ``Engine`` of SQLAlchemy, for handlers that are a ``def``; an ``AsyncEngine``,
            for an ``async def``; or a URL, for both.
        shards: Several databases by name, instead of one. An id belongs to one of them, and the
            handler receives its transaction there.
        wait: How long a handler waits for another one that has the same id at work; on SQLite,
            which has one lock for all: for any other transaction that writes.
        schema: Schema (or database) of the tables, if it is not that of the connections.
        clean: Remove rows whose time is over, in this process or another one.
        relay: An engine for the inbox's own connections, where the URL of an ``AsyncEngine`` says
            too little.

    Raises:
        InvalidRequest: A value is not valid, or the database is in memory.
    """

    def __init__(
        self,
        database: object = None,
        *,
        shards: Mapping[str, object] | None = None,
        wait: float | timedelta = WAIT_S,
        schema: str = "",
        clean: bool = True,
        relay: Engine | None = None,
    ) -> None:
        if (database is None) == (shards is None):
            raise InvalidRequest("an inbox has one database, or several as shards=")
        wait_s = length_of("wait", wait)
        text("schema", schema)
        flag("clean", clean)

        def store(one: object) -> SqlStore:
            return SqlStore(one, wait_s=wait_s, schema=schema, relay=relay, clean=clean)

        if shards is None:
            self._set(store(database))
        else:
            if relay is not None:
                raise InvalidRequest("relay= is for one database: give shards as engines or URLs")
            check_names(shards)
            self._set(Shards({name: store(one) for name, one in shards.items()}))

    @classmethod
    def django(
        cls,
        using: str = DEFAULT_ALIAS,
        *,
        wait: float | timedelta = WAIT_S,
        schema: str = "",
        clean: bool = True,
    ) -> Self:
        """Return an inbox on a database of Django's settings. No I/O here.

        Handlers are a ``def``, and take no session: models, and code that uses
        ``connections[using]``, work in the transaction of the inbox. It is a
        ``transaction.atomic(using=using, durable=True)``: no other block may be around it, but that
        of a ``TestCase``; blocks inside are savepoints. What a handler sends is part of it, if the
        client has an ``Outbox.django`` with the same alias. Before and after each message,
        connections that broke or are too old (``CONN_MAX_AGE``) are closed, as around a request.

        Args:
            using: Alias of the database.
            wait: As for a database of SQLAlchemy.
            schema: Likewise.
            clean: Likewise.

        Raises:
            InvalidRequest: A value is not valid, there is no such alias, or Django is not
                configured.
        """
        return cls(django_database(using), wait=wait, schema=schema, clean=clean)

    @classmethod
    def memory(cls, limit: int = MEMORY, *, wait: float | timedelta = WAIT_S) -> Self:
        """Return an inbox in the memory of this process.

        Args:
            limit: Most messages that it remembers; the oldest go first.
            wait: As for a database.

        Raises:
            InvalidRequest: A value is not valid.
        """
        check_positive("limit", limit)
        made = cls.__new__(cls)
        store = ClaimStore(MemoryClaims(limit), length_of("wait", wait))
        made._set(store)  # noqa: SLF001 - of this class
        return made

    @classmethod
    def redis(
        cls,
        url: str,
        *,
        claim: float | timedelta = CLAIM_S,
        wait: float | timedelta = WAIT_S,
    ) -> Self:
        """Return an inbox in Redis; it needs the extra ``redis``. No I/O here.

        A handler claims a message, runs, and marks it as done. If its process dies in between, the
        message is handled again when the claim ends: **at least once** across a crash, unlike in a
        database.

        Args:
            url: As ``redis-py`` takes it: ``redis://host:6379/0``.
            claim: How long a claim lasts: longer than any handler runs, or another handler may run
                beside it.
            wait: As for a database.

        Raises:
            InvalidRequest: A value is not valid, or the package is missing.
        """
        claim_ms = round(length_of("claim", claim) * 1000)
        wait_s = length_of("wait", wait)
        claims = claims_of(text("url", url), claim_ms)
        made = cls.__new__(cls)
        made._set(ClaimStore(claims, wait_s))  # noqa: SLF001 - of this class
        return made

    def _set(self, store: Store) -> None:
        self._store = store
        self._stats = InboxStats()
        watch(self)

    def __repr__(self) -> str:
        return f"<Inbox {type(self._store).__name__}>"

    @property
    def store(self) -> Store:
        """Where messages are remembered; for ``idempotent``."""
        return self._store

    def stats(self) -> InboxStats:
        """Return counts of this process; they go on changing. No I/O."""
        return self._stats

    def prepare(self, *, moved: bool = False) -> list[str]:
        """Make or upgrade the tables, and check them; return what was done. Blocks.

        Of shards, the names are noted in each database, and other names, or an inbox on one of them
        alone, are refused from then on.

        Args:
            moved: Note other names than before: the rows of ``ternmq_inbox``, and the data of the
                application, were moved to the databases where their ids belong now; or the longest
                ``keep`` has passed since the last message.

        Raises:
            DatabaseNotPrepared: They cannot be used; the text says why.
            ShardsChanged: The databases know other names.
            Exception: The database's own.
        """
        flag("moved", moved)
        store = self._store
        if not isinstance(store, SqlStore):
            return store.prepare(moved=moved)
        if not moved:
            check_alone(store)
        done = store.prepare(moved=moved)
        return [*done, *note_alone(store)] if moved else done

    def forget(self, ids: Iterable[str], *, topic: str, group: str) -> int:
        """Forget messages: if they come again, they are handled again. Blocks.

        Args:
            ids: Their ids, as the inbox knows them: what ``by=`` returned, else the application's,
                else those of the messages.
            topic: Their topic.
            group: The group that handled them.

        Returns:
            How many of them were known.

        Raises:
            InvalidRequest: An id is not valid.
            Exception: The database's own.
        """
        if isinstance(ids, str):
            raise InvalidRequest("ids is a list of ids, such as ['order-7']")
        consumer = consumer_of(text("topic", topic), text("group", group))
        return self._store.forget([Entry(consumer, id_bytes(text("an id", one))) for one in ids])

    def clean(self, *, now_ms: int | None = None) -> int:
        """Remove the rows whose time is over, and return how many those were. Blocks.

        The inbox does this by itself once a minute.

        Args:
            now_ms: The time, in ms since 1970; None: the database's clock.

        Raises:
            Exception: The database's own.
        """
        return self._store.clean(now_ms)

    def close(self) -> None:
        """End the thread, and close the inbox's own connections; the engines stay open.

        Connections for ``async def`` handlers of an inbox that was made of a URL are closed by
        ``async with inbox:``.
        """
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._store.close_awaited()

    def after_fork(self) -> None:
        """Start over in the child, at the next message."""
        self._store.leave()
        self._stats.after_fork()
