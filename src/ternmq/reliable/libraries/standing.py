"""Whether the transaction of a function is, at its end, the one that was begun for it.

A database may roll a transaction back without its end being asked for: PostgreSQL commits nothing
after a statement that failed; MySQL and MariaDB roll back all of it after a deadlock, and the next
statement begins another one. A function that catches such an error would be taken for one that has
had its effect. So would one that runs COMMIT or ROLLBACK as a statement.

A mark is set in the transaction, and looked for before the commit: a savepoint, which ends with its
transaction however that ends; in PostgreSQL, where a savepoint has a price, a setting that lasts as
long as the transaction.
"""

from __future__ import annotations

from typing import Any, Final

from ternmq.model.errors import InvalidHandler
from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import Work
from ternmq.reliable.libraries.refusals import is_aborted, is_savepoint_missing

MARK: Final = "ternmq.before"
"""Setting of PostgreSQL. The first statements of a transaction of this package set it, for the
transaction, to a text that is not empty: so it costs no statement of its own."""
_SAVEPOINT: Final = "SAVEPOINT ternmq_begun"
_RELEASE: Final = "RELEASE SAVEPOINT ternmq_begun"
_END: Final = {
    "postgresql": f"SELECT current_setting('{MARK}', true)", "mysql": _RELEASE, "sqlite": _RELEASE,
}  # fmt: skip
"""Finds the mark."""

_OPEN_MYSQL: Final = 0x0001
_FAILED: Final = 3
"""``transaction_status`` of psycopg: the server accepts nothing but the end of the transaction."""
_IDLE: Final = 0


class NotCommitted(InvalidHandler):
    """A function returned, and its transaction cannot be committed, or is not the one it got."""


def ended() -> NotCommitted:
    """Return the error for a function that ended its transaction itself."""
    return NotCommitted(
        "the function has committed or rolled back its transaction, which ends when the "
        "function returns; to roll it back, raise an exception. A Session rolls back, too, when "
        "one of its statements or a flush fails: to go on after an error, use a savepoint "
        "(begin_nested)"
    )


def failed() -> NotCommitted:
    """Return the error for a function that went on after a statement that failed."""
    return NotCommitted(
        "a statement of the function failed, after which its transaction cannot be committed; to "
        "go on after an error, run the statement in a savepoint (begin_nested)"
    )


def replaced() -> NotCommitted:
    """Return the error for a function whose transaction ended while it ran, and another began."""
    return NotCommitted(
        "the transaction of the function was committed or rolled back before the function "
        "returned: by a statement of it (COMMIT, ROLLBACK, or one that commits by itself, such as "
        "CREATE TABLE in MySQL), or by the database, after an error that the function has caught "
        "(a deadlock, say). To go on after an error, run the statement in a savepoint "
        "(begin_nested); let the error of a deadlock end the function"
    )


def mark(work: Work, dialect: Dialect) -> None:
    """Mark a transaction, after its first statements."""
    if dialect.name != "postgresql":
        work.run(_SAVEPOINT, {})


def check_mark(work: Work, dialect: Dialect) -> None:
    """Check that the transaction is the one that was marked. One statement.

    Raises:
        NotCommitted: It is another one.
        Exception: The database's own.
    """
    try:
        rows = work.run(_END[dialect.name], {}).rows
    except Exception as error:
        if is_savepoint_missing(error):
            raise replaced() from error
        if is_aborted(error):
            raise failed() from error
        raise
    if dialect.name == "postgresql" and not rows[0][0]:
        raise replaced()


def check_driver(driver: Any) -> None:  # noqa: ANN401 - of several libraries
    """Check what a driver knows of its transaction without a statement.

    Raises:
        NotCommitted: None is open, or PostgreSQL will not commit it.
    """
    if has_ended(driver):
        raise ended()
    if has_failed(driver):
        raise failed()


def has_ended(driver: Any) -> bool:  # noqa: ANN401 - of several libraries
    """Return whether no transaction is open on the connection of a driver.

    False where the driver does not know it without a statement.
    """
    library = type(driver).__module__.partition(".")[0]
    if library in {"sqlite3", "aiosqlite"}:
        return not driver.in_transaction
    if library in {"psycopg", "psycopg2"}:
        return int(driver.info.transaction_status) == _IDLE
    if library == "pymysql":
        return not driver.server_status & _OPEN_MYSQL
    if library == "aiomysql":
        return not driver.get_transaction_status()
    return False


def has_failed(driver: Any) -> bool:  # noqa: ANN401 - of several libraries
    """Return whether a statement has failed, after which PostgreSQL commits nothing.

    It answers COMMIT with a rollback then, and drivers raise no error. False where the driver does
    not know it without a statement.
    """
    if type(driver).__module__.partition(".")[0] in {"psycopg", "psycopg2"}:
        return int(driver.info.transaction_status) == _FAILED
    return False
