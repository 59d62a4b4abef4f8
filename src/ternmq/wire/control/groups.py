"""Control: consumer groups."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ternmq.model.specs import Mode, RetryPolicy, Start, SubscriptionSpec
from ternmq.wire.control.bulk import HoldInfo
from ternmq.wire.control.coding import Body, Limit, Number, Offset, Text, Time, Token
from ternmq.wire.control.times import span


class GroupJoin(Body, frozen=True, kw_only=True):
    """See that a group consumes a topic: it is made if it is missing.

    A setting that is stated and differs from the group's is GroupSettingsMismatch. An app that may
    manage the group and not consume with it can make it so, and still not pull.
    """

    topic: str
    group: str
    tags: Text | None = None
    """Filter, such as ``paid || refunded``; empty: every message. None: as it is."""
    mode: Mode | None = None
    """None: as it is; for a new group, as the topic is."""
    start: Start | None = None
    """Where a new group begins. None: as it is; for a new group, earliest."""
    retry: RetryPolicy | None = None
    """When failed messages come again. None: as it is; for a new group, the default."""
    lease_us: Time | None = None
    """How long messages are leased. None: as it is; for a new group, the default."""


class GroupJoined(Body, frozen=True, kw_only=True):
    """The group as it is."""

    created: bool
    """It was made by this request."""
    spec: SubscriptionSpec
    queues: int
    """How many the topic has."""


class GroupChange(Body, frozen=True, kw_only=True):
    """Give a group other settings on a topic (also: pause and resume)."""

    topic: str
    group: str
    spec: SubscriptionSpec
    """All settings, those that stay included."""


class GroupDelete(Body, frozen=True, kw_only=True):
    """Let a group no longer consume a topic; what it was owed is forgotten."""

    topic: str
    group: str


class GroupList(Body, frozen=True, kw_only=True):
    """Ask how groups stand: those that the app has a right on, by topic and name.

    With `limit` by pages: one may be shorter than the limit, even empty, and others follow; `next`
    says so. Without it everything is asked for in one answer, which is refused (InvalidRequest)
    where there are more than a thousand or so.
    """

    topic: str | None = None
    """None: of every topic."""
    group: str | None = None
    """None: every group."""
    after: Token = ""
    """`next` of the page before."""
    limit: Limit | None = None
    """Of groups on a page. None: no pages."""


class GroupQueueInfo(Body, frozen=True, kw_only=True):
    """How a group stands on a queue; see docs/reference/glossary.md for cursor and floor."""

    cursor: int
    """Offset of the first row that was never handed out."""
    floor: int
    """Every row below it is settled."""
    end: int
    """Offset behind the last durable row."""
    leased: int
    """Rows in the hands of consumers."""
    ready: int
    """Rows below the cursor that wait for a consumer: returned ones, and those behind another row
    of their ordering key."""
    waiting: int
    """Rows that failed and wait for their next attempt."""
    dead: int
    """Dead letters."""
    intervals: int
    """Runs of settled rows that are kept apart; 1 when nothing below the cursor is owed."""

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
    """In the order of their numbers."""
    members: list[str]
    """Clients that hold leases, or wait for messages."""

    @property
    def lease(self) -> timedelta:
        """How long messages are leased."""
        return span(self.spec.lease_us)


class Groups(Body, frozen=True, kw_only=True):
    """Groups, by topic and name."""

    groups: list[GroupInfo]
    holds: list[HoldInfo] = msgspec.field(default_factory=list)
    """Holds on the journal, of the name that was asked for: they lag as groups do. Only where no
    topic was named, and for apps that may see them; on the first page."""
    next: str = ""
    """Where to go on: `after` of the next request. Empty on the last page."""


class GroupReset(Body, frozen=True, kw_only=True):
    """Set where a group goes on: exactly one of ``offset``, ``time_us``, ``to`` is stated."""

    topic: str
    group: str
    queue: Number | None = None
    """None: every queue; then not with ``offset``."""
    offset: Offset | None = None
    """The next row; every row below it counts as done."""
    time_us: Time | None = None
    """The first row stored at or after it."""
    to: Start | None = None
    """The oldest row kept, or the next one that comes."""
    dry_run: bool = False
    """Only say what would happen."""


class ResetQueue(Body, frozen=True, kw_only=True):
    """What a reset does, or would do, to a queue."""

    queue: int
    offset: int
    """Where the group goes on."""
    unread: int
    """Rows that the group then has before it."""
    forgotten: int
    """Rows, leased or waiting, that it is no longer owed."""


class ResetDone(Body, frozen=True, kw_only=True):
    """Answer to a reset."""

    queues: list[ResetQueue]


class GroupSkip(Body, frozen=True, kw_only=True):
    """Let a group pass over what it has not read below an offset."""

    topic: str
    group: str
    queue: Number
    offset: Offset
    """The next row to be read; the cursor never goes back."""


class GroupChanged(Body, frozen=True, kw_only=True):
    """Push: a group has other settings, or is gone."""

    topic: str
    group: str
    gone: bool = False
    """It no longer consumes the topic."""
