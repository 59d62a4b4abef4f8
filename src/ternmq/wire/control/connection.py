"""Control: the connection, sessions, how the broker is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ternmq.wire.control.coding import Body, ClientName, Line, Number
from ternmq.wire.frames import VERSION

NAME: Final = "TernMQ"


class Hello(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a connection; at most 4 KiB."""

    name: str = NAME
    """Says that this is our protocol, whatever else came along the wire."""
    versions: Annotated[tuple[int, ...], Meta(max_length=64)] = (VERSION,)
    app: str = ""
    token: str = ""
    client: ClientName
    """Names the client instance: 1 to 64 of A-Z a-z 0-9 . _ - that nobody can guess."""
    session: Number = 0
    """A session to come back to, 0 for a new one. Only the same app and client may."""
    auxiliary: bool = False
    """A second connection of a session that has one (its lease keeper); needs ``session``."""
    library: Line = ""
    """Name and version of the client library, such as ``ternmq-python 0.1``."""
    pid: Number = 0

    def __repr__(self) -> str:
        """Show no token."""
        return f"Hello(app={self.app!r}, token=***, client={self.client!r})"


class Welcome(Body, frozen=True, kw_only=True):
    """Answer to HELLO."""

    version: int
    broker: str
    session: int
    resumed: bool
    """The session is the one that was asked for; else leases of before will end by its grace."""
    epoch: int
    now_us: int
    heartbeat_us: int
    """A connection on which nothing came for three times as long is closed."""
    frame_bytes: int
    """Largest frame that the broker takes."""
    body_bytes: int
    """Largest body of a message."""
    pull_messages: int
    pull_bytes: int
    send_timeout_us: int
    """Longest that a send may be resent: deduplication remembers at least twice as long."""
    create_topics: bool = False
    """Sends to a topic that is not there make it (`dev`)."""


class Drain(Body, frozen=True, kw_only=True):
    """Push: the broker stops soon. Finish, settle, do not pull; come back after ``back_us``."""

    back_us: int = 0


class ClientList(Body, frozen=True, kw_only=True):
    """Ask for the sessions."""


class ClientInfo(Body, frozen=True, kw_only=True):
    """A session."""

    session: int
    app: str
    client: str
    address: str
    library: str
    pid: int
    connected: bool
    since_us: int = 0


class Clients(Body, frozen=True, kw_only=True):
    """Sessions, oldest first."""

    clients: list[ClientInfo]


class StatusAsk(Body, frozen=True, kw_only=True):
    """Ask how the broker is."""


class Status(Body, frozen=True, kw_only=True):
    """How the broker is."""

    broker: str
    version: str
    epoch: int
    now_us: int
    uptime_us: int
    metrics: dict[str, float]
