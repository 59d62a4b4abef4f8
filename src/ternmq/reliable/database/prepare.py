"""Makes the tables in a database, brings them up to date, and checks that they can be used."""

from __future__ import annotations

from typing import Final

from ternmq.model.errors import DatabaseNotPrepared
from ternmq.reliable.database.port import Database, Work
from ternmq.reliable.database.tables import TABLES, VERSIONS, filled, statements, upgrades

_RIGHTS: Final = (
    "INSERT INTO {lease} (name) VALUES (:name)",
    "UPDATE {lease} SET tick = 0 WHERE name = :name",
    "SELECT epoch FROM {lease} WHERE name = :name",
    "DELETE FROM {lease} WHERE name = :name",
)
_PROBE: Final = "prepare"


def prepare(database: Database, schema: str = "") -> list[str]:
    """Make or upgrade the tables; return what was done, a sentence each. May be repeated.

    Raises:
        DatabaseNotPrepared: They belong to a newer version, or cannot be used.
        Exception: The database's own.
    """
    dialect = database.dialect
    with database.reading() as work:
        before = versions(database, work, schema)
        done = []
        for component, version in before.items():
            present = VERSIONS.get(component)
            if present is not None and version > present:
                raise DatabaseNotPrepared(
                    f"{database.name}: the tables of {component!r} have version {version}, and "
                    f"this TernMQ knows {present}: install a newer one"
                )
        for statement in statements(dialect, schema):
            work.run(statement, {})
        for component, present in VERSIONS.items():
            old = before.get(component)
            if old is None:
                _note(work, database, component, present, schema)
                done.append(f"made the tables of {component!r}, version {present}")
            elif old < present:
                for statement in upgrades(dialect, component, old, schema):
                    work.run(statement, {})
                _note(work, database, component, present, schema)
                done.append(f"upgraded the tables of {component!r} from {old} to {present}")
            else:
                done.append(f"the tables of {component!r} have version {present}")
    done += check(database, schema)
    return done


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


def check(database: Database, schema: str = "") -> list[str]:
    """Check that the tables can be used as they must; return warnings.

    Raises:
        DatabaseNotPrepared: They cannot.
        Exception: The database's own: a right is missing, say.
    """
    dialect, warnings = database.dialect, []
    with database.writing() as work:
        for statement in _RIGHTS:
            work.run(filled(dialect, statement, schema), {"name": dialect.text(_PROBE)})
    with database.reading() as work:
        if dialect.name == "mysql":
            for table in TABLES:
                engine = _engine(work, dialect.table(table), schema)
                if engine.lower() != "innodb":
                    raise DatabaseNotPrepared(
                        f"{database.name}: table {dialect.table(table)} is of engine {engine}, "
                        "which has no transactions: make it InnoDB"
                    )
        if dialect.name == "sqlite":
            [[mode]] = work.run("PRAGMA journal_mode", {}).rows
            if mode != "wal":
                warnings.append(
                    f"warning: the file is in journal mode {mode!r}: with 'wal' (PRAGMA "
                    "journal_mode=WAL) reading and writing do not wait for each other"
                )
    return warnings


def _engine(work: Work, table: str, schema: str) -> str:
    name = table.rpartition(".")[2]
    found = work.run(
        "SELECT engine FROM information_schema.tables WHERE table_name = :name "
        "AND table_schema = CASE WHEN :schema = '' THEN DATABASE() ELSE :schema END",
        {"name": name, "schema": schema},
    ).rows
    return str(found[0][0]) if found else "unknown"


def _note(work: Work, database: Database, component: str, version: int, schema: str) -> None:
    """Note the version of a component."""
    dialect = database.dialect
    values = {"component": dialect.text(component), "version": version}
    update = "UPDATE {schema} SET version = :version WHERE component = :component"
    if not work.run(filled(dialect, update, schema), values).count:
        insert = "INSERT INTO {schema} (component, version) VALUES (:component, :version)"
        work.run(filled(dialect, insert, schema), values)
