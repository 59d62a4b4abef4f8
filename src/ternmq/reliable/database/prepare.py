"""Makes the tables in a database, brings them up to date, and checks that they can be used.

One process at a time changes tables. If the tables are complete, no statement that would change
them is run: ALTER TABLE and CREATE INDEX of PostgreSQL wait for the transactions that use a table,
even if nothing is to do, and hold up all that come later. And an account that may not make tables
can check them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from ternmq.model.errors import DatabaseNotPrepared, InvalidRequest, hinted
from ternmq.model.words import counted, lasting
from ternmq.reliable.database.port import Database, Work
from ternmq.reliable.database.tables import (
    TABLES,
    VERSIONS,
    columns,
    filled,
    statements,
    upgrades,
)

_NEEDED: Final = (
    "by_writer, written_ms, id, topic, message_key, ordering_key, tag, content_type, priority, body"
)
_INBOX: Final = "consumer, id, until_ms"
_SEQUENCE: Final = "consumer, session, size, state, stored, step, tries, turn, since_ms, next_ms"
_ITEM: Final = "consumer, session, number, id, message_key, tag, content_type, body"
_RIGHTS: Final = {
    "schema": ("SELECT version FROM {schema} WHERE component = :name",),
    "lease": (
        "INSERT INTO {lease} (name) VALUES (:name)",
        "UPDATE {lease} SET tick = 0 WHERE name = :name",
        "SELECT epoch FROM {lease} WHERE name = :name",
        "DELETE FROM {lease} WHERE name = :name",
    ),
    "outbox": (
        f"INSERT INTO {{outbox}} ({_NEEDED}) SELECT {_NEEDED} FROM {{outbox}} WHERE 1 = 0",
        "UPDATE {outbox} SET tries = 0 WHERE 1 = 0",
        "DELETE FROM {outbox} WHERE 1 = 0",
    ),
    "inbox": (
        f"INSERT INTO {{inbox}} ({_INBOX}) SELECT {_INBOX} FROM {{inbox}} WHERE 1 = 0",
        "UPDATE {inbox} SET result = NULL WHERE 1 = 0",
        "DELETE FROM {inbox} WHERE 1 = 0",
    ),
    "sequence": (
        f"INSERT INTO {{sequence}} ({_SEQUENCE}) SELECT {_SEQUENCE} FROM {{sequence}} WHERE 1 = 0",
        "UPDATE {sequence} SET tries = 0 WHERE 1 = 0",
        "DELETE FROM {sequence} WHERE 1 = 0",
    ),
    "sequence_item": (
        f"INSERT INTO {{sequence_item}} ({_ITEM}) SELECT {_ITEM} FROM {{sequence_item}} WHERE 1=0",
        "DELETE FROM {sequence_item} WHERE 1 = 0",
    ),
}
"""What an application does with each table. The statements change nothing in the end, and wait for
no row of the outbox that is locked."""
Purpose = Literal["outbox", "inbox", "sequences"]
"""What a database is wanted for."""
_USED: Final[dict[Purpose, tuple[str, ...]]] = {
    "outbox": ("outbox", "lease"),
    "inbox": ("inbox", "lease"),
    "sequences": ("sequence", "sequence_item"),
}
"""Tables that ``verify`` looks at."""
_PROBE: Final = "prepare"
_KEY: Final = 0x7465_726E_6D71
"""Of the advisory lock of PostgreSQL: "ternmq"."""
_LOCK: Final = "ternmq.prepare"
"""The same for MySQL, where it counts for all databases of a server."""
_OTHER_S: Final = 60
"""How long another process that prepares is waited for."""
PATIENCE_S: Final = 10
"""How long a change of a table waits for transactions that use it: those that come later wait
behind it."""
_CLOCK_MS: Final = 5_000
"""Clocks that differ more are worth a warning."""


@dataclass(slots=True)
class Prepared:
    """What ``prepare`` did.

    Attributes:
        done: A sentence for each component.
        warnings: What works, and could be better.
    """

    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return both; a warning says that it is one."""
        return [*self.done, *[f"warning: {one}" for one in self.warnings]]


def prepare(database: Database, schema: str = "") -> Prepared:
    """Make or upgrade the tables, and check them. May be repeated, by several processes at once.

    A schema that is missing is made. On PostgreSQL and SQLite, all is one transaction. On MySQL,
    each statement is one; the next call does the rest.

    Raises:
        DatabaseNotPrepared: They belong to a newer version, or cannot be used.
        InvalidRequest: SQLite has no schemas.
        Exception: The database's own.
    """
    if schema and database.dialect.name == "sqlite":
        raise InvalidRequest("SQLite has no schemas: leave the schema out")
    with database.reading() as work:
        before = versions(database, work, schema)
        _refuse_newer(database, before)
        complete = before == before | VERSIONS and not _missing(database, work, schema)
    if complete:
        told = Prepared([
            f"the tables of {component!r} are there, version {version}"
            for component, version in VERSIONS.items()
        ])  # fmt: skip
    else:
        with _alone(database) as work:
            told = Prepared(_make(database, work, schema))
    told.warnings += check(database, schema)
    return told


