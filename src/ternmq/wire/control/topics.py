"""Control: topics, and the counts that producers report."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ternmq.model.specs import TopicSpec
from ternmq.wire.control.coding import Body, Count, Limit, Time
from ternmq.wire.control.times import span, timedelta

Sequence = Annotated[int, Meta(ge=0)]
"""An unsigned 64-bit number."""


class TopicCreate(Body, frozen=True, kw_only=True):
    """Make a topic; TopicExists if there is one of that name."""

    topic: str
    spec: TopicSpec
    """Its ``name`` is ``topic``."""


class TopicChange(Body, frozen=True, kw_only=True):
    """Change a topic's settings."""

    topic: str
    spec: TopicSpec
    """All settings, including those that do not change; ``name`` is ``topic``."""


class TopicDelete(Body, frozen=True, kw_only=True):
    """Remove a topic with all its messages and groups."""

    topic: str


class TopicList(Body, frozen=True, kw_only=True):
    """List the topics that the app has a right on, by name.

    A page may be shorter than the limit, even empty, although others follow: then `next` is not
    empty.
    """

    names: Annotated[list[str], Meta(max_length=10_000)] | None = None
    """Only these topics. None: all topics."""
    after: str = ""
    """Only names after this one: `next` of the page before."""
    limit: Limit = 1000


class QueueInfo(Body, frozen=True, kw_only=True):
    """Offsets of a queue; messages that are not durable do not count."""

    first: int
    """Offset of the oldest message kept."""
    next: int
    """Offset that the next message gets."""


class TopicInfo(Body, frozen=True, kw_only=True):
    """A topic."""

    number: int
    """Number of the topic in records; never used for another topic."""
    spec: TopicSpec
    queues: list[QueueInfo]
    """In the order of their numbers."""
    groups: list[str]
    """Names of the groups that consume it."""
    scheduled: int = 0
    """Number of its messages that are not due yet."""
    instances: int = 0
    """Number of its broadcast instances, which are not among the groups."""

    @property
    def retention(self) -> timedelta:
        """How long messages are kept."""
        return span(self.spec.retention_us)


class Topics(Body, frozen=True, kw_only=True):
    """Topics by name; ``more``: others follow."""

    topics: list[TopicInfo]
    more: bool = False
    next: str = ""
    """`after` of the request for the next page. Empty on the last page."""


class TopicChanged(Body, frozen=True, kw_only=True):
    """Push: a topic's settings have changed, or it was deleted."""

    topic: str
    gone: bool = False
    """It was deleted."""


class SequenceRun(Body, frozen=True, kw_only=True):
    """Consecutive sequence numbers of a producer."""

    first: Sequence
    stop: Sequence
    """The number after the last."""


class ReportEntry(Body, frozen=True, kw_only=True):
    """A producer's counts for one bucket of born time (10 minutes), since the producer began."""

    bucket_us: Time
    """Beginning of the bucket: a multiple of 600,000,000."""
    sent: Count
    """Rows of this producer, born in the bucket, that were sent so far."""
    given_up: Count
    """Of these, rows whose send ended without an answer that they were stored."""
    first: Sequence = 0
    """The least of their sequence numbers."""
    stop: Sequence = 0
    """The number after the greatest; numbers between may be of other topics. 0: not stated."""
    closed: bool = False
    """The bucket is over, or the producer ends: no more rows will be born in it."""
    left_out: Count = 0
    """Of these, rows that the broker did not store because their application id was known."""
    runs: Annotated[list[SequenceRun], Meta(max_length=1000)] = msgspec.field(default_factory=list)
    """Sequence numbers that were given up or left out, since the producer began; the first 1,000
    runs."""


class Report(Body, frozen=True, kw_only=True):
    """Counts of one producer and topic; sent every ten seconds, and at close."""

    topic: str
    topic_number: Annotated[int, Meta(ge=0)] = 0
    """The topic's number, as answers to SEND state it: the topic may be deleted meanwhile, and
    another have its name. 0: the topic that has the name now."""
    producer: Annotated[int, Meta(ge=0)]
    """The producer's id in its batches."""
    entries: Annotated[list[ReportEntry], Meta(max_length=1000)]
    """Buckets that changed or were closed since the last report."""
