"""PostgreSQL as coordinator."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from ternmq.cluster.coordination.checking import check
from ternmq.cluster.coordination.port import Stored, Unknown
from ternmq.cluster.coordination.record import BadRecord
from tests.coordinators import Server
from tests.integration.cluster.contract import KEY, Contract
from tests.integration.cluster.faults import Databases, Faults
from tests.integration.cluster.stores import DatabaseStore, shows, views


@pytest.fixture
def server(postgresql: Server) -> Server:
    return postgresql


@pytest.fixture
def store(server: Server) -> DatabaseStore:
    return DatabaseStore(server.url)


class TestPostgreSQL(Contract, Faults, Databases):
    """The contract, and faults."""


@pytest.mark.parametrize("version", [0, -1, 2**40])
async def test_a_version_that_no_broker_writes(store: DatabaseStore, version: int) -> None:
    async with views(store, 1) as (one,):
        store.plant(KEY, b"x")
        store.do("UPDATE ternmq_leadership SET version = :version", version=version)
        with pytest.raises(BadRecord):
            await one.read(KEY)


async def test_rows_that_no_broker_announces_are_left_out(store: DatabaseStore) -> None:
    async with views(store, 1) as (one,):
        await one.announce("a", b"1")
        for name, size in (("not a name", 1), ("large", 70_000)):
            store.do(
                "INSERT INTO ternmq_announced (name, owner, beat_us, value) "
                "VALUES (:name, 'x', 9000000000000000000, :value)",
                name=name, value=b"x" * size,
            )  # fmt: skip
        await shows(one, {"a": b"1"})


async def test_a_commit_is_on_the_disk_whatever_the_user_has_set(store: DatabaseStore) -> None:
    store.do("ALTER ROLE ternmq SET synchronous_commit = off")
    try:
        async with views(store, 1) as (one,):
            assert await one.create(KEY, b"x")
            setting = await one._threads.run(
                lambda session: session._connection.execute(
                    sa.text("SHOW synchronous_commit")
                ).scalar(),
                10,
            )
            assert setting == "on"
    finally:
        store.do("ALTER ROLE ternmq RESET synchronous_commit")


async def test_a_row_that_another_session_locks(store: DatabaseStore) -> None:
    async with views(store, 1, deadline_s=1.0) as (one,):
        store.plant(KEY, b"x")
        with store._engine.connect() as other, other.begin():
            other.execute(sa.text("SELECT 1 FROM ternmq_leadership FOR UPDATE"))
            assert isinstance(await one.swap(KEY, 1, b"y"), Unknown)
            assert await one.read(KEY) == Stored(b"x", 1)


async def test_an_account_that_may_not_create_tables(store: DatabaseStore) -> None:
    """What ``ternmq cluster init`` says that the account of the brokers needs is enough."""
    async with views(store, 1) as (one,):
        await check(one)
    store.do("DROP ROLE IF EXISTS small")
    store.do("CREATE ROLE small LOGIN")
    rights = "SELECT, INSERT, UPDATE, DELETE ON ternmq_leadership, ternmq_announced"
    url = store.url.replace("ternmq@", "small@")
    try:
        store.do(f"GRANT {rights} TO small")
        async with views(store, 1, url=url) as (small,):
            await check(small)
    finally:
        store.do(f"REVOKE {rights} FROM small")
        store.do("DROP ROLE small")
