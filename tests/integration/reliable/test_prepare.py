"""Preparing a database: SQLite always, PostgreSQL and MariaDB where they are."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from ternmq.model.errors import DatabaseNotPrepared, InvalidRequest
from ternmq.reliable.database import prepare as module
from ternmq.reliable.database import tables
from ternmq.reliable.database.prepare import Prepared, Purpose, check, prepare, verify
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from tests.databases import Servers, run
from tests.unit.reliable.database.test_ddl import golden

MADE = [f"made the tables of {one!r}, version 1" for one in tables.VERSIONS]
THERE = [f"the tables of {one!r} are there, version 1" for one in tables.VERSIONS]
COMPLETE = [f"the tables of {one!r} are complete, version 1" for one in tables.VERSIONS]
OTHERS = ["inbox", "sequence"]
"""Components that stay as they are, when the outbox is upgraded."""


@contextmanager
def opened(url: str) -> Iterator[AlchemyDatabase]:
    database = AlchemyDatabase(url)
    try:
        yield database
    finally:
        database.close()


def prepared(url: str, schema: str = "") -> Prepared:
    with opened(url) as database:
        return prepare(database, schema)


def columns(url: str, schema: str | None = None) -> dict[str, list[tuple[str, str, bool]]]:
    """Return the columns of the tables: name, type, whether NULL is allowed."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    found = sa.inspect(engine)
    return {
        name: [
            (one["name"], str(one["type"]), bool(one["nullable"]))
            for one in found.get_columns(name, schema)
        ]
        for name in sorted(found.get_table_names(schema))
        if name.startswith("ternmq_")
    }


def indexes(url: str) -> list[str | None]:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    return [one["name"] for one in sa.inspect(engine).get_indexes("ternmq_outbox")]


def statements_of(url: str) -> list[str]:
    """Return what ``prepare`` runs at a database."""
    told: list[str] = []
    with opened(url) as database:
        engine = database._own()

        @sa.event.listens_for(engine, "before_cursor_execute")
        def note(connection, cursor, statement, *more):
            told.append(statement)

        prepare(database)
    return told


def test_makes_the_tables_once(database: str) -> None:
    assert prepared(database).done == MADE
    made = columns(database)
    assert list(made) == sorted([f"ternmq_{one}" for one in tables.TABLES])
    assert "ternmq_outbox_state" in indexes(database)
    assert prepared(database).done == THERE
    assert columns(database) == made
    assert run(database, "SELECT count(*) FROM ternmq_outbox") == [(0,)]
    assert run(database, "SELECT count(*) FROM ternmq_lease") == [(0,)]


def test_changes_nothing_where_nothing_is_to_do(database: str) -> None:
    prepared(database)
    changes = re.compile(r"\s*(CREATE|ALTER|DROP|LOCK)\b", re.IGNORECASE)
    told = statements_of(database)
    assert [one for one in told if changes.match(one)] == []


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_busy_table_does_not_hold_it_up(database: str) -> None:
    """A transaction of the application is open on the table, as ever."""
    prepared(database)
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(
            "INSERT INTO ternmq_outbox (by_writer, written_ms, id, topic, message_key, "
            "ordering_key, tag, content_type, priority, body) "
            "VALUES (0, 0, 'a', 't', '', '', '', '', 0, 'x')"
        )
        assert prepared(database).done == THERE


def test_several_at_once_make_them_once(database: str) -> None:
    barrier = threading.Barrier(4)

    def begin(_: int) -> list[str]:
        barrier.wait()
        return prepared(database).done

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(begin, range(4)))
    assert sum([one == MADE for one in told]) == 1, told
    assert run(database, "SELECT component, version FROM ternmq_schema")[0][1] == 1


