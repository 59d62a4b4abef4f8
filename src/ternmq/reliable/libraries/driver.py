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
    """Return whether an error says that a table or column is missing.

    The error of a library has that of its driver as ``orig`` (SQLAlchemy) or as its cause (Django).
    """
    cause = getattr(error, "orig", None) or error.__cause__ or error
    if isinstance(cause, sqlite3.Error):
        text = str(cause)
        return "no such table" in text or "no column named" in text or "no such column" in text
    if getattr(cause, "sqlstate", None) in _MISSING:
        return True
    arguments: tuple[object, ...] = getattr(cause, "args", ())
    return bool(arguments) and isinstance(arguments[0], int) and arguments[0] in _MISSING_MYSQL
