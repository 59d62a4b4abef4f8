"""Handlers with an inbox on a database: one transaction, whatever they use and however they end."""

from __future__ import annotations

import asyncio
import functools
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import aiosqlite
import psycopg
import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import ternmq
import ternmq.sync
from ternmq.reliable import Inbox, Outbox, idempotent
from tests.black_box.process import wait_until
from tests.integration.reliable.conftest import bodies
from tests.integration.reliable.inboxes import (
    AwaitedMessage,
    Message,
    effects,
    remembered,
    shop,
    sqlite,
)

EFFECT = sa.text("INSERT INTO effects VALUES (:id, 1)")
BUSY_S = 20.0


class Failed(Exception):
    """A handler fails."""


@pytest.fixture
def shop_engine(database: str) -> Iterator[sa.Engine]:
    with shop(database) as engine:
        yield engine


@pytest.fixture
def inbox(shop_engine: sa.Engine) -> Iterator[Inbox]:
    with Inbox(shop_engine, wait=1.0) as made:
        made.prepare()
        yield made


@contextmanager
def file_inbox(tmp_path, *, of: Callable[[str], object] = str) -> Iterator[tuple[sa.Engine, Inbox]]:
    with shop(sqlite(tmp_path)) as engine, Inbox(of(sqlite(tmp_path)), wait=1.0) as inbox:
        inbox.prepare()
        yield engine, inbox


# -- one transaction ------------------------------------------------------------------------------


def test_id_and_effect_are_one_transaction(inbox, shop_engine) -> None:
    fails = True

    @idempotent(inbox)
    def handle(order: dict[str, int], session: Session) -> None:
        session.execute(EFFECT, {"id": "order-7"})
        if fails:
            raise Failed

    with pytest.raises(Failed):
        handle({}, Message("order-7"))
    assert (effects(shop_engine), remembered(shop_engine)) == ([], [])
    fails = False
    for _ in range(3):
        handle({}, Message("order-7"))
    assert effects(shop_engine) == ["order-7"]
    assert remembered(shop_engine) == [("orders/billing", "order-7")]
    assert (inbox.stats().handled, inbox.stats().suppressed) == (1, 2)


@pytest.mark.parametrize("outcome", [ternmq.Retry("later"), ternmq.Reject("never")])
def test_a_message_that_is_retried_or_rejected_leaves_no_row(inbox, shop_engine, outcome) -> None:
    @idempotent(inbox)
    def handle(order: object, connection: sa.Connection) -> None:
        connection.execute(EFFECT, {"id": "order-7"})
        raise outcome

    with pytest.raises(type(outcome)):
        handle(None, Message("order-7"))
    assert (effects(shop_engine), remembered(shop_engine)) == ([], [])


def test_id_by_the_body(inbox, shop_engine) -> None:
    @idempotent(inbox, by=lambda order: order["id"])
    def handle(order: dict[str, int], session: Session) -> None:
        session.execute(EFFECT, {"id": f"{order['id']}"})

    handle({"id": 7}, Message("a"))
    handle({"id": 7}, Message("b"))
    handle({"id": 8}, Message("b"))
    assert effects(shop_engine) == ["7", "8"]
    with pytest.raises(ternmq.InvalidRequest, match="None"):
        idempotent(inbox, by=lambda order: None)(handle.__wrapped__)({}, Message("c"))  # type: ignore[attr-defined]


def test_all_that_a_handler_is_given_is_one_transaction(inbox, shop_engine) -> None:
    drivers = {"sqlite": sqlite3.Connection, "postgresql": psycopg.Connection,
               "mysql": pymysql.connections.Connection}  # fmt: skip
    driver = drivers[shop_engine.dialect.name]
    fails = True

    def handle(order: object, session: Session, connection: sa.Connection, bare: Any) -> None:
        session.execute(EFFECT, {"id": "session"})
        connection.execute(EFFECT, {"id": "connection"})
        cursor = bare.cursor()
        cursor.execute("INSERT INTO effects VALUES ('bare', 1)")
        cursor.execute("SELECT count(*) FROM effects")
        assert cursor.fetchone()[0] == 3
        cursor.close()
        if fails:
            raise Failed

    handle.__annotations__["bare"] = driver
    decorated = idempotent(inbox)(handle)
    with pytest.raises(Failed):
        decorated(None, Message("order-7"))
    assert effects(shop_engine) == []
    fails = False
    decorated(None, Message("order-7"))
    assert effects(shop_engine) == ["bare", "connection", "session"]


