"""MariaDB as coordinator, with the driver of MySQL."""

from __future__ import annotations

import pytest

from ternmq.cluster.coordination.checking import check
from ternmq.cluster.coordination.port import Unknown
from tests.asynchronous import until_true
from tests.coordinators import Server
from tests.integration.cluster.contract import KEY, Contract
from tests.integration.cluster.faults import Databases, Faults
from tests.integration.cluster.stores import DatabaseStore, ready, views


@pytest.fixture
def server(mariadb: Server) -> Server:
    return mariadb


@pytest.fixture
def store(server: Server) -> DatabaseStore:
    return DatabaseStore(server.url)


class TestMariaDB(Contract, Faults, Databases):
    """The contract, and faults."""


@pytest.mark.parametrize(
    ("setting", "usual", "text"),
    [("innodb_flush_log_at_trx_commit = 2", "1", "set it to 1"), ("read_only = 1", "0", "replica")],
)
async def test_a_server_that_forgets_is_not_used(
    store: DatabaseStore, setting: str, usual: str, text: str
) -> None:
    store.do(f"SET GLOBAL {setting}")
    try:
        one = store.view()
        try:
            answer = await one.create(KEY, b"x")
            assert isinstance(answer, Unknown)
            assert text in answer.why
            store.do(f"SET GLOBAL {setting.partition(' ')[0]} = {usual}")
            await ready(one)
            assert await one.read(KEY) is None
        finally:
            await one.close()
    finally:
        store.do(f"SET GLOBAL {setting.partition(' ')[0]} = {usual}")


async def test_connections_that_the_server_ended(store: DatabaseStore) -> None:
    async with views(store, 1) as (one,):
        await one.create(KEY, b"x")
        ids = "SELECT id FROM information_schema.processlist WHERE id <> connection_id()"
        with store._engine.connect() as other:
            for (number,) in other.exec_driver_sql(ids).all():
                other.exec_driver_sql(f"KILL {number}")

        async def read() -> bool:
            answer = await one.read(KEY)
            return not isinstance(answer, Unknown)

        await until_true(read)


async def test_an_account_that_may_not_create_tables(store: DatabaseStore) -> None:
    """What ``ternmq cluster init`` says that the account of the brokers needs is enough."""
    async with views(store, 1) as (one,):
        await check(one)
    store.do("CREATE OR REPLACE USER small@'127.0.0.1'")
    url = store.url.replace("root@", "small@")
    try:
        for table in ("ternmq_leadership", "ternmq_announced"):
            rights = f"SELECT, INSERT, UPDATE, DELETE ON ternmq.{table}"
            store.do(f"GRANT {rights} TO small@'127.0.0.1'")
        async with views(store, 1, url=url) as (small,):
            await check(small)
    finally:
        store.do("DROP USER small@'127.0.0.1'")
