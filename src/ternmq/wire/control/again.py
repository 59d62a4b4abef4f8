"""Control: rows that are delivered to a group again: replays, and redrives of dead letters."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from ternmq.wire.control.coding import Body, Limit, Line, Number, Offset, Offsets
from ternmq.wire.control.lookup import FailedSelect


class ReplaySpan(Body, frozen=True, kw_only=True):
    """Offsets of a queue, from ``start`` to before ``stop``."""

    queue: Number
    start: Offset
    stop: Offset


Spans = Annotated[list[ReplaySpan], Meta(max_length=1000)]
Ids = Annotated[list[Line], Meta(max_length=100)]


class GroupReplay(Body, frozen=True, kw_only=True):
    """Deliver rows to a group again, even if they are settled: state ``spans`` or ``ids``.

    Their attempts count from 1 again, and leases of them end.
    """

    topic: str
    group: str
    spans: Spans = field(default_factory=list)
    ids: Ids = field(default_factory=list)
    """Message ids as in the answer to FIND, or application ids that the producer gave."""
    dry_run: bool = False
    """Only answer what would happen."""


class ReplayedQueue(Body, frozen=True, kw_only=True):
    """What a replay does, or would do, to a queue."""

    queue: int
    again: int
    """Rows that are delivered again."""
    unread: int = 0
    """Rows at or above the cursor: the group gets them anyway."""
    expired: int = 0
    """Rows that are not kept any more."""
    filtered: int = 0
    """Rows that the group's filter does not let pass."""


class GroupReplayed(Body, frozen=True, kw_only=True):
    """Answer to a replay."""

    queues: list[ReplayedQueue]
    """The queues of the requested rows, by number."""
    rest: list[ReplaySpan] = field(default_factory=list)
    """Rows that were not processed: request them again."""
    missing: list[str] = field(default_factory=list)
    """Requested ids for which no message of the topic is kept."""


class FailedRedrive(Body, frozen=True, kw_only=True):
    """Deliver dead letters to their group again: attempts count from 1, failures are kept."""

    topic: str
    group: str
    queue: Number
    offsets: Offsets = field(default_factory=list)
    """Empty: the dead letters after offset ``after``, at most ``limit``."""
    after: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    limit: Limit = 1000
    dry_run: bool = False
    """Only answer what would happen."""
    only: FailedSelect | None = None
    """With ``offsets``: only those of the rows that match."""


class FailedRedriven(Body, frozen=True, kw_only=True):
    """The result for each row."""

    done: list[int]
    """Offsets of rows that are delivered again."""
    missing: list[int] = field(default_factory=list)
    """Requested offsets that are no dead letters."""
    rest: list[int] = field(default_factory=list)
    """Offsets that were not processed: request them again."""
    more: bool = False
    """If the request has no offsets: there are more dead letters after these."""
