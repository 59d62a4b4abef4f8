"""Control: the commands of pipelines: ranges, commits, holds, names of the journal."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.wire.control.coding import Body, Count, Limit, Line, Number, Offset, Time
from ternmq.wire.control.times import at, datetime

MAX_TOPICS = 1000
"""Most topics in a QUEUE_RANGES."""
MAX_QUEUES = 10_000
"""Most queues in the answer to a QUEUE_RANGES, and most places in a GROUP_COMMIT."""
HOLD_NAME = r"^[A-Za-z0-9._-]{1,127}\Z"


class RangeStart(Body, frozen=True, kw_only=True):
    """The place from which a queue is to be read."""

    queue: Number
    offset: Offset
    """The first row to read."""
    max_bytes: Count = 0
    """Most bytes of records to read; 0: no limit."""


class RangesAsk(Body, frozen=True, kw_only=True):
    """A topic whose ranges are requested."""

    topic: str
    time_us: Time | None = None
    """Answer in `at` the first row of each queue that is not older than this."""
    starts: Annotated[list[RangeStart], Meta(max_length=MAX_QUEUES)] = msgspec.field(
        default_factory=list
    )
    """Answer in `start` and `stop` how far to read from here; each queue at most once."""


class QueueRanges(Body, frozen=True, kw_only=True):
    """Return what many queues of many topics hold, in one request.

    The app needs the right to consume each of the topics. A topic that does not exist is no error:
    the answer shows it. InvalidRequest if the topics have more than 10,000 queues together.
    """

    topics: Annotated[list[RangesAsk], Meta(max_length=MAX_TOPICS)]


class QueueRange(Body, frozen=True, kw_only=True):
    """The rows that a queue holds; rows that are not durable do not count."""

    first: int
    """Offset of the oldest row kept."""
    next: int
    """Offset that the next row gets."""
    at: int | None = None
    """The first row that is not older than ``time_us``, or ``next`` if there is none; nil if the
    request has no ``time_us``."""
    start: int | None = None
    """Where reading begins: the requested offset, or ``first`` if that is higher; nil if the
    request has no start for this queue."""
    stop: int | None = None
    """Where reading ends: the records with the rows from ``start`` to ``stop - 1`` have at most
    ``max_bytes`` together, and one more would not fit. At least one record, if there is one."""
    stop_bytes: int = 0
    """Bytes of these records."""
    bytes: int = 0
    """Bytes of the records from ``start`` to the queue's end."""


class TopicRanges(Body, frozen=True, kw_only=True):
    """The rows that the queues of a topic hold."""

    topic: str
    number: int
    """Number of the topic in records; 0: there is no such topic."""
    queues: list[QueueRange]
    """In the order of their numbers."""


class RangesFound(Body, frozen=True, kw_only=True):
    """Topics in the order of the request."""

    topics: list[TopicRanges]
    now_us: int = 0
    """Broker time."""


class GroupPlace(Body, frozen=True, kw_only=True):
    """A group's progress in a queue."""

    queue: Number
    offset: Offset
    """The next row to read."""


class GroupCommit(Body, frozen=True, kw_only=True):
    """Store how far a group has read, for readers without leases. It never moves back.

    An offset below the group's place has no effect, and is no error. An offset above the queue's
    end is refused (InvalidRequest), and then no place is changed. Rows that are leased or failed
    are still owed. A missing group is created: it starts at earliest, in the topic's mode.
    """

    topic: str
    group: str
    places: Annotated[list[GroupPlace], Meta(max_length=MAX_QUEUES)]
    """Each queue at most once."""


class GroupCommitted(Body, frozen=True, kw_only=True):
    """The group's places now in the requested queues, in the order of the request."""

    places: list[GroupPlace]
    created: bool = False
    """The group was made by this request."""


