"""Port to the transactions in which a function of the application works.

This package begins the transaction and runs its own statements first; the function works in it; it
is committed when the function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ternmq.reliable.database.port import Work

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Wanted:
    """A parameter that receives the transaction.

    Attributes:
        name: Its name.
        kind: Its annotation: a class of sessions or connections.
        awaited: Whether objects of that class are asked with ``await``.
        driver: It is a connection of a driver, which SQLAlchemy does not see at work.
    """

    name: str
    kind: type[Any]
    awaited: bool
    driver: bool = False


@dataclass(slots=True)
class Opened(Generic[T]):
    """An open transaction. Leaving its block commits it, or rolls it back after an error.

    Attributes:
        entered: What its first statements returned.
        given: Arguments of the function, by name.
        within: What stands for the transaction, in ``within=``; None: sends find it by themselves.
        before_commit: Runs further statements, right before the commit; None: there are none.
        undo: Roll it back, although there is no error.
    """

    entered: T
    given: dict[str, object] = field(default_factory=dict)
    within: object = None
    before_commit: Callable[[Work], object] | None = None
    undo: bool = False


class Transactions(Protocol):
    """Opens transactions on a database of the application. Callable from any thread."""

    def check(self, name: str, wanted: Sequence[Wanted], *, awaited: bool) -> None:
        """Check that a function can work in these transactions.

        Args:
            name: Its name, for errors.
            wanted: Its parameters that receive the transaction.
            awaited: Whether it is an ``async def``.

        Raises:
            InvalidHandler: It cannot.
        """

    def opened(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> AbstractContextManager[Opened[T]]:
        """Open a transaction for a function that blocks.

        Args:
            wanted: Its parameters that receive it.
            enter: Runs the first statements; the first of them writes, and in PostgreSQL they set
                ``standing.MARK``.
            wait_s: How long SQLite waits for its lock.

        Raises:
            NotCommitted: The transaction has ended before the function returned, or cannot be
                committed; see ``standing``.
            Exception: The database's own, those of ``enter``, and what the block raises.
        """

    def opened_awaited(
        self, wanted: Sequence[Wanted], enter: Callable[[Work], T], wait_s: float
    ) -> AbstractAsyncContextManager[Opened[T]]:
        """Open a transaction for a function that is awaited; see ``opened``."""

    def close(self) -> None:
        """Close connections that were opened here."""

    async def close_awaited(self) -> None:
        """Close those of the present loop, too."""

    def leave(self) -> None:
        """Forget connections in a forked child: they are the parent's."""
