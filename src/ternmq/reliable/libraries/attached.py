"""A transaction of the application, as ``within=`` gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import AwaitedWork, Database, Work

AtEnd = Callable[[Callable[[], None]], None]
"""Takes a function that it calls once the transaction is over, committed or not. A hook only tells
that it is time to look: what is committed is read from the table."""


@dataclass(slots=True, frozen=True)
class Attached:
    """An open transaction of an application's database.

    Attributes:
        dialect: Kind of the database.
        is_unprepared: Returns whether an error of its library says that a table or column is
            missing.
        work: Runs statements in it; None: it is asked with ``await``.
        awaited: Likewise, with ``await``.
        at_end: Tells of its end; None: nobody does.
        begun: Whether it is known that messages were written in it before, or who began it told so.
        digits: Bytes are given as hexadecimal digits: the driver (aiomysql 0.3 with PyMySQL 1.2)
            cannot send any.
    """

    dialect: Dialect
    is_unprepared: Callable[[Exception], bool]
    work: Work | None = None
    awaited: AwaitedWork | None = None
    at_end: AtEnd | None = None
    begun: bool = False
    digits: bool = False


class ApplicationDatabase(Database, Protocol):
    """A database, and the transactions that the application opens in it.

    Attributes:
        alone: It is in memory and belongs to one connection: rows are written, and nobody can read
            them back to send them.
    """

    alone: bool

    def attach(self, within: object) -> Attached | None:
        """Return the transaction of a session or connection; None: it is neither.

        Raises:
            NotThisDatabase: It belongs to another database.
            OutsideTransaction: It commits each statement.
        """

    def knows(self, within: object) -> bool:
        """Return whether a value is of a kind that ``attach`` takes; no transaction begins."""

    def ambient(self) -> Attached | None:
        """Return the transaction that the caller is in, where the library knows; None: none."""

    def is_same(self, other: ApplicationDatabase) -> bool:
        """Return whether the transactions of another object's database are those of this one."""

    def is_away(self, error: Exception) -> bool:
        """Return whether an error says that the database cannot be reached."""

    def close_old(self) -> None:
        """Close connections of the calling thread that broke, or are too old; after a message."""

    def leave(self) -> None:
        """Forget the connections in a forked child: they are the parent's."""
