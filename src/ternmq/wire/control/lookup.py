"""Control: looking messages up, and those that failed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from msgspec import Meta

from ternmq.wire.control.coding import Body, Limit, Line, Number, Offset, Text, Time
from ternmq.wire.control.times import at

MAX_FAILED: Final = 250
"""Most offsets of one FAILED_RETRY or FAILED_DELETE: they take a millisecond of the broker."""
FailedOffsets = Annotated[list[Offset], Meta(max_length=MAX_FAILED)]


class Find(Body, frozen=True, kw_only=True):
    """Look messages up: exactly one of ``id``, ``application_id``, ``key``, ``offset``."""

    topic: str
    id: Line | None = None
    """``producer:sequence``, both hexadecimal as receipts show them."""
    application_id: Text | None = None
    """The identifier that the producer gave."""
    key: Annotated[str, Meta(max_length=65_536)] | None = None
    """Newest first."""
    queue: Number = 0
    """Of ``offset``."""
    offset: Offset | None = None
    """In ``queue``."""
    since_us: Time = 0
    """With ``key``: stored at or after it."""
    until_us: Time = 2**63 - 1
    """With ``key``: stored before it."""
    limit: Limit = 100
    after: Line = ""
    """``next`` of the page before."""


class FoundMessage(Body, frozen=True, kw_only=True):
    """A message that was found; its content is one row of a batch."""

    topic: str
    queue: int
    offset: int
    stored_us: int
    """Broker time at which it was stored."""
    row: int
    """Its row in ``batch``."""
    batch: bytes
    """See docs/format/batch.md; it may hold other rows as well."""


class FoundPage(Body, frozen=True, kw_only=True):
    """Messages, newest first; ``next`` is empty on the last page.

    At most a megabyte of batches, or one message. A page may have fewer messages than ``limit``, or
    none, and others follow all the same.
    """

    found: list[FoundMessage]
    next: str = ""


class OffsetAt(Body, frozen=True, kw_only=True):
    """Ask for the first offset that was stored at or after a time."""

    topic: str
    queue: Number
    time_us: Time
    """Broker time."""


class OffsetFound(Body, frozen=True, kw_only=True):
    """Answer to OFFSET_AT: the queue's next offset if all are older."""

    offset: int


class FailedList(Body, frozen=True, kw_only=True):
    """Ask for rows that wait for a retry (``dead`` false) or are dead letters."""

    topic: str
    group: str
    dead: bool
    queue: Number = 0
    after: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    """Offsets above this one only: the last of the page before."""
    limit: Limit = 100
    offset: Offset | None = None
    """Ask how this row stands, and nothing else: the answer has ``standing`` and no ``rows``."""


class FailureInfo(Body, frozen=True, kw_only=True):
    """One failure of a row."""

    time_us: int
    """When."""
    session: int
    """Who had it in hand; 0: nobody."""
    attempt: int
    outcome: str
    """``retry``, ``dead`` or ``held``."""
    cause: str
    """``consumer``: the consumer said so, by an exception or ``retry``; ``exhausted``: the same,
    and it was the last attempt; ``rejected``: the consumer gave it up; ``time``: the lease ended;
    ``session``: the consumer was gone, and did not come back within its grace; ``operator``."""
    reason: str
    """What the consumer said; empty if it said nothing, as with ``time`` and ``session``. There
    ``client.deadletters`` puts ``the lease ended`` and ``the consumer was gone``."""

    @property
    def time(self) -> datetime:
        """When."""
        return at(self.time_us)


class FailedMessage(Body, frozen=True, kw_only=True):
    """A row that failed, with its content while that is kept."""

    queue: int
    offset: int
    attempts: int
    """That count against the retry policy."""
    deliveries: int
    """How often it was handed out."""
    when_us: int
    """Next attempt, or since when it is dead."""
    held: bool
    """It stays with its key until an operator lets it go (ordered groups)."""
    failures: list[FailureInfo]
    """Oldest first, as far as they are kept."""
    message: FoundMessage | None = None
    """None: its content is not kept any more."""


class RowStanding(Body, frozen=True, kw_only=True):
    """How a row stands in a group."""

    state: str
    """``unread``: the broker has not come to it. ``leased``: a consumer has it. ``ready``: it waits
    for a consumer, given back or ``behind`` another. ``waiting``: for the time of its retry.
    ``held``, ``dead``. ``not_owed``: done, passed over, or forgotten."""
    attempts: int = 0
    """That failed, as far as they count against the retry policy."""
    deliveries: int = 0
    """How often it was handed out."""
    behind: int | None = None
    """Of a ready row: the offset of the first row owed of its ordering key, if it comes before."""
    failures: list[FailureInfo]
    """Oldest first, as far as they are kept."""


class FailedPage(Body, frozen=True, kw_only=True):
    """Failed rows, by offset: at most a megabyte of batches, or one row.

    A page may have fewer rows than ``limit``, though others follow: ``more`` says so.
    """

    rows: list[FailedMessage]
    more: bool = False
    standing: RowStanding | None = None
    """Of the row that the request names by ``offset``."""


class FailedRetry(Body, frozen=True, kw_only=True):
    """Let waiting or held rows come again now."""

    topic: str
    group: str
    queue: Number
    offsets: FailedOffsets


class FailedDelete(Body, frozen=True, kw_only=True):
    """Forget rows that wait or are dead."""

    topic: str
    group: str
    queue: Number
    offsets: FailedOffsets


class FailedDone(Body, frozen=True, kw_only=True):
    """How many rows it was done to, and which were not there."""

    done: int
    missing: list[int]
    """Offsets that did not wait and were not dead."""
