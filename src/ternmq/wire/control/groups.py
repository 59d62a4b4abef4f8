"""Control: consumer groups."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ternmq.model.assignments import Assignment
from ternmq.model.specs import Mode, RetryPolicy, Start, SubscriptionSpec
from ternmq.wire.control.bulk import HoldInfo
from ternmq.wire.control.coding import Body, Limit, Number, Offset, Text, Time, Token
from ternmq.wire.control.times import span, timedelta

MemberName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")]


class GroupJoin(Body, frozen=True, kw_only=True):
    """Make a group of a topic, unless it exists; check the settings that are stated.

    The group `$broadcast` stands for a broadcast instance: the answer names its group, from which
    only the session that joined last pulls (others get InstanceTaken), and join again with each new
    session. If another session with a connection is the instance, the answer is InstanceTaken.

    A stated setting that differs from the group's is GroupSettingsMismatch. An app with the right
    to manage the group, but not to consume with it, can make it, but cannot pull.
    """

    topic: str
    group: str
    tags: Text | None = None
    """Filter, such as ``paid || refunded``; empty: every message. None: not checked; a new group
    gets every message."""
    mode: Mode | None = None
    """None: not checked; a new group has the topic's mode."""
    start: Start | None = None
    """Where a new group begins. None: not checked; a new group begins at earliest."""
    retry: RetryPolicy | None = None
    """When failed messages are delivered again. None: not checked; a new group has the default."""
    lease_us: Time | None = None
    """How long messages are leased. None: not checked; a new group has the default."""
    filter: str | None = None
    """Header filter, such as ``region = 'eu' AND amount >= 100``; empty: every message. At most
    1,024 characters. None: not checked; a new group gets every message. A broker that does not know
    this field ignores it: compare ``spec`` of the answer."""
    assign: tuple[Assignment, ...] | None = None
    """For mode owned: which members own which queues. None: not checked; in a new group the queues
    are divided equally among the members."""
    member: bool = True
    """Whether the session becomes a member of a group of mode owned or exclusive, which gets queues
    of its own: false if it only makes or checks the group. In other modes it has no effect."""
    name: MemberName = ""
    """Name of the member, such as that of its machine, which ``assign`` compares and lists show; it
    need not be unique. Empty: the beginning of the client's name."""
    instance: Text = ""
    """Only with the group ``$broadcast``: name of the broadcast instance; empty: that of the
    client's session, with which it goes. `mode`, `start` and `retry` are not stated then, and the
    other settings replace those of the instance."""
    if_topic: bool = False
    """Only with the group ``$broadcast``: the join is refused (InvalidRequest) unless the topic is
    a broadcast topic."""
    existing: bool = False
    """A missing topic or group is not made, but refused (UnknownTopic, UnknownGroup): for a client
    that joins again, over a new connection for example. A broker that does not know this field
    makes them."""


class GroupJoined(Body, frozen=True, kw_only=True):
    """The settings of the group."""

    created: bool
    """It was made by this request."""
    spec: SubscriptionSpec
    queues: int
    """Number of queues of the topic."""
    group: str = ""
    """Of a broadcast instance: the group to pull from. Empty: the group of the request."""


class GroupLeave(Body, frozen=True, kw_only=True):
    """Leave a group of mode owned or exclusive: the queues of the session go to other members.

    The session gets no more messages of the group until it joins again, and its pulls that wait are
    answered without any. It keeps its leases: settle them, since no other member gets messages of
    such a queue before. Without a membership, and in other modes, it has no effect. A session that
    ends leaves by itself.
    """

    topic: str
    group: str


class GroupChange(Body, frozen=True, kw_only=True):
    """Change a group's settings on a topic (also: pause and resume)."""

    topic: str
    group: str
    spec: SubscriptionSpec
    """All settings, including those that do not change."""


class GroupDelete(Body, frozen=True, kw_only=True):
    """Remove a group from a topic, with everything that it was owed."""

    topic: str
    group: str