def test_objects_of_a_session_are_written_without_a_commit(inbox, shop_engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Effect(Base):
        __tablename__ = "effects"
        id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)

    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.add(Effect(id="order-7"))

    handle(None, Message("order-7"))
    assert effects(shop_engine) == ["order-7"]


def test_a_commit_of_the_session_commits_nothing_before_the_end(inbox, shop_engine) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "order-7"})
        session.commit()
        raise Failed

    with pytest.raises(Failed):
        handle(None, Message("order-7"))
    assert (effects(shop_engine), remembered(shop_engine)) == ([], [])


def test_a_savepoint_of_a_handler(inbox, shop_engine) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "kept"})
        with suppress(Failed), session.begin_nested():
            session.execute(EFFECT, {"id": "undone"})
            raise Failed

    handle(None, Message("order-7"))
    assert effects(shop_engine) == ["kept"]
    assert len(remembered(shop_engine)) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_handler_that_ends_the_transaction_fails(inbox, shop_engine, end) -> None:
    @idempotent(inbox)
    def handle(order: object, connection: sa.Connection) -> None:
        getattr(connection, end)()
        connection.execute(EFFECT, {"id": "afterwards"})

    with pytest.raises(ternmq.InvalidHandler, match="committed or rolled back"):
        handle(None, Message("order-7"))
    assert effects(shop_engine) == []


def test_a_session_that_rolls_back_fails(inbox, shop_engine) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "before"})
        session.rollback()

    with pytest.raises(ternmq.InvalidHandler, match="committed or rolled back"):
        handle(None, Message("order-7"))
    assert (effects(shop_engine), remembered(shop_engine)) == ([], [])


def test_a_drivers_connection_that_commits_fails(inbox, shop_engine) -> None:
    drivers = {"sqlite": sqlite3.Connection, "postgresql": psycopg.Connection,
               "mysql": pymysql.connections.Connection}  # fmt: skip

    def handle(order: object, bare: Any) -> None:
        bare.rollback()

    handle.__annotations__["bare"] = drivers[shop_engine.dialect.name]
    with pytest.raises(ternmq.InvalidHandler, match="committed or rolled back"):
        idempotent(inbox)(handle)(None, Message("order-7"))
    assert remembered(shop_engine) == []


def test_an_error_that_a_handler_has_swallowed(servers, tmp_path) -> None:
    """PostgreSQL answers the COMMIT with a rollback, and nothing raises an error."""
    with shop(servers.new("postgresql", tmp_path)) as engine, Inbox(engine) as inbox:
        inbox.prepare()

        @idempotent(inbox)
        def handle(order: object, connection: sa.Connection) -> None:
            connection.execute(EFFECT, {"id": "lost"})
            with suppress(sa.exc.DBAPIError):
                connection.exec_driver_sql("INSERT INTO nothing VALUES (1)")

        with pytest.raises(ternmq.InvalidHandler, match="savepoint"):
            handle(None, Message("order-7"))
        assert (effects(engine), remembered(engine), inbox.stats().handled) == ([], [], 0)


def test_what_the_client_finds_after_the_call_is_found_before_the_commit(tmp_path) -> None:
    async def forgotten() -> None: ...

    with file_inbox(tmp_path) as (engine, inbox):

        @idempotent(inbox)
        def handle(order: object, session: Session) -> object:
            session.execute(EFFECT, {"id": "order-7"})
            return forgotten()

        with pytest.raises(TypeError, match="not run"):
            handle(None, Message("order-7"))
        assert (effects(engine), remembered(engine)) == ([], [])


# -- settings that the handler must not notice ----------------------------------------------------

WAITS = {
    "sqlite": "PRAGMA busy_timeout",
    "postgresql": "SHOW lock_timeout",
    "mysql": "SELECT @@SESSION.innodb_lock_wait_timeout",
}


