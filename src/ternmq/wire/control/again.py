"""Control: rows that a group gets again: replays, and redrives of dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from ternmq.wire.control.coding import Body, Limit, Line, Number, Offset, Offsets


class ReplaySpan(Body, frozen=True, kw_only=True):
    """Offsets of a queue, from ``start`` to before ``stop``."""

    queue: Number
    start: Offset
    stop: Offset


Spans = Annotated[list[ReplaySpan], Meta(max_length=1000)]
Ids = Annotated[list[Line], Meta(max_length=100)]


class GroupReplay(Body, frozen=True, kw_only=True):
    """Hand rows to a group again, whatever became of them: state ``spans`` or ``ids``.

    They begin a new round: attempts count from 1, and leases of them end.
    """

    topic: str
    group: str
    spans: Spans = field(default_factory=list)
    ids: Ids = field(default_factory=list)
    """Of messages, as FIND tells them, or as their producer gave them."""
    dry_run: bool = False
    """Only say what would happen."""


class ReplayedQueue(Body, frozen=True, kw_only=True):
    """What a replay does, or would do, to a queue."""

    queue: int
    again: int
    """Rows that come again."""
    unread: int = 0
    """Rows above the cursor: the group gets them as it goes on."""
    expired: int = 0
    """Rows that are not kept any more."""
    filtered: int = 0
    """Rows that the group's filter does not let pass."""


class GroupReplayed(Body, frozen=True, kw_only=True):
    """Answer to a replay."""

    queues: list[ReplayedQueue]
    """Those that were named, by number."""
    rest: list[ReplaySpan] = field(default_factory=list)
    """What was not looked at: ask again for it."""
    missing: list[str] = field(default_factory=list)
    """Ids of which no message of the topic is kept."""


class FailedRedrive(Body, frozen=True, kw_only=True):
    """Hand dead letters to their group again: attempts count from 1, their failures stay known."""

    topic: str
    group: str
    queue: Number
    offsets: Offsets = field(default_factory=list)
    """Empty: those behind ``after``, at most ``limit``."""
    after: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    limit: Limit = 1000
    dry_run: bool = False
    """Only say what would happen."""


class FailedRedriven(Body, frozen=True, kw_only=True):
    """What became of each row."""

    done: list[int]
    """Offsets of those that come again."""
    missing: list[int] = field(default_factory=list)
    """Those that are no dead letters."""
    rest: list[int] = field(default_factory=list)
    """Those that were not looked at: ask again for them."""
    more: bool = False
    """Where no offsets were named: there are dead letters behind these."""
