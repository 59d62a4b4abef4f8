"""A block around a transaction of a bare connection."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from ternmq.client.producer.within import Store, bind, bound, unbind
from ternmq.model.errors import InvalidRequest
from ternmq.reliable.libraries import bare
from ternmq.reliable.libraries.attached import Attached
from ternmq.reliable.libraries.standing import has_failed
from ternmq.reliable.outbox.steps import Step, Steps


class Owner(Store, Protocol):
    """The outbox of a block."""

    @property
    def steps(self) -> Steps:
        """Who is told what the outbox does."""

    def check(self, within: object) -> None:
        """Check that a connection is one of the outbox's database, and is prepared; see there."""


class Transaction:
    """A block around a transaction of a bare connection, made by ``Outbox.transaction``."""

    def __init__(self, outbox: Owner, connection: object) -> None:
        if not bare.is_known(connection):
            raise InvalidRequest(
                "outbox.transaction takes a connection of sqlite3, psycopg or PyMySQL; of "
                "SQLAlchemy, use `with session.begin():` and outbox.bound(session)"
            )
        self.outbox = outbox
        self.connection: Any = connection
        self._at_end: list[Callable[[], None]] = []
        self._token: Any = None

    def told(self, attached: Attached) -> Attached:
        """Return the transaction with this block, which knows its end."""
        return Attached(
            attached.dialect, attached.is_unprepared, attached.work, attached.awaited,
            self._at_end.append, begun=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._check_alone()
        self.outbox.steps.tell(Step.BEGIN)
        bare.begin(self.connection)
        try:
            self._bind()
        except BaseException:
            self.connection.rollback()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unbind(self._token)
        if error is not None:
            self.connection.rollback()
            return
        try:
            self._check_standing()
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise
        self._tell()

    async def __aenter__(self) -> Self:
        self._check_alone()
        self.outbox.steps.tell(Step.BEGIN)
        await bare.begin_awaited(self.connection)
        try:
            self._bind()
        except BaseException:
            await self.connection.rollback()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unbind(self._token)
        if error is not None:
            await self.connection.rollback()
            return
        try:
            self._check_standing()
            await self.connection.commit()
        except BaseException:
            await self.connection.rollback()
            raise
        self._tell()

    def _check_alone(self) -> None:
        """Refuse a block inside one of the same connection.

        Raises:
            InvalidRequest: Its end would commit what the outer one began.
        """
        outer = bound(self.outbox)
        if isinstance(outer, Transaction) and outer.connection is self.connection:
            raise InvalidRequest(
                "this is inside a block of the same connection, and its end would commit the outer "
                "one: use a savepoint"
            )

    def _check_standing(self) -> None:
        """Refuse to end a transaction that PostgreSQL would roll back without an error.

        Raises:
            InvalidRequest: A statement of the block has failed.
        """
        if has_failed(self.connection):
            raise InvalidRequest(
                "a statement of this block failed, and its error was caught: PostgreSQL commits "
                "nothing of the transaction, so it is rolled back; to go on after an error, run "
                "the statement in a savepoint (`with connection.transaction():`)"
            )

    def _bind(self) -> None:
        self._at_end = []
        self.outbox.check(self.connection)
        self._token = bind(self.outbox, self)

    def _tell(self) -> None:
        for call in self._at_end:
            call()
