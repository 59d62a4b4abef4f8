"""SQLAlchemy 2: engines, sessions and connections of the application."""

from __future__ import annotations

import inspect
import os.path
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from ternmq.model.errors import InvalidRequest, NotThisDatabase, OutsideTransaction
from ternmq.reliable.database.dialect import Dialect, dialect_of
from ternmq.reliable.database.port import Result, Values, Work
from ternmq.reliable.libraries.attached import ApplicationDatabase, Attached
from ternmq.reliable.libraries.driver import BEGUN, PATIENCE
from ternmq.reliable.libraries.extras import installed
from ternmq.reliable.libraries.forks import still
from ternmq.reliable.libraries.refusals import is_denied, is_unprepared, reason
from ternmq.reliable.libraries.savepoints import check_savepoint, watch_savepoints

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_BLOCKING: Final = {
    "asyncpg": "psycopg", "psycopg_async": "psycopg", "aiosqlite": "pysqlite",
    "aiomysql": "pymysql", "asyncmy": "pymysql",
}  # fmt: skip
"""Drivers that are asked with ``await`` -> the driver with which this package asks."""
_BEGIN: Final = {
    "postgresql": "BEGIN ISOLATION LEVEL READ COMMITTED",
    "mysql": "START TRANSACTION",
    "sqlite": "BEGIN IMMEDIATE",
}
_TOLD: Final = "ternmq_at_end"
"""Key in ``info`` of sessions and connections: whom to tell of the end of the transaction."""
_SHOWN: Final = ("host", "port", "service")
"""Parts of a URL's query that say where a database is."""


class Run:
    """Runs statements on a connection of SQLAlchemy."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises ``SQLAlchemyError``."""
        done = self._connection.execute(sa.text(statement), dict(values))
        if done.returns_rows:
            rows = [tuple(row) for row in done]
            return Result(rows, len(rows))
        return Result((), done.rowcount, getattr(done, "lastrowid", None) or 0)