def test_how_long_the_statements_of_a_handler_wait_is_not_changed(inbox, shop_engine) -> None:
    seen = []

    def wait(connection: sa.Connection) -> object:
        return connection.exec_driver_sql(WAITS[connection.dialect.name]).scalar()

    @idempotent(inbox)
    def handle(order: object, connection: sa.Connection) -> None:
        seen.append(wait(connection))

    with shop_engine.connect() as connection:
        before = wait(connection)
    for id_ in ("a", "a", "b"):
        handle(None, Message(id_))
    with shop_engine.connect() as connection:
        after = wait(connection)
    assert seen == [before, before]
    assert after == before


def test_sqlites_recipe_for_begin_immediate(tmp_path) -> None:
    with shop(sqlite(tmp_path)) as engine, Inbox(engine) as inbox:
        inbox.prepare()

        @event.listens_for(engine, "connect")
        def connected(raw: Any, record: object) -> None:
            raw.isolation_level = None

        @event.listens_for(engine, "begin")
        def began(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        engine.dispose()
        fails = True

        @idempotent(inbox)
        def handle(order: object, session: Session) -> None:
            session.execute(EFFECT, {"id": "order-7"})
            if fails:
                raise Failed

        with pytest.raises(Failed):
            handle(None, Message("order-7"))
        assert (effects(engine), remembered(engine)) == ([], [])
        fails = False
        handle(None, Message("order-7"))
        handle(None, Message("order-7"))
        assert effects(engine) == ["order-7"]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_engine_in_autocommit_is_refused(servers, tmp_path, kind) -> None:
    url = servers.new(kind, tmp_path)
    for refused in (
        sa.create_engine(url, isolation_level="AUTOCOMMIT"),
        sa.create_engine(url, execution_options={"isolation_level": "AUTOCOMMIT"}),
    ):
        with pytest.raises(ternmq.OutsideTransaction, match="autocommit"):
            Inbox(refused)
    engine = sa.create_engine(url)

    @event.listens_for(engine, "connect")  # nobody can know this before there is a connection
    def connected(driver: Any, record: object) -> None:
        if kind == "postgresql":
            driver.autocommit = True
        else:
            driver.autocommit(True)

    with shop(url) as plain, Inbox(engine) as inbox:
        inbox.prepare()

        @idempotent(inbox)
        def handle(order: object, connection: sa.Connection) -> None:
            connection.execute(EFFECT, {"id": "order-7"})

        with pytest.raises(ternmq.OutsideTransaction, match="autocommit"):
            handle(None, Message("order-7"))
        assert (effects(plain), remembered(plain)) == ([], [])
        engine.dispose()


def test_a_database_that_was_not_prepared(shop_engine) -> None:
    with Inbox(shop_engine, clean=False) as inbox:

        @idempotent(inbox)
        def handle(order: object) -> None: ...

        with pytest.raises(ternmq.DatabaseNotPrepared):
            handle(None, Message("order-7"))


# -- two at once ----------------------------------------------------------------------------------


def test_of_two_with_one_id_one_runs(inbox, shop_engine) -> None:
    inside, go_on = threading.Event(), threading.Event()
    calls = []

    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        calls.append(1)
        inside.set()
        assert go_on.wait(BUSY_S)
        session.execute(EFFECT, {"id": "order-7"})

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(handle, None, Message("order-7"))
        assert inside.wait(BUSY_S)
        other = threads.submit(handle, None, Message("order-7"))
        threading.Timer(0.2, go_on.set).start()
        assert (one.result(BUSY_S), other.result(BUSY_S)) == (None, None)
    assert (len(calls), effects(shop_engine)) == (1, ["order-7"])
    assert (inbox.stats().handled, inbox.stats().suppressed) == (1, 1)


def test_the_one_that_waits_too_long_is_retried_later(inbox, shop_engine) -> None:
    inside, go_on = threading.Event(), threading.Event()

    @idempotent(inbox)
    def handle(order: object) -> None:
        inside.set()
        assert go_on.wait(BUSY_S)

    with ThreadPoolExecutor(1) as threads:
        one = threads.submit(handle, None, Message("order-7"))
        assert inside.wait(BUSY_S)
        with pytest.raises(ternmq.Retry) as early:
            handle(None, Message("order-7"))
        with pytest.raises(ternmq.Retry) as late:
            handle(None, Message("order-7", attempt=9))
        go_on.set()
        one.result(BUSY_S)
    assert early.value.reason == "in progress elsewhere"
    assert (early.value.after, late.value.after) == (2.0, 60.0)
    assert inbox.stats().waited == 2


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_deadlock_is_tried_again_at_once(servers, tmp_path, kind) -> None:
    with shop(servers.new(kind, tmp_path)) as engine, Inbox(engine) as inbox:
        inbox.prepare()
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE INDEX by_id ON effects (id)")
            connection.exec_driver_sql("INSERT INTO effects VALUES ('a', 0), ('b', 0)")
        both = threading.Barrier(2)
        tries = {"a": 0, "b": 0}
        add = sa.text("UPDATE effects SET n = n + 1 WHERE id = :id")

        @idempotent(inbox)
        def handle(first: str, session: Session) -> None:
            session.execute(add, {"id": first})
            tries[first] += 1
            if tries[first] == 1:
                both.wait(BUSY_S)
            session.execute(add, {"id": "b" if first == "a" else "a"})

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda one: handle(one, Message(one)), "ab"))
        with engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT n FROM effects ORDER BY id").scalars().all()
        assert list(found) == [2, 2]
        again = sum(tries.values()) - 2
        assert 1 <= again <= 3  # the one that was rolled back may be so again
        assert (inbox.stats().handled, inbox.stats().retried) == (2, again)


