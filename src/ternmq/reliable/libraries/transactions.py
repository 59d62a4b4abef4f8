"""Transactions in which a function of the application works, through SQLAlchemy.

The transaction belongs to a connection of Core. A function is given that connection, a Session that
joins its transaction, or the driver's own connection: whatever it uses, all is one transaction, and
ends here.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine, Transaction
from sqlalchemy.orm import Session

from ternmq.model.errors import InvalidHandler, InvalidRequest, OutsideTransaction
from ternmq.reliable.database.dialect import dialect_of
from ternmq.reliable.database.port import Work
from ternmq.reliable.libraries.alchemy import Run, blocking, commits_each, url_of
from ternmq.reliable.libraries.extras import installed
from ternmq.reliable.libraries.opening import Opened, Wanted
from ternmq.reliable.libraries.standing import check_driver, check_mark, ended, mark

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")

_DRIVERS: Final = {
    ("sqlite3", "Connection"): False,
    ("psycopg", "Connection"): False,
    ("pymysql", "Connection"): False,
    ("psycopg", "AsyncConnection"): True,
    ("aiosqlite", "Connection"): True,
    ("aiomysql", "Connection"): True,
    ("asyncpg", "Connection"): True,
}
"""Connections of drivers, by library and name -> whether they are asked with ``await``."""
_AWAITED: Final = {"postgresql": "psycopg", "mysql": "aiomysql", "sqlite": "aiosqlite"}
_ASKED: Final = ("asyncpg", "asyncmy", "aiomysql", "aiosqlite", "psycopg_async")
"""Names of drivers that can only be asked with ``await``."""


def wanted_of(name: str, kind: object) -> Wanted | None:
    """Return how a parameter with an annotation receives the transaction; None: it does not."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Session | Connection):
        return Wanted(name, kind, awaited=False)
    library = sys.modules.get("sqlalchemy.ext.asyncio")  # it wants greenlet: not imported here
    if library is not None and issubclass(kind, library.AsyncSession | library.AsyncConnection):
        return Wanted(name, kind, awaited=True)
    for one in kind.__mro__:
        awaited = _DRIVERS.get((one.__module__.partition(".")[0], one.__name__))
        if awaited is not None:
            return Wanted(name, kind, awaited, driver=True)
    return None


class AlchemyTransactions:
    """Opens transactions through engines of SQLAlchemy; see ``Transactions``.

    Args:
        database: An ``Engine``, for functions that block; an ``AsyncEngine``, for those that are
            awaited; or a URL, for both: the engines are made here then, and closed here.

    Raises:
        InvalidRequest: It is none of these.
        OutsideTransaction: The engine was made for autocommit. An event of the application may
            have that effect, too: then ``opened`` raises it.
    """

    def __init__(self, database: object) -> None:
        self.url: URL = url_of(database)
        self._engine: Engine | None = database if isinstance(database, Engine) else None
        self._asked: AsyncEngine | None = None
        if hasattr(database, "sync_engine"):
            self._asked = database  # type: ignore[assignment]  # ``url_of`` has seen it
        for engine in (self._engine, getattr(self._asked, "sync_engine", None)):
            if engine is not None:
                _check_autocommit(engine)
        self._made_of_url = isinstance(database, str | URL)
        self._making = threading.Lock()
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncEngine] = (
            weakref.WeakKeyDictionary()
        )

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a function can work in these transactions.

        Raises:
            InvalidHandler: It cannot: one of the two blocks, and the other does not.
        """
        for one in wanted:
            if one.awaited != awaited:
                sort = "an `async def`" if awaited else "a `def`"
                raise InvalidHandler(
                    f"handler {name} is {sort}: its parameter {one.name!r} cannot be "
                    f"{one.kind.__name__}, which {'blocks' if awaited else 'is awaited'}"
                )
        if self._made_of_url or (self._asked if awaited else self._engine) is not None:
            return
        if awaited:
            raise InvalidHandler(
                f"handler {name} is an `async def`, and its database is given as an Engine, "
                "which would block the loop: give an AsyncEngine or a URL, or make it a `def`"
            )
        raise InvalidHandler(
            f"handler {name} is a `def`, which runs in a thread, and its database is given as an "
            "AsyncEngine: give an Engine or a URL, or make it an `async def`"
        )

    # -- functions in threads ---------------------------------------------------------------------

    @contextmanager
    def opened(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> Iterator[Opened[T]]:
        """Open a transaction for a function that blocks.

        Args:
            wanted: Its parameters that receive it.
            enter: Runs the first statements.
            wait_s: How long SQLite waits for its lock.

        Raises:
            NotCommitted: The transaction has ended before the function returned, or cannot be
                committed; see ``standing``.
            Exception: The database's own, those of ``enter``, and what the block raises.
        """
        with self._blocking_engine().connect() as connection:
            begun, entered = _enter(connection, enter, wait_s)
            opened = Opened(entered, within=connection)
            sessions: list[Session] = []
            try:
                for one in wanted:
                    opened.given[one.name] = made = _given(one, connection)
                    if isinstance(made, Session):
                        sessions.append(made)
                yield opened
                if opened.undo:
                    connection.rollback()
                else:
                    _check_open(connection, begun)
                    for session in sessions:
                        session.flush()
                    _finish(connection, begun, opened)
                    connection.commit()
            except BaseException:
                if not connection.invalidated:
                    connection.rollback()
                raise
            finally:
                for session in sessions:
                    session.close()

    def _blocking_engine(self) -> Engine:
        with self._making:
            if self._engine is None:
                self._engine = sa.create_engine(blocking(self.url))
            return self._engine

    # -- functions that are awaited ---------------------------------------------------------------

    @asynccontextmanager
    async def opened_awaited(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> AsyncIterator[Opened[T]]:
        """Open a transaction for a function that is awaited; see ``opened``."""
        with installed("a function that is awaited"):
            import greenlet  # noqa: F401  # SQLAlchemy has errors of its own for it
            from sqlalchemy.ext.asyncio import AsyncSession

        async with self._awaited_engine().connect() as connection:
            begun, entered = await connection.run_sync(_enter, enter, wait_s)
            opened = Opened(entered, within=connection)
            sessions: list[AsyncSession] = []
            try:
                for one in wanted:
                    if issubclass(one.kind, AsyncSession):
                        session = one.kind(bind=connection)
                        sessions.append(session)
                        opened.given[one.name] = session
                    else:
                        opened.given[one.name] = await _given_awaited(one, connection)
                yield opened
                if opened.undo:
                    await connection.rollback()
                else:
                    await connection.run_sync(_check_open, begun)
                    for session in sessions:
                        await session.flush()
                    await connection.run_sync(_finish, begun, opened)
                    await connection.commit()
            except BaseException:
                if not connection.invalidated:
                    await connection.rollback()
                raise
            finally:
                for session in sessions:
                    await session.close()

    def _awaited_engine(self) -> AsyncEngine:
        if self._asked is not None:
            return self._asked
        loop = asyncio.get_running_loop()  # a pool of such connections belongs to a loop
        found = self._by_loop.get(loop)
        if found is None:
            url = _awaited_url(self.url)
            with installed(f"a function that is awaited, at {url.drivername},"):
                from sqlalchemy.ext.asyncio import create_async_engine

                found = self._by_loop[loop] = create_async_engine(url)
        return found

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connections of an engine that was made of a URL."""
        if self._made_of_url:
            engine, self._engine = self._engine, None
            if engine is not None:
                engine.dispose()

    async def close_awaited(self) -> None:
        """Close those of the present loop, too."""
        found = self._by_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.dispose()

    def leave(self) -> None:
        """Forget the connections in a forked child: they are the parent's."""
        self._making = threading.Lock()
        if self._made_of_url:
            self._engine = None
            self._by_loop = weakref.WeakKeyDictionary()