class HoldPut(Body, frozen=True, kw_only=True):
    """Keep the journal from a position on, whatever its age, until the hold moves or is deleted.

    No segment with a byte at or above the position is removed. The position only moves forward: a
    lower one has no effect, and is no error, unless ``back`` is true. If the disk is full up to the
    setting `retention_watermark` and a hold keeps the oldest file, sends are refused, as they are
    if a group keeps it. There are at most 64 holds.
    """

    name: Annotated[str, Meta(pattern=HOLD_NAME)]
    """1 to 127 of A-Z a-z 0-9 . _ -; jobs of a pipeline use ``spark.<job>``."""
    position: Offset
    """Position in the journal; the oldest position that is kept, if that is higher."""
    note: Line = ""
    """A note: the purpose of the hold."""
    back: bool = False
    """The hold may also move back, as far as the journal is still kept."""


class HoldPlaced(Body, frozen=True, kw_only=True):
    """The hold's position now."""

    position: int
    oldest: int
    """The oldest position that is kept."""


class HoldDelete(Body, frozen=True, kw_only=True):
    """Remove a hold; it is no error if there is none of that name."""

    name: Annotated[str, Meta(pattern=HOLD_NAME)]


class HoldList(Body, frozen=True, kw_only=True):
    """List the holds, by name."""


class HoldInfo(Body, frozen=True, kw_only=True):
    """A hold."""

    name: str
    position: int
    note: str
    app: str
    """The app that put it last."""
    created_us: int
    moved_us: int
    """Time of the last change of its position."""
    lag_bytes: int
    """Bytes of the journal from its position to the durable end."""
    blocking: bool = False
    """Sends are refused now because of this hold."""

    @property
    def created(self) -> datetime:
        """Time at which the hold was made."""
        return at(self.created_us)

    @property
    def moved(self) -> datetime:
        """Time of the last change of its position."""
        return at(self.moved_us)


class Holds(Body, frozen=True, kw_only=True):
    """Holds, by name."""

    holds: list[HoldInfo]
    oldest: int = 0
    """The oldest position that is kept."""
    durable: int = 0
    """The durable position: everything below it is on the disk."""
    now_us: int = 0
    """Broker time."""

    @property
    def now(self) -> datetime:
        """Broker time."""
        return at(self.now_us)


class JournalCatalog(Body, frozen=True, kw_only=True):
    """List the names for the numbers in the journal's records, from a position on.

    The names of topics, groups and sessions that are gone are kept until no record of the journal
    can contain their numbers. Names that are made after ``as_of`` are in the records themselves.
    """

    position: Offset
    """Names of groups and sessions that were gone before this position are left out; those of
    topics stay, since a producer may report its last counts later."""
    after: Annotated[str, Meta(pattern=r"^([tgs][0-9]{1,10}|a[A-Za-z0-9._-]{0,127})?\Z")] = ""
    """``next`` of the page before."""
    limit: Limit = 10_000


class TopicName(Body, frozen=True, kw_only=True):
    """A topic's number."""

    number: int
    name: str
    gone: int = 0
    """Position of the record that deleted it; 0: it exists."""


class GroupName(Body, frozen=True, kw_only=True):
    """A group's number on a topic."""

    number: int
    topic: int
    name: str
    gone: int = 0
    """Position of the record that ended it; 0: it exists."""


class SessionName(Body, frozen=True, kw_only=True):
    """A session's number."""

    number: int
    app: str
    client: str
    """The beginning of the client's name."""
    address: str = ""
    gone: int = 0
    """Position of the record that ended it; 0: it exists."""


class JournalNames(Body, frozen=True, kw_only=True):
    """A page of names: topics, then groups, then sessions, then apps, each by number or name."""

    as_of: int
    """Names that are made at or after this position may be missing here: the records have them."""
    oldest: int
    """The oldest position that is kept."""
    topics: list[TopicName] = msgspec.field(default_factory=list)
    groups: list[GroupName] = msgspec.field(default_factory=list)
    sessions: list[SessionName] = msgspec.field(default_factory=list)
    apps: list[str] = msgspec.field(default_factory=list)
    next: str = ""
    """`after` of the request for the next page. Empty on the last page."""
