"""Records of the control plane, and the journal's own EPOCH, MARK and SEGMENT.

CONFIG, JOINED, LEFT and ALARM hold one msgpack map each; its field ``type`` names the struct below.
They are rare, so they are readable rather than small. Objects are named by number; a name that is
created again gets a new number.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from ternmq.model.specs import ProducerGroupSpec, SubscriptionSpec, TopicSpec
from ternmq.model.types import MINUTE_US

SEGMENT: Final = struct.Struct("<QQQQ")
"""base, segment_size, begin and end of the newest complete STATE set (2**64-1: none)."""
EPOCH: Final = struct.Struct("<IIQQ")
"""epoch, flags (1: clean end before, 2: first of the journal), valid end found, D found."""
EPOCH_CLEAN: Final = 1
EPOCH_FIRST: Final = 2
MARK: Final = struct.Struct("<Q")
"""durable position."""
FLAG_CLEAN: Final = 2
"""Header flag of the MARK that ends a clean stop."""
COUNTS_HEAD: Final = struct.Struct("<QII")
"""producer id, topic number, entry count; then the entries."""
COUNTS_ENTRY: Final = struct.Struct("<qQQQQQII")
"""bucket_us, sent, given_up, first, stop, left_out, flags (1: closed), run count; then the runs."""
COUNTS_RUN: Final = struct.Struct("<QQ")
"""Sequences [first, stop) that were given up or left out."""
COUNTS_CLOSED: Final = 1
BUCKET_US: Final = 10 * MINUTE_US
"""Length of a bucket: producers count the rows born in one bucket together. A bucket is named by
the time at which it begins."""


class TopicCreated(msgspec.Struct, frozen=True, tag="topic-created"):
    """A topic was created."""

    number: int
    spec: TopicSpec


class TopicChanged(msgspec.Struct, frozen=True, tag="topic-changed"):
    """A topic's settings were changed."""

    number: int
    spec: TopicSpec


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic-deleted"):
    """A topic was deleted, with its queues and subscriptions."""

    number: int


class Subscribed(msgspec.Struct, frozen=True, tag="subscribed"):
    """A group consumes a topic from now on, each queue from the cursor given here."""

    group: int
    group_name: str
    topic: int
    spec: SubscriptionSpec
    cursors: list[int]


class SubscriptionChanged(msgspec.Struct, frozen=True, tag="subscription-changed"):
    """A group's settings on a topic were changed."""

    group: int
    topic: int
    spec: SubscriptionSpec


class Unsubscribed(msgspec.Struct, frozen=True, tag="unsubscribed"):
    """A group no longer consumes a topic; the rows owed to it are forgotten."""

    group: int
    topic: int


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A right that an app has, or (``deny``) does not have."""

    right: str
    """``produce``, ``consume``, ``manage`` or ``audit``."""
    topic: str = "*"
    """A name, or the beginning of names followed by ``*``."""
    group: str = "*"
    deny: bool = False


class App(msgspec.Struct, frozen=True, tag="app-put"):
    """An app was created, or its token, grants or owner were changed."""

    name: str
    owner: str
    salt: bytes
    hash: bytes
    """HMAC-SHA-256 of the token, keyed with the salt; the token itself is stored nowhere."""
    grants: tuple[Grant, ...]
    created_us: int

    def __repr__(self) -> str:
        """Show no part of the token's hash."""
        return f"App(name={self.name!r}, owner={self.owner!r}, token=***, grants={self.grants!r})"


class AppDeleted(msgspec.Struct, frozen=True, tag="app-deleted"):
    """An app was deleted; its token is no longer valid."""

    name: str


class Hold(msgspec.Struct, frozen=True, tag="hold-put"):
    """A hold was set: no segment with a byte at or above its position is removed."""

    name: str
    position: int
    note: str = ""
    app: str = ""
    """The app that set it."""
    created_us: int = 0
    moved_us: int = 0
    """When its position changed last."""


class HoldDeleted(msgspec.Struct, frozen=True, tag="hold-deleted"):
    """A hold was deleted."""

    name: str


class ClockAccepted(msgspec.Struct, frozen=True, tag="clock-accepted"):
    """An operator accepted the wall clock; the time of the record is broker time from then on."""

    before_us: int
    """Broker time before."""
    app: str = ""
    """The app that accepted it."""


class ProducerGroupPut(msgspec.Struct, frozen=True, tag="producer-group-put"):
    """A producer group was created, or its settings were changed."""

    spec: ProducerGroupSpec
    app: str
    """The app that it belongs to."""


class ProducerGroupDeleted(msgspec.Struct, frozen=True, tag="producer-group-deleted"):
    """A producer group was deleted."""

    name: str


