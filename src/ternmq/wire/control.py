"""Requests and answers that are rare enough to be readable: msgpack maps, one struct each.

Unknown fields are ignored, missing ones have the defaults that stand here, so that either side may
be older. Times are µs in broker time, durations µs, unless a name says otherwise. Names of topics
and groups are checked by the broker.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import Mode, Start, SubscriptionSpec, TopicSpec
from ternmq.wire.frames import VERSION

T = TypeVar("T", bound=msgspec.Struct)

NAME: Final = "TernMQ"


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of requests and answers."""


class Nothing(Body, frozen=True, kw_only=True):
    """An answer that only says that it is done, durably."""


class Hello(Body, frozen=True, kw_only=True, omit_defaults=False):
    """First frame of a connection; at most 4 KiB."""

    name: str = NAME
    """Says that this is our protocol, whatever else came along the wire."""
    versions: tuple[int, ...] = (VERSION,)
    app: str = ""
    token: str = ""
    client: str
    """Names the client instance: 1 to 64 of A-Z a-z 0-9 . _ - that nobody can guess."""
    session: int = 0
    """A session to come back to, 0 for a new one. Only the same app and client may."""
    auxiliary: bool = False
    """A second connection of a session that has one (its lease keeper); needs ``session``."""
    library: str = ""
    """Name and version of the client library, such as ``ternmq-python 0.1``."""
    pid: int = 0


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


class ReportEntry(Body, frozen=True, kw_only=True):
    """What a producer says of one 10-minute bucket of born time; counts since it began."""

    bucket_us: int
    sent: int
    given_up: int


class Report(Body, frozen=True, kw_only=True):
    """Counts of one producer and topic; every ten seconds, and at close."""

    topic: str
    producer: int
    entries: list[ReportEntry]


class TopicCreate(Body, frozen=True, kw_only=True):
    """Make a topic; TopicExists if it is there."""

    topic: str
    spec: TopicSpec


class TopicChange(Body, frozen=True, kw_only=True):
    """Give a topic other settings."""

    topic: str
    spec: TopicSpec


class TopicDelete(Body, frozen=True, kw_only=True):
    """Remove a topic with all its messages and groups."""

    topic: str


class TopicList(Body, frozen=True, kw_only=True):
    """Ask for topics, by name; all that the app has a right on."""

    names: list[str] | None = None
    after: str = ""
    limit: int = 1000


class QueueInfo(Body, frozen=True, kw_only=True):
    """Offsets of a queue: the oldest kept, and the next (durable ones only)."""

    first: int
    next: int


class TopicInfo(Body, frozen=True, kw_only=True):
    """A topic."""

    number: int
    spec: TopicSpec
    queues: list[QueueInfo]
    groups: list[str]


class Topics(Body, frozen=True, kw_only=True):
    """Topics by name; ``more`` when the limit was reached."""

    topics: list[TopicInfo]
    more: bool = False


class GroupJoin(Body, frozen=True, kw_only=True):
    """See that a group consumes a topic: it is made if it is missing.

    A setting that is stated and differs from the group's is GroupSettingsMismatch.
    """

    topic: str
    group: str
    tags: str | None = None
    mode: Mode | None = None
    start: Start | None = None


class GroupJoined(Body, frozen=True, kw_only=True):
    """The group as it is."""

    created: bool
    spec: SubscriptionSpec
    queues: int


class GroupChange(Body, frozen=True, kw_only=True):
    """Give a group other settings on a topic (also: pause and resume)."""

    topic: str
    group: str
    spec: SubscriptionSpec


class GroupDelete(Body, frozen=True, kw_only=True):
    """Let a group no longer consume a topic; what it was owed is forgotten."""

    topic: str
    group: str


class GroupList(Body, frozen=True, kw_only=True):
    """Ask how groups stand."""

    topic: str | None = None
    group: str | None = None


class GroupQueueInfo(Body, frozen=True, kw_only=True):
    """How a group stands on a queue; see the glossary for cursor and floor."""

    cursor: int
    floor: int
    end: int
    leased: int
    ready: int
    waiting: int
    dead: int

    @property
    def lag(self) -> int:
        """Messages not handed out yet."""
        return max(0, self.end - self.cursor)


class GroupInfo(Body, frozen=True, kw_only=True):
    """A group on a topic."""

    topic: str
    group: str
    spec: SubscriptionSpec
    queues: list[GroupQueueInfo]
    members: list[str]
    """Clients that hold leases, or wait for messages."""


class Groups(Body, frozen=True, kw_only=True):
    """Groups, by topic and name."""

    groups: list[GroupInfo]


class GroupReset(Body, frozen=True, kw_only=True):
    """Set where a group goes on: exactly one of ``offset``, ``time_us``, ``to`` is stated."""

    topic: str
    group: str
    queue: int | None = None
    """None: every queue; then not with ``offset``."""
    offset: int | None = None
    time_us: int | None = None
    to: Start | None = None
    dry_run: bool = False


