"""Port to the transactions in which a function of the application works.

This package begins the transaction and runs its own statements first; the function works in it; it
is committed when the function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from ternmq.model.errors import InvalidHandler
from ternmq.reliable.database.port import Work

T = TypeVar("T")

_OPEN_MYSQL: Final = 0x0001
_FAILED: Final = 3
"""``transaction_status`` of psycopg: the server accepts nothing but the end of the transaction."""
_IDLE: Final = 0


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
            enter: Runs the first statements; the first of them writes.
            wait_s: How long SQLite waits for its lock.

        Raises:
            InvalidHandler: The function has ended the transaction itself.
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


def ended() -> InvalidHandler:
    """Return the error for a function that ended its transaction itself."""
    return InvalidHandler(
        "the function has committed or rolled back its transaction, which ends when the "
        "function returns; to roll it back, raise an exception"
    )


def failed() -> InvalidHandler:
    """Return the error for a function that went on after a statement that failed."""
    return InvalidHandler(
        "a statement of the function failed, after which its transaction cannot be committed; to "
        "go on after an error, run the statement in a savepoint"
    )


def has_ended(driver: Any) -> bool:  # noqa: ANN401 - of several libraries
    """Return whether no transaction is open on the connection of a driver.

    False where the driver does not know it without a statement.
    """
    library = type(driver).__module__.partition(".")[0]
    if library in {"sqlite3", "aiosqlite"}:
        return not driver.in_transaction
    if library in {"psycopg", "psycopg2"}:
        return int(driver.info.transaction_status) == _IDLE
    if library == "pymysql":
        return not driver.server_status & _OPEN_MYSQL
    if library == "aiomysql":
        return not driver.get_transaction_status()
    return False


def has_failed(driver: Any) -> bool | None:  # noqa: ANN401 - of several libraries
    """Return whether a statement has failed, after which PostgreSQL commits nothing.

    It answers COMMIT with a rollback then, and drivers raise no error. None: this driver knows it
    by a further statement only.
    """
    if type(driver).__module__.partition(".")[0] in {"psycopg", "psycopg2"}:
        return int(driver.info.transaction_status) == _FAILED
    return None
