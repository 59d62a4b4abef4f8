"""Connections of ``sqlite3``, psycopg 3 and PyMySQL, without SQLAlchemy.

They are told from their classes' modules: none of the libraries is imported here. A connection
takes no note of its commits, so nobody tells of the end of its transaction; see
``Outbox.transaction``.
"""

from __future__ import annotations

import os.path
import sqlite3
from typing import TYPE_CHECKING, Any, Final, cast

from ternmq.model.errors import InvalidRequest, NotThisDatabase, OutsideTransaction
from ternmq.reliable.database.port import Result, Values
from ternmq.reliable.libraries.attached import ApplicationDatabase, Attached
from ternmq.reliable.libraries.driver import pyformat
from ternmq.reliable.libraries.refusals import is_unprepared

if TYPE_CHECKING:
    from ternmq.reliable.libraries.alchemy import AlchemyDatabase

_IN_TRANSACTION: Final = 0x0001
"""A flag of MySQL's server status."""


def attach(of: ApplicationDatabase, within: object) -> Attached | None:
    """Return the transaction of a bare connection; None: it is none that is known.

    Only databases with a URL have such connections; Django's are its own.

    Raises:
        NotThisDatabase: It belongs to another database.
        OutsideTransaction: It commits each statement.
    """
    if not hasattr(of, "url"):
        return None
    database = cast("AlchemyDatabase", of)
    if isinstance(within, sqlite3.Connection):
        _check(database, "sqlite", _is_file(database, within))
        if _commits_each(within):
            raise _outside("connection.execute('BEGIN IMMEDIATE')")
        return Attached(database.dialect, is_unprepared, _Run(within))
    library, kind = _kind(within)
    if library == "psycopg":
        return _psycopg(database, within, awaited=kind == "AsyncConnection")
    if library == "pymysql":
        return _pymysql(database, within)
    return None


def _psycopg(database: AlchemyDatabase, connection: Any, *, awaited: bool) -> Attached:  # noqa: ANN401
    info, url = connection.info, database.url
    same = info.dbname == (url.database or info.user) and info.port == (url.port or 5432)
    _check(database, "postgresql", same)
    if connection.autocommit and info.transaction_status.name == "IDLE":
        raise _outside("connection.transaction()")
    if awaited:
        return Attached(database.dialect, is_unprepared, awaited=_AwaitedRun(connection))
    return Attached(database.dialect, is_unprepared, _Run(connection))


def _pymysql(database: AlchemyDatabase, connection: Any) -> Attached:  # noqa: ANN401
    url, name = database.url, connection.db
    name = name.decode() if isinstance(name, bytes) else name
    _check(database, "mysql", (name, connection.port) == (url.database, url.port or 3306))
    if connection.get_autocommit() and not connection.server_status & _IN_TRANSACTION:
        raise _outside("connection.begin()")
    return Attached(database.dialect, is_unprepared, _Run(connection))


def is_known(connection: object) -> bool:
    """Return whether it is a connection of one of these libraries."""
    return isinstance(connection, sqlite3.Connection) or _kind(connection) in {
        ("psycopg", "Connection"), ("psycopg", "AsyncConnection"), ("pymysql", "Connection"),
    }  # fmt: skip


def begin(connection: Any) -> None:  # noqa: ANN401 - of three libraries
    """Begin a transaction; where a statement would begin one by itself, do nothing.

    Raises:
        OutsideTransaction: psycopg's connection is in autocommit.
        InvalidRequest: It is asked with ``await``.
    """
    if isinstance(connection, sqlite3.Connection):
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        return
    library, kind = _kind(connection)
    if kind == "AsyncConnection":
        raise InvalidRequest("this connection is asked with await: use `async with`")
    if library == "pymysql":
        # BEGIN would commit what is open.
        if connection.get_autocommit() and not connection.server_status & _IN_TRANSACTION:
            connection.begin()
    elif connection.autocommit:
        raise _autocommit()


async def begin_awaited(connection: Any) -> None:  # noqa: ANN401 - psycopg is not imported
    """Begin a transaction of psycopg's ``AsyncConnection``: its next statement does that.

    Raises:
        OutsideTransaction: The connection is in autocommit.
        InvalidRequest: It is a connection that blocks.
    """
    if _kind(connection) != ("psycopg", "AsyncConnection"):
        raise InvalidRequest("this connection blocks: use `with` instead of `async with`")
    if connection.autocommit:
        raise _autocommit()


def _autocommit() -> OutsideTransaction:
    return OutsideTransaction(
        "the connection is in autocommit: use connection.transaction() and outbox.bound(connection)"
    )


def _kind(connection: object) -> tuple[str, str]:
    """Return library and class of a connection, also of a class that is derived from it."""
    for one in type(connection).__mro__:
        library = one.__module__.partition(".")[0]
        if library in {"psycopg", "pymysql"} and one.__name__ in {"Connection", "AsyncConnection"}:
            return library, one.__name__
    return "", ""


def _commits_each(connection: sqlite3.Connection) -> bool:
    if connection.in_transaction:
        return False
    mode = getattr(connection, "autocommit", -1)  # from Python 3.12 on; -1: isolation_level counts
    if mode == -1:
        return connection.isolation_level is None
    return bool(mode)


def _is_file(database: AlchemyDatabase, connection: sqlite3.Connection) -> bool:
    """Return whether the main file of a connection is that of the database."""
    for _, name, path in connection.execute("PRAGMA database_list"):
        if name == "main":
            return os.path.realpath(str(path)) == os.path.realpath(database.url.database or "")
    return False


def _check(database: AlchemyDatabase, kind: str, same: bool) -> None:
    if database.dialect.name != kind or not same:
        raise NotThisDatabase(f"the connection belongs to another database than {database.name}")


def _outside(begin: str) -> OutsideTransaction:
    return OutsideTransaction(
        "the connection is in autocommit, so each statement is a transaction: nothing was written; "
        f"begin one with {begin}, or use outbox.transaction(connection)"
    )


class _Run:
    """Runs statements on a connection of DB-API 2."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - of three libraries
        self._connection = connection

    def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises what the driver raises."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(*_asked(cursor, statement, values))
            rows = [_values(row) for row in cursor.fetchall()] if cursor.description else ()
            return Result(rows, cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)
        finally:
            cursor.close()


class _AwaitedRun:
    """Runs statements on an ``AsyncConnection`` of psycopg."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - psycopg is not imported
        self._connection = connection

    async def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises what psycopg raises."""
        async with self._connection.cursor() as cursor:
            await cursor.execute(*_asked(cursor, statement, values))
            rows = await cursor.fetchall() if cursor.description else ()
            return Result([_values(row) for row in rows], cursor.rowcount)


def _asked(cursor: object, statement: str, values: Values) -> tuple[str, dict[str, object]]:
    if isinstance(cursor, sqlite3.Cursor):
        return statement, dict(values)
    return pyformat(statement, values)


def _values(row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - drivers have rows of several kinds
    return tuple(row.values()) if isinstance(row, dict) else tuple(row)