def _make(database: Database, work: Work, schema: str) -> list[str]:
    dialect, done = database.dialect, []
    if schema and not _has_schema(database, work, schema):
        work.run(f"CREATE SCHEMA {dialect.quoted(schema)}", {})
        done.append(f"made the schema {schema!r}")
    first, *others = statements(dialect, schema)
    work.run(first, {})  # the versions: another process may have done everything meanwhile
    before = versions(database, work, schema)
    _refuse_newer(database, before)
    for component, present in VERSIONS.items():
        for statement in upgrades(dialect, component, before.get(component, present), schema):
            work.run(statement, {})
    for statement in others:
        work.run(statement, {})
    for component, present in VERSIONS.items():
        old = before.get(component)
        if old != present:
            _note(work, database, component, present, schema)
        if old is None:
            done.append(f"made the tables of {component!r}, version {present}")
        elif old < present:
            done.append(f"upgraded the tables of {component!r} from version {old} to {present}")
        else:
            done.append(f"the tables of {component!r} are complete, version {present}")
    return done


@contextmanager
def _alone(database: Database) -> Iterator[Work]:
    """Return a connection on which tables are changed, while no other process does that."""
    kind = database.dialect.name
    if kind != "mysql":
        with database.writing(durable=True) as work:
            if kind == "postgresql":
                work.run(f"SET LOCAL lock_timeout = '{_OTHER_S}s'", {})
                work.run("SELECT pg_advisory_xact_lock(:key)", {"key": _KEY})
                work.run(f"SET LOCAL lock_timeout = '{PATIENCE_S}s'", {})
            yield work
        return
    with database.reading() as work:  # each statement that makes a table commits anyway
        [[got]] = work.run("SELECT GET_LOCK(:name, :wait)", {"name": _LOCK, "wait": _OTHER_S}).rows
        if got != 1:
            raise DatabaseNotPrepared(
                f"{database.name}: another process has been preparing it for {_OTHER_S} s"
            )
        work.run(f"SET SESSION lock_wait_timeout = {PATIENCE_S}", {})
        try:
            yield work
        finally:
            work.run("SET SESSION lock_wait_timeout = DEFAULT", {})
            work.run("SELECT RELEASE_LOCK(:name)", {"name": _LOCK})


def _refuse_newer(database: Database, found: dict[str, int]) -> None:
    for component, version in found.items():
        present = VERSIONS.get(component)
        if present is not None and version > present:
            raise hinted(
                DatabaseNotPrepared(
                    f"{database.name}: the tables of {component!r} have version {version}, and "
                    f"this TernMQ knows versions up to {present}"
                ),
                "install a newer TernMQ here; nothing was changed",
            )


def _missing(database: Database, work: Work, schema: str) -> list[str]:
    """Return the tables that are not there."""
    return [table for table in TABLES if not _has(database, work, schema, table, "1")]


def _has(database: Database, work: Work, schema: str, table: str, selected: str) -> bool:
    """Return whether a table is there, and has some columns."""
    statement = f"SELECT {selected} FROM {{{table}}} WHERE 1 = 0"
    try:
        work.run(filled(database.dialect, statement, schema), {})
    except database.errors as error:
        if not database.is_unprepared(error):
            raise
        return False
    return True


def _check_columns(database: Database, work: Work, schema: str, tables: Iterable[str]) -> None:
    """Check that tables have their columns.

    Raises:
        DatabaseNotPrepared: They have not; the text names what is missing.
    """
    for table in tables:
        wanted = columns()[table]
        if _has(database, work, schema, table, ", ".join(wanted)):
            continue
        missing = [one for one in wanted if not _has(database, work, schema, table, one)]
        name = database.dialect.table(table, schema)
        if len(missing) == len(wanted):
            error = DatabaseNotPrepared(f"{database.name} has no table {name}")
            raise hinted(error, database.making or error.hint)
        raise hinted(
            DatabaseNotPrepared(
                f"{database.name}: table {name} lacks {counted(len(missing), 'column')} of its "
                f"version: {', '.join(missing)}"
            ),
            "add what is missing by hand, as `ternmq outbox prepare --sql` has it; or drop the "
            "table, if its rows are not needed, and run `ternmq outbox prepare`",
        )


