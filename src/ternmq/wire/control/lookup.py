"""Control: look-ups of messages, and failed messages."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from ternmq.wire.control.coding import (
    Body,
    Count,
    Limit,
    Line,
    Number,
    Offset,
    Text,
    Time,
    Token,
)
from ternmq.wire.control.times import at, datetime

MAX_FAILED: Final = 250
"""Most offsets of one FAILED_RETRY or FAILED_DELETE: that many take the broker a millisecond."""
FailedOffsets = Annotated[list[Offset], Meta(max_length=MAX_FAILED)]
States = Annotated[list[Literal["waiting", "held", "dead"]], Meta(max_length=3)]


class Find(Body, frozen=True, kw_only=True):
    """Look messages up: exactly one of ``id``, ``application_id``, ``key``, ``offset``."""

    topic: str
    id: Line | None = None
    """``producer:sequence``, both hexadecimal, as in receipts."""
    application_id: Text | None = None
    """The identifier that the producer gave."""
    key: Annotated[str, Meta(max_length=65_536)] | None = None
    """A key of the messages; newest first."""
    queue: Number = 0
    """With ``offset``: its queue."""
    offset: Offset | None = None
    """Offset in ``queue``."""
    since_us: Time = 0
    """With ``key``: only messages stored at or after this time."""
    until_us: Time = 2**63 - 1
    """With ``key``: only messages stored before this time."""
    limit: Limit = 100
    after: Line = ""
    """``next`` of the page before."""


class FoundMessage(Body, frozen=True, kw_only=True):
    """A message that was found; its content is one row of a batch."""

    topic: str
    queue: int
    """Of a message that is scheduled or cancelled: the queue that was asked for; -1: none."""
    offset: int
    """Of a message that is scheduled or cancelled: -1."""
    stored_us: int
    """Broker time at which it was stored."""
    row: int
    """Its row in ``batch``."""
    batch: bytes
    """The format is in docs/format/batch.md; it may hold other rows as well."""
    state: str = "stored"
    """``stored``: it is in its queue. ``scheduled``: it is not due yet. ``cancelled``: it was
    scheduled, and is not delivered. By key, cancelled messages are not found."""
    due_us: int = 0
    """Of a message that is scheduled or cancelled: time at which it is due."""


class FoundPage(Body, frozen=True, kw_only=True):
    """Messages, newest first; ``next`` is empty on the last page.

    A page has at most a megabyte of batches, or one message. It may have fewer messages than
    ``limit``, or none, although others follow.
    """

    found: list[FoundMessage]
    next: str = ""


class OffsetAt(Body, frozen=True, kw_only=True):
    """Return the offset of the first row that was stored at or after a time."""

    topic: str
    queue: Number
    time_us: Time
    """Broker time."""


class OffsetFound(Body, frozen=True, kw_only=True):
    """Answer to OFFSET_AT: the offset, or the queue's next offset if all rows are older."""

    offset: int


class FailedList(Body, frozen=True, kw_only=True):
    """List the rows that wait for a retry (``dead`` false), or the dead letters."""

    topic: str
    group: str
    dead: bool
    queue: Number = 0
    after: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """Only offsets above this one: the last offset of the page before."""
    limit: Limit = 100
    offset: Offset | None = None
    """Return only the state of this row: the answer has ``standing`` and no ``rows``."""
    offsets: FailedOffsets = field(default_factory=list)
    """Return these rows, in this order, whether they wait or are dead; ``dead`` and ``after`` do
    not matter. Those that have not failed are left out."""


class FailureInfo(Body, frozen=True, kw_only=True):
    """One failure of a message."""

    time_us: int
    """Time of the failure."""
    session: int
    """Session of the consumer that held it; 0: none."""
    attempt: int
    outcome: str
    """``retry``, ``dead`` or ``held``."""
    cause: str
    """``consumer``: the consumer reported it, by an exception or ``retry``; ``exhausted``: the same
    at the last attempt; ``rejected``: the consumer rejected the message; ``time``: the lease ended;
    ``session``: the consumer was lost, and did not come back within its grace; ``operator``."""
    reason: str
    """The consumer's reason; empty if it gave none, as with ``time`` and ``session``. For these
    ``client.deadletters`` shows ``the lease ended`` and ``the consumer was gone``."""

    @property
    def time(self) -> datetime:
        """Time of the failure."""
        return at(self.time_us)