def test_a_conflict_of_serializable_transactions_is_tried_again(servers, tmp_path) -> None:
    url = servers.new("postgresql", tmp_path)
    with shop(url) as plain:
        engine = sa.create_engine(url, isolation_level="SERIALIZABLE")
        with Inbox(engine) as inbox:
            inbox.prepare()
            calls = []
            count = sa.text("SELECT count(*) FROM effects")

            @idempotent(inbox)
            def handle(order: object, session: Session) -> None:
                calls.append(1)
                seen = session.execute(count).scalar_one()
                if len(calls) == 1:  # another transaction reads the same, and writes first
                    with engine.begin() as other:
                        other.execute(count).scalar_one()
                        other.execute(EFFECT, {"id": "other"})
                session.execute(EFFECT, {"id": f"after {seen}"})

            handle(None, Message("order-7"))
            assert effects(plain) == ["after 1", "other"]
            assert (len(calls), inbox.stats().retried) == (2, 1)
        engine.dispose()


def test_a_conflict_that_does_not_end_is_raised(servers, tmp_path) -> None:
    with shop(servers.new("postgresql", tmp_path)) as engine, Inbox(engine) as inbox:
        inbox.prepare()
        calls = []

        @idempotent(inbox)
        def handle(order: object, session: Session) -> None:
            calls.append(1)
            session.execute(sa.text("DO $$BEGIN RAISE SQLSTATE '40001'; END$$"))

        with pytest.raises(sa.exc.OperationalError):
            handle(None, Message("order-7"))
        assert len(calls) == 4


# -- results, replays, cleaning -------------------------------------------------------------------


def test_a_result_is_returned_again(inbox) -> None:
    results = iter([{"invoice": 3, "paid": [1.5, None, b"x"]}, None])

    @idempotent(inbox, result=True)
    def handle(order: object) -> object:
        return next(results)

    first = handle(None, Message("a"))
    assert handle(None, Message("a")) == first == {"invoice": 3, "paid": [1.5, None, b"x"]}
    assert (handle(None, Message("b")), handle(None, Message("b"))) == (None, None)


def test_a_result_that_is_too_large_undoes_all(inbox, shop_engine) -> None:
    @idempotent(inbox, result=True)
    def handle(order: object, session: Session) -> bytes:
        session.execute(EFFECT, {"id": "order-7"})
        return b"x" * (64 * 1024)

    with pytest.raises(ternmq.InvalidRequest, match="65,536"):
        handle(None, Message("a"))
    assert (effects(shop_engine), remembered(shop_engine)) == ([], [])


def test_forgotten_ids_are_handled_again(inbox, shop_engine) -> None:
    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "x"})

    handle(None, Message("a"))
    assert inbox.forget(["a"], topic="orders", group="shipping") == 0
    assert inbox.forget(["a", "b"], topic="orders", group="billing") == 1
    handle(None, Message("a"))
    assert effects(shop_engine) == ["x", "x"]


