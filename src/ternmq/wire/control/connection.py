"""Control: the connection, sessions, the status of the broker."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ternmq.wire.control.coding import Body, ClientName, Count, Limit, Line, Number
from ternmq.wire.control.times import at, datetime, span, timedelta
from ternmq.wire.frames import VERSION

NAME: Final = "TernMQ"


class Hello(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a connection; at most 4 KiB."""

    name: str = NAME
    """Name of the protocol: always `TernMQ`."""
    versions: Annotated[tuple[int, ...], Meta(max_length=64)] = (VERSION,)
    """Versions of the protocol that the client speaks."""
    app: str = ""
    """The app of the connection; empty if the broker requires no token (``dev``)."""
    token: str = ""
    """The app's token; the broker stores only a salted hash of it."""
    client: ClientName
    """Name of the client instance: 1 to 64 of A-Z a-z 0-9 . _ -, impossible to guess."""
    session: Number = 0
    """A session to come back to, 0 for a new one. Its app and client must be the same."""
    auxiliary: bool = False
    """A second connection of a session that has one (its lease keeper); needs ``session``."""
    library: Line = ""
    """Name and version of the client library, such as ``ternmq-python 0.1``."""
    pid: Number = 0
    """Id of the client's process, for lists."""
    language: Line = ""
    """Programming language of the client, such as ``python 3.12``, for lists."""
    routes: bool | UnsetType = UNSET
    """The client understands the push ROUTES_CHANGED before a refusal of HELLO. Any other client
    leaves this out."""
    reads: bool | UnsetType = UNSET
    """The client only reads, and may be served by a broker that follows. Any other client leaves
    this out; a broker that follows refuses it with NotPrimary."""

    def __repr__(self) -> str:
        """Show no token."""
        return f"Hello(app={self.app!r}, token=***, client={self.client!r})"


class Welcome(Body, frozen=True, kw_only=True):
    """Answer to HELLO."""

    version: int
    """Version of the protocol, for all later frames."""
    broker: str
    """Name of the broker, for logs and lists."""
    session: int
    """The session that this connection belongs to."""
    resumed: bool
    """The session is the requested one. False: leases of the requested session end with its
    grace."""
    epoch: int
    """Number of the broker's start; it is higher after every start."""
    now_us: int
    """Broker time."""
    heartbeat_us: int
    """A connection on which the broker receives nothing for three times as long is closed."""
    frame_bytes: int
    """Largest frame that the broker takes."""
    body_bytes: int
    """Largest body of a message."""
    pull_messages: int
    """Most rows in the answer to a pull or read."""
    pull_bytes: int
    """Most bytes in the answer to a pull or read, except a single batch that is larger."""
    send_timeout_us: int
    """Longest time for which a send may be repeated: deduplication remembers at least twice as
    long."""
    create_topics: bool = False
    """A send to a missing topic creates the topic, and so does a GROUP_JOIN (`dev`)."""
    forgets: bool = False
    """All data is deleted when this broker ends (`dev` without a folder). The next broker at its
    address has another epoch and none of the data: clients of the old one must begin again."""
    pull_at_once: bool = False
    """The broker accepts the field `at_once` of PULL. A broker without this refuses a PULL in which
    it is not 0."""
    pull_detached: bool = False
    """The broker accepts the field `detached_ms` of PULL. A broker without this refuses a PULL in
    which it is not 0."""
    journal_anywhere: bool = False
    """The broker accepts the flag ANYWHERE of JOURNAL_READ."""
    software: Line = ""
    """Name and version of the broker's software, such as ``ternmq 0.1``; empty if an older broker
    does not send it. For display only: clients must not depend on it."""
    routes: bool = False
    """The broker belongs to a broker group, and answers ROUTES."""
    journal: int = 0
    """Number of the journal of the broker group: the same at all of its brokers. A client that
    learned an address from routes uses the broker there only if this is the number in the routes.
    0: the broker belongs to no broker group, or is older than this field."""
    follows: bool = False
    """The broker follows: it answers, from its copy of the journal, requests that change nothing,
    and refuses others with NotPrimary. Only after a HELLO with `reads`. The session ends with the
    connection."""


class Behind(Body, frozen=True, kw_only=True):
    """Push: how far the next answers are behind. Sent by a broker that follows, before answers.

    Everything that was committed `behind_us` before this push was sent is in the answers after it.
    """

    behind_us: int
    """It grows while the broker has no connection to the primary."""


class KeptLease(Body, frozen=True, kw_only=True):
    """A lease that has reached the client."""

    epoch: Number
    """Epoch of the lease."""
    lease: Count
    """Number of the lease."""


class Keep(Body, frozen=True, kw_only=True):
    """List, after a reconnect, the leases that have reached the client.

    All other leases of the session end without counting an attempt: their answers were lost with
    the connection.
    """

    leases: Annotated[list[KeptLease], Meta(max_length=10_000)]
    """All leases that the client holds."""