Config = (
    TopicCreated
    | TopicChanged
    | TopicDeleted
    | Subscribed
    | SubscriptionChanged
    | Unsubscribed
    | App
    | AppDeleted
    | Hold
    | HoldDeleted
    | ClockAccepted
    | ProducerGroupPut
    | ProducerGroupDeleted
)


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A session of a client began."""

    session: int
    app: str
    client: str
    address: str = ""
    pid: int = 0
    version: str = ""
    since_us: int = 0
    """When the session began."""


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A session ended: the client closed it, or did not come back within the grace."""

    session: int
    reason: str


class Alarm(msgspec.Struct, frozen=True, tag="alarm", omit_defaults=True):
    """An alarm for an operator was raised or cleared."""

    name: str
    """What it is about, such as ``clock``."""
    text: str
    subject: str = ""
    """What it concerns, such as a topic; (name, subject) is open once at most."""
    raised: bool = True
    """False: it was cleared."""
    since_us: int = 0
    """When it was raised; 0: at the time of the record."""


_config: Final = msgspec.msgpack.Decoder(Config)
_joined: Final = msgspec.msgpack.Decoder(Joined)
_left: Final = msgspec.msgpack.Decoder(Left)
_alarm: Final = msgspec.msgpack.Decoder(Alarm)
_LENGTH: Final = struct.Struct("<II")


def pack(struct_: Config | Joined | Left | Alarm) -> bytes:
    """Return the body: ``u32 length, u32 0`` and the msgpack bytes."""
    data = msgspec.msgpack.encode(struct_)
    return _LENGTH.pack(len(data), 0) + data


def _payload(body: bytes) -> bytes:
    length, _ = _LENGTH.unpack_from(body)
    return body[_LENGTH.size : _LENGTH.size + length]


def unpack_config(body: bytes) -> Config:
    """Return the change in a CONFIG body."""
    change: Config = _config.decode(_payload(body))
    return change


def unpack_joined(body: bytes) -> Joined:
    """Return the session in a JOINED body."""
    return _joined.decode(_payload(body))


def unpack_left(body: bytes) -> Left:
    """Return the ended session in a LEFT body."""
    return _left.decode(_payload(body))


def unpack_alarm(body: bytes) -> Alarm:
    """Return the alarm in an ALARM body."""
    return _alarm.decode(_payload(body))


class SequenceRange(NamedTuple):
    """Sequences ``[first, stop)``."""

    first: int
    stop: int


class Count(NamedTuple):
    """A producer's totals of the rows born in one bucket, since the producer began."""

    bucket_us: int
    """Beginning of the bucket, a multiple of ``BUCKET_US``."""
    sent: int
    given_up: int
    first: int = 0
    """The smallest sequence sent."""
    stop: int = 0
    """One above the largest sequence sent; those between may be of other topics. 0: not stated."""
    closed: bool = False
    """No more rows will be born in the bucket."""
    runs: tuple[SequenceRange, ...] = ()
    """Sequences that were given up or left out; perhaps not all of them."""
    left_out: int = 0
    """Number of rows that were not stored, because their application id was already stored."""


class Counts(NamedTuple):
    """A producer's report on one topic."""

    producer: int
    topic: int
    entries: tuple[Count, ...]


def pack_counts(counts: Counts) -> bytes:
    """Return the body of a COUNTS record."""
    parts = [COUNTS_HEAD.pack(counts.producer, counts.topic, len(counts.entries))]
    for one in counts.entries:
        flags = COUNTS_CLOSED if one.closed else 0
        parts.append(COUNTS_ENTRY.pack(*one[:5], one.left_out, flags, len(one.runs)))
        parts += [COUNTS_RUN.pack(*run) for run in one.runs]
    return b"".join(parts)


def unpack_counts(body: bytes) -> Counts:
    """Return the report in a COUNTS body."""
    producer, topic, count = COUNTS_HEAD.unpack_from(body)
    at = COUNTS_HEAD.size
    entries: list[Count] = []
    for _ in range(count):
        bucket, *told, left_out, flags, run_count = COUNTS_ENTRY.unpack_from(body, at)
        sent, given_up, first, stop = told
        at += COUNTS_ENTRY.size
        end = at + run_count * COUNTS_RUN.size
        if end > len(body):
            raise ValueError("a COUNTS record ends within its runs")
        runs = tuple(map(SequenceRange._make, COUNTS_RUN.iter_unpack(body[at:end])))
        at = end
        closed = bool(flags & COUNTS_CLOSED)
        entries.append(Count(bucket, sent, given_up, first, stop, closed, runs, left_out))
    return Counts(producer, topic, tuple(entries))
