"""What one kind of database does otherwise: collations, locks on gaps, clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from ternmq.reliable.database.lease import Lease
from ternmq.reliable.database.prepare import prepare
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.outbox.rows import Ref
from ternmq.reliable.outbox.table import Table
from tests.black_box.process import wait_until
from tests.killable_databases import KINDS, SERVED

pytestmark = [pytest.mark.fault, pytest.mark.slow]


IMPATIENT = {
    "mysql": "SET innodb_lock_wait_timeout = 1", "postgresql": "SET lock_timeout = '1s'",
}  # fmt: skip

PATIENT = {
    "mysql": "SET innodb_lock_wait_timeout = 30", "postgresql": "SET lock_timeout = '30s'",
}  # fmt: skip


def values_of(database: AlchemyDatabase, id_: str, key: str) -> dict[str, object]:
    """Return the values of a row."""
    text = database.dialect.text
    return {
        "by_writer": 0, "id": id_.encode(), "topic": text("orders"), "queue": None,
        "message_key": text(""), "ordering_key": text(key), "tag": text(""),
        "content_type": text(""), "headers": None, "priority": 0, "due_ms": None,
        "expires_ms": None, "items": 1, "body": b"x",
    }  # fmt: skip


@pytest.fixture(params=KINDS)
def database(request, servers) -> Iterator[AlchemyDatabase]:
    url = servers.fresh(request.param)
    made = AlchemyDatabase(url)
    prepare(made)
    yield made
    made.close()
    servers.drop(request.param, url)


def write(database: AlchemyDatabase, *ids_and_keys: tuple[str, str]) -> list[Ref]:
    """Write rows."""
    table = Table(database.dialect)
    rows = [values_of(database, id_, key) for id_, key in ids_and_keys]
    with database.writing() as work:
        numbers = table.numbers(work.run(*table.insertion(rows)), len(rows))
    return [Ref(seq, id_) for seq, (id_, _) in zip(numbers, ids_and_keys, strict=True)]


@pytest.mark.timeout(120)
def test_keys_and_ids_that_a_collation_takes_for_equal_are_different(database):
    """A compensator that takes over knows each of them to be blocked; a delete takes one row."""
    table = Table(database.dialect)
    keys = ["Order-7", "order-7", "Order-7 "]
    refs = write(database, *[(key, key) for key in keys])
    with database.reading() as work:
        rows = table.page(work, resend_after_ms=0)
    assert [one.ordering_key for one in rows] == keys
    with database.writing() as work:
        for one in rows:
            table.refused(work, one, tries=1, wait_ms=0, error="no", failed=False)
    with database.reading() as work:
        blocked = table.blocked_keys(work)
    assert sorted(key for _, key, _ in blocked) == sorted(keys)
    with database.writing() as work:
        assert table.delete(work, [Ref(refs[0].seq, "order-7")]) == 0, "the id of another row"
        assert table.delete(work, [refs[0]]) == 1


@pytest.mark.timeout(120)
def test_the_time_of_a_row_is_that_of_its_statement(database):
    """Not that of the beginning of its transaction: the row would be nobody's for less time."""
    table = Table(database.dialect)

    def now_ms() -> int:
        with database.reading() as work:
            return table.now_ms(work)

    engine = sa.create_engine(database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM ternmq_lease").all()  # it has begun
        began_ms = now_ms()
        wait_until(lambda: now_ms() > began_ms + 100, "time passes")
        before_ms = now_ms()
        statement, values = table.insertion([values_of(database, "a", "")])
        connection.execute(sa.text(statement), values)
    engine.dispose()
    with database.reading() as work:
        [[written_ms]] = work.run("SELECT written_ms FROM ternmq_outbox", {}).rows
    assert before_ms <= written_ms <= now_ms()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", SERVED, indirect=True)
def test_a_delete_of_rows_that_are_gone_holds_up_no_insert(database):
    """Another sender deleted them. The delete is not committed yet when an application inserts."""
    table = Table(database.dialect)
    refs = write(database, ("1", ""), ("2", ""), ("3", ""))
    with database.writing() as work:
        assert table.delete(work, refs) == 3
    impatient = sa.create_engine(database.url, poolclass=sa.NullPool)
    values = values_of(database, "4", "")
    statement, given = table.insertion([values])
    with database.writing() as work:
        assert table.delete(work, [*refs, Ref(refs[-1].seq + 1000, "none")]) == 0
        with impatient.begin() as connection:
            connection.exec_driver_sql(IMPATIENT[database.dialect.name])
            connection.execute(sa.text(statement), given)
    with database.reading() as work:
        rows = table.page(work, resend_after_ms=0)
    assert [one.id for one in rows] == ["4"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", SERVED, indirect=True)
@pytest.mark.parametrize("count", [1, 20, 500])
def test_an_open_transaction_holds_up_no_change_of_other_rows(database, count):
    """A scan of the whole table would wait for the row that it has inserted."""
    table = Table(database.dialect)
    refs = write(database, *[(str(number), "k") for number in range(count)])
    application = sa.create_engine(database.url, poolclass=sa.NullPool)
    statement, given = table.insertion([values_of(database, "open", "k")])
    with application.connect() as connection:
        connection.execute(sa.text(statement), given)
        with database.writing() as work:
            work.run(IMPATIENT[database.dialect.name], {})
            assert table.hold(work, refs) == count
        with database.writing() as work:
            assert table.release(work, "orders", "k") == count
        with database.reading() as work:
            rows = table.page(work, resend_after_ms=0)
        with database.writing() as work:
            for one in rows[:10]:
                table.refused(work, one, tries=1, wait_ms=0, error="no", failed=False)
        with database.writing() as work:
            assert table.keep(work, refs[:1], resent=True) == 1
            assert table.delete(work, refs) == count
        connection.rollback()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_the_clock_of_mariadb_moved_by_a_session(database):
    """``SET @@timestamp`` moves UTC_TIMESTAMP of that session: its lease does not get stuck."""
    one, two = (Lease(database.dialect, "compensator", holder=name) for name in ("one", "two"))
    with database.writing() as work:
        before = int(work.run(f"SELECT {database.dialect.now_ms}", {}).rows[0][0])
        assert one.take(work)
        work.run("SET @@timestamp = UNIX_TIMESTAMP() + 3600", {})
        after = int(work.run(f"SELECT {database.dialect.now_ms}", {}).rows[0][0])
        assert after - before > 3_500_000, "inconclusive: the clock did not move"
        assert two.take(work), "an hour forth: the lease of the first one is over"
        work.run("SET @@timestamp = 0", {})
        assert one.take(work), "an hour back: a lease that ends in an hour is nobody's"
        assert not two.take(work)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", SERVED, indirect=True)
def test_a_process_that_is_frozen_in_a_transaction_holds_up_no_other(database):
    """Its transaction has deleted rows and taken the lease, and never ends: the server ends it."""
    table = Table(database.dialect)
    refs = write(database, ("1", ""), ("2", ""))
    frozen = AlchemyDatabase(database.url)
    one, two = (Lease(database.dialect, "compensator", holder=name) for name in ("one", "two"))
    with database.writing() as work:
        assert one.take(work)
        one.give_back(work)
    went_on = ended = False
    try:
        with frozen.writing() as work:
            assert table.delete(work, refs) == 2
            assert one.take(work)
            went_on = others_go_on(database, refs, two)
    except frozen.errors:
        ended = True
    assert went_on
    assert ended, "the frozen one is told so when it goes on"
    frozen.close()


def others_go_on(database: AlchemyDatabase, refs: list[Ref], lease: Lease) -> bool:
    """Return whether another process can delete rows and take a lease within 30 s."""
    try:
        with database.writing() as work:
            work.run(PATIENT[database.dialect.name], {})
            return Table(database.dialect).delete(work, refs) == 2 and lease.take(work)
    except database.errors:
        return False
