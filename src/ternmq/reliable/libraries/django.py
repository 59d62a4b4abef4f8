"""Django: its connections and ``transaction.atomic``. The only module that knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from django.db import DEFAULT_DB_ALIAS, Error, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ternmq.model.errors import InvalidRequest, NotThisDatabase, OutsideTransaction
from ternmq.reliable.database.dialect import dialect_of
from ternmq.reliable.database.port import Result, Values, Work
from ternmq.reliable.libraries.attached import Attached
from ternmq.reliable.libraries.driver import BEGUN, pyformat
from ternmq.reliable.libraries.refusals import is_denied, is_unprepared, reason

_BEGIN: Final = {
    "postgresql": ("BEGIN ISOLATION LEVEL READ COMMITTED",),
    "mysql": ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
    "sqlite": ("BEGIN IMMEDIATE",),
}


class Run:
    """Runs statements on a connection of Django."""

    __slots__ = ("_connection",)

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def run(self, statement: str, values: Values) -> Result:
        """Run a statement; raises ``django.db.Error``."""
        with self._connection.cursor() as cursor:
            cursor.execute(*pyformat(statement, values))
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else ()
            return Result(rows, cursor.rowcount, getattr(cursor, "lastrowid", None) or 0)


class DjangoDatabase:
    """A database of Django's settings. Each thread has a connection of its own, as ever in Django.

    Args:
        using: Its alias.

    Raises:
        InvalidRequest: There is no such alias, or the database is of another kind.
    """

    errors: tuple[type[Exception], ...] = (Error,)

    def __init__(self, using: str = "default") -> None:
        if using not in connections:
            raise InvalidRequest(f"DATABASES of Django's settings has no {using!r}")
        self.using = using
        one = connections[using]
        self.dialect = dialect_of(one.vendor)
        place = one.settings_dict.get("HOST") or "localhost"
        self.name = f"{one.vendor}://{place}/{one.settings_dict['NAME']}"
        is_in_memory: Callable[[], bool] = getattr(one, "is_in_memory_db", lambda: False)
        self.alone = is_in_memory()

    @contextmanager
    def reading(self) -> Iterator[Work]:
        """Return a connection in autocommit; see ``Database.reading``."""
        connection = self._own()
        yield Run(connection)

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Work]:
        """Return a transaction; see ``Database.writing``."""
        connection = self._own()
        with connection.cursor() as cursor:
            for statement in _BEGIN[self.dialect.name]:
                cursor.execute(statement)
            try:
                if self.dialect.name == "postgresql":
                    cursor.execute(BEGUN[durable])
                yield Run(connection)
            except BaseException:
                if connection.is_usable():
                    cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def _own(self) -> BaseDatabaseWrapper:
        """Return this thread's connection; one that broke, or is too old, is opened again.

        Raises:
            OutsideTransaction: It is in the application's transaction.
        """
        connection = connections[self.using]
        if connection.in_atomic_block:
            raise OutsideTransaction(
                "this thread is inside transaction.atomic(), and this needs a connection of its "
                "own: call it outside"
            )
        connection.close_if_unusable_or_obsolete()
        connection.ensure_connection()
        return connection

    def close(self) -> None:
        """Close this thread's connection, unless a transaction is open."""
        connection = connections[self.using]
        if not connection.in_atomic_block:
            connection.close()

    def leave(self) -> None:
        """Do nothing: in a child, Django's connections are as the application left them."""

    def is_unprepared(self, error: Exception) -> bool:
        """Return whether an error says that a table or column is missing."""
        return is_unprepared(error)

    def is_denied(self, error: Exception) -> bool:
        """Return whether an error says that the account may not do something."""
        return is_denied(error)

    def reason(self, error: Exception) -> str:
        """Return what the database said, as one line: no statement, no values."""
        return reason(error)

    def attach(self, within: object) -> Attached | None:
        """Return the transaction of ``connections[...]``; None: it is something else.

        Raises:
            NotThisDatabase: It has another alias.
            OutsideTransaction: It is outside ``transaction.atomic``.
        """
        if within is connection:  # a proxy
            within = connections[DEFAULT_DB_ALIAS]
        if not isinstance(within, BaseDatabaseWrapper):
            return None
        if within.alias != self.using:
            raise NotThisDatabase(f"connection {within.alias!r} is not {self.using!r}")
        if not within.in_atomic_block:
            raise OutsideTransaction("no transaction.atomic() is open: nothing was written")
        return self._attached(within)

    def ambient(self) -> Attached | None:
        """Return the transaction of this thread's ``transaction.atomic``; None: it is outside."""
        connection = connections[self.using]
        return self._attached(connection) if connection.in_atomic_block else None

    def _attached(self, connection: BaseDatabaseWrapper) -> Attached:
        told: Callable[[Callable[[], None]], None] = partial(_at_commit, self.using)
        return Attached(self.dialect, is_unprepared, Run(connection), at_end=told)


def _at_commit(using: str, call: Callable[[], None]) -> None:
    def committed() -> None:  # ``robust`` names the function in its log
        call()

    transaction.on_commit(committed, using=using, robust=True)
