"""An outbox on SQLite: what is committed is sent, once, and nothing else."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import ternmq
import ternmq.sync
from ternmq.reliable import Ids, Outbox, Step, batch, collector, sequence
from ternmq.reliable.database.tables import State
from tests.black_box.process import wait_until
from tests.integration.reliable.conftest import bodies, orders, rows

INSERT = sa.text("INSERT INTO orders VALUES (1)")


class Undo(Exception):
    """Rolls a transaction back."""


def test_a_session_commits_both_or_rolls_both_back(client, engine, make) -> None:
    outbox = make()
    with Session(engine) as session, session.begin():
        session.execute(INSERT)
        receipt = client.send("orders", {"id": 1}, key="order-1", within=session)
        assert rows(engine) == 0  # others do not see it
    assert receipt.pending
    assert (receipt.queue, receipt.offset, receipt.durable) == (-1, None, False)
    with suppress(Undo), Session(engine) as session, session.begin():
        session.execute(INSERT)
        client.send("orders", {"id": 2}, within=session)
        raise Undo
    outbox.flush()
    assert bodies(client) == [b'{"id":1}']
    assert orders(engine) == 1
    assert rows(engine) == 0
    found = client.find("orders", key="order-1")
    assert [one.application_id for one in found] == [receipt.id]
    assert outbox.stats().sent == 1
    assert outbox.stats().duplicates == 0


@pytest.mark.parametrize("key", ["", "k"])
def test_an_empty_body_is_sent(client, engine, make, key) -> None:
    """The first row of a page had no room for it, and ended the thread."""
    outbox = make()
    client.declare(ternmq.Topic("orders", ordered=bool(key)))
    with Session(engine) as session, session.begin():
        client.send("orders", b"", ordering_key=key, within=session)
    outbox.flush()
    assert bodies(client) == [b""]


def test_a_savepoint_that_is_rolled_back_takes_its_messages_along(client, engine, make) -> None:
    outbox = make()
    with Session(engine) as session, session.begin():
        client.send("orders", b"1", within=session)
        with session.begin_nested() as savepoint:
            client.send("orders", b"2", within=session)
            savepoint.rollback()
        with session.begin_nested():
            client.send("orders", b"3", within=session)
    outbox.flush()
    assert sorted(bodies(client)) == [b"1", b"3"]


def test_nothing_is_sent_when_a_savepoint_is_released_and_the_rest_rolled_back(
    client, engine, make
) -> None:
    """SQLAlchemy's hook ``after_commit`` fires at the release."""
    outbox = make()
    with suppress(Undo), Session(engine) as session, session.begin():
        session.execute(INSERT)  # the driver of SQLite does not begin at a savepoint
        with session.begin_nested():
            client.send("orders", b"1", within=session)
        raise Undo
    with engine.connect() as connection:
        outer = connection.begin()
        connection.execute(INSERT)
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            client.send("orders", b"2", within=session)
            session.commit()
        outer.rollback()
    client.send("orders", b"3", within=outbox)
    outbox.flush()
    assert bodies(client) == [b"3"]


@pytest.mark.parametrize("mode", ["driver begins", "nothing begins"])
@pytest.mark.parametrize("how", ["begin_nested", "url", "recipe of tests", "core"])
def test_a_savepoint_that_is_the_whole_transaction_of_sqlite_is_refused(
    client, engine, make, how, mode
) -> None:
    """pysqlite begins no transaction before a SAVEPOINT: the release committed, so it was sent."""
    if mode == "nothing begins":
        sa.event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        engine.dispose()
    outbox = make(on=str(engine.url) if how == "url" else engine)
    refused = pytest.raises(ternmq.OutsideTransaction, match=r"savepoint.*BEGIN IMMEDIATE")
    if how in {"begin_nested", "url"}:
        with Session(engine) as session:
            session.begin()
            with refused, session.begin_nested():
                client.send("orders", b"1", within=session)
            session.rollback()
    elif how == "core":
        with engine.connect() as connection, connection.begin() as outer:
            with connection.begin_nested(), refused:
                client.send("orders", b"1", within=connection)
            outer.rollback()
    else:
        with engine.connect() as connection, connection.begin() as whole_test:
            session = Session(connection, join_transaction_mode="create_savepoint")
            with refused, session, session.begin(), outbox.bound(session):
                client.send("orders", b"1")
            whole_test.rollback()
    assert rows(engine) == 0


