"""Control: topics, and what producers report of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.model.specs import TopicSpec
from ternmq.wire.control.coding import Body, Count, Limit, Time
from ternmq.wire.control.times import span

Sequence = Annotated[int, Meta(ge=0)]
"""A 64-bit number without sign."""


class TopicCreate(Body, frozen=True, kw_only=True):
    """Make a topic; TopicExists if it is there."""

    topic: str
    spec: TopicSpec
    """Its ``name`` is ``topic``."""


class TopicChange(Body, frozen=True, kw_only=True):
    """Give a topic other settings."""

    topic: str
    spec: TopicSpec
    """All settings, those that stay included; ``name`` is ``topic``."""


class TopicDelete(Body, frozen=True, kw_only=True):
    """Remove a topic with all its messages and groups."""

    topic: str


class TopicList(Body, frozen=True, kw_only=True):
    """Ask for topics, by name; all that the app has a right on.

    A page may be shorter than the limit, even empty, and others follow: `next` says so.
    """

    names: Annotated[list[str], Meta(max_length=10_000)] | None = None
    """None: all of them."""
    after: str = ""
    """Names above this one only: `next` of the page before."""
    limit: Limit = 1000


class QueueInfo(Body, frozen=True, kw_only=True):
    """Offsets of a queue: the oldest kept, and the next (durable ones only)."""

    first: int
    """Offset of the oldest message kept."""
    next: int
    """Offset that the next message gets."""


class TopicInfo(Body, frozen=True, kw_only=True):
    """A topic."""

    number: int
    """Names the topic in records; never used again."""
    spec: TopicSpec
    queues: list[QueueInfo]
    """In the order of their numbers."""
    groups: list[str]
    """Names of the groups that consume it."""

    @property
    def retention(self) -> timedelta:
        """How long messages are kept."""
        return span(self.spec.retention_us)


class Topics(Body, frozen=True, kw_only=True):
    """Topics by name; ``more`` when others follow."""

    topics: list[TopicInfo]
    more: bool = False
    next: str = ""
    """Where to go on: `after` of the next request. Empty on the last page."""


class TopicChanged(Body, frozen=True, kw_only=True):
    """Push: a topic has other settings, or is gone."""

    topic: str
    gone: bool = False
    """It was deleted."""


class SequenceRun(Body, frozen=True, kw_only=True):
    """Sequences of a producer that follow each other."""

    first: Sequence
    stop: Sequence
    """Behind the last."""


class ReportEntry(Body, frozen=True, kw_only=True):
    """What a producer says of one 10-minute bucket of born time; counts since it began."""

    bucket_us: Time
    """Beginning of the bucket: a multiple of 600,000,000."""
    sent: Count
    """Rows of this producer, born in the bucket, that were sent so far."""
    given_up: Count
    """Of these, rows whose send ended without an answer that it was stored."""
    first: Sequence = 0
    """The least of their sequences."""
    stop: Sequence = 0
    """Above the greatest; those between may be of other topics. 0: not said."""
    closed: bool = False
    """The bucket is over, or the producer ends: no more rows will be born in it."""
    left_out: Count = 0
    """Of these, rows that the broker answered to have left out: their application id was there."""
    runs: Annotated[list[SequenceRun], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    """Which sequences were given up or left out, since the producer began; the first 1,000 runs."""


class Report(Body, frozen=True, kw_only=True):
    """Counts of one producer and topic; every ten seconds, and at close."""

    topic: str
    producer: Annotated[int, Meta(ge=0)]
    """The id in its batches."""
    entries: Annotated[list[ReportEntry], Meta(max_length=1000)]
    """Buckets that changed since the last report, and those that are closed since."""
