"""A block around a transaction of a bare connection."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ternmq.model.errors import InvalidRequest
from ternmq.reliable.libraries import bare
from ternmq.reliable.libraries.attached import Attached
from ternmq.reliable.outbox.steps import Step

if TYPE_CHECKING:
    from ternmq.reliable.outbox.outbox import Outbox


class Transaction:
    """A block around a transaction of a bare connection, made by ``Outbox.transaction``."""

    def __init__(self, outbox: Outbox, connection: object) -> None:
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
        self.outbox.steps.tell(Step.BEGIN)
        bare.begin(self.connection)
        self._bind()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._unbind()
        if error is not None:
            self.connection.rollback()
            return
        self.connection.commit()
        self._tell()

    async def __aenter__(self) -> Self:
        self.outbox.steps.tell(Step.BEGIN)
        await bare.begin_awaited(self.connection)
        self._bind()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._unbind()
        if error is not None:
            await self.connection.rollback()
            return
        await self.connection.commit()
        self._tell()

    def _bind(self) -> None:
        self._token = self.outbox.binding.set(self)

    def _unbind(self) -> None:
        self.outbox.binding.reset(self._token)

    def _tell(self) -> None:
        for call in self._at_end:
            call()
        self._at_end.clear()
