"""Statements on the table of the inbox."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Final

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.statements import Statements
from ternmq.reliable.inbox.entry import Entry
from ternmq.reliable.libraries.refusals import is_taken
from ternmq.reliable.libraries.standing import MARK

CLEAN_ROWS: Final = 1000
"""Most rows that one statement deletes."""

# One statement: ``lock_timeout`` is set before the row is inserted, and put back after it, so that
# the statements of the handler wait as long as ever. The nested CASE has the old value read first.
# The old value stays in its own setting until the end of the transaction, which it marks, for
# ``standing``. Where the id is known there is no row to return, and the rollback puts all back.
_INSERT: Final = {
    "postgresql": f"""INSERT INTO {{inbox}} (consumer, id, until_ms)
SELECT CAST(:consumer AS text), CAST(:id AS bytea), {{now_ms}} + CAST(:keep_ms AS bigint)
 WHERE set_config('lock_timeout', CASE
       WHEN set_config('{MARK}', current_setting('lock_timeout'), true) IS NOT NULL
       THEN CAST(:wait_ms AS text) END, true) IS NOT NULL
ON CONFLICT DO NOTHING
RETURNING set_config('lock_timeout', current_setting('{MARK}'), true)""",
    # Not ON DUPLICATE KEY UPDATE: with CLIENT.FOUND_ROWS, which SQLAlchemy sets, its count is 1 for
    # a new row and for a known one. Not INSERT IGNORE, which passes over other errors.
    "mysql": "INSERT INTO {inbox} (consumer, id, until_ms) "
    "VALUES (UNHEX(:consumer), UNHEX(:id), {now_ms} + :keep_ms)",
    "sqlite": "INSERT INTO {inbox} (consumer, id, until_ms) "
    "VALUES (:consumer, :id, {now_ms} + :keep_ms) ON CONFLICT DO NOTHING",
}
_WAIT_MYSQL: Final = (
    "SET @ternmq_before = @@SESSION.innodb_lock_wait_timeout, "
    "SESSION innodb_lock_wait_timeout = :wait_s"
)
_PUT_BACK_MYSQL: Final = "SET SESSION innodb_lock_wait_timeout = @ternmq_before"
_CLEAN: Final = {
    "postgresql": "DELETE FROM {inbox} WHERE until_ms < :now_ms AND ctid = ANY(ARRAY("
    "SELECT ctid FROM {inbox} WHERE until_ms < :now_ms ORDER BY until_ms LIMIT :rows))",
    "mysql": "DELETE FROM {inbox} WHERE until_ms < :now_ms ORDER BY until_ms LIMIT :rows",
    "sqlite": "DELETE FROM {inbox} WHERE (consumer, id) IN ("
    "SELECT consumer, id FROM {inbox} WHERE until_ms < :now_ms ORDER BY until_ms LIMIT :rows)",
}
_THIS: Final = "WHERE consumer = :consumer AND id = :id"
# As digits: aiomysql cannot write bytes with PyMySQL 1.2, and texts have the connection's encoding.
_THIS_MYSQL: Final = "WHERE consumer = UNHEX(:consumer) AND id = UNHEX(:id)"


class InboxTable(Statements):
    """The table of the inbox in one database. Immutable."""

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        super().__init__(dialect, schema)
        self._insert = self.fill(_INSERT[dialect.name])
        self._hex = dialect.name == "mysql"
        this, result = (_THIS_MYSQL, "UNHEX(:result)") if self._hex else (_THIS, ":result")
        self._read = self.fill(f"SELECT result FROM {{inbox}} {this}")
        self._keep = self.fill(f"UPDATE {{inbox}} SET result = {result} {this}")
        self._delete = self.fill(f"DELETE FROM {{inbox}} {this}")
        self._clean = self.fill(_CLEAN[dialect.name])

    # -- in the handler's transaction -------------------------------------------------------------

    def enter(self, work: Work, entry: Entry, keep_ms: int, wait_s: float) -> bool:
        """Insert the row of a message; return whether it is new.

        If another transaction has inserted it and is open, this waits for its end.

        Args:
            work: The transaction; the row is its first statement.
            entry: The message.
            keep_ms: How long the row is kept.
            wait_s: How long to wait, in PostgreSQL and MySQL. An error of the database follows
                (``refusals.waited_in_vain``).
        """
        values = {**self._of(entry), "keep_ms": keep_ms}
        if self.dialect.name == "mysql":
            return self._enter_mysql(work, values, wait_s)
        if self.dialect.name == "postgresql":
            values["wait_ms"] = str(max(1, round(wait_s * 1000)))
            return bool(work.run(self._insert, values).rows)
        return work.run(self._insert, values).count == 1

    def _enter_mysql(self, work: Work, values: dict[str, object], wait_s: float) -> bool:
        work.run(_WAIT_MYSQL, {"wait_s": max(1, math.ceil(wait_s))})
        try:
            work.run(self._insert, values)
        except Exception as error:
            # A connection that is lost needs no setting, and the first error is the one to raise.
            with contextlib.suppress(Exception):
                work.run(_PUT_BACK_MYSQL, {})
            if is_taken(error):  # the transaction goes on
                return False
            raise
        work.run(_PUT_BACK_MYSQL, {})
        return True

    def result(self, work: Work, entry: Entry) -> bytes | None:
        """Return the result that is kept of a message; None: there is none."""
        rows = work.run(self._read, self._of(entry)).rows
        return bytes(rows[0][0]) if rows and rows[0][0] is not None else None

    def keep(self, work: Work, entry: Entry, result: bytes) -> None:
        """Write the result of a message into its row."""
        value = result.hex() if self._hex else result
        work.run(self._keep, {**self._of(entry), "result": value})

    # -- on connections of this package -----------------------------------------------------------

    def forget(self, work: Work, entries: Iterable[Entry]) -> int:
        """Delete the rows of messages; return how many there were."""
        return sum(work.run(self._delete, self._of(entry)).count for entry in entries)

    def clean(self, work: Work, now_ms: int, rows: int = CLEAN_ROWS) -> int:
        """Delete rows whose time is over at ``now_ms``, at most ``rows``; return how many."""
        return work.run(self._clean, {"now_ms": now_ms, "rows": rows}).count

    def _of(self, entry: Entry) -> dict[str, object]:
        if self._hex:
            return {"consumer": entry.consumer.encode().hex(), "id": entry.id.hex()}
        return {"consumer": entry.consumer, "id": entry.id}