class AlchemyDatabase:
    """A database behind an engine: with connections of its own, made as the engine makes them.

    An application whose pool is exhausted does not hold up what is sent, and a forked child uses no
    connection of its parent. Callable from any thread.

    Args:
        database: An engine, or a URL.
        relay: An engine for this package's own connections, where a URL says too little (an
            asynchronous engine with a ``creator``, say); None: made from ``database``.

    Raises:
        InvalidRequest: It is none, it is of another kind, or it is in memory; or the package of its
            driver is missing.
    """

    errors: tuple[type[Exception], ...] = (exc.SQLAlchemyError,)
    alone = False
    making = ""

    def __init__(self, database: object, relay: Engine | None = None) -> None:
        if relay is not None and not isinstance(relay, Engine):
            raise InvalidRequest(f"relay is an Engine of SQLAlchemy, not {type(relay).__name__}")
        self.url = url_of(database)
        self.dialect: Dialect = dialect_of(self.url.get_backend_name())
        if self.dialect.name == "sqlite" and _in_memory(self.url):
            raise InvalidRequest(
                "a database in memory belongs to one connection: what is sent is read through "
                "another one; give a file"
            )
        if self.dialect.name == "sqlite":
            watch_savepoints()
        self.name = _shown(self.url)
        self.application = database if isinstance(database, Engine) else None
        self._made = relay or (database if isinstance(database, Engine) else None)
        if self._made is None:
            _check_driver(blocking(self.url), self.name)
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    def _own(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._make()
            return self._engine

    def _make(self) -> Engine:
        options: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
        if "skip_autocommit_rollback" in inspect.signature(DefaultDialect).parameters:
            options["skip_autocommit_rollback"] = True  # a round trip for each use of a connection
        if self._made is not None:
            engine = sa.create_engine(self._made.url, pool=self._made.pool.recreate(), **options)
        else:
            engine = sa.create_engine(blocking(self.url), **options)
        # Where it puts a connection into autocommit, SQLAlchemy wraps no error of the driver.
        self.errors = (exc.SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
        event.listen(engine, "connect", _set_up)
        return engine

    @contextmanager
    def reading(self) -> Iterator[Work]:
        """Return a connection in autocommit; see ``Database.reading``."""
        with self._undisturbed(), self._own().connect() as connection:
            yield Run(connection)

    def _undisturbed(self) -> AbstractContextManager[None]:
        """Return a block that no fork interrupts, where that matters."""
        return still.work() if self.dialect.name == "sqlite" else nullcontext()

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Work]:
        """Return a transaction; see ``Database.writing``."""
        with self._undisturbed(), self._own().connect() as connection:
            # The connection is in autocommit: neither driver nor library begins anything.
            run = connection.exec_driver_sql
            run(_BEGIN[self.dialect.name])
            try:
                if self.dialect.name == "postgresql":
                    run(BEGUN[durable])
                yield Run(connection)
            except BaseException:
                if not connection.invalidated:
                    run("ROLLBACK")
                raise
            run("COMMIT")

    def close(self) -> None:
        """Close the connections; the next use opens others."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def close_here(self) -> None:
        """Do nothing: connections are the pool's."""

    def close_old(self) -> None:
        """Do nothing: connections are the pool's."""

    def leave(self) -> None:
        """Forget the connections in a forked child: they are the parent's."""
        self._engine = None
        self._lock = threading.Lock()

    def is_unprepared(self, error: Exception) -> bool:
        """Return whether an error says that a table or column is missing."""
        return is_unprepared(error)

    def is_same(self, other: ApplicationDatabase) -> bool:
        """Return whether another object means the same database."""
        return isinstance(other, AlchemyDatabase) and (
            self.url == other.url or same(self.url, other.url)
        )

    def is_away(self, error: Exception) -> bool:
        """Return whether an error says that the database cannot be reached."""
        if isinstance(error, exc.TimeoutError):  # of the pool
            return True
        return isinstance(error, exc.DBAPIError) and (
            # Without a statement: the connection was not made.
            error.connection_invalidated or error.statement is None
        )

    def is_denied(self, error: Exception) -> bool:
        """Return whether an error says that the account may not do something."""
        return is_denied(error)

    def reason(self, error: Exception) -> str:
        """Return what the database said, as one line: no statement, no values."""
        return reason(error)

    # -- the application's transactions -----------------------------------------------------------

    def ambient(self) -> Attached | None:
        """Return None: SQLAlchemy does not know which transaction a caller is in."""
        return None

    def knows(self, within: object) -> bool:
        """Return whether a value is a session or a connection."""
        if isinstance(within, scoped_session | Session | Connection):
            return True
        library = sys.modules.get("sqlalchemy.ext.asyncio")
        return library is not None and isinstance(
            within,
            library.async_scoped_session | library.AsyncSession | library.AsyncConnection,
        )

    def attach(self, within: object) -> Attached | None:
        """Return the transaction of a session or connection; None: it is neither.

        Raises:
            NotThisDatabase: It belongs to another database.
            OutsideTransaction: It commits each statement.
        """
        if isinstance(within, scoped_session):
            within = within.registry()
        if isinstance(within, Session):
            return self._of_session(within)
        if isinstance(within, Connection):
            return self._of_connection(within)
        return self._of_asyncio(within)

    def _of_asyncio(self, within: object) -> Attached | None:
        """Return the transaction of an object of ``sqlalchemy.ext.asyncio``; None: it is none."""
        library = sys.modules.get("sqlalchemy.ext.asyncio")  # it wants greenlet: not imported here
        if library is None:
            return None
        if isinstance(within, library.async_scoped_session):
            within = within.registry()
        if isinstance(within, library.AsyncSession):
            return self._awaited(within, within.sync_session)
        if isinstance(within, library.AsyncConnection):
            found = within.sync_connection
            if found is None:
                raise OutsideTransaction("the connection was not started: `async with` or await it")
            return self._awaited(within, found)
        return None

    def _awaited(
        self, asked: AsyncSession | AsyncConnection, blocking: Session | Connection
    ) -> Attached:
        # Checked where it is safe: asking a session for its connection may begin a transaction.
        _tell_of_end(blocking)
        if isinstance(blocking, Session):
            dialect = self._bind(blocking).dialect
        else:
            self._check(blocking.engine)
            dialect = blocking.dialect
        return Attached(
            self.dialect, is_unprepared, awaited=_Awaited(self, asked), at_end=_at_end(blocking),
            begun=_TOLD in blocking.info, digits=dialect.driver == "aiomysql",
        )  # fmt: skip

    def _of_session(self, session: Session) -> Attached:
        bind = self._bind(session)
        if isinstance(bind, Connection):
            connection = session.connection()
        else:
            connection = session.connection(bind_arguments={"bind": bind})
        self._check_transaction(connection)
        _tell_of_end(session)
        return _attached(self.dialect, session, connection)

    def _of_connection(self, connection: Connection) -> Attached:
        self._check(connection.engine)
        self._check_transaction(connection)
        _tell_of_end(connection)
        return _attached(self.dialect, connection, connection)

    def _bind(self, session: Session) -> Engine | Connection:
        """Return what a session is bound to and belongs to this database."""
        found = _binds(session)
        for one in found:
            if self._is_this(one.engine):
                return one
        if not found:
            raise NotThisDatabase("the session is bound to no engine")
        raise self._other(found[0].engine)

    def _check(self, engine: Engine) -> None:
        if not self._is_this(engine):
            raise self._other(engine)

    def _is_this(self, engine: Engine) -> bool:
        return engine is self.application or same(engine.url, self.url)

    def _other(self, engine: Engine) -> NotThisDatabase:
        other = _shown(engine.url)
        return NotThisDatabase(f"{other} is another database than {self.name}")

    def _check_transaction(self, connection: Connection) -> None:
        if commits_each(connection):
            raise OutsideTransaction(
                "the connection is in autocommit, so each statement is a transaction: nothing was "
                "written"
            )
        check_savepoint(connection)


class _Awaited:
    """Runs statements of an ``AsyncSession`` or ``AsyncConnection``."""

    __slots__ = ("_asked", "_database")

    def __init__(self, database: AlchemyDatabase, asked: AsyncSession | AsyncConnection) -> None:
        self._database = database
        self._asked = asked

    async def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises ``SQLAlchemyError``, OutsideTransaction."""
        return await self._asked.run_sync(self._run, statement, values)

    def _run(self, asked: Session | Connection, statement: str, values: Values) -> Result:
        attached = self._database.attach(asked)
        assert attached is not None
        assert attached.work is not None
        return attached.work.run(statement, values)


# -- databases ------------------------------------------------------------------------------------


def url_of(database: object) -> URL:
    """Return the URL of a database.

    Raises:
        InvalidRequest: It is none.
    """
    found = getattr(database, "sync_engine", database)  # of an AsyncEngine
    if isinstance(found, Engine):
        return found.url
    if isinstance(database, URL):
        return database
    if isinstance(database, str):
        try:
            return sa.make_url(database)
        except exc.ArgumentError as error:
            raise InvalidRequest(
                "the URL of a database is like postgresql+psycopg://user@host/name, "
                "mysql+pymysql://user@host/name or sqlite:////var/lib/shop.db; this one is not"
            ) from error
    raise InvalidRequest(
        f"a database is an Engine, an AsyncEngine or a URL, not {type(database).__name__}"
    )


def _shown(url: URL) -> str:
    """Return a URL for texts: no password, nor what a query may contain of one."""
    query = {name: value for name, value in url.query.items() if name in _SHOWN}
    return url.set(query=query).render_as_string(hide_password=True)


def blocking(url: URL) -> URL:
    """Return a URL with a driver that blocks; PostgreSQL and MySQL: those of the extras."""
    backend = url.get_backend_name()
    _, _, driver = url.drivername.partition("+")
    if backend == "postgresql":
        return url.set(drivername=f"postgresql+{_BLOCKING.get(driver, driver) or 'psycopg'}")
    if backend in {"mysql", "mariadb"}:
        return url.set(drivername=f"{backend}+{_BLOCKING.get(driver, driver) or 'pymysql'}")
    return url.set(drivername="sqlite")


def _check_driver(url: URL, name: str) -> None:
    """Import the driver of a URL.

    Raises:
        InvalidRequest: It is not known, or not installed.
    """
    try:
        dialect = url.get_dialect()
    except exc.NoSuchModuleError as error:
        raise InvalidRequest(f"{name}: SQLAlchemy knows no such driver") from error
    with installed(name):
        dialect.import_dbapi()


def _in_memory(url: URL) -> bool:
    name = url.database or ""
    return name in {"", ":memory:"} or "mode" in url.query or name.startswith("file::memory:")


def same(one: URL, other: URL) -> bool:
    """Return whether two URLs mean one database; the driver and the user do not count."""
    return _place(one) == _place(other)


def _place(url: URL) -> tuple[object, ...]:
    backend = url.get_backend_name().replace("mariadb", "mysql")
    if backend == "sqlite":
        return backend, os.path.realpath(url.database or "")
    default = 5432 if backend == "postgresql" else 3306
    host = url.query.get("host") or url.host or "localhost"
    return backend, str(host).lower(), url.port or default, url.database


# -- transactions ---------------------------------------------------------------------------------


def _set_up(raw: Any, record: object) -> None:  # noqa: ANN401 - of any driver
    """Set a connection of this package up, when it is made."""
    del record
    if hasattr(raw, "prepare_threshold"):  # psycopg: poolers do not know prepared statements
        raw.prepare_threshold = None
    if type(raw).__module__.startswith("pymysql"):
        # Under REPEATABLE READ, a DELETE of a row that is gone locks the gap at the end of the
        # table, and every INSERT of the application waits.
        with raw.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(PATIENCE)


def _binds(session: Session) -> list[Engine | Connection]:
    """Return what a session is bound to."""
    found: list[object] = []
    with suppress(exc.UnboundExecutionError):
        found.append(session.get_bind())
    binds = getattr(session, "binds", None)  # SQLAlchemy 2.1
    if binds is None:
        binds = getattr(session, "_Session__binds", {})
    found += binds.values()
    return [one for one in found if isinstance(one, Engine | Connection)]


def commits_each(connection: Connection) -> bool:
    """Return whether a connection is in autocommit and no transaction was begun by hand."""
    raw: Any = connection.connection.dbapi_connection
    driver: Any = connection.connection.driver_connection
    detect = getattr(connection.dialect, "detect_autocommit_setting", None)
    if not (detect(raw) if detect is not None else _is_autocommit(raw, driver)):
        return False
    if not hasattr(driver, "in_transaction"):  # not SQLite
        return True
    # The recipe for BEGIN IMMEDIATE of SQLAlchemy's documentation: the driver begins nothing, an
    # event does. It fires when the connection begins, as the INSERT would have it begin.
    if connection.in_transaction():
        return not driver.in_transaction
    begun = connection.begin()
    if driver.in_transaction:
        return False
    begun.rollback()
    return True


def _is_autocommit(raw: Any, driver: Any) -> bool:  # noqa: ANN401 - of any driver
    """Return whether a connection is in autocommit, for SQLAlchemy before 2.0.43.

    It could not tell: its question for the isolation level goes to the server, which knows nothing
    of it.

    Args:
        raw: The connection as SQLAlchemy uses it: of drivers that are asked with ``await``, a
            stand-in.
        driver: The driver's own.
    """
    if hasattr(driver, "in_transaction"):  # SQLite
        return driver.isolation_level is None
    for one in (raw, driver):
        ask = getattr(one, "get_autocommit", None)  # PyMySQL and its kin
        if ask is not None:
            return bool(ask())
    return bool(raw.autocommit)  # psycopg, asyncpg


def _attached(dialect: Dialect, of: Session | Connection, connection: Connection) -> Attached:
    return Attached(
        dialect, is_unprepared, Run(connection), at_end=_at_end(of), begun=_TOLD in of.info
    )


def _tell_of_end(of: Session | Connection) -> None:
    """Have the end of a session's or connection's transactions told, once for each object."""
    if isinstance(of, Session):
        if not event.contains(of, "after_transaction_end", _session_ended):
            event.listen(of, "after_transaction_end", _session_ended)
    elif not event.contains(of.engine, "commit", _committed):
        event.listen(of.engine, "commit", _committed)
        event.listen(of.engine, "rollback", _rolled_back)


def _at_end(of: Session | Connection) -> Callable[[Callable[[], None]], None]:
    def at_end(call: Callable[[], None]) -> None:
        info: dict[Any, Any] = of.info
        info.setdefault(_TOLD, []).append(call)

    return at_end


def _session_ended(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        _tell(session.info)


def _committed(connection: Connection) -> None:
    """Tell of a commit. It comes a moment before others see the rows."""
    _tell(connection.info)


def _rolled_back(connection: Connection) -> None:
    if not connection.invalidated:  # one that was lost has no ``info``: asking for it is an error
        connection.info.pop(_TOLD, None)


def _tell(info: dict[Any, Any]) -> None:
    for call in info.pop(_TOLD, ()):
        call()
