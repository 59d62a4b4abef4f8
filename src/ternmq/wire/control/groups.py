"""Control: consumer groups."""

from __future__ import annotations

from ternmq.model.specs import Mode, Start, SubscriptionSpec
from ternmq.wire.control.coding import Body, Number, Offset, Text, Time


class GroupJoin(Body, frozen=True, kw_only=True):
    """See that a group consumes a topic: it is made if it is missing.

    A setting that is stated and differs from the group's is GroupSettingsMismatch.
    """

    topic: str
    group: str
    tags: Text | None = None
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
    queue: Number | None = None
    """None: every queue; then not with ``offset``."""
    offset: Offset | None = None
    time_us: Time | None = None
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
    queue: Number
    offset: Offset


class GroupChanged(Body, frozen=True, kw_only=True):
    """Push: a group has other settings, or is gone."""

    topic: str
    group: str
    gone: bool = False