def _has_schema(database: Database, work: Work, schema: str) -> bool:
    names = {
        "postgresql": "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :schema",
        "mysql": "SELECT 1 FROM information_schema.schemata WHERE schema_name = :schema",
    }
    return bool(work.run(names[database.dialect.name], {"schema": schema}).rows)


def versions(database: Database, work: Work, schema: str = "") -> dict[str, int]:
    """Return the version of each component in a database; empty: it was not prepared."""
    dialect = database.dialect
    try:
        found = work.run(filled(dialect, "SELECT component, version FROM {schema}", schema), {})
    except database.errors as error:
        if database.is_unprepared(error):
            return {}
        raise
    return {dialect.text_of(name): int(version) for name, version in found.rows}


def verify(database: Database, schema: str = "", what: Purpose = "outbox") -> None:
    """Check that the tables have the versions that this TernMQ works with, and all columns.

    Args:
        database: Where they are.
        schema: Their schema.
        what: What they are wanted for. The others are not looked at: the account may have no right
            to read them.

    Raises:
        DatabaseNotPrepared: They have not.
        Exception: The database's own.
    """
    with database.reading() as work:
        found = versions(database, work, schema)
    _refuse_newer(database, found)
    if found != found | VERSIONS:
        error = DatabaseNotPrepared(
            f"{database.name} lacks the tables of the {what}, or has those of an older version"
        )
        raise hinted(error, database.making or error.hint)
    with database.reading() as work:
        _check_columns(database, work, schema, _USED[what])


def check(database: Database, schema: str = "") -> list[str]:
    """Check that the tables can be used as they must; return warnings.

    Raises:
        DatabaseNotPrepared: They cannot: a right is missing, say.
        Exception: The database's own.
    """
    dialect, warnings = database.dialect, []
    for table, needed in _RIGHTS.items():
        try:
            with database.reading() as work:
                _check_columns(database, work, schema, [table])
            with database.writing() as work:
                for statement in needed:
                    work.run(filled(dialect, statement, schema), {"name": dialect.text(_PROBE)})
        except database.errors as error:
            if not database.is_denied(error):
                raise
            rights = "SELECT" if table == "schema" else "SELECT, INSERT, UPDATE and DELETE"
            raise hinted(
                DatabaseNotPrepared(
                    f"{database.name}: {dialect.table(table, schema)} cannot be used: "
                    f"{database.reason(error)}"
                ),
                f"the account needs {rights} on it",
            ) from error
    with database.reading() as work:
        if dialect.name == "mysql":
            _check_engines(database, work, schema)
        if dialect.name == "sqlite":
            [[mode]] = work.run("PRAGMA journal_mode", {}).rows
            if mode != "wal":
                warnings.append(
                    f"the file is in journal mode {mode!r}; with 'wal' (PRAGMA journal_mode=WAL, "
                    "once) reading and writing do not wait for each other"
                )
        warnings += _clock(dialect.now_ms, work)
    return warnings


def _check_engines(database: Database, work: Work, schema: str) -> None:
    for table in TABLES:
        name = database.dialect.table(table)
        engine = _engine(work, name, schema)
        if engine.lower() != "innodb":
            raise hinted(
                DatabaseNotPrepared(
                    f"{database.name}: table {name} is of engine {engine}, which has no "
                    "transactions"
                ),
                f"run ALTER TABLE {name} ENGINE=InnoDB",
            )


def _engine(work: Work, table: str, schema: str) -> str:
    found = work.run(
        "SELECT engine FROM information_schema.tables WHERE table_name = :name "
        "AND table_schema = CASE WHEN :schema = '' THEN DATABASE() ELSE :schema END",
        {"name": table, "schema": schema},
    ).rows
    return str(found[0][0]) if found else "unknown"


def _clock(now_ms: str, work: Work) -> list[str]:
    """Return a warning if the database's clock differs from that of this machine."""
    before = time.time_ns() // 1_000_000
    [[there]] = work.run(f"SELECT {now_ms}", {}).rows
    after = time.time_ns() // 1_000_000
    ahead = int(there) - after if int(there) > after else min(0, int(there) - before)
    if abs(ahead) <= _CLOCK_MS:
        return []
    length = lasting(abs(ahead) * 1000)
    direction = "ahead of" if ahead > 0 else "behind"
    text = (
        f"the database's clock is {length} {direction} that of this machine; nothing is "
        "lost by it, but the times of rows are the database's"
    )
    return [text]


def _note(work: Work, database: Database, component: str, version: int, schema: str) -> None:
    """Note the version of a component."""
    dialect = database.dialect
    values = {"component": dialect.text(component), "version": version}
    update = "UPDATE {schema} SET version = :version WHERE component = :component"
    if not work.run(filled(dialect, update, schema), values).count:
        insert = "INSERT INTO {schema} (component, version) VALUES (:component, :version)"
        work.run(filled(dialect, insert, schema), values)
