"""Control: looking messages up, and those that failed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ternmq.wire.control.coding import Body, Limit, Line, Number, Offset, Offsets, Text, Time


class Find(Body, frozen=True, kw_only=True):
    """Look messages up: exactly one of ``id``, ``application_id``, ``key``, ``offset``."""

    topic: str
    id: Line | None = None
    """``producer:sequence``, both hexadecimal as receipts show them."""
    application_id: Text | None = None
    key: Annotated[str, Meta(max_length=65_536)] | None = None
    queue: Number = 0
    offset: Offset | None = None
    since_us: Time = 0
    until_us: Time = 2**63 - 1
    limit: Limit = 100
    after: Line = ""
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
    queue: Number
    time_us: Time


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
    limit: Limit = 100


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
    queue: Number
    offsets: Offsets


class FailedDelete(Body, frozen=True, kw_only=True):
    """Forget rows that wait or are dead."""

    topic: str
    group: str
    queue: Number
    offsets: Offsets


class FailedDone(Body, frozen=True, kw_only=True):
    """How many rows it was done to, and which were not there."""

    done: int
    missing: list[int]
