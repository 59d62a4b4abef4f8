"""A client that administers: it moves no messages, and imports nothing that does."""

from __future__ import annotations

from ternmq.client.admin import Admin
from ternmq.client.options import Options
from ternmq.client.session import Session


class AdminClient:
    """A connection to a broker over which only `admin` asks. It lives in one event loop.

    A command asks one question and ends: this has what that needs of a ``Client``.

    Attributes:
        options: What it was made with.
        admin: Topics, groups, apps, and how the broker is.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._session = Session(options)
        self.admin = Admin(self._session)

    async def connect(self) -> None:
        """Be connected.

        Raises:
            CannotConnect: There is no broker at the address.
            Unauthenticated: It does not know app and token.
        """
        await self._session.connect()

    async def close(self) -> None:
        """Leave. Closing twice is allowed."""
        session = self._session
        if session.used and not session.closed:
            session.closing()
            await session.close()
        session.closed = True
