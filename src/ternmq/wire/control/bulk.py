"""Control: what a pipeline asks of a broker: ranges, commits, holds, names of the journal."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.wire.control.coding import Body, Count, Limit, Line, Number, Offset, Time
from ternmq.wire.control.times import at

MAX_TOPICS = 1000
"""Most topics that one QUEUE_RANGES names."""
MAX_QUEUES = 10_000
"""Most queues that one QUEUE_RANGES is answered with, and most places of a GROUP_COMMIT."""
HOLD_NAME = r"^[A-Za-z0-9._-]{1,127}\Z"


class RangeStart(Body, frozen=True, kw_only=True):
    """From where a queue would be read."""

    queue: Number
    offset: Offset
    """The first row that is wanted."""
    max_bytes: Count = 0
    """Records that are to be read at most; 0: as many as there are."""


class RangesAsk(Body, frozen=True, kw_only=True):
    """A topic whose ranges are wanted."""

    topic: str
    time_us: Time | None = None
    """Say which rows are the first that are not older."""
    starts: Annotated[list[RangeStart], Meta(max_length=MAX_QUEUES)] = msgspec.field(
        default_factory=list
    )
    """Say how far one may read from there, each queue at most once."""


class QueueRanges(Body, frozen=True, kw_only=True):
    """Ask what many queues of many topics hold, in one request.

    The app needs the right to consume each of the topics. A topic that is not there is told as
    such, and is no error. At most 10,000 queues are told of; InvalidRequest if there are more.
    """

    topics: Annotated[list[RangesAsk], Meta(max_length=MAX_TOPICS)]


class QueueRange(Body, frozen=True, kw_only=True):
    """What a queue holds; rows that are not durable do not count."""

    first: int
    """Offset of the oldest row kept."""
    next: int
    """Offset that the next row gets."""
    at: int | None = None
    """The first row that is not older than ``time_us``, or ``next``; nil when it was not asked."""
    start: int | None = None
    """Where reading begins: the offset asked for, or ``first`` when that is higher; nil when it was
    not asked."""
    stop: int | None = None
    """The records that hold the rows from ``start`` to ``stop - 1`` have at most ``max_bytes``
    together, and one more would not fit. One record at least, if there is one."""
    stop_bytes: int = 0
    """What these records take."""
    bytes: int = 0
    """What the records from ``start`` to the queue's end take."""


class TopicRanges(Body, frozen=True, kw_only=True):
    """What the queues of a topic hold."""

    topic: str
    number: int
    """Names the topic in records; 0: there is no such topic."""
    queues: list[QueueRange]
    """In the order of their numbers."""


class RangesFound(Body, frozen=True, kw_only=True):
    """Topics in the order asked."""

    topics: list[TopicRanges]
    now_us: int = 0
    """Broker time."""


class GroupPlace(Body, frozen=True, kw_only=True):
    """How far a group has come in a queue."""

    queue: Number
    offset: Offset
    """The next row; every row below it was dealt with."""


class GroupCommit(Body, frozen=True, kw_only=True):
    """Say how far a group has come that keeps its place itself. A place only grows.

    An offset below the group's place has no effect, and is no error; one above the queue's end is
    refused (InvalidRequest), and then nothing is done. Rows that are leased or failed stay owed. A
    group that is not there is made: from earliest on, in the topic's mode.
    """

    topic: str
    group: str
    places: Annotated[list[GroupPlace], Meta(max_length=MAX_QUEUES)]
    """Each queue at most once."""


class GroupCommitted(Body, frozen=True, kw_only=True):
    """Where the group stands now in the queues that were named, in the order asked."""

    places: list[GroupPlace]
    created: bool = False
    """The group was made by this request."""


class HoldPut(Body, frozen=True, kw_only=True):
    """Keep the journal from a position on, whatever its age, until the hold moves on or goes.

    No segment goes that has a byte at or above the position. It only moves forward: a lower
    position has no effect, and is no error, unless ``back`` is true. When the disk is full up to
    its watermark, sends are refused, as for messages that must be consumed first. There are at
    most 64 holds.
    """

    name: Annotated[str, Meta(pattern=HOLD_NAME)]
    """1 to 127 of A-Z a-z 0-9 . _ -; jobs of a pipeline use ``spark.<job>``."""
    position: Offset
    """Of the journal. Below the oldest that is kept it counts as that."""
    note: Line = ""
    """For people: what it is for."""
    back: bool = False
    """The hold may also move back, as far as the journal is still there."""


class HoldPlaced(Body, frozen=True, kw_only=True):
    """Where the hold stands now."""

    position: int
    oldest: int
    """The oldest position that is kept."""


class HoldDelete(Body, frozen=True, kw_only=True):
    """Remove a hold; it is no error if there is none of that name."""

    name: Annotated[str, Meta(pattern=HOLD_NAME)]


class HoldList(Body, frozen=True, kw_only=True):
    """Ask for the holds."""


class HoldInfo(Body, frozen=True, kw_only=True):
    """A hold."""

    name: str
    position: int
    note: str
    app: str
    """Who put it there last."""
    created_us: int
    moved_us: int
    """When its position changed last."""
    lag_bytes: int
    """Bytes of the journal from its position to the durable end."""
    blocking: bool = False
    """Sends are refused now because of it."""

    @property
    def created(self) -> datetime:
        """When it was made."""
        return at(self.created_us)

    @property
    def moved(self) -> datetime:
        """When its position changed last."""
        return at(self.moved_us)


class Holds(Body, frozen=True, kw_only=True):
    """Holds, by name."""

    holds: list[HoldInfo]
    oldest: int = 0
    """The oldest position that is kept."""
    durable: int = 0
    """Up to here everything is on the disk."""
    now_us: int = 0
    """Broker time."""

    @property
    def now(self) -> datetime:
        """Broker time."""
        return at(self.now_us)


class JournalCatalog(Body, frozen=True, kw_only=True):
    """Ask what the numbers in the journal's records stand for, from a position on.

    The names of topics, groups and sessions that are gone are kept until no record of the journal
    can name them. What is made behind ``as_of``, the records themselves tell.
    """

    position: Offset
    """Leave out what was gone before it."""
    after: Annotated[str, Meta(pattern=r"^([tgs][0-9]{1,10}|a[A-Za-z0-9._-]{0,127})?\Z")] = ""
    """The page behind this place: ``next`` of the page before."""
    limit: Limit = 10_000


class TopicName(Body, frozen=True, kw_only=True):
    """A topic's number."""

    number: int
    name: str
    gone: int = 0
    """Position of the record that deleted it; 0: it is there."""


class GroupName(Body, frozen=True, kw_only=True):
    """A group's number on a topic."""

    number: int
    topic: int
    name: str
    gone: int = 0
    """Position of the record that ended it; 0: it is there."""


class SessionName(Body, frozen=True, kw_only=True):
    """A session's number."""

    number: int
    app: str
    client: str
    """The beginning of the client's name."""
    address: str = ""
    gone: int = 0
    """Position of the record that ended it; 0: it is there."""


class JournalNames(Body, frozen=True, kw_only=True):
    """A page of names: topics, then groups, then sessions, then apps, each by number or name."""

    as_of: int
    """What is made at or behind this position may be missing here: the records tell of it."""
    oldest: int
    """The oldest position that is kept."""
    topics: list[TopicName] = msgspec.field(default_factory=list)
    groups: list[GroupName] = msgspec.field(default_factory=list)
    sessions: list[SessionName] = msgspec.field(default_factory=list)
    apps: list[str] = msgspec.field(default_factory=list)
    next: str = ""
    """Where the next page begins; empty: this is the last."""