def test_rows_are_removed_after_their_time(inbox, shop_engine) -> None:
    @idempotent(inbox, keep=60)
    def short(order: object) -> None: ...

    @idempotent(inbox)
    def week(order: object) -> None: ...

    short(None, Message("short"))
    week(None, Message("week"))
    clock = sa.text("SELECT until_ms - 60000 FROM ternmq_inbox ORDER BY until_ms LIMIT 1")
    with shop_engine.connect() as connection:
        written_ms = int(connection.execute(clock).scalar_one())
    assert inbox.clean(now_ms=written_ms + 60_000) == 0
    assert inbox.clean() == 0
    assert inbox.clean(now_ms=written_ms + 60_001) == 1
    assert [id_ for _, id_ in remembered(shop_engine)] == ["week"]
    day_ms = 24 * 3_600_000
    assert inbox.clean(now_ms=written_ms + 7 * day_ms - 1000) == 0
    assert inbox.clean(now_ms=written_ms + 7 * day_ms + 60_000) == 1
    assert remembered(shop_engine) == []


@pytest.mark.parametrize("days", [-30, 30])
def test_how_long_a_message_is_kept_does_not_depend_on_the_clock_of_the_process(
    inbox, shop_engine, monkeypatch, days
) -> None:
    now_s, now_ns = time.time, time.time_ns
    wrong_s = days * 24 * 3600
    monkeypatch.setattr(time, "time", lambda: now_s() + wrong_s)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + wrong_s * 1_000_000_000)

    @idempotent(inbox)
    def handle(order: object, session: Session) -> None:
        session.execute(EFFECT, {"id": "order-7"})

    handle(None, Message("order-7"))
    assert inbox.clean() == 0
    handle(None, Message("order-7"))
    assert effects(shop_engine) == ["order-7"]
    monkeypatch.undo()
    assert inbox.clean() == 0
    assert inbox.clean(now_ms=(round(now_s()) + 8 * 24 * 3600) * 1000) == 1


def test_many_rows_are_removed_a_thousand_at_a_time(inbox, shop_engine) -> None:
    digits = "(SELECT 0 AS d " + " ".join(f"UNION SELECT {n}" for n in range(1, 10)) + ")"
    with shop_engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO ternmq_inbox (consumer, id, until_ms) SELECT 'c', "
            + ("CAST(%s AS CHAR)" if shop_engine.dialect.name == "mysql" else
               "CAST(CAST(%s AS TEXT) AS " +
               ("bytea)" if shop_engine.dialect.name == "postgresql" else "BLOB)"))
            % "a.d + 10 * b.d + 100 * c.d + 1000 * e.d"
            + f", 1000 + e.d FROM {digits} a, {digits} b, {digits} c, {digits} e WHERE e.d < 3"
        )  # fmt: skip
    statements: list[int] = []

    def counted(conn: object, cursor: Any, statement: str, *rest: object) -> None:
        if statement.startswith("DELETE FROM ternmq_inbox"):
            statements.append(cursor.rowcount)

    event.listen(sa.Engine, "after_cursor_execute", counted)
    try:
        assert inbox.clean(now_ms=1002) == 2000
    finally:
        event.remove(sa.Engine, "after_cursor_execute", counted)
    assert statements == [1000, 1000, 0]
    assert len(remembered(shop_engine)) == 1000


# -- handlers that are awaited --------------------------------------------------------------------