def test_savepoints_of_sqlite_in_a_transaction_that_has_begun(client, engine, make) -> None:
    """What comes after an outermost savepoint, and savepoints behind a statement that writes."""
    outbox = make()
    with Session(engine) as session, session.begin():
        with session.begin_nested() as savepoint:  # nothing was begun: it is the whole transaction
            session.connection()
            savepoint.rollback()
        client.send("orders", b"1", within=session)
        with session.begin_nested():
            client.send("orders", b"2", within=session)
    with suppress(Undo), Session(engine) as session, session.begin():
        with session.begin_nested() as savepoint:
            session.connection()
            savepoint.rollback()
        with session.begin_nested():
            client.send("orders", b"lost", within=session)
        raise Undo
    with suppress(Undo), Session(engine) as session, session.begin():
        with session.begin_nested():
            session.execute(sa.text("SELECT 1"))  # the release ends SQLite's transaction
        client.send("orders", b"lost", within=session)
        with session.begin_nested():
            client.send("orders", b"lost, too", within=session)
        raise Undo
    outbox.flush()
    assert sorted(bodies(client)) == [b"1", b"2"]


def test_a_block_binds_what_knows_nothing_of_sessions(client, engine, make) -> None:
    outbox = make()

    def place(body: bytes) -> ternmq.Receipt:
        receipt: ternmq.Receipt = client.send("orders", body)
        return receipt

    with Session(engine) as session, session.begin(), outbox.bound(session):
        assert place(b"1").pending
        assert not client.send("orders", b"2", within=False).pending
        threading.Thread(target=place, args=(b"3",)).start()  # without the context: sent at once
    assert not place(b"4").pending
    outbox.flush()
    wait_until(lambda: len(bodies(client)) == 4, "all were sent")


@pytest.mark.parametrize("how", ["scoped", "core", "engine with options", "own", "url"])
def test_other_ways_to_give_a_transaction(client, engine, make, how) -> None:
    outbox = make(on=str(engine.url) if how == "url" else engine)
    if how == "scoped":
        registry = scoped_session(sessionmaker(engine))
        client.send("orders", b"1", within=registry)
        registry.commit()
        registry.remove()
    elif how == "own":
        client.send("orders", b"1", within=outbox)
        with outbox.bound(outbox):
            client.send("orders", b"2")
        outbox.flush()
        assert sorted(bodies(client)) == [b"1", b"2"]
        return
    elif how == "engine with options":
        with Session(engine.execution_options(stream_results=True)) as session, session.begin():
            client.send("orders", b"1", within=session)
    else:
        with engine.begin() as connection:
            client.send("orders", b"1", within=connection)
        with engine.connect() as connection:
            client.send("orders", b"2", within=connection)  # begins by itself; never committed
    outbox.flush()
    assert bodies(client) == [b"1"]


def test_a_connection_that_is_lost_leaves_its_own_error(client, engine, make) -> None:
    """The hook for its rollback asked the connection for more, and hid what had happened."""
    outbox = make()

    def lose() -> None:
        with engine.connect() as connection, connection.begin():
            client.send("orders", b"1", within=connection)
            connection.invalidate()
            raise Undo

    with pytest.raises(Undo):
        lose()
    with engine.connect() as connection, connection.begin():
        client.send("orders", b"2", within=connection)
    outbox.flush()
    assert bodies(client) == [b"2"]


