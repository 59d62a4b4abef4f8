"""What the drivers of databases have in common."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from ternmq.reliable.database.port import Values

_NAMED: Final = re.compile(r":([a-z_0-9]+)")
_MISSING: Final = {"42P01", "42703"}
"""SQLSTATE of PostgreSQL: no such table, no such column."""
_MISSING_MYSQL: Final = {1146, 1054}
_DENIED: Final = "42501"
"""SQLSTATE of PostgreSQL: a right is missing."""
_DENIED_MYSQL: Final = {1044, 1142, 1143, 1227, 1290, 1370}
"""To a database, a table, a column, an operation; the server is read-only; a routine."""

_IDLE_S: Final = 5
BEGUN: Final = {
    True: f"SELECT set_config('idle_in_transaction_session_timeout', '{_IDLE_S}s', true)",
    False: f"SELECT set_config('idle_in_transaction_session_timeout', '{_IDLE_S}s', true), "
    "set_config('synchronous_commit', 'off', true)",
}
"""PostgreSQL, first statement of a transaction of this package, by whether it is durable. A process
that is frozen in it, or cut off, must not lock rows that others want to change."""
PATIENCE: Final = f"SET @ternmq = 1 /*M!100300 , SESSION idle_transaction_timeout = {_IDLE_S} */"
"""The same for a connection to MariaDB; MySQL has no such limit, and reads no more than ``= 1``."""


def pyformat(statement: str, values: Values) -> tuple[str, dict[str, object]]:
    """Return a statement and its values for drivers that take ``%(name)s``."""
    return _NAMED.sub(r"%(\1)s", statement.replace("%", "%%")), dict(values)


def is_unprepared(error: BaseException) -> bool:
    """Return whether an error says that a table or column is missing."""
    cause = _cause(error)
    if isinstance(cause, sqlite3.Error):
        text = str(cause)
        return "no such table" in text or "no column named" in text or "no such column" in text
    return getattr(cause, "sqlstate", None) in _MISSING or _number(cause) in _MISSING_MYSQL


def is_denied(error: BaseException) -> bool:
    """Return whether an error says that the account may not do something."""
    cause = _cause(error)
    if isinstance(cause, sqlite3.Error):
        return "readonly" in str(cause)
    return getattr(cause, "sqlstate", None) == _DENIED or _number(cause) in _DENIED_MYSQL


def reason(error: BaseException) -> str:
    """Return what the database said, as one line: no statement, no values."""
    cause = _cause(error)
    text = cause.args[1] if _number(cause) is not None and len(cause.args) > 1 else cause
    return " ".join(str(text).split()) or type(cause).__name__


def _cause(error: BaseException) -> BaseException:
    """Return the driver's error.

    That of a library has it as ``orig`` (SQLAlchemy) or as its cause (Django).
    """
    found: BaseException = getattr(error, "orig", None) or error.__cause__ or error
    return found


def _number(cause: BaseException) -> int | None:
    """Return the number of an error of PyMySQL; None: it is another driver's."""
    number = cause.args[0] if cause.args else None
    return number if isinstance(number, int) else None