def test_an_async_def(tmp_path) -> None:
    async def run() -> None:
        with shop(sqlite(tmp_path)) as engine:
            made = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
            async with Inbox(made) as inbox:
                await asyncio.to_thread(inbox.prepare)
                fails = True

                @idempotent(inbox, result=True)
                async def handle(
                    order: object,
                    session: AsyncSession,
                    connection: AsyncConnection,
                    bare: aiosqlite.Connection,
                ) -> int:
                    await session.execute(EFFECT, {"id": "session"})
                    await connection.execute(EFFECT, {"id": "connection"})
                    await bare.execute("INSERT INTO effects VALUES ('bare', 1)")
                    if fails:
                        raise Failed
                    return 5

                with pytest.raises(Failed):
                    await handle(None, AwaitedMessage("order-7"))
                assert (effects(engine), remembered(engine)) == ([], [])
                fails = False
                assert await handle(None, AwaitedMessage("order-7")) == 5
                assert await handle(None, AwaitedMessage("order-7")) == 5
                assert effects(engine) == ["bare", "connection", "session"]
            await made.dispose()

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_an_async_def_on_a_server(servers, tmp_path, kind) -> None:
    url = servers.new(kind, tmp_path)

    async def run() -> None:
        with shop(url) as engine:
            async with Inbox(url, wait=1.0) as inbox:
                await asyncio.to_thread(inbox.prepare)
                inside, go_on = asyncio.Event(), asyncio.Event()
                tries = 0

                @idempotent(inbox, result=True)
                async def handle(order: object, session: AsyncSession) -> str:
                    nonlocal tries
                    tries += 1
                    await session.execute(EFFECT, {"id": "x"})
                    inside.set()
                    await go_on.wait()
                    return "done"

                one = asyncio.create_task(handle(None, AwaitedMessage("a")))
                await asyncio.wait_for(inside.wait(), BUSY_S)
                with pytest.raises(ternmq.Retry, match="in progress"):
                    await handle(None, AwaitedMessage("a"))
                other = asyncio.create_task(handle(None, AwaitedMessage("a")))
                asyncio.get_running_loop().call_later(0.2, go_on.set)
                assert await one == "done"
                assert await other == "done"
                assert (tries, effects(engine)) == (1, ["x"])
                cancelled = asyncio.create_task(handle(None, AwaitedMessage("b")))
                go_on.clear()
                inside.clear()
                await asyncio.wait_for(inside.wait(), BUSY_S)
                cancelled.cancel()
                with suppress(asyncio.CancelledError):
                    await cancelled
                assert (len(remembered(engine)), effects(engine)) == (1, ["x"])

    asyncio.run(run())


# -- what does not fit together -------------------------------------------------------------------


def test_handlers_and_engines_that_do_not_fit(tmp_path) -> None:
    async def awaited(order: object) -> None: ...
    async def blocks(order: object, session: Session) -> None: ...
    def plain(order: object) -> None: ...
    def awaits(order: object, session: AsyncSession) -> None: ...

    engine = sa.create_engine(sqlite(tmp_path))
    asked = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    cases: tuple[tuple[Inbox, list[Callable[..., Any]]], ...] = (
        (Inbox(engine), [awaited, blocks, awaits]),
        (Inbox(asked), [plain, blocks, awaits]),
        (Inbox(sqlite(tmp_path)), [blocks, awaits]),
        (Inbox.memory(), [blocks, awaits]),
    )
    for inbox, functions in cases:
        for function in functions:
            with pytest.raises(ternmq.InvalidHandler):
                idempotent(inbox)(function)


@pytest.mark.parametrize("connect", [ternmq.connect, ternmq.sync.connect])
def test_the_inbox_stands_below_the_handler(
    connect: Callable[[str], ternmq.Client | ternmq.sync.Client],
) -> None:
    client, inbox = connect("ternmq://127.0.0.1:1"), Inbox.memory()  # nobody is there, or asked

    @client.handler("orders", group="billing")
    def bill(order: object) -> None: ...

    @functools.wraps(bill)
    def wrapped(order: object) -> None: ...

    for one in (bill, wrapped):
        with pytest.raises(ternmq.InvalidHandler, match="below"):
            idempotent(inbox)(one)

    @client.handler("orders", group="shipping")
    @idempotent(inbox)
    def ship(order: object) -> None: ...

    class Handlers:
        def handle(self, order: object) -> None: ...

    handlers = Handlers()
    client.handler("orders", group="methods")(handlers.handle)
    with pytest.raises(ternmq.InvalidHandler, match="below"):
        idempotent(inbox)(handlers.handle)
    idempotent(inbox)(Handlers().handle)  # of another object


