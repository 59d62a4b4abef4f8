"""What the error of a database means, by the codes of its drivers; no driver is imported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final

_AGAIN: Final = ("40001", "40P01")
"""SQLSTATE of PostgreSQL: the transaction cannot be ordered among others; deadlock."""
_AGAIN_MYSQL: Final = (1213, 1020)
"""Deadlock; MariaDB under ``innodb_snapshot_isolation``: the row has changed since it was read."""
_WAITED: Final = ("55P03",)
"""PostgreSQL: ``lock_timeout`` is over."""
_WAITED_MYSQL: Final = (1205,)
_TAKEN_MYSQL: Final = (1062,)
_MISSING: Final = ("42P01", "42703")
"""No such table, no such column."""
_MISSING_MYSQL: Final = (1146, 1054)
_MISSING_SQLITE: Final = ("no such table", "no column named", "no such column")
_NO_SAVEPOINT_MYSQL: Final = (1305,)
"""No such savepoint; of a routine, too."""
_NO_SAVEPOINT_SQLITE: Final = "no such savepoint"
_ABORTED: Final = ("25P02",)
"""PostgreSQL: an earlier statement of the transaction has failed."""
_AWAY: Final = ("08", "57P0")
"""Beginnings: the connection; the server or an administrator ends it, or does not accept it yet."""
_AWAY_MYSQL: Final = (1040, 1053, 1927)
"""Too many connections; the server shuts down; the connection was killed."""
_PSYCOPG: Final = ("psycopg", "psycopg2", "psycopg_pool")
_OF_THE_PROGRAM: Final = ("ProgrammingError", "DataError", "NotSupportedError")
_DRIVERS_MYSQL: Final = ("pymysql", "MySQLdb")
_DENIED: Final = ("42501",)
_DENIED_MYSQL: Final = (1044, 1142, 1143, 1227, 1290, 1370)
"""To a database, a table, a column, an operation; the server is read-only; a routine."""


def asks_again(error: BaseException) -> bool:
    """Return whether the whole transaction may be run again at once, and may succeed then."""
    return _is(error, _AGAIN, _AGAIN_MYSQL)


def waited_in_vain(error: BaseException) -> bool:
    """Return whether a lock of another transaction was not given up in time."""
    return _is(error, _WAITED, _WAITED_MYSQL) or any(_is_busy(one) for one in _causes(error))


def is_taken(error: BaseException) -> bool:
    """Return whether the primary key is there already, in MySQL."""
    return _is(error, (), _TAKEN_MYSQL)


def is_unprepared(error: BaseException) -> bool:
    """Return whether a table or column is missing."""
    return _is(error, _MISSING, _MISSING_MYSQL) or any(
        isinstance(one, sqlite3.Error) and any(text in str(one) for text in _MISSING_SQLITE)
        for one in _causes(error)
    )


def is_savepoint_missing(error: BaseException) -> bool:
    """Return whether the savepoint that a RELEASE names is not there, in MySQL and SQLite."""
    return _is(error, (), _NO_SAVEPOINT_MYSQL) or any(
        isinstance(one, sqlite3.Error) and _NO_SAVEPOINT_SQLITE in str(one)
        for one in _causes(error)
    )


def is_aborted(error: BaseException) -> bool:
    """Return whether an earlier statement of the transaction has failed, in PostgreSQL."""
    return _is(error, _ABORTED, ())


def is_denied(error: BaseException) -> bool:
    """Return whether the account may not do something."""
    return _is(error, _DENIED, _DENIED_MYSQL) or any(
        isinstance(one, sqlite3.Error) and "readonly" in str(one) for one in _causes(error)
    )


def is_away(error: BaseException) -> bool:
    """Return whether the database cannot be reached: no connection, or it broke."""
    return any(_breaks(one) for one in _causes(error))


def reason(error: BaseException) -> str:
    """Return what the database said, as one line: no statement, no values."""
    *_, said = _causes(error)
    numbered = len(said.args) > 1 and isinstance(said.args[0], int)  # PyMySQL's
    text = said.args[1] if numbered else said
    return " ".join(str(text).split()) or type(said).__name__


def _is(error: BaseException, states: tuple[str, ...], numbers: tuple[int, ...]) -> bool:
    for one in _causes(error):
        if _state(one) in states:
            return True
        number = one.args[0] if one.args else None
        if type(number) is int and number in numbers:
            return True
    return False


def _breaks(error: BaseException) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN
    library, name = type(error).__module__.partition(".")[0], type(error).__name__
    if library in _PSYCOPG:
        state = _state(error)
        # Without a state it is not the server that speaks, but the driver or its pool.
        silent = state is None and name not in _OF_THE_PROGRAM
        return silent or str(state).startswith(_AWAY)
    if library in _DRIVERS_MYSQL:
        number = error.args[0] if error.args else None
        return type(number) is int and (2000 <= number < 3000 or number in _AWAY_MYSQL)
    return False


def _state(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error of psycopg 3 or psycopg2; None: it has none."""
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else None


def _is_busy(error: BaseException) -> bool:
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those that it was made of, and what a library has wrapped in it."""
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        wrapped = getattr(one, "orig", None)  # of SQLAlchemy
        one = wrapped if isinstance(wrapped, BaseException) else one.__cause__
