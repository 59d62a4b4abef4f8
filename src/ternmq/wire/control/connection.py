"""Control: the connection, sessions, how the broker is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ternmq.wire.control.coding import Body, ClientName, Count, Limit, Line, Number
from ternmq.wire.control.times import at, span
from ternmq.wire.frames import VERSION

NAME: Final = "TernMQ"


class Hello(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a connection; at most 4 KiB."""

    name: str = NAME
    """Says that this is our protocol, whatever else came along the wire."""
    versions: Annotated[tuple[int, ...], Meta(max_length=64)] = (VERSION,)
    """Versions of the protocol that the client speaks."""
    app: str = ""
    """Whose the connection is; empty where the broker asks for no token (``dev``)."""
    token: str = ""
    """The app's token; it is stored nowhere as it is."""
    client: ClientName
    """Names the client instance: 1 to 64 of A-Z a-z 0-9 . _ - that nobody can guess."""
    session: Number = 0
    """A session to come back to, 0 for a new one. Only the same app and client may."""
    auxiliary: bool = False
    """A second connection of a session that has one (its lease keeper); needs ``session``."""
    library: Line = ""
    """Name and version of the client library, such as ``ternmq-python 0.1``."""
    pid: Number = 0
    """Of the client's process, for lists."""
    language: Line = ""
    """What the client is written in, such as ``python 3.12``, for lists."""

    def __repr__(self) -> str:
        """Show no token."""
        return f"Hello(app={self.app!r}, token=***, client={self.client!r})"


class Welcome(Body, frozen=True, kw_only=True):
    """Answer to HELLO."""

    version: int
    """Of the protocol, from here on."""
    broker: str
    """Its name, for people."""
    session: int
    """The session that this connection speaks for."""
    resumed: bool
    """The session is the one that was asked for; else leases of before will end by its grace."""
    epoch: int
    """The broker's reign; it is higher after every start."""
    now_us: int
    """Broker time."""
    heartbeat_us: int
    """A connection on which nothing came for three times as long is closed."""
    frame_bytes: int
    """Largest frame that the broker takes."""
    body_bytes: int
    """Largest body of a message."""
    pull_messages: int
    """Most rows that a pull or read is answered with."""
    pull_bytes: int
    """Most bytes that a pull or read is answered with, save a single batch that is larger."""
    send_timeout_us: int
    """Longest that a send may be resent: deduplication remembers at least twice as long."""
    create_topics: bool = False
    """Sends to a topic that is not there make it (`dev`)."""
    forgets: bool = False
    """What is stored goes when this broker ends (`dev` without a folder). The next one at its
    address has another epoch and none of it: a client that was at either begins anew."""
    pull_at_once: bool = False
    """A PULL may say how many messages its client works on at one time (its field `at_once`); a
    broker without this refuses one that does."""
    software: Line = ""
    """Name and version of the broker's software, such as ``ternmq 0.1``; empty where an older
    broker does not say it. For people: no client may make anything depend on it."""


class KeptLease(Body, frozen=True, kw_only=True):
    """A lease that has reached the client."""

    epoch: Number
    """Of the lease."""
    lease: Count
    """Its number."""


class Keep(Body, frozen=True, kw_only=True):
    """Say, after coming back, which leases have reached the client.

    Every other lease of the session ends uncounted: its answer was lost with the connection.
    """

    leases: Annotated[list[KeptLease], Meta(max_length=10_000)]
    """All that the client holds."""


class Drain(Body, frozen=True, kw_only=True):
    """Push: the broker stops soon. Finish, settle, do not pull; come back after ``back_us``."""

    back_us: int = 0
    """0: not known."""


class ClientList(Body, frozen=True, kw_only=True):
    """Ask for the sessions.

    With `limit` by pages, which may be shorter; without it everything in one answer, which is
    refused (InvalidRequest) where there are more than a thousand or so.
    """

    after: Number = 0
    """`next` of the page before."""
    limit: Limit | None = None
    """Of sessions on a page. None: no pages."""


class ClientInfo(Body, frozen=True, kw_only=True):
    """A session."""

    session: int
    app: str
    client: str
    """The beginning of the client's name: who knows it whole may take the session over."""
    address: str
    """Where the session was begun from."""
    library: str
    pid: int
    connected: bool
    """Whether it has a connection now."""
    since_us: int = 0
    """When it began."""
    language: str = ""
    """As the client said; empty while it has no connection."""
    topics: list[str] = msgspec.field(default_factory=list)
    """Topics that it sent to, pulled from or read over the connections that it has now, by name;
    the 32 used last of each."""

    @property
    def since(self) -> datetime:
        """When the session began."""
        return at(self.since_us)


class Clients(Body, frozen=True, kw_only=True):
    """Sessions, oldest first."""

    clients: list[ClientInfo]
    next: int = 0
    """Where to go on: `after` of the next request. 0 on the last page."""


class OldestFile(Body, frozen=True, kw_only=True):
    """The oldest file of the journal, and what keeps it; of several things one is named."""

    kept_by: str = "nothing"
    """``active``: it is the only one. ``retention``: a topic keeps its messages for longer.
    ``group``: one that must not miss them has not finished them. ``hold``. ``transaction``: an
    undecided one has rows in it. ``state``: the broker's state must be written behind it first.
    ``nothing``: it is about to go."""
    since_us: int = 0
    """Since when; 0: not looked at yet."""
    topic: str = ""
    """Whose messages they are, if the app may see it."""
    group: str = ""
    """The group, likewise."""
    name: str = ""
    """Of the hold, or of the transaction's writer, if the app may list holds."""
    lacks_room: bool = False
    """With ``state``: what is left of the reserve is too little for that."""
    sends_refused: bool = False
    """Sends are refused for want of room."""


class StatusAsk(Body, frozen=True, kw_only=True):
    """Ask how the broker is."""


class Status(Body, frozen=True, kw_only=True):
    """How the broker is."""

    broker: str
    """Its name."""
    version: str
    """Of the software."""
    epoch: int
    now_us: int
    uptime_us: int
    """Since the start."""
    metrics: dict[str, float]
    """By the names that ``/metrics`` has: all of the broker as a whole, and those of the first 32
    groups, by topic and name, that the app has a right on."""
    role: str = "primary"
    """``primary``: it takes sends."""
    disk_free_bytes: int = 0
    """Of the disk that the journal is on."""
    disk_total_bytes: int = 0
    journal_first: int = 0
    """The oldest position that is kept."""
    journal_end: int = 0
    """The position of the next record."""
    journal_durable: int = 0
    """Up to here everything is on the disk."""
    sent_a_second: float = 0.0
    """Messages stored, over the last ten seconds."""
    delivered_a_second: float = 0.0
    """Messages handed out, over the last ten seconds."""
    oldest_file: OldestFile = OldestFile()
    """What keeps the oldest file of the journal."""

    @property
    def now(self) -> datetime:
        """Broker time."""
        return at(self.now_us)

    @property
    def uptime(self) -> timedelta:
        """Since the start."""
        return span(self.uptime_us)
