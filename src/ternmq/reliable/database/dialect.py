"""What differs between the databases: clocks, texts, numbers of new rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ternmq.model.errors import InvalidRequest

Name = Literal["postgresql", "mysql", "sqlite"]


@dataclass(slots=True, frozen=True)
class Dialect:
    """A kind of database.

    Attributes:
        name: As SQLAlchemy calls it; MariaDB is "mysql".
        now_ms: Expression: the database's clock, in ms since 1970. It is the time of the statement,
            not of the beginning of its transaction, and knows no time zone.
        binary_texts: Columns of texts are bytes: under a default collation of MySQL,
            ``Order-7``, ``order-7`` and ``Order-7 `` would be one key.
        returning: An INSERT returns the numbers of its rows; else they follow from
            ``last_of_many``.
        last_of_many: Of an INSERT of many rows, the database tells the number of the first one, or
            of the last one. The numbers of one INSERT follow each other.
        own_clock: Expression that returns a time of another clock of the same machine, for
            ``prepare``; empty: there is none.
    """

    name: Name
    now_ms: str
    binary_texts: bool = False
    returning: bool = False
    last_of_many: Literal["first", "last"] = "first"

    def text(self, value: str) -> str | bytes:
        """Return a text as its column takes it.

        Raises:
            InvalidRequest: The database cannot store it.
        """
        if self.binary_texts:
            return value.encode()
        if self.returning and "\0" in value:
            raise InvalidRequest("PostgreSQL cannot store a text with the character NUL (U+0000)")
        return value

    def text_of(self, stored: str | bytes | memoryview) -> str:
        """Return a text that ``text`` made."""
        return stored if isinstance(stored, str) else bytes(stored).decode()

    def table(self, name: str, schema: str = "") -> str:
        """Return the name of a table of this package, in statements."""
        full = f"ternmq_{name}"
        return f"{self.quoted(schema)}.{full}" if schema else full

    def quoted(self, name: str) -> str:
        """Return a name as an identifier.

        Raises:
            InvalidRequest: It is no plain name.
        """
        if not name.replace("_", "a").replace("-", "a").isalnum() or not name.isascii():
            raise InvalidRequest(f"schema {name!r}: give a name of letters, digits, _ and -")
        mark = "`" if self.name == "mysql" else '"'
        return f"{mark}{name}{mark}"


POSTGRESQL: Final = Dialect(
    "postgresql", "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)", returning=True
)
MYSQL: Final = Dialect(
    "mysql",
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    binary_texts=True,
)
SQLITE: Final = Dialect(
    "sqlite",
    "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    last_of_many="last",
)
_BY_NAME: Final = {
    "postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL, "sqlite": SQLITE,
}  # fmt: skip


def dialect_of(name: str) -> Dialect:
    """Return the dialect that SQLAlchemy calls so.

    Raises:
        InvalidRequest: There is none.
    """
    found = _BY_NAME.get(name)
    if found is None:
        raise InvalidRequest(f"database {name!r}: it is one of {', '.join(_BY_NAME)}")
    return found
