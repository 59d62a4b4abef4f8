"""A client for administration: it moves no messages, and imports nothing that does."""

from __future__ import annotations

from ternmq.client.admin.admin import Admin
from ternmq.client.connection.options import Options
from ternmq.client.connection.session import Session


class AdminClient:
    """A connection to a broker for the requests of `admin` only. It lives in one event loop.

    Commands send a few requests and end: this is the part of ``Client`` that they need.

    Attributes:
        options: Its settings.
        admin: Manages topics, groups and apps, and shows the state of the broker.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._session = Session(options)
        self.admin = Admin(self._session)

    @property
    def now_us(self) -> int:
        """Broker time, ahead of the broker's clock by a round trip at most.

        It is known once there was a connection.
        """
        time = self._session.broker_time
        return time.at(time.moment_us())

    async def connect(self) -> None:
        """Connect.

        Raises:
            CannotConnect: There is no broker at the address.
            Unauthenticated: The broker does not accept app and token.
        """
        await self._session.connect()

    async def close(self) -> None:
        """Leave. May be repeated."""
        session = self._session
        if session.used and not session.closed:
            session.closing()
            await session.close()
        session.closed = True