def _check_autocommit(engine: Engine) -> None:
    """Refuse an engine that was made for autocommit; of SQLite not: ``opened`` begins there.

    Raises:
        OutsideTransaction: It was.
    """
    if engine.dialect.name == "sqlite":
        return
    made = getattr(engine.dialect, "_on_connect_isolation_level", None)
    if "AUTOCOMMIT" in {made, engine.get_execution_options().get("isolation_level")}:
        raise _autocommit()


def _autocommit() -> OutsideTransaction:
    return OutsideTransaction(
        "the engine is in autocommit, so each statement would be a transaction: give one without "
        'isolation_level="AUTOCOMMIT"'
    )


def _enter(
    connection: Connection, enter: Callable[[Work], T], wait_s: float
) -> tuple[Transaction, T]:
    """Begin a transaction and run its first statements; after an error it is rolled back."""
    if connection.dialect.name == "sqlite":
        begun = _begin_sqlite(connection, wait_s)
    else:
        begun = connection.begin()
        if commits_each(connection):
            raise _autocommit()
    run = Run(connection)
    entered = enter(run)
    mark(run, dialect_of(connection.dialect.name))
    return begun, entered


def _begin_sqlite(connection: Connection, wait_s: float) -> Transaction:
    """Begin a transaction that has the lock for writing: one that reads first may never get it."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute("PRAGMA busy_timeout")
        [[before]] = cursor.fetchall()
        cursor.execute(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
        try:
            begun = connection.begin()  # an event of the application may begin it, with the lock
            driver: Any = connection.connection.driver_connection
            if not driver.in_transaction:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")
    finally:
        cursor.close()
    return begun


def _given(one: Wanted, connection: Connection) -> object:
    if issubclass(one.kind, Session):
        return one.kind(bind=connection)
    if issubclass(one.kind, Connection):
        return connection
    return _checked(one, connection.connection.driver_connection)


async def _given_awaited(one: Wanted, connection: AsyncConnection) -> object:
    if isinstance(connection, one.kind):
        return connection
    raw = await connection.get_raw_connection()
    return _checked(one, raw.driver_connection)


def _checked(one: Wanted, driver: object) -> object:
    if not isinstance(driver, one.kind):
        raise InvalidHandler(
            f"parameter {one.name!r} is {one.kind.__module__}.{one.kind.__name__}, and the engine "
            f"has connections of {type(driver).__module__}"
        )
    return driver


def _check_open(connection: Connection, begun: Transaction) -> None:
    """Check what library and driver know of the end of the transaction.

    Raises:
        NotCommitted: It has ended, or cannot be committed.
    """
    if not begun.is_active or connection.get_transaction() is not begun:
        raise ended()
    check_driver(connection.connection.driver_connection)


def _finish(connection: Connection, begun: Transaction, opened: Opened[Any]) -> None:
    """Check that the transaction is still the one that began, and run its last statements."""
    _check_open(connection, begun)
    run = Run(connection)
    check_mark(run, dialect_of(connection.dialect.name))
    if opened.before_commit is not None:
        opened.before_commit(run)


def _awaited_url(url: URL) -> URL:
    """Return a URL with a driver that is asked with ``await``."""
    backend = url.get_backend_name()
    _, _, driver = url.drivername.partition("+")
    if driver in _ASKED:
        return url
    asked = _AWAITED.get(dialect_of(backend).name)
    if asked is None:
        raise InvalidRequest(f"no driver of {backend} is known that is asked with await")
    return url.set(drivername=f"{backend}+{asked}")
