"""The two tables of a database that is a coordinator, and a session with it.

    ternmq_leadership   name, version, value              one row a key
    ternmq_announced    name, owner, beat_us, value       one row a broker that announced itself

Every statement is a transaction of its own. ``beat_us`` is by the database's clock, so the clocks
of the brokers' machines do not matter. A session refuses a database that would forget what it
confirmed, as far as its settings tell.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError

from ternmq.cluster.coordination.port import MAX_KEY
from ternmq.cluster.coordination.record import MAX_BYTES

MOST_ANNOUNCED: Final = 1000
"""Most announcements that are read."""

_tables: Final = sa.MetaData()
# In MySQL, text is compared without case by default, and a BLOB is a byte shorter than 64 KiB.
_Name: Final = sa.String(MAX_KEY).with_variant(
    mysql.VARCHAR(MAX_KEY, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
_Value: Final = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
sa.Table(
    "ternmq_leadership",
    _tables,
    sa.Column("name", _Name, primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("value", _Value, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
sa.Table(
    "ternmq_announced",
    _tables,
    sa.Column("name", _Name, primary_key=True),
    sa.Column("owner", sa.String(32), nullable=False),
    sa.Column("beat_us", sa.BigInteger, nullable=False),
    sa.Column("value", _Value, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

# Values that are too large are not fetched. The time of the database is put in place of NOW.
_READ: Final = f"""
    SELECT version, length(value), CASE WHEN length(value) <= {MAX_BYTES} THEN value END
    FROM ternmq_leadership WHERE name = :name"""  # noqa: S608  # a number of ours
_VERSIONS: Final = sa.text(
    "SELECT name, version FROM ternmq_leadership WHERE name IN :names"
).bindparams(sa.bindparam("names", expanding=True))
_CREATE: Final = """
    INSERT INTO ternmq_leadership (name, version, value) VALUES (:name, :version, :value)"""
_SWAP: Final = """
    UPDATE ternmq_leadership SET version = :new, value = :value
    WHERE name = :name AND version = :version"""
_OWNER: Final = "SELECT owner FROM ternmq_announced WHERE name = :name"
_TAKE: Final = """
    UPDATE ternmq_announced SET owner = :owner, beat_us = NOW, value = :value
    WHERE name = :name AND owner = :before"""
_TAKE_OVER: Final = """
    UPDATE ternmq_announced SET owner = :owner, beat_us = NOW, value = :value
    WHERE name = :name AND beat_us <= NOW - :alive_us"""
_ADD: Final = """
    INSERT INTO ternmq_announced (name, owner, beat_us, value)
    VALUES (:name, :owner, NOW, :value)"""
_BEAT: Final = """
    UPDATE ternmq_announced SET beat_us = NOW WHERE name = :name AND owner = :owner"""
_WITHDRAW: Final = "DELETE FROM ternmq_announced WHERE name = :name AND owner = :owner"
_ANNOUNCED: Final = f"""
    SELECT name, CASE WHEN length(value) <= {MAX_BYTES} THEN value END
    FROM ternmq_announced WHERE beat_us > NOW - :alive_us
    ORDER BY name LIMIT {MOST_ANNOUNCED}"""  # noqa: S608  # numbers of ours


class Unfit(Exception):
    """The database must not be the coordinator; the text says why, and what to change."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a row says, as the driver returned it.

    Attributes:
        version: Of any type.
        size: Length of the value.
        value: Of any type; None if it is too large.
    """

    version: object
    size: object
    value: object


class Database:
    """How to reach a database. Any thread.

    Args:
        url: Of a database that ``DIALECTS`` has.
        limit_s: Longest time of a statement, in seconds.
    """

    def __init__(self, url: sa.URL, limit_s: float) -> None:
        self._dialect = DIALECTS[url.get_backend_name()](limit_s)
        self._engine = sa.create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            poolclass=sa.NullPool,
            hide_parameters=True,
            connect_args=self._dialect.options,
        )
        self._made = False

    def session(self) -> DatabaseSession:
        """Connect, make the tables if they are missing, and return a session.

        Raises:
            Unfit: The database must not be the coordinator.
            sqlalchemy.exc.DBAPIError: It cannot be reached, or refused.
        """
        connection = self._engine.connect()
        try:
            self._dialect.prepare(connection)
            if not self._made:
                _make_tables(connection)
                self._made = True
            return DatabaseSession(connection, self._dialect.now, self._dialect.breaker(connection))
        except BaseException:
            connection.close()
            raise


class DatabaseSession:
    """A connection to the database. One thread, except ``abort``.

    All methods raise ``sqlalchemy.exc.DBAPIError`` if the outcome is not known.
    """

    def __init__(self, connection: sa.Connection, now: str, breaker: socket.socket | None) -> None:
        self._connection = connection
        self._now = now
        self._breaker = breaker

    def close(self) -> None:
        """End the connection."""
        if self._breaker is not None:
            self._breaker.close()
        # What is wrong with it was told by the call that failed.
        with contextlib.suppress(Exception):
            self._connection.close()

    def abort(self) -> None:
        """End the connection under a call that hangs. Any thread."""
        if self._breaker is not None:
            with contextlib.suppress(OSError):  # it ended already
                self._breaker.shutdown(socket.SHUT_RDWR)

    def read(self, name: str) -> Row | None:
        """Return the row of a key."""
        found = [Row(*row) for row in self._do(_READ, name=name)]
        return found[0] if found else None

    def versions(self, names: list[str]) -> dict[str, object]:
        """Return the versions of those keys that are there."""
        found = self._connection.execute(_VERSIONS, {"names": names})
        return {name: version for name, version in found}  # noqa: C416  # rows, not pairs

    def create(self, name: str, version: int, value: bytes) -> bool:
        """Add a row; return False if there is one already."""
        try:
            self._do(_CREATE, name=name, version=version, value=value)
        except IntegrityError:
            return False
        return True

    def swap(self, name: str, version: int, value: bytes) -> bool:
        """Change a row of this version; return False if there is none."""
        changes = {"name": name, "version": version, "new": version + 1, "value": value}
        return self._do(_SWAP, **changes).rowcount == 1

    def take(self, name: str, owner: str, value: bytes) -> bool:
        """Announce a name, whoever had it; return False if another process took it meanwhile.

        It replaces the owner that it has read: a statement that arrives late replaces no newer one.
        """
        row = {"name": name, "owner": owner, "value": value}
        before = [found for (found,) in self._do(_OWNER, name=name)]
        if before:
            return self._do(_TAKE, **row, before=before[0]).rowcount == 1
        return self._add(row)

    def beat(self, name: str, owner: str, value: bytes, alive_us: int) -> bool:
        """Say that the owner of a name is alive; return False if another living process has it.

        A row that is missing is added, one of a process that is silent for `alive_us` is taken.
        """
        row = {"name": name, "owner": owner, "value": value}
        if self._do(_BEAT, name=name, owner=owner).rowcount:
            return True
        return self._do(_TAKE_OVER, **row, alive_us=alive_us).rowcount == 1 or self._add(row)

    def withdraw(self, name: str, owner: str) -> None:
        """Remove the announcement of an owner."""
        self._do(_WITHDRAW, name=name, owner=owner)

    def announced(self, alive_us: int) -> list[tuple[object, object]]:
        """Return names and values whose owners were alive within this time, as they are."""
        return [(name, value) for name, value in self._do(_ANNOUNCED, alive_us=alive_us)]

    def _add(self, row: Mapping[str, object]) -> bool:
        try:
            self._do(_ADD, **row)
        except IntegrityError:  # there is one
            return False
        return True

    def _do(self, statement: str, **parameters: object) -> sa.CursorResult[*tuple[Any, ...]]:
        text = sa.text(statement.replace("NOW", self._now))
        return self._connection.execute(text, parameters)


def _make_tables(connection: sa.Connection) -> None:
    try:
        _tables.create_all(connection)
    except DBAPIError:
        _tables.create_all(connection)  # another process was faster; if not, it fails again


class _Dialect:
    """What differs between databases.

    Attributes:
        now: Expression for the time in µs by the database's clock.
        options: Of the driver.
    """

    now: str

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.options: Mapping[str, object] = {}

    def prepare(self, connection: sa.Connection) -> None:
        """Set a new connection up; raise ``Unfit`` if the database forgets what it confirms."""
        raise NotImplementedError

    def breaker(self, connection: sa.Connection) -> socket.socket | None:
        """Return another descriptor of the connection's socket, to end it from another thread.

        None: the driver has a time limit of its own.
        """
        del connection
        return None


class _SQLite(_Dialect):
    now = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.options = {"timeout": limit_s * 0.75}  # for a lock

    def prepare(self, connection: sa.Connection) -> None:
        mode = connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar()
        if mode != "wal":
            raise Unfit(
                f"SQLite keeps the journal mode {mode} for this file: put it on a local disk"
            )
        connection.exec_driver_sql("PRAGMA synchronous = FULL")


class _MySQL(_Dialect):
    now = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.options = {
            "connect_timeout": limit_s,
            "read_timeout": limit_s,
            "write_timeout": limit_s,
        }

    def prepare(self, connection: sa.Connection) -> None:
        row = connection.exec_driver_sql(
            "SELECT @@global.read_only, @@global.innodb_flush_log_at_trx_commit"
        ).one()
        if row[0]:
            raise Unfit("this MySQL server is read-only, a replica: use the address of the primary")
        if row[1] != 1:
            raise Unfit(
                f"this MySQL server has innodb_flush_log_at_trx_commit = {row[1]} and may forget "
                "what it confirmed: set it to 1"
            )
        seconds = max(1, math.floor(self.limit_s))
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {seconds}")


class _PostgreSQL(_Dialect):
    now = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.options = {"connect_timeout": max(2, math.ceil(limit_s))}  # 2: libpq's least

    def prepare(self, connection: sa.Connection) -> None:
        row = connection.exec_driver_sql(
            "SELECT pg_is_in_recovery(), current_setting('fsync'), "
            "current_setting('synchronous_commit')"
        ).one()
        if row[0]:
            raise Unfit("this PostgreSQL server is a standby: use the address of the primary")
        if row[1] != "on":
            raise Unfit(
                "this PostgreSQL server has fsync = off and may forget what it confirmed: turn it "
                "on"
            )
        if row[2] in {"off", "local"}:
            connection.exec_driver_sql("SET synchronous_commit = on")
        connection.exec_driver_sql(f"SET statement_timeout = {math.ceil(self.limit_s * 1000)}")

    def breaker(self, connection: sa.Connection) -> socket.socket | None:
        driver: Any = connection.connection.driver_connection
        return socket.socket(fileno=os.dup(driver.fileno()))


DIALECTS: Final[Mapping[str, Callable[[float], _Dialect]]] = {
    "sqlite": _SQLite,
    "mysql": _MySQL,
    "mariadb": _MySQL,
    "postgresql": _PostgreSQL,
}
"""Databases that may be a coordinator, by the name in the URL."""