class Drain(Body, frozen=True, kw_only=True):
    """Push: the broker stops soon. Finish, settle, do not pull; reconnect after ``back_us``."""

    back_us: int = 0
    """0: not known."""


class ClientList(Body, frozen=True, kw_only=True):
    """List the sessions, oldest first.

    With `limit` the answer is a page, which may be shorter. Without it the answer has all sessions;
    it is refused (InvalidRequest) if there are more than a thousand or so.
    """

    after: Number = 0
    """`next` of the page before."""
    limit: Limit | None = None
    """Most sessions on a page. None: no pages."""


class ConsumedGroup(Body, frozen=True, kw_only=True):
    """A group that a client consumes with."""

    topic: str
    group: str
    offline: bool = False
    """Whether the client is switched off for the group: its pulls get nothing."""


class ClientInfo(Body, frozen=True, kw_only=True):
    """A session."""

    session: int
    app: str
    client: str
    """The beginning of the client's name: the whole name would allow taking the session over."""
    address: str
    """Address from which the session was begun."""
    library: str
    pid: int
    connected: bool
    """Whether it has a connection now."""
    since_us: int = 0
    """Time at which it began."""
    language: str = ""
    """Programming language that the client reported; empty while it has no connection."""
    topics: list[str] = msgspec.field(default_factory=list)
    """Topics that it sent to, pulled from or read over its present connections, by name; at most 32
    of each connection: those that it began to use last."""
    away_since_us: int = 0
    """Time at which its last connection ended, or at which the broker started, if that was later;
    0: it has a connection, or the broker is older than this field."""
    consumes: list[ConsumedGroup] = msgspec.field(default_factory=list)
    """Groups of which it has messages now, or waits for some, by topic and name; at most 16."""

    @property
    def since(self) -> datetime:
        """Time at which the session began."""
        return at(self.since_us)

    @property
    def away_since(self) -> datetime | None:
        """Time at which its last connection ended; None while it has one.

        After a restart of the broker: the time of the restart, until the client is back.
        """
        return at(self.away_since_us) if self.away_since_us else None


def short_name(client: str) -> str:
    """Return the beginning of a client's name: the whole name would give access to its session."""
    return client[:8]


class Clients(Body, frozen=True, kw_only=True):
    """Sessions, oldest first."""

    clients: list[ClientInfo]
    next: int = 0
    """`after` of the request for the next page. 0 on the last page."""


class OldestFile(Body, frozen=True, kw_only=True):
    """The oldest file of the journal, and what keeps it; of several causes one is stated."""

    kept_by: str = "nothing"
    """``active``: it is the only file. ``retention``: a topic keeps its messages for longer.
    ``group``: a group that must not miss its messages has not finished them. ``hold``: a hold.
    ``transaction``: an undecided transaction has rows in it. ``schedule``: scheduled messages are
    in it, which are copied a day later. ``check-back``: likewise, messages of undecided
    transactions with check-back. ``follower``: it is still to be sent to a follower. ``state``: the
    broker's state must be written after it first. ``nothing``: it is about to be removed."""
    since_us: int = 0
    """Time since which it is kept by this cause; 0: not checked yet."""
    topic: str = ""
    """Topic of the messages, if the app may see it."""
    group: str = ""
    """The group, if the app may see it."""
    name: str = ""
    """Name of the hold, of the transaction's writer, or of the follower, if the app may list
    holds."""
    lacks_room: bool = False
    """With ``state``: the rest of the reserve is too small to write it."""
    sends_refused: bool = False
    """Sends are refused because there is no room."""


class FollowerInfo(Body, frozen=True, kw_only=True):
    """A broker that copies the journal of the primary, or did so before."""

    broker: str
    """Its name."""
    kind: str = "member"
    """``member``: it becomes a member as soon as it has caught up. ``synced``: likewise, and it
    acknowledges what its disk has. ``backup``: it never becomes one."""
    member: bool = False
    """Answers wait for its acknowledgement."""
    connected: bool = True
    """It is connected to the primary."""
    behind_bytes: int = 0
    """Bytes of the journal that it has not acknowledged. 0 while it is not connected."""
    heard_us: int = 0
    """Time since its last acknowledgement. 0 while it is not connected."""


class BrokerGroupInfo(Body, frozen=True, kw_only=True):
    """A broker group, as its primary knows it."""

    name: str = ""
    """Name of the broker group; empty: the broker belongs to none, and has the only copy."""
    copies: int = 1
    """Number of recorded copies of the journal, that of the primary included."""
    takes_strict: bool = False
    """Topics of durability ``strict`` take messages: two copies are recorded."""
    writes_open: bool = True
    """The broker group takes messages."""
    read_only: str = ""
    """Why it takes none, for people; empty: it does."""
    since_us: int = 0
    """Time of the last change of the leadership record, by the clock of the broker that made it."""
    why: str = ""
    """What led to that change."""
    followers: list[FollowerInfo] = msgspec.field(default_factory=list)
    """The followers, by name."""


