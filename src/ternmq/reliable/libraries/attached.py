"""A transaction of the application, as ``within=`` gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ternmq.reliable.database.dialect import Dialect
from ternmq.reliable.database.port import AwaitedWork, Work

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
    """

    dialect: Dialect
    is_unprepared: Callable[[Exception], bool]
    work: Work | None = None
    awaited: AwaitedWork | None = None
    at_end: AtEnd | None = None