class ResetQueue(Body, frozen=True, kw_only=True):
    """What a reset does, or would do, to a queue."""

    queue: int
    offset: int
    unread: int
    forgotten: int


class ResetDone(Body, frozen=True, kw_only=True):
    """Answer to a reset."""

    queues: list[ResetQueue]


class GroupSkip(Body, frozen=True, kw_only=True):
    """Let a group pass over what it has not read below an offset."""

    topic: str
    group: str
    queue: int
    offset: int


class Find(Body, frozen=True, kw_only=True):
    """Look messages up: exactly one of ``id``, ``application_id``, ``key``, ``offset``."""

    topic: str
    id: str | None = None
    """``producer:sequence``, both hexadecimal as receipts show them."""
    application_id: str | None = None
    key: str | None = None
    queue: int = 0
    offset: int | None = None
    since_us: int = 0
    until_us: int = 2**63 - 1
    limit: int = 100
    after: str = ""
    """``next`` of the page before."""


class FoundMessage(Body, frozen=True, kw_only=True):
    """A message that was found; its content is one row of a batch."""

    topic: str
    queue: int
    offset: int
    stored_us: int
    row: int
    batch: bytes


class FoundPage(Body, frozen=True, kw_only=True):
    """Messages, newest first; ``next`` is empty on the last page."""

    found: list[FoundMessage]
    next: str = ""


class OffsetAt(Body, frozen=True, kw_only=True):
    """Ask for the first offset that was stored at or after a time."""

    topic: str
    queue: int
    time_us: int


class OffsetFound(Body, frozen=True, kw_only=True):
    """Answer to OFFSET_AT: the queue's next offset if all are older."""

    offset: int


class FailedList(Body, frozen=True, kw_only=True):
    """Ask for rows that wait for a retry (``dead`` false) or are dead letters."""

    topic: str
    group: str
    dead: bool
    queue: int = 0
    after: int = -1
    limit: int = 100


class FailureInfo(Body, frozen=True, kw_only=True):
    """One failure of a row."""

    time_us: int
    session: int
    attempt: int
    outcome: str
    cause: str
    reason: str


class FailedMessage(Body, frozen=True, kw_only=True):
    """A row that failed, with its content while that is kept."""

    queue: int
    offset: int
    attempts: int
    deliveries: int
    when_us: int
    held: bool
    failures: list[FailureInfo]
    message: FoundMessage | None = None


class FailedPage(Body, frozen=True, kw_only=True):
    """Failed rows, by offset."""

    rows: list[FailedMessage]
    more: bool = False


class FailedRetry(Body, frozen=True, kw_only=True):
    """Let waiting or held rows come again now."""

    topic: str
    group: str
    queue: int
    offsets: list[int]


class FailedDelete(Body, frozen=True, kw_only=True):
    """Forget rows that wait or are dead."""

    topic: str
    group: str
    queue: int
    offsets: list[int]


class FailedDone(Body, frozen=True, kw_only=True):
    """How many rows it was done to, and which were not there."""

    done: int
    missing: list[int]


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


class GrantInfo(Body, frozen=True, kw_only=True):
    """Something that an app may do, or (``deny``) must not do; a pattern ends in * or is exact."""

    right: str
    topic: str = "*"
    group: str = "*"
    deny: bool = False


class AppPut(Body, frozen=True, kw_only=True):
    """Make an app, change its grants, or (``new_token``) give it another token."""

    app: str
    grants: list[GrantInfo]
    owner: str = ""
    new_token: bool = False


class AppToken(Body, frozen=True, kw_only=True):
    """The token, told this one time; empty when it was left as it is."""

    token: str = ""


class AppDelete(Body, frozen=True, kw_only=True):
    """Remove an app; its connections are closed."""

    app: str


class AppList(Body, frozen=True, kw_only=True):
    """Ask for the apps."""


class AppInfo(Body, frozen=True, kw_only=True):
    """An app, without its token."""

    app: str
    owner: str
    grants: list[GrantInfo]


class Apps(Body, frozen=True, kw_only=True):
    """Apps, by name."""

    apps: list[AppInfo]


class Drain(Body, frozen=True, kw_only=True):
    """Push: the broker stops soon. Finish, settle, do not pull; come back after ``back_us``."""

    back_us: int = 0


class TopicChanged(Body, frozen=True, kw_only=True):
    """Push: a topic has other settings, or is gone."""

    topic: str
    gone: bool = False


class GroupChanged(Body, frozen=True, kw_only=True):
    """Push: a group has other settings, or is gone."""

    topic: str
    group: str
    gone: bool = False


_decoders: Final[dict[type[Any], msgspec.msgpack.Decoder[Any]]] = {}
_encode: Final = msgspec.msgpack.Encoder().encode


def encode(struct: msgspec.Struct) -> bytes:
    """Return the body of a control request or answer."""
    return _encode(struct)


def decode(body: bytes, kind: type[T]) -> T:
    """Return what a body holds.

    Raises:
        InvalidRequest: It is no map with such fields.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        found: T = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is no {kind.__name__}: {error}") from error
    return found
