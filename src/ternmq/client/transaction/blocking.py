"""Objects of transactions for threads: their methods block."""

from __future__ import annotations

from collections.abc import Iterator

from ternmq.client.handler.blocking import Portal
from ternmq.client.process import pickling
from ternmq.client.transaction.prepared import PreparedMessage, PreparedTransaction


class BlockingPreparedTransaction(pickling.NotPickled):
    """A ``PreparedTransaction`` for a checker in a thread; see ``ternmq.PreparedTransaction``."""

    _not_pickled = "a transaction cannot be pickled or copied: it belongs to its client"

    def __init__(self, prepared: PreparedTransaction, portal: Portal) -> None:
        self._prepared = prepared
        self._portal = portal
        self.messages = prepared.messages

    def __repr__(self) -> str:
        return repr(self._prepared)

    @property
    def id(self) -> str:
        """Its id, such as ``t-1f3``."""
        return self._prepared.id

    @property
    def group(self) -> str:
        """Its producer group."""
        return self._prepared.group

    @property
    def query_id(self) -> str:
        """The application's name for what it is about, "" without one."""
        return self._prepared.query_id

    @property
    def attempt(self) -> int:
        """The number of this question; 1 is the first."""
        return self._prepared.attempt

    @property
    def topics(self) -> list[str]:
        """The topics of its messages."""
        return self._prepared.topics

    @property
    def rows(self) -> int:
        """Number of its messages."""
        return self._prepared.rows

    @property
    def bytes(self) -> int:
        """Size of its messages at the broker, in bytes."""
        return self._prepared.bytes

    def read(self) -> Iterator[PreparedMessage]:
        """Yield all its messages, in the order in which they were sent."""
        found = self._prepared.read()

        async def step() -> PreparedMessage | None:
            return await anext(found, None)

        async def end() -> None:
            await found.aclose()

        try:
            while (message := self._portal.call(step())) is not None:
                yield message
        finally:
            self._portal.call(end())