class StatusAsk(Body, frozen=True, kw_only=True):
    """Return the status of the broker."""


class ScrubInfo(Body, frozen=True, kw_only=True):
    """The search for damaged bytes of the journal, which the broker reads again and again."""

    on: bool = False
    """Whether it reads all closed files: the setting `scrub` is not 0."""
    completed_us: int = 0
    """When the last complete round ended, by the clock of the machine; 0: none did yet."""
    damaged: int = 0
    """Number of ranges that are known to be damaged now."""
    found: int = 0
    """Number of damaged ranges that were found since the start."""
    mended: int = 0
    """Number of ranges that were mended from another copy since the start."""


class Status(Body, frozen=True, kw_only=True):
    """The status of the broker."""

    broker: str
    """Name of the broker."""
    version: str
    """Version of the software."""
    epoch: int
    now_us: int
    uptime_us: int
    """Time since the start."""
    metrics: dict[str, float]
    """Metrics by their names in ``/metrics``: all of the broker as a whole, and those of the first
    32 groups, by topic and name, that the app has a right on."""
    role: str = "primary"
    """``primary``: it takes sends."""
    disk_free_bytes: int = 0
    """Bytes of the journal's disk that the broker's user can still use, as Available of `df`."""
    disk_total_bytes: int = 0
    """Size of this disk, as Size of `df`: with blocks that are reserved for root."""
    journal_first: int = 0
    """The oldest position that is kept."""
    journal_end: int = 0
    """The position of the next record."""
    journal_durable: int = 0
    """The durable position: everything below it is on the disk."""
    sent_a_second: float = 0.0
    """Messages stored per second, over the last ten seconds."""
    delivered_a_second: float = 0.0
    """Messages delivered per second, over the last ten seconds."""
    oldest_file: OldestFile = OldestFile()
    """The cause that keeps the oldest file of the journal."""
    broker_group: BrokerGroupInfo = BrokerGroupInfo()
    """The broker group, and the copies of the journal."""
    scrub: ScrubInfo = ScrubInfo()
    """The search for damaged bytes of the journal."""

    @property
    def now(self) -> datetime:
        """Broker time."""
        return at(self.now_us)

    @property
    def uptime(self) -> timedelta:
        """Time since the start."""
        return span(self.uptime_us)

    @property
    def clock(self) -> datetime:
        """Time of the clock of the broker's machine."""
        return self.now + self.clock_gap

    @property
    def clock_gap(self) -> timedelta:
        """How far the clock of the broker's machine is ahead of broker time; below 0: behind it."""
        return span(round(self.metrics.get("ternmq_clock_gap_seconds", 0.0) * 1e6))

    @property
    def clock_followed(self) -> bool:
        """Whether broker time drifts towards that clock. A gap of more than five seconds stays."""
        return bool(self.metrics.get("ternmq_clock_followed", 1.0))

    @property
    def disk_used(self) -> float:
        """Used part of the disk of the journal, 0 to 1, as `df` counts its Use%.

        Above the setting `retention_watermark`, messages are removed early, or sends refused.
        """
        used = self.metrics.get("ternmq_disk_used_bytes", 0.0)
        usable = used + self.disk_free_bytes
        return used / usable if usable else 0.0

    @property
    def alarms(self) -> int:
        """Number of open alarms."""
        counts = [
            count for name, count in self.metrics.items() if name.startswith("ternmq_alarms{")
        ]
        return int(sum(counts))


class ClockAccept(Body, frozen=True, kw_only=True):
    """Let broker time follow the clock of the broker's machine again.

    If that clock is ahead, broker time jumps to it at once. Everything that is due by then happens,
    as after a stop of that length: leases end, and what is older than its retention is removed. If
    it is more than five seconds behind, the request is refused (InvalidRequest): broker time never
    goes back.
    """


class ClockAccepted(Body, frozen=True, kw_only=True):
    """Broker time before and after."""

    before_us: int
    now_us: int

    @property
    def before(self) -> datetime:
        """Broker time before."""
        return at(self.before_us)

    @property
    def now(self) -> datetime:
        """Broker time from now on."""
        return at(self.now_us)


class ClockMoved(Body, frozen=True, kw_only=True):
    """Push: broker time jumped ahead, because an operator accepted the clock.

    A client that adds delays to broker time must use the new time. So that no message is early, it
    takes `now_us` as the broker time at the moment when it sent the last request whose answer
    contained broker time. Then it sends a [PING](messages.md#ping), to learn the time exactly.
    """

    now_us: int
    """Broker time after the jump."""
