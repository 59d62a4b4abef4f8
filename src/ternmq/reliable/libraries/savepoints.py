"""Savepoints of SQLite that are no part of a transaction.

The driver (``sqlite3``) begins a transaction before an INSERT, UPDATE or DELETE, and not before a
SAVEPOINT. If nothing was written before, the savepoint is the whole transaction: its release
commits, and a rollback of what SQLAlchemy calls the transaction comes too late. No statement tells
it afterwards, so it is noted when the savepoint is set. After its rollback the transaction is an
ordinary one: the savepoint stays open, and nothing releases it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, RootTransaction

from ternmq.model.errors import OutsideTransaction, hinted

_outermost: Final[weakref.WeakKeyDictionary[RootTransaction, int]] = weakref.WeakKeyDictionary()
"""Transaction of SQLAlchemy -> how many savepoints are open in it, while the first of them is the
whole transaction of SQLite."""
_lock: Final = threading.Lock()


def watch_savepoints() -> None:
    """Note, from now on, savepoints of all engines for SQLite. May be repeated. No I/O."""
    with _lock:
        if not event.contains(Engine, "savepoint", _set):
            event.listen(Engine, "savepoint", _set)
            event.listen(Engine, "release_savepoint", _ended)
            event.listen(Engine, "rollback_savepoint", _ended)


def check_savepoint(connection: Connection) -> None:
    """Check that the rollback of a connection's transaction would undo what is written now.

    Raises:
        OutsideTransaction: The end of a savepoint commits it.
    """
    root = _root(connection)
    if root is None or root not in _outermost:
        return
    if connection.in_nested_transaction():
        raise hinted(
            OutsideTransaction(
                "the driver of SQLite has begun no transaction before this savepoint, whose end "
                "would commit, whatever becomes of the transaction: nothing was written"
            ),
            "let events of the engine begin: at 'connect', set isolation_level = None of the "
            "driver's connection; at 'begin', connection.exec_driver_sql('BEGIN IMMEDIATE'); or, "
            "from Python 3.12 on, create_engine(..., connect_args={'autocommit': False})",
        )
    del _outermost[root]  # a savepoint was rolled back together with those inside it


def _root(connection: Connection) -> RootTransaction | None:
    return connection.get_transaction()


def _set(connection: Connection, name: str) -> None:
    del name  # SQLAlchemy gives it later
    root = _root(connection)
    if connection.dialect.name != "sqlite" or root is None:
        return
    driver: Any = connection.connection.driver_connection
    if root in _outermost:
        _outermost[root] += 1
    elif not getattr(driver, "in_transaction", True):
        _outermost[root] = 1


def _ended(connection: Connection, name: str, context: object) -> None:
    del name, context
    root = _root(connection)
    if root is None or root not in _outermost:
        return
    _outermost[root] -= 1
    if not _outermost[root]:
        del _outermost[root]