def test_many_messages_of_one_call(client, engine, make) -> None:
    outbox = make()
    with Session(engine) as session, session.begin():
        receipts = client.send_many("orders", [b"%d" % n for n in range(1203)], within=session)
        assert len({one.id for one in receipts}) == 1203
        with pytest.raises(ternmq.EncodeError):
            client.send_many("orders", [b"x", object()], within=session)
    outbox.flush()
    assert sorted(bodies(client), key=int) == [b"%d" % n for n in range(1203)]


def test_ids_and_times_are_kept(real, engine, make) -> None:
    with ternmq.sync.connect(real.url) as client:
        outbox = make(of=client)
        due = datetime.fromtimestamp(time.time() + 86_400, UTC)
        with engine.begin() as connection:
            soon = client.send("later", b"1", id="mine", deliver_after=3600, within=connection)
            client.send_many(
                "later",
                [ternmq.Message(b"2", headers={"a": "ä"}, tag="t", priority=0)],
                deliver_at=due, within=connection,
            )  # fmt: skip
        assert soon.due_at is not None
        outbox.flush()
        found = client.get("later", "mine")
        assert found is not None
        assert found.due_at is not None
        assert abs((found.due_at - soon.due_at).total_seconds()) < 0.01


def test_a_second_message_with_an_id_is_not_stored(client, engine, make) -> None:
    outbox = make()
    with engine.begin() as connection:
        client.send("orders", b"1", id="a", within=connection)
        client.send("orders", b"1", id="a", within=connection)
    outbox.flush()
    assert bodies(client) == [b"1"]
    assert outbox.stats().duplicates == 1


def test_messages_of_a_key_arrive_in_order(client, engine, make) -> None:
    outbox = make()
    client.admin.create_topic("ordered", ordered=True, queues=3)
    for start in range(0, 30, 10):
        with engine.begin() as connection:
            for number in range(start, start + 10):
                key = f"k{number % 3}"
                client.send("ordered", b"%d" % number, ordering_key=key, within=connection)
    outbox.flush()
    found: dict[str, list[int]] = {}
    for one in client.read("ordered"):
        found.setdefault(one.ordering_key, []).append(int(one.body))
    assert found == {f"k{rest}": list(range(rest, 30, 3)) for rest in range(3)}


# -- what is refused ------------------------------------------------------------------------------


def test_another_database_is_refused(client, engine, make, tmp_path) -> None:
    make()
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    with Session(other) as session, pytest.raises(ternmq.NotThisDatabase, match=r"other\.db"):
        client.send("orders", b"1", within=session)
    with other.connect() as connection, pytest.raises(ternmq.NotThisDatabase):
        client.send("orders", b"1", within=connection)
    other.dispose()
    with sqlite3.connect(tmp_path / "other.db") as bare, pytest.raises(ternmq.NotThisDatabase):
        client.send("orders", b"1", within=bare)
    bare.close()
    with Session() as unbound, pytest.raises(ternmq.NotThisDatabase):
        client.send("orders", b"1", within=unbound)


def test_a_connection_in_autocommit_is_refused(client, engine, make, tmp_path) -> None:
    outbox = make()
    each = engine.execution_options(isolation_level="AUTOCOMMIT")
    with each.connect() as connection, pytest.raises(ternmq.OutsideTransaction):
        client.send("orders", b"1", within=connection)
    with Session(each) as session, pytest.raises(ternmq.OutsideTransaction):
        client.send("orders", b"1", within=session)
    bare = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    with pytest.raises(ternmq.OutsideTransaction):
        client.send("orders", b"1", within=bare)
    bare.execute("BEGIN")
    assert client.send("orders", b"2", within=bare).pending
    bare.execute("COMMIT")
    bare.close()
    outbox.committed()
    outbox.flush()
    assert bodies(client) == [b"2"]


def test_the_recipe_for_begin_immediate_is_no_autocommit(client, make, tmp_path) -> None:
    made = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")

    @sa.event.listens_for(made, "connect")
    def connected(raw: sqlite3.Connection, record: object) -> None:
        raw.isolation_level = None

    @sa.event.listens_for(made, "begin")
    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    outbox = make(on=made)
    with Session(made) as session, session.begin():
        client.send("orders", b"1", within=session)
    with suppress(Undo), made.begin() as connection:
        client.send("orders", b"2", within=connection)
        raise Undo
    outbox.flush()
    assert bodies(client) == [b"1"]
    made.dispose()