def test_the_second_waits_for_the_first(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that nothing is there; the second one finds what the first one made."""
    looked = threading.Barrier(2)
    alone = module._alone

    def seen(*arguments):
        looked.wait(30)
        return alone(*arguments)

    monkeypatch.setattr(module, "_alone", seen)
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(lambda _: prepared(database).done, range(2)))
    assert sorted(told) == [MADE, COMPLETE]


def test_makes_what_is_missing(database: str) -> None:
    """MySQL commits each statement: a call that was killed has made some of the tables."""
    prepared(database)
    made = columns(database)
    run(database, "DROP TABLE ternmq_lease")
    assert prepared(database).done == COMPLETE
    assert columns(database) == made
    run(database, "DELETE FROM ternmq_schema")
    assert prepared(database).done == MADE


def test_golden_tables_are_those_that_it_makes(
    database: str, servers: Servers, tmp_path: Path
) -> None:
    """What a migration of version 1 made is what this one expects."""
    dialect = AlchemyDatabase(database).dialect.name
    for component in tables.VERSIONS:
        text = golden(component, dialect, 1).read_text(encoding="utf-8")
        run(database, *[one for one in text.split(";\n") if one.strip()])
    by_migration = columns(database)
    assert prepared(database).done == THERE
    kind = "mariadb" if dialect == "mysql" else dialect
    other = servers.new(kind, tmp_path)
    prepared(other)
    assert columns(other) == by_migration


def test_upgrades_what_an_older_version_made(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(database)
    run(database, "INSERT INTO ternmq_lease (name) VALUES ('compensator')")
    add = "ALTER TABLE {lease} ADD COLUMN extra integer"
    index = "CREATE INDEX ternmq_lease_extra ON {lease} (extra)"
    steps = {("outbox", 1): dict.fromkeys(("postgresql", "mysql", "sqlite"), (add,)),
             ("outbox", 2): dict.fromkeys(("postgresql", "mysql", "sqlite"), (index,))}  # fmt: skip
    monkeypatch.setattr(tables, "_UPGRADES", steps)
    monkeypatch.setitem(tables.VERSIONS, "outbox", 3)
    told = prepared(database)
    assert told.done == [
        "upgraded the tables of 'outbox' from version 1 to 3",
        *[f"the tables of {one!r} are complete, version 1" for one in OTHERS],
    ]
    assert "extra" in [name for name, *_ in columns(database)["ternmq_lease"]]
    assert run(database, "SELECT count(*) FROM ternmq_lease") == [(1,)]
    assert prepared(database).done == ["the tables of 'outbox' are there, version 3", *THERE[1:]]


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_an_upgrade_gives_up_behind_a_long_transaction(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALTER TABLE would wait for it, and every INSERT behind the ALTER TABLE."""
    prepared(database)
    monkeypatch.setattr(module, "PATIENCE_S", 1)
    add = "ALTER TABLE {lease} ADD COLUMN extra integer"
    names = ("postgresql", "mysql", "sqlite")
    monkeypatch.setattr(tables, "_UPGRADES", {("outbox", 1): dict.fromkeys(names, (add,))})
    monkeypatch.setitem(tables.VERSIONS, "outbox", 2)
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("SELECT * FROM ternmq_lease")
        with pytest.raises(sa.exc.OperationalError):
            prepared(database)
    assert set(run(database, "SELECT version FROM ternmq_schema")) == {(1,)}
    assert prepared(database).done[0] == "upgraded the tables of 'outbox' from version 1 to 2"


def test_refuses_a_newer_version(database: str) -> None:
    prepared(database)
    run(database, "UPDATE ternmq_schema SET version = 2")
    before = columns(database)
    with pytest.raises(DatabaseNotPrepared, match=r"have version 2, .* up to 1.*newer TernMQ here"):
        prepared(database)
    assert columns(database) == before


def test_a_component_of_another_version_of_ternmq_is_let_alone(database: str) -> None:
    prepared(database)
    run(database, "INSERT INTO ternmq_schema (component, version) VALUES ('other', 7)")
    assert prepared(database).done == THERE


@pytest.mark.parametrize("table", sorted({*tables.TABLES} - {"schema"}))
def test_columns_that_are_missing_are_named(database: str, table: str) -> None:
    prepared(database)
    lost = "tick" if table == "lease" else "body" if table == "sequence_item" else ""
    lost = lost or {"outbox": "expires_ms", "inbox": "result", "sequence": "turn"}[table]
    run(database, f"ALTER TABLE ternmq_{table} DROP COLUMN {lost}")
    said = rf"ternmq_{table} lacks 1 column of its version: {lost}\b"
    with pytest.raises(DatabaseNotPrepared, match=said) as at:
        prepared(database)
    assert "ternmq outbox prepare --sql" in at.value.hint
    with opened(database) as one:
        wanted: dict[Purpose, tuple[str, ...]] = {
            "outbox": ("outbox", "lease"),
            "inbox": ("inbox", "lease"),
            "sequences": ("sequence", "sequence_item"),
        }
        for what, used in wanted.items():
            if table in used:
                with pytest.raises(DatabaseNotPrepared, match=said):
                    verify(one, what=what)
            else:
                verify(one, what=what)


def test_a_table_that_was_dropped_is_named(database: str) -> None:
    prepared(database)
    run(database, "DROP TABLE ternmq_outbox")
    with (
        opened(database) as one,
        pytest.raises(DatabaseNotPrepared, match="no table ternmq_outbox"),
    ):
        verify(one)
    assert prepared(database).done == COMPLETE


def test_a_schema_is_made(database: str) -> None:
    if database.startswith("sqlite"):
        with pytest.raises(InvalidRequest, match="SQLite has no schemas"):
            prepared(database, "queue")
        return
    schema = f"queue-{database.rpartition('/')[2]}"
    assert prepared(database, schema).done == [f"made the schema {schema!r}", *MADE]
    assert prepared(database, schema).done == THERE
    assert list(columns(database, schema)) == sorted([f"ternmq_{one}" for one in tables.TABLES])
    assert columns(database) == {}
    if database.startswith("mysql"):  # there, it is a database, and the server may stay
        run(database, f"DROP DATABASE `{schema}`")


@pytest.mark.parametrize("table", sorted({*tables.TABLES} - {"schema"}))
def test_an_account_without_rights_on_a_table_is_told(database: str, table: str) -> None:
    prepared(database)
    if database.startswith("sqlite"):
        path = database.removeprefix("sqlite:///")
        readonly = f"sqlite:///file:{path}?immutable=1&uri=true"
        with pytest.raises(DatabaseNotPrepared, match="readonly"), opened(readonly) as one:
            check(one)
        return
    postgresql = database.startswith("postgresql")
    name = database.rpartition("/")[2]
    role = f"app_{name}"
    lacking = f"ternmq_{table}"
    used = [f"ternmq_{one}" for one in tables.TABLES if one not in {"schema", table}]
    if postgresql:
        grants = [
            f"CREATE ROLE {role} LOGIN",
            f"GRANT SELECT ON ternmq_schema, {lacking} TO {role}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {', '.join(used)} TO {role}",
        ]
        more = f"GRANT INSERT, UPDATE, DELETE ON {lacking} TO {role}"
    else:
        whom = f"{role}@'%%'"
        grants = [
            f"CREATE USER {whom}",
            f"GRANT SELECT ON {name}.* TO {whom}",
            *[f"GRANT INSERT, UPDATE, DELETE ON {name}.{one} TO {whom}" for one in used],
        ]
        more = f"GRANT INSERT, UPDATE, DELETE ON {name}.{lacking} TO {whom}"
    run(database, *grants)
    theirs = str(sa.make_url(database).set(username=role))
    with pytest.raises(DatabaseNotPrepared, match=rf"{lacking} cannot be used: .*denied") as at:
        prepared(theirs)
    assert at.value.hint == "the account needs SELECT, INSERT, UPDATE and DELETE on it"
    run(database, more)
    assert prepared(theirs).done == THERE  # it may make no tables, and need not


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_an_engine_without_transactions_is_refused(database: str) -> None:
    prepared(database)
    run(database, "ALTER TABLE ternmq_outbox ENGINE=MyISAM")
    with pytest.raises(DatabaseNotPrepared, match=r"of engine MyISAM.*ENGINE=InnoDB"):
        prepared(database)


def test_a_clock_that_differs_is_a_warning(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(database)
    real = time.time_ns
    for shift, said in ((3_660, "1 hour behind"), (-150, "2 minutes ahead of"), (2, "")):
        monkeypatch.setattr(time, "time_ns", lambda by=shift: real() + by * 10**9)
        told = [one for one in prepared(database).warnings if "clock" in one]
        assert (said in told[0]) if said else not told


def test_sqlite_without_wal_is_a_warning(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    told = prepared(url)
    assert "journal mode 'delete'" in told.warnings[0]
    assert told.lines()[-1].startswith("warning: ")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    assert prepared(url).warnings == []


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"]
)
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="in memory"):
        AlchemyDatabase(url)


def test_reasons_are_one_line_without_values(database: str) -> None:
    prepared(database)
    with opened(database) as one, pytest.raises(sa.exc.DBAPIError) as at, one.reading() as work:
        work.run("SELECT nothing FROM ternmq_lease WHERE name = :name", {"name": b"secret"})
    told = one.reason(at.value)
    assert "nothing" in told
    assert "secret" not in told
    assert "\n" not in told
    assert not one.is_away(at.value)