class GroupList(Body, frozen=True, kw_only=True):
    """List the groups that the app has a right on, with their progress, by topic and name.

    With `limit` the answer is a page. It may be shorter than the limit, even empty, although others
    follow: then `next` is not empty. Without `limit` the answer has all groups; it is refused
    (InvalidRequest) if there are more than a thousand or so.
    """

    topic: str | None = None
    """None: groups of every topic."""
    group: str | None = None
    """None: every group."""
    after: Token = ""
    """`next` of the page before."""
    limit: Limit | None = None
    """Most groups on a page. None: no pages."""
    broadcast: bool = False
    """List the broadcast instances, too. One that `group` names is listed in any case."""


class GroupQueueInfo(Body, frozen=True, kw_only=True):
    """A group's progress in a queue; docs/reference/glossary.md explains cursor and floor."""

    cursor: int
    """Offset of the first message that was never delivered."""
    floor: int
    """No message below this offset is leased or ready; some may wait for a retry or be dead
    letters."""
    end: int
    """Offset after the last durable message."""
    leased: int
    """Messages that consumers hold."""
    ready: int
    """Messages below the cursor that wait for a consumer: returned ones, and those behind another
    message of their ordering key."""
    waiting: int
    """Messages that failed and wait for their retry, or are held: `retrying` in `group lag`."""
    dead: int
    """Dead letters."""
    intervals: int
    """Number of separate runs of settled messages; 1 if no message below the cursor is owed."""
    owner: str = ""
    """The member that the queue belongs to, in a group of mode owned or exclusive: its name, ``/``
    and the beginning of its client's name. Empty: nobody, or a group of another mode."""

    @property
    def lag(self) -> int:
        """Number of messages that were never delivered."""
        return max(0, self.end - self.cursor)


class GroupInfo(Body, frozen=True, kw_only=True):
    """A group on a topic."""

    topic: str
    group: str
    spec: SubscriptionSpec
    queues: list[GroupQueueInfo]
    """In the order of their numbers."""
    members: list[str]
    """Clients that hold leases, or wait for messages; in a group of mode owned or exclusive also
    those that joined and have not left."""

    @property
    def lease(self) -> timedelta:
        """How long messages are leased."""
        return span(self.spec.lease_us)


class Groups(Body, frozen=True, kw_only=True):
    """Groups, by topic and name."""

    groups: list[GroupInfo]
    holds: list[HoldInfo] = msgspec.field(default_factory=list)
    """Holds on the journal, all or the one with the requested name: they lag like groups. Only on
    the first page, if the request names no topic, and for apps that may list holds."""
    next: str = ""
    """`after` of the request for the next page. Empty on the last page."""


class GroupReset(Body, frozen=True, kw_only=True):
    """Set the next row of a group: exactly one of ``offset``, ``time_us``, ``to`` is stated."""

    topic: str
    group: str
    queue: Number | None = None
    """None: every queue; not allowed with ``offset``."""
    offset: Offset | None = None
    """The next row; every row below it counts as done."""
    time_us: Time | None = None
    """The next row is the first one stored at or after this time."""
    to: Start | None = None
    """The next row is the oldest one kept, or the next one that is stored."""
    dry_run: bool = False
    """Only answer what would happen."""


class ResetQueue(Body, frozen=True, kw_only=True):
    """What a reset does, or would do, to a queue."""

    queue: int
    offset: int
    """The group's next message."""
    unread: int
    """Messages from there to the queue's end."""
    forgotten: int
    """Messages, leased, ready or waiting, that the group is no longer owed."""


class ResetDone(Body, frozen=True, kw_only=True):
    """Answer to a reset."""

    queues: list[ResetQueue]


class GroupSkip(Body, frozen=True, kw_only=True):
    """Skip a group's unread rows below an offset."""

    topic: str
    group: str
    queue: Number
    offset: Offset
    """The next row to be read; the cursor never goes back."""


class QueuesAssigned(Body, frozen=True, kw_only=True):
    """Push: the queues of a group that belong to this session now; it is a member of the group.

    Sent when they change, and after each GROUP_JOIN of the session. A queue that is new here may
    still be locked by a lease of its owner before.
    """

    topic: str
    group: str
    queues: list[int]
    """Numbers of all its queues, ascending; empty: none."""


class GroupChanged(Body, frozen=True, kw_only=True):
    """Push: a group's settings have changed, or it was removed."""

    topic: str
    group: str
    gone: bool = False
    """It no longer consumes the topic."""
    mode: Mode | None = None
    """Its mode now, if this has changed. The push comes before the answers to pulls in the new
    mode."""