def test_tables_that_are_missing_are_told(client, engine) -> None:
    outbox = Outbox(client, engine)
    with (
        Session(engine) as session,
        pytest.raises(ternmq.DatabaseNotPrepared, match="ternmq outbox prepare"),
    ):
        client.send("orders", b"1", within=session)
    with pytest.raises(ternmq.DatabaseNotPrepared):
        client.send("orders", b"1", within=outbox)
    outbox.close()


@pytest.mark.parametrize(
    ("database", "text"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("not a url", "URL of a database"),
        (7, "an Engine"),
        ("oracle://x", "oracle"),
    ],
)
def test_what_is_no_database_is_refused(client, database, text) -> None:
    with pytest.raises(ternmq.InvalidRequest, match=text):
        Outbox(client, database)
    assert not client.stores


@pytest.mark.parametrize(
    "options",
    [{"require": "orders"}, {"attempts": 0}, {"poll": 0}, {"resend_after": -1}, {"schema": 'a"b'},
     {"compensate": "yes"}],
)  # fmt: skip
def test_options_are_checked(client, engine, options) -> None:
    with pytest.raises(ternmq.InvalidRequest):
        Outbox(client, engine, **options)


def test_within_something_else_is_refused(client, engine, make) -> None:
    outbox = make()
    for within in (object(), "session", engine, True):
        with pytest.raises(ternmq.InvalidRequest, match="within= takes"):
            client.send("orders", b"1", within=within)
    with pytest.raises(ternmq.InvalidRequest, match="within= takes"), outbox.bound(object()):
        pass


def test_topics_that_need_a_transaction(client, engine, make) -> None:
    outbox = make(require=["payments.*"])
    with pytest.raises(ternmq.OutsideTransaction):
        client.send("payments.card", b"1")
    with engine.begin() as connection:
        client.send("payments.card", b"2", within=connection)
    client.send("orders", b"3")
    outbox.flush()
    assert bodies(client, "payments.card") == [b"2"]


def test_a_topic_that_may_lose_what_it_answered_is_refused(client, engine, make) -> None:
    outbox = make(attempts=1, resend_after=0.1)
    client.admin.create_topic("quick", durability="fast")
    with engine.begin() as connection:
        client.send("quick", b"1", within=connection)
    wait_until(lambda: outbox.stats().failed == 1, "the row has failed")
    assert bodies(client, "quick") == []
    assert rows(engine) == 1


def test_a_row_is_tried_as_often_as_attempts_says(client, engine, make, caplog) -> None:
    """The first try is that of the process that wrote the row; the compensator does the others."""
    outbox = make(attempts=2)
    client.admin.create_topic("quick", durability="fast")
    with engine.begin() as connection:
        client.send("quick", b"1", within=connection)
    wait_until(lambda: outbox.stats().failed == 1, "the row has failed")
    [row] = outbox.rows()
    assert (row.state, row.tries, outbox.stats().refused) == (State.FAILED, 2, 2)
    said = [one.getMessage() for one in caplog.records if "TopicNotDurable" in one.getMessage()]
    assert ["tried again" in one for one in said] == [True, False]
    assert "has failed" in said[1]


def test_the_order_that_a_declared_topic_wants_is_checked_at_once(client, engine, make) -> None:
    """The rows failed, long after the commit."""
    make()
    free = ternmq.Topic("free", ordered=False, ignore_ordering_keys=False)
    with engine.begin() as connection:
        with pytest.raises(ternmq.OrderingKeyRequired):
            client.send(ternmq.Topic("steps", ordered=True), b"no", within=connection)
        with pytest.raises(ternmq.OrderingKeyRequired):
            client.send_many("steps", [ternmq.Message(b"no")], within=connection)
        with pytest.raises(ternmq.TopicNotOrdered):
            client.send(free, b"no", ordering_key="k", within=connection)
        client.send("steps", b"1", ordering_key="k", within=connection)
        client.send("free", b"2", within=connection)
        client.send(ternmq.Topic("either"), b"3", within=connection)
    assert rows(engine) <= 3