def test_what_idempotent_is_called_with(tmp_path) -> None:
    def bill(order: object) -> None: ...

    engine = sa.create_engine(sqlite(tmp_path))
    with pytest.raises(ternmq.InvalidRequest, match="takes an Inbox, not an Engine"):
        idempotent(engine)  # type: ignore[arg-type]
    with pytest.raises(ternmq.InvalidHandler, match=r"bill without an inbox"):
        idempotent(bill)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        Inbox,
        lambda: Inbox("sqlite:///x.db", shards={"a": "sqlite:///y.db"}),
        lambda: Inbox("sqlite://"),
        lambda: Inbox(7),
        lambda: Inbox("sqlite:///x.db", wait=0),
        lambda: Inbox(shards={}),
        lambda: Inbox(shards={"a b": "sqlite:///x.db"}),
        lambda: Inbox.memory(0),
        lambda: idempotent(Inbox.memory(), keep=0),
        lambda: idempotent(Inbox.memory(), replay="sometimes"),  # type: ignore[arg-type]
        lambda: idempotent(Inbox.memory(), by="id"),  # type: ignore[arg-type]
        lambda: Inbox.memory().forget("abc", topic="t", group="g"),
    ],
)
def test_values_that_are_refused(make) -> None:
    with pytest.raises(ternmq.InvalidRequest):
        make()


# -- with a broker --------------------------------------------------------------------------------


@contextmanager
def running(client: ternmq.sync.Client) -> Iterator[None]:
    thread = threading.Thread(target=client.run)
    thread.start()
    try:
        yield
    finally:
        client.stop()
        thread.join(BUSY_S)


def test_what_a_handler_sends_is_part_of_its_transaction(
    client: ternmq.sync.Client, tmp_path
) -> None:
    with (
        file_inbox(tmp_path) as (engine, inbox),
        Outbox(client, engine, compensate=False) as outbox,
    ):
        attempts, pending = [], []

        @client.handler("orders", group="billing", retry=ternmq.RetryPolicy(first=0.01, jitter=0))
        @idempotent(inbox)
        def bill(order: int, session: Session, delivery: ternmq.sync.Delivery) -> None:
            attempts.append(delivery.attempt)
            session.execute(EFFECT, {"id": f"{order}"})
            pending.append(client.send("invoices", f"{order} {delivery.attempt}").pending)
            if delivery.attempt == 1:
                raise Failed

        logging.getLogger("ternmq").disabled = True
        try:
            with running(client):
                client.send("orders", 7)
                wait_until(lambda: inbox.stats().handled == 1, "it is handled")
                outbox.flush()
                assert bodies(client, "invoices") == [b"7 2"]
        finally:
            logging.getLogger("ternmq").disabled = False
        assert (attempts, pending) == ([1, 2], [True, True])
        assert effects(engine) == ["7"]


def test_dependencies_and_middleware_go_on_working(client: ternmq.sync.Client, tmp_path) -> None:
    seen = []

    def provide(delivery: ternmq.sync.Delivery) -> str:
        return f"provided for {delivery.offset}"

    @client.handler_middleware
    def around(delivery: ternmq.sync.Delivery) -> Iterator[None]:
        seen.append("before")
        yield
        seen.append("after")

    with file_inbox(tmp_path) as (engine, inbox):

        @client.handler("orders", group="billing")
        @idempotent(inbox)
        def bill(
            order: int,
            session: Session,
            provided: str = ternmq.Depends(provide),  # type: ignore[assignment]
        ) -> None:
            session.execute(EFFECT, {"id": f"{order}"})
            seen.append(provided)

        with running(client):
            client.send("orders", 7)
            wait_until(lambda: len(seen) == 3, "it is handled")
        assert seen == ["before", "provided for 0", "after"]
        assert effects(engine) == ["7"]


@pytest.mark.parametrize("replay", ["suppress", "run"])
def test_a_replay(client: ternmq.sync.Client, tmp_path, replay) -> None:
    with file_inbox(tmp_path) as (engine, inbox):
        fails: list[int] = []

        @client.handler("orders", group="billing", retry=ternmq.RetryPolicy(first=0.01, jitter=0))
        @idempotent(inbox, replay=replay)
        def bill(order: int, session: Session) -> None:
            session.execute(EFFECT, {"id": f"{order}"})
            if fails:
                fails.pop()
                raise ternmq.Retry("once more", after=0.01)

        with running(client):
            for order in (1, 2):
                client.send("orders", order)
            stats = inbox.stats()
            wait_until(lambda: stats.handled == 2, "both are handled")
            fails.append(1)
            client.admin.reset_group("orders", "billing", to="earliest")
            if replay == "run":
                wait_until(lambda: stats.handled == 4, "both are handled again")
                assert effects(engine) == ["1", "1", "2", "2"]
            else:
                wait_until(lambda: stats.suppressed == 2, "both are suppressed")
                assert effects(engine) == ["1", "2"]
