"""A function whose transaction ended before it returned has not had its effect."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import Session

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent
from tests.integration.reliable.conftest import bodies
from tests.integration.reliable.inboxes import (
    AwaitedMessage,
    Message,
    effects,
    remembered,
    shop,
)

EFFECT = sa.text("INSERT INTO effects VALUES (:id, 1)")
ADD = sa.text("UPDATE effects SET n = n + 1 WHERE id = :id")
BUSY_S = 20.0
DRIVERS = {
    "sqlite": sqlite3.Connection, "postgresql": psycopg.Connection,
    "mysql": pymysql.connections.Connection,
}  # fmt: skip


@pytest.fixture
def shop_engine(database: str) -> Iterator[sa.Engine]:
    with shop(database) as engine:
        yield engine


@pytest.fixture
def inbox(shop_engine: sa.Engine) -> Iterator[Inbox]:
    with Inbox(shop_engine, wait=1.0) as made:
        made.prepare()
        yield made


@pytest.mark.parametrize("then", [False, True], ids=["at its end", "before another statement"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_statement_that_ends_the_transaction(inbox, shop_engine, end, then) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "before"})
        session.connection().exec_driver_sql(end)
        if then:
            session.execute(EFFECT, {"id": "afterwards"})

    with pytest.raises(ternmq.InvalidHandler, match=r"committed or rolled back.*savepoint"):
        handle(None, Message("order-7"))
    committed = end == "COMMIT"  # what the handler has committed cannot be taken back
    assert effects(shop_engine) == (["before"] if committed else [])
    assert len(remembered(shop_engine)) == committed
    assert inbox.stats().handled == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_drivers_connection_that_ends_the_transaction_and_begins_another(
    inbox, shop_engine, end
) -> None:
    def handle(order: object, bare: Any) -> None:
        getattr(bare, end)()
        bare.cursor().execute("INSERT INTO effects VALUES ('afterwards', 1)")

    handle.__annotations__["bare"] = DRIVERS[shop_engine.dialect.name]
    with pytest.raises(ternmq.InvalidHandler, match="committed or rolled back"):
        idempotent(inbox)(handle)(None, Message("order-7"))
    assert effects(shop_engine) == []


def test_savepoints_and_errors_inside_them_are_the_handlers_own(inbox, shop_engine) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "kept"})
        with suppress(sa.exc.DBAPIError), session.begin_nested():
            session.execute(EFFECT, {"id": "undone"})
            session.execute(sa.text("INSERT INTO nothing VALUES (1)"))
        with session.begin_nested():
            session.execute(EFFECT, {"id": "nested"})

    handle(None, Message("order-7"))
    handle(None, Message("order-8"))  # the connection, and its settings, are used again
    assert effects(shop_engine) == ["kept", "kept", "nested", "nested"]
    assert inbox.stats().handled == 2


@contextmanager
def two_rows(engine: sa.Engine) -> Iterator[None]:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE INDEX by_id ON effects (id)")
        connection.exec_driver_sql("INSERT INTO effects VALUES ('a', 0), ('b', 0)")
    yield


def test_a_deadlock_that_a_handler_has_swallowed(servers, tmp_path) -> None:
    """MariaDB rolls all of the transaction back, and the next statement begins another one."""
    with (
        shop(servers.new("mariadb", tmp_path)) as engine, two_rows(engine), Inbox(engine) as inbox,
    ):  # fmt: skip
        inbox.prepare()
        both, swallowed = threading.Barrier(2), []

        @idempotent(inbox)
        def handle(first: str, session: Session) -> None:
            session.execute(EFFECT, {"id": f"effect of {first}"})
            session.execute(ADD, {"id": first})
            both.wait(BUSY_S)
            try:
                session.execute(ADD, {"id": "b" if first == "a" else "a"})
            except sa.exc.OperationalError as error:
                swallowed.append((first, str(error.orig)))
            session.execute(EFFECT, {"id": f"later of {first}"})

        def outcome(first: str) -> object:
            try:
                return handle(first, Message(first))
            except ternmq.InvalidHandler as error:
                return error

        with ThreadPoolExecutor(2) as threads:
            told = dict(zip("ab", threads.map(outcome, "ab"), strict=True))
        [(victim, said)] = swallowed
        other = "b" if victim == "a" else "a"
        assert "Deadlock" in said
        assert "deadlock" in str(told[victim])
        assert told[other] is None
        assert [id_ for _, id_ in remembered(engine)] == [other]
        assert effects(engine) == ["a", "b", f"effect of {other}", f"later of {other}"]


def test_a_swallowed_error_takes_back_what_was_sent(
    servers, tmp_path, client: ternmq.sync.Client
) -> None:
    with (
        shop(servers.new("postgresql", tmp_path)) as engine,
        Inbox(engine) as inbox,
        Outbox(client, engine) as outbox,
    ):
        inbox.prepare()

        @idempotent(inbox)
        def handle(order: object, session: Session) -> None:
            session.execute(EFFECT, {"id": "lost"})
            client.send("invoices", b"7")
            with suppress(sa.exc.DBAPIError):
                session.execute(sa.text("INSERT INTO nothing VALUES (1)"))

        with pytest.raises(ternmq.InvalidHandler, match="savepoint"):
            handle(None, Message("order-7"))
        outbox.flush()
        assert (effects(engine), remembered(engine), bodies(client, "invoices")) == ([], [], [])


@pytest.mark.parametrize("drivername", ["postgresql+psycopg", "mysql+aiomysql", "sqlite+aiosqlite"])
def test_a_handler_that_is_awaited(servers, tmp_path, drivername) -> None:
    kind = drivername.partition("+")[0].replace("mysql", "mariadb")
    url = sa.make_url(servers.new(kind, tmp_path))
    blocking = url.render_as_string(hide_password=False)

    async def run(engine: sa.Engine) -> None:
        async with Inbox(url.set(drivername=drivername), clean=False) as inbox:
            await asyncio.to_thread(inbox.prepare)

            @idempotent(inbox)
            async def ends(order: object, connection: AsyncConnection) -> None:
                await connection.execute(EFFECT, {"id": "before"})
                await connection.exec_driver_sql("ROLLBACK")
                await connection.execute(EFFECT, {"id": "afterwards"})

            @idempotent(inbox)
            async def swallows(order: object, connection: AsyncConnection) -> None:
                await connection.execute(EFFECT, {"id": "before"})
                with suppress(sa.exc.DBAPIError):
                    await connection.exec_driver_sql("INSERT INTO nothing VALUES (1)")

            with pytest.raises(ternmq.InvalidHandler, match="committed or rolled back"):
                await ends(None, AwaitedMessage("a"))
            assert remembered(engine) == []
            if kind == "postgresql":
                with pytest.raises(ternmq.InvalidHandler, match="savepoint"):
                    await swallows(None, AwaitedMessage("b"))
                assert (effects(engine), remembered(engine)) == ([], [])
            else:
                await swallows(None, AwaitedMessage("b"))
                assert (len(effects(engine)), len(remembered(engine))) == (1, 1)

    with shop(blocking) as engine:
        asyncio.run(run(engine))


def test_a_swallowed_error_in_a_block_around_a_bare_connection(
    servers, tmp_path, client: ternmq.sync.Client
) -> None:
    url = servers.new("postgresql", tmp_path)
    plain = url.replace("+psycopg", "")
    with shop(url) as engine, Outbox(client, engine) as outbox:
        outbox.prepare()

        def fails(bare: psycopg.Connection) -> None:
            with outbox.transaction(bare):
                client.send("orders", b"lost")
                with suppress(psycopg.Error):
                    bare.execute("INSERT INTO nothing VALUES (1)")

        async def fails_awaited() -> None:
            connecting = psycopg.AsyncConnection.connect(plain)
            async with await connecting as bare, outbox.transaction(bare):
                with suppress(psycopg.Error):
                    await bare.execute("INSERT INTO nothing VALUES (1)")

        with closing(psycopg.connect(plain)) as bare:
            with pytest.raises(ternmq.InvalidRequest, match="commits nothing"):
                fails(bare)
            with outbox.transaction(bare):  # the connection goes on
                client.send("orders", b"kept")
                with suppress(psycopg.Error), bare.transaction():
                    bare.execute("INSERT INTO nothing VALUES (1)")
        with pytest.raises(ternmq.InvalidRequest, match="commits nothing"):
            asyncio.run(fails_awaited())
        outbox.flush()
        assert bodies(client) == [b"kept"]