def test_what_is_no_outbox(client, engine, make, real) -> None:
    outbox = make()
    wrong: dict[str, dict[str, object]] = {
        "require is a list": {"require": 5},
        "require is a str": {"require": [5]},
        "relay is an Engine": {"relay": 5},
        "has an outbox on": {},
    }
    for said, given in wrong.items():
        with pytest.raises(ternmq.InvalidRequest, match=said):
            Outbox(client, engine, **given)  # type: ignore[arg-type]
    with pytest.raises(ternmq.InvalidRequest, match="has an outbox on"):
        Outbox(client, str(engine.url))
    outbox.close()
    Outbox(client, engine).close()  # the first one was closed
    other = ternmq.sync.connect(real.url)
    other.close()
    with pytest.raises(ternmq.ClientClosed):
        Outbox(other, engine)
    with pytest.raises(ternmq.ClientClosed):
        Outbox(closed_in_a_loop(real.url), engine)


def closed_in_a_loop(url: str) -> ternmq.Client:
    async def run() -> ternmq.Client:
        async with ternmq.connect(url) as made:
            return made

    return asyncio.run(run())


def test_what_is_given_for_later_is_checked_at_once(client, engine, make) -> None:
    outbox = make()
    for made in (batch, sequence):
        with pytest.raises(ternmq.InvalidRequest, match="within= takes a Session"):
            made(client, "orders", within=5)
        with Session(engine) as session:
            for good in (None, False, session, outbox):
                made(client, "orders", within=good)
            assert not session.in_transaction()  # a check begins nothing
    outbox.close()
    with pytest.raises(ternmq.InvalidRequest, match="needs an outbox"):
        batch(client, "orders", within=engine)
    with pytest.raises(ternmq.InvalidRequest, match="not int"):
        collector(5)  # type: ignore[arg-type]
    with pytest.raises(ternmq.InvalidRequest, match="type int"):
        Ids(5, "orders")  # type: ignore[type-var]


# -- bare connections -----------------------------------------------------------------------------


def test_a_block_around_a_bare_connection(client, engine, make, tmp_path) -> None:
    outbox = make()
    bare = sqlite3.connect(tmp_path / "shop.db")
    with outbox.transaction(bare):
        bare.execute("INSERT INTO orders VALUES (1)")
        client.send("orders", b"1")
        client.send("orders", b"2", within=bare)
    with suppress(Undo), outbox.transaction(bare):
        bare.execute("INSERT INTO orders VALUES (2)")
        client.send("orders", b"3")
        raise Undo
    outbox.flush()
    assert sorted(bodies(client)) == [b"1", b"2"]
    assert orders(engine) == 1
    assert outbox.stats().unseen == 0
    bare.close()


def test_a_bare_connection_of_which_nobody_tells(client, engine, make, tmp_path) -> None:
    outbox = make(resend_after=3600)
    bare = sqlite3.connect(tmp_path / "shop.db")
    client.send("orders", b"1", within=bare)
    bare.commit()
    wait_until(lambda: bodies(client) == [b"1"], "the compensator found it")
    assert outbox.stats().resent == 1
    bare.close()


def test_what_a_block_around_a_bare_connection_refuses(client, engine, make, tmp_path) -> None:
    outbox = make()
    bare, other = sqlite3.connect(tmp_path / "shop.db"), sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(ternmq.NotThisDatabase), outbox.transaction(other):
        pass
    assert not other.in_transaction
    with outbox.transaction(bare):
        bare.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ternmq.InvalidRequest, match="savepoint"), outbox.transaction(bare):
            pass
        client.send("orders", b"1")
    outbox.flush()
    assert bodies(client) == [b"1"]
    assert orders(engine) == 1
    bare.close()
    other.close()


