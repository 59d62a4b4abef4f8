"""Transactions as applications have them: each way to connect, on each database.

A way gives the transaction of ``within=``, runs statements in it, rolls a savepoint back, and ends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pymysql
import pymysql.converters
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from ternmq.reliable import Outbox

BARE: Final = {"sqlite": "sqlite3", "postgresql": "psycopg", "mariadb": "PyMySQL"}
_AWAITED: Final = {
    "sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg", "mariadb": "mysql+aiomysql",
}  # fmt: skip


@dataclass(slots=True)
class Way:
    """An open transaction.

    Attributes:
        within: For ``send``.
        run: Runs a statement in it.
        commit: Commits it.
        rollback: Rolls it back.
    """

    within: Any
    run: Callable[[str], object]
    commit: Callable[[], object]
    rollback: Callable[[], object]


@dataclass(slots=True)
class AwaitedWay:
    """The same for what is asked with ``await``."""

    within: Any
    run: Callable[[str], Awaitable[object]]
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]


def immediate(engine: sa.Engine) -> sa.Engine:
    """Have an engine's transactions on SQLite begin with the driver's first statement: IMMEDIATE.

    It is the recipe of SQLAlchemy's documentation. On other databases, nothing is changed.
    """
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _connected(raw: Any, record: object) -> None:
            raw.isolation_level = None

        @event.listens_for(engine, "begin")
        def _begun(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@contextmanager
def session(engine: sa.Engine, outbox: Outbox) -> Iterator[Way]:
    """A ``Session``."""
    with Session(engine) as one:
        yield Way(one, lambda text: one.execute(sa.text(text)), one.commit, one.rollback)


@contextmanager
def connection(engine: sa.Engine, outbox: Outbox) -> Iterator[Way]:
    """A ``Connection`` of SQLAlchemy Core."""
    with engine.connect() as one:
        yield Way(one, one.exec_driver_sql, one.commit, one.rollback)


@contextmanager
def bare(engine: sa.Engine, outbox: Outbox) -> Iterator[Way]:
    """A connection of the driver: nobody tells of its commit."""
    with closing(connect(engine)) as one:
        yield Way(one, _cursor(one), one.commit, one.rollback)


@contextmanager
def block(engine: sa.Engine, outbox: Outbox) -> Iterator[Way]:
    """The same in ``outbox.transaction``, which commits, or rolls back after an error."""
    with closing(connect(engine)) as one:
        around = outbox.transaction(one)
        around.__enter__()
        yield Way(
            one, _cursor(one), lambda: around.__exit__(None, None, None),
            lambda: around.__exit__(ValueError, ValueError(), None),
        )  # fmt: skip


def connect(engine: sa.Engine) -> Any:
    """Return a connection of the driver."""
    url = engine.url
    name = engine.dialect.name
    if name == "sqlite":
        return sqlite3.connect(str(url.database))
    if name == "postgresql":
        return psycopg.connect(
            host=url.host, port=url.port or 5432, user=url.username, dbname=url.database
        )
    return pymysql.connect(
        host=url.host, port=url.port or 3306, user=url.username, database=url.database
    )


def _cursor(connection: Any) -> Callable[[str], object]:
    def run(text: str) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(text)

    return run


def awaited_engine(engine: sa.Engine, kind: str) -> AsyncEngine:
    """Return an ``AsyncEngine`` on the same database."""
    made = create_async_engine(engine.url.set(drivername=_AWAITED[kind]))
    immediate(made.sync_engine)
    return made


@asynccontextmanager
async def async_session(engine: AsyncEngine) -> AsyncIterator[AwaitedWay]:
    """An ``AsyncSession``."""
    async with AsyncSession(engine) as one:
        yield AwaitedWay(one, lambda text: one.execute(sa.text(text)), one.commit, one.rollback)


@asynccontextmanager
async def async_connection(engine: AsyncEngine) -> AsyncIterator[AwaitedWay]:
    """An ``AsyncConnection`` of SQLAlchemy."""
    async with engine.connect() as one:
        found: AsyncConnection = one
        yield AwaitedWay(found, found.exec_driver_sql, found.commit, found.rollback)


@asynccontextmanager
async def async_bare(engine: AsyncEngine) -> AsyncIterator[AwaitedWay]:
    """An ``AsyncConnection`` of psycopg."""
    url = engine.url
    one = await psycopg.AsyncConnection.connect(
        host=url.host, port=url.port or 5432, user=url.username, dbname=url.database
    )
    async with one:
        yield AwaitedWay(one, lambda text: one.execute(text.encode()), one.commit, one.rollback)


WAYS: Final = {"Session": session, "Connection": connection, "bare": bare, "transaction": block}
AWAITED_WAYS: Final = {
    "AsyncSession": async_session, "AsyncConnection": async_connection,
    "psycopg.AsyncConnection": async_bare,
}  # fmt: skip
