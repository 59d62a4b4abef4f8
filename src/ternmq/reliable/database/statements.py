"""What the statements on every table of this package need."""

from __future__ import annotations

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import Work
from ternmq.reliable.database.tables import filled


class Statements:
    """Statements on the tables in one database. Immutable.

    Args:
        dialect: Of the database.
        schema: Where the tables are; empty: where the connection looks.

    Raises:
        InvalidRequest: The schema is no plain name.
    """

    def __init__(self, dialect: Dialect, schema: str = "") -> None:
        self.dialect = dialect
        self.schema = schema
        self._now = self.fill("SELECT {now_ms}")

    def fill(self, statement: str) -> str:
        """Return a statement with the names of the tables, and the database's clock, in it."""
        return filled(self.dialect, statement, self.schema)

    def now_ms(self, work: Work) -> int:
        """Return the database's clock, in ms since 1970."""
        [[now_ms]] = work.run(self._now, {}).rows
        return int(now_ms)