def test_a_commit_that_fails_is_rolled_back(client, engine, make, tmp_path) -> None:
    outbox = make()

    class Failing(sqlite3.Connection):
        def commit(self) -> None:
            raise sqlite3.OperationalError("the disk is full")

    bare = sqlite3.connect(tmp_path / "shop.db", factory=Failing)
    with pytest.raises(sqlite3.OperationalError), outbox.transaction(bare):
        client.send("orders", b"1")
    assert not bare.in_transaction
    bare.close()
    assert rows(engine) == 0


def test_of_two_outboxes_the_innermost_block_counts(client, engine, make, tmp_path) -> None:
    other = sa.create_engine(f"sqlite:///{tmp_path}/other.db")
    first, second = make(compensate=False), make(on=other, compensate=False)
    with (
        Session(engine) as one, one.begin(), Session(other) as two, two.begin(),
        first.bound(one),
    ):  # fmt: skip
        with second.bound(two):
            client.send("orders", b"second")
            with first.bound(one):
                client.send("orders", b"first")
            client.send("orders", b"second")
        client.send("orders", b"first")
        assert [row.body for row in first.rows()] == [b"first"] * 2
    assert (first.stats().written, second.stats().written) == (2, 2)
    first.flush()
    second.flush()
    assert sorted(bodies(client)) == [b"first"] * 2 + [b"second"] * 2
    other.dispose()


def test_a_block_takes_only_bare_connections(engine, make) -> None:
    outbox = make()
    with Session(engine) as session, pytest.raises(ternmq.InvalidRequest, match="bound"):
        outbox.transaction(session)


# -- the other client -----------------------------------------------------------------------------


def test_a_client_in_a_loop(real, engine, make, tmp_path) -> None:
    async def run() -> None:
        asked = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        async with ternmq.connect(real.url) as client:
            outbox = await asyncio.to_thread(lambda: make(of=client, on=asked))
            async with AsyncSession(asked) as session, session.begin():
                await session.execute(INSERT)
                assert (await client.send("orders", b"1", within=session)).pending
                with outbox.bound(session):
                    assert (await client.send("orders", b"2")).pending
                    with pytest.raises(ternmq.InvalidRequest, match=r"await"):
                        client.send_soon("orders", b"no")
                async with session.begin_nested() as savepoint:
                    await client.send("orders", b"no", within=session)
                    await savepoint.rollback()
            with suppress(Undo):
                async with AsyncSession(asked) as session, session.begin():
                    await client.send("orders", b"no", within=session)
                    raise Undo
            async with asked.begin() as connection:
                await client.send("orders", b"3", within=connection)
            with pytest.raises(ternmq.OutsideTransaction):
                await client.send("orders", b"no", within=asked.connect())
            registry: async_scoped_session[AsyncSession] = async_scoped_session(
                async_sessionmaker(asked), scopefunc=asyncio.current_task
            )
            await client.send("orders", b"4", within=registry)
            await registry.commit()
            await registry.remove()
            await client.send("orders", b"5", within=outbox)
            await asyncio.to_thread(outbox.flush)
            found = [one.body async for one in client.read("orders")]
            assert sorted(found) == [b"1", b"2", b"3", b"4", b"5"]
            await asyncio.to_thread(outbox.close)
        await asked.dispose()

    asyncio.run(run())
    assert orders(engine) == 1


def test_a_session_that_is_awaited_needs_the_other_client(client, make, tmp_path) -> None:
    make()

    async def run() -> None:
        asked = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        async with AsyncSession(asked) as session:
            with pytest.raises(ternmq.InvalidRequest, match=r"ternmq\.connect"):
                client.send("orders", b"1", within=session)
        await asked.dispose()

    asyncio.run(run())


# -- lives and steps ------------------------------------------------------------------------------