class FailedMessage(Body, frozen=True, kw_only=True):
    """A row that failed, with its content while that is kept."""

    queue: int
    offset: int
    attempts: int
    """Number of failed attempts that count against the retry policy."""
    deliveries: int
    """Number of deliveries."""
    when_us: int
    """Time of the next attempt, or since which it is dead."""
    held: bool
    """It blocks its ordering key, or its queue, until an operator retries or deletes it."""
    failures: list[FailureInfo]
    """Oldest first, as far as they are kept."""
    message: FoundMessage | None = None
    """None: its content is not kept any more."""
    dead: bool = False
    """It is a dead letter."""


class RowStanding(Body, frozen=True, kw_only=True):
    """The state of a message in a group."""

    state: str
    """``unread``: not delivered yet. ``leased``: a consumer has it. ``ready``: it waits for a
    consumer, returned or ``behind`` another. ``waiting``: it waits for the time of its retry,
    or, if ``due``, for a consumer. ``held``, ``dead``. ``not_owed``: it is done or skipped:
    the group does not receive it any more."""
    attempts: int = 0
    """Number of failed attempts that count against the retry policy."""
    deliveries: int = 0
    """Number of deliveries."""
    behind: int | None = None
    """Of a ready message: offset of the first one of its ordering key that is owed, if that is
    before it."""
    retry_us: int = 0
    """Of a waiting message: time of its retry; else 0."""
    due: bool = False
    """Of a waiting message: the time of its retry is over, and no consumer asked since."""
    failures: list[FailureInfo]
    """Oldest first, as far as they are kept."""


class FailedPage(Body, frozen=True, kw_only=True):
    """Failed rows, by offset or as requested: at most a megabyte of batches, or one row.

    A page may have fewer rows than ``limit`` although others follow: then ``more`` is true.
    """

    rows: list[FailedMessage]
    more: bool = False
    standing: RowStanding | None = None
    """The state of the row at the request's ``offset``."""


class FailedSelect(Body, frozen=True, kw_only=True):
    """Which failed rows are meant: those for which all of this holds."""

    states: States = field(default_factory=list)
    """``waiting`` (for a retry), ``held``, ``dead``; empty: all of them."""
    since_us: Time = 0
    """The newest failure was at or after this time."""
    until_us: Time = 2**63 - 1
    """The newest failure was before this time."""
    attempts: Count = 0
    """At least as many attempts were made."""


class FailedQuery(Body, frozen=True, kw_only=True):
    """Find or count the failed rows of a queue, piece by piece.

    A request examines a bounded number of rows. Its answer says where the next request goes on.
    """

    topic: str
    group: str
    queue: Number = 0
    select: FailedSelect = FailedSelect()
    key: Annotated[str, Meta(max_length=65_536)] | None = None
    """Only messages with this key; newest message first."""
    id: Text | None = None
    """Only the message with this id: of the broker, as in receipts, or else the sender's own."""
    newest: bool = False
    """Return the rows of the piece that failed last, newest first, at most 1,000."""
    count: bool = False
    """Return no rows, only ``counts``."""
    after: Token = ""
    """``next`` of the answer before."""
    limit: Limit = 1000


class FailedCounts(Body, frozen=True, kw_only=True):
    """Number of rows in each state."""

    waiting: int = 0
    held: int = 0
    dead: int = 0

    @property
    def total(self) -> int:
        """Number of rows in any of them."""
        return self.waiting + self.held + self.dead


class FailedFound(Body, frozen=True, kw_only=True):
    """The rows of a piece that match; FAILED_LIST with ``offsets`` returns their content."""

    offsets: list[int] = field(default_factory=list)
    """By offset; newest first with ``newest`` or a key."""
    failed_us: list[int] = field(default_factory=list)
    """With ``newest``, a key or an id: the time of the newest failure of each row; 0: that is not
    known any more."""
    counts: FailedCounts = FailedCounts()
    """Number of rows that match: with ``newest``, of the whole piece; else of ``offsets``."""
    next: str = ""
    """Where the next piece begins; empty: there is none."""


class FailedRetry(Body, frozen=True, kw_only=True):
    """Deliver waiting or held rows again now."""

    topic: str
    group: str
    queue: Number
    offsets: FailedOffsets
    only: FailedSelect | None = None
    """Only those of the rows that match."""
    dry_run: bool = False
    """Only answer what would happen."""


class FailedDelete(Body, frozen=True, kw_only=True):
    """Delete rows that wait for a retry or are dead: the group is no longer owed them."""

    topic: str
    group: str
    queue: Number
    offsets: FailedOffsets
    only: FailedSelect | None = None
    """Only those of the rows that match."""
    dry_run: bool = False
    """Only answer what would happen."""


class FailedDone(Body, frozen=True, kw_only=True):
    """The number of rows that were retried or deleted, and the offsets that were not."""

    done: int
    missing: list[int]
    """Offsets of rows that were not in the required state."""
