"""Ports to a database: what the statements of this package run on.

Statements are SQL with named values (``:name``); each library translates them for its driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from ternmq.reliable.database.dialect import Dialect

Values = Mapping[str, object]
"""Values of a statement by name."""


@dataclass(slots=True, frozen=True)
class Result:
    """What a statement returned.

    Attributes:
        rows: Its rows; empty if it returns none.
        count: How many rows it changed or found.
        last: Number that the database gave to a row that was inserted; 0: not told. Of several
            rows: which of them, ``Dialect.last_of_many`` says.
    """

    rows: Sequence[Sequence[Any]]
    count: int
    last: int = 0


class Work(Protocol):
    """An open transaction, or a connection on which each statement is one."""

    def run(self, statement: str, values: Values) -> Result:
        """Run a statement. Raises what the library raises."""


class AwaitedWork(Protocol):
    """The same for libraries that are asked with ``await``."""

    async def run(self, statement: str, values: Values) -> Result:
        """Run a statement. Raises what the library raises."""


class Database(Protocol):
    """A database, with connections of this package's own. Callable from any thread.

    Attributes:
        dialect: Its kind.
        name: Its URL without the password, for texts.
        errors: What its library raises: the database cannot be reached, or refused a statement.
        making: How its tables are made, as a hint; empty: by ``ternmq outbox prepare``.
    """

    dialect: Dialect
    name: str
    errors: tuple[type[Exception], ...]
    making: str

    def reading(self) -> AbstractContextManager[Work]:
        """Return a connection on which each statement is a transaction and sees what is new."""

    def writing(self, *, durable: bool = False) -> AbstractContextManager[Work]:
        """Return a transaction: committed at the end of the block, rolled back after an error.

        If it is not ``durable``, a crash of the database may forget the newest of them, as a rule
        not more than a second: for what may be done again. READ COMMITTED; on SQLite it begins
        IMMEDIATE.
        """

    def close(self) -> None:
        """Close the connections; the next use opens others."""

    def close_here(self) -> None:
        """Close the calling thread's connection, where each thread has its own: the thread ends."""

    def is_unprepared(self, error: Exception) -> bool:
        """Return whether an error says that a table or column is missing."""

    def is_denied(self, error: Exception) -> bool:
        """Return whether an error says that the account may not do something."""

    def reason(self, error: Exception) -> str:
        """Return what the database said, as one line: no statement, no values."""