def test_the_broker_is_away_at_the_commit_and_comes_back(client, engine, make, real) -> None:
    outbox = make()
    real.stop()
    with engine.begin() as connection:
        client.send("orders", b"1", within=connection)
        client.send("ordered", b"2", ordering_key="k", within=connection)
    with pytest.raises(ternmq.UnsentMessages, match="2 rows of the outbox are not"):
        outbox.flush(0.2)
    real.restart()
    outbox.flush(30)
    assert bodies(client) + bodies(client, "ordered") == [b"1", b"2"]


def test_what_a_process_leaves_is_sent_by_another(client, engine, make) -> None:
    first = make(compensate=False)
    first.observe(_only_until(Step.COMMIT))
    with suppress(Undo), Session(engine) as session, session.begin():
        client.send("orders", b"1", within=session)
    with ternmq.sync.connect(client.options.url) as other:
        second = make(of=other, resend_after=0.2)
        second.start()
        wait_until(lambda: bodies(client) == [b"1"], "the second one sent it")
        assert second.stats().resent == 1


def _only_until(last: Step):
    def observe(step: Step, ids: Sequence[str]) -> None:
        if step is last:
            raise Undo

    return observe


def test_two_compensators_share_a_lease(client, engine, make, real) -> None:
    first, second = make().start(), make(of=ternmq.sync.connect(real.url)).start()
    wait_until(lambda: first.stats().leader or second.stats().leader, "one leads")
    with engine.begin() as connection:
        for number in range(20):
            client.send("orders", b"%d" % number, ordering_key="k", within=connection)
    wait_until(lambda: rows(engine) == 0, "all are sent")
    assert first.stats().leader != second.stats().leader
    leader, other = (first, second) if first.stats().leader else (second, first)
    assert [leader.stats().duplicates, other.stats().duplicates] == [0, 0]
    leader.close()
    wait_until(lambda: other.stats().leader, "the other one leads")
    assert other.stats().epoch > leader.stats().epoch - 1


def test_a_forked_child_begins_anew(client, engine, make) -> None:
    outbox = make()
    client.send("orders", b"parent", within=outbox)
    outbox.flush()

    def child() -> None:
        client.send("orders", b"child", within=outbox)
        outbox.flush()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
    client.send("orders", b"parent again", within=outbox)
    outbox.flush()
    assert sorted(bodies(client)) == [b"child", b"parent", b"parent again"]


def test_the_steps_of_a_message_are_told_in_order(client, engine, make, tmp_path) -> None:
    told: list[Step] = []
    outbox = make(compensate=False)
    outbox.observe(lambda step, ids: told.append(step))
    bare = sqlite3.connect(tmp_path / "shop.db")
    with outbox.transaction(bare):
        bare.execute("INSERT INTO orders VALUES (1)")
        client.send("orders", b"1")
    outbox.flush()
    bare.close()
    assert told == [
        Step.BEGIN, Step.WORK, Step.INSERT, Step.COMMIT, Step.SEND, Step.RESPONSE, Step.DELETE,
    ]  # fmt: skip


def test_a_closed_outbox_takes_nothing(client, engine, make) -> None:
    outbox = make()
    outbox.close()
    outbox.close()
    with engine.begin() as connection, pytest.raises(ternmq.InvalidRequest, match="closed"):
        client.send("orders", b"1", within=connection)
    with pytest.raises(ternmq.ClientClosed):
        outbox.start()


def test_tables_of_a_newer_version_are_left_alone(client, engine, make, caplog) -> None:
    outbox = make()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ternmq_schema SET version = 99")
        client.send("orders", b"1", ordering_key="k", within=connection)
    wait_until(lambda: "99" in caplog.text, "it is told")
    assert not outbox.stats().leader
    assert rows(engine) == 1


def test_rows_that_were_sent_are_kept_if_asked(client, engine, make) -> None:
    outbox = make(keep_sent=3600)
    client.send("orders", b"1", within=outbox)
    outbox.flush()
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT state, tries FROM ternmq_outbox").all()
    assert [tuple(one) for one in found] == [(3, 0)]
