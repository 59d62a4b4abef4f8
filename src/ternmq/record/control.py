"""Records of the control plane, and the journal's own EPOCH, MARK and SEGMENT.

CONFIG, JOINED, LEFT and ALARM hold one msgpack map each; its field ``type`` names the struct below.
They are rare, so they are readable rather than small. Objects are named by number: a recreated name
gets a new number.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.model.types import MINUTE_US

SEGMENT: Final = struct.Struct("<QQQQ")
"""base, segment_size, begin and end of the newest complete STATE set (2**64-1: none)."""
EPOCH: Final = struct.Struct("<IIQQ")
"""epoch, flags (1: clean end before, 2: first of the journal), valid end found, D found."""
EPOCH_CLEAN: Final = 1
EPOCH_FIRST: Final = 2
MARK: Final = struct.Struct("<Q")
"""durable position."""
COUNTS_HEAD: Final = struct.Struct("<QII")
"""producer id, topic number, entry count; then the entries."""
COUNTS_ENTRY: Final = struct.Struct("<qQQQQQII")
"""bucket_us, sent, given_up, first, stop, left_out, flags (1: closed), run count; then the runs."""
COUNTS_RUN: Final = struct.Struct("<QQ")
"""Sequences [first, stop) that were given up or left out."""
COUNTS_CLOSED: Final = 1
BUCKET_US: Final = 10 * MINUTE_US
"""Producers count the rows of so much born time together; a bucket is named by its beginning."""


class TopicCreated(msgspec.Struct, frozen=True, tag="topic-created"):
    """A topic is there from now on."""

    number: int
    spec: TopicSpec


class TopicChanged(msgspec.Struct, frozen=True, tag="topic-changed"):
    """A topic has other settings from now on."""

    number: int
    spec: TopicSpec


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic-deleted"):
    """A topic, its queues and its subscriptions are gone."""

    number: int


class Subscribed(msgspec.Struct, frozen=True, tag="subscribed"):
    """A group consumes a topic from now on, each queue from the cursor given here."""

    group: int
    group_name: str
    topic: int
    spec: SubscriptionSpec
    cursors: list[int]


class SubscriptionChanged(msgspec.Struct, frozen=True, tag="subscription-changed"):
    """A group has other settings on a topic from now on."""

    group: int
    topic: int
    spec: SubscriptionSpec


class Unsubscribed(msgspec.Struct, frozen=True, tag="unsubscribed"):
    """A group no longer consumes a topic; what it was owed is forgotten."""

    group: int
    topic: int


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an app may do, or (``deny``) must not do."""

    right: str
    """``produce``, ``consume``, ``manage`` or ``audit``."""
    topic: str = "*"
    """A name, or the beginning of names with a ``*`` behind it."""
    group: str = "*"
    deny: bool = False


class App(msgspec.Struct, frozen=True, tag="app-put"):
    """An app is there from now on, or has another token, other grants, another owner."""

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
    """An app is gone; its token opens nothing any more."""

    name: str


class Hold(msgspec.Struct, frozen=True, tag="hold-put"):
    """A hold stands here from now on: no segment goes that has a byte at or above its position."""

    name: str
    position: int
    note: str = ""
    app: str = ""
    """Who put it there."""
    created_us: int = 0
    moved_us: int = 0
    """When its position changed last."""


class HoldDeleted(msgspec.Struct, frozen=True, tag="hold-deleted"):
    """A hold is gone."""

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
)


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A client came."""

    session: int
    app: str
    client: str
    address: str = ""
    pid: int = 0
    version: str = ""
    since_us: int = 0
    """When it came."""


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A client went, or did not come back within the grace."""

    session: int
    reason: str


class Alarm(msgspec.Struct, frozen=True, tag="alarm"):
    """Something needs a person."""

    name: str
    text: str


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
    """Return the change that a CONFIG body tells of."""
    change: Config = _config.decode(_payload(body))
    return change


def unpack_joined(body: bytes) -> Joined:
    """Return the client that a JOINED body tells of."""
    return _joined.decode(_payload(body))


def unpack_left(body: bytes) -> Left:
    """Return the client that a LEFT body tells of."""
    return _left.decode(_payload(body))


def unpack_alarm(body: bytes) -> Alarm:
    """Return the alarm that an ALARM body tells of."""
    return _alarm.decode(_payload(body))


class Run(NamedTuple):
    """Sequences ``[first, stop)``."""

    first: int
    stop: int


class Count(NamedTuple):
    """What a producer reports of the rows born in one bucket, since it began."""

    bucket_us: int
    """Beginning of the bucket, a multiple of ``BUCKET_US``."""
    sent: int
    given_up: int
    first: int = 0
    """The least sequence among those sent."""
    stop: int = 0
    """Above the greatest; those between may belong to other topics. 0: it is not said."""
    closed: bool = False
    """No more rows will be born in the bucket."""
    runs: tuple[Run, ...] = ()
    """Which sequences were given up or left out, as far as it is said."""
    left_out: int = 0
    """Rows that were not stored, because their application id was there."""


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
    """Return the report that a COUNTS body tells of."""
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
        runs = tuple(map(Run._make, COUNTS_RUN.iter_unpack(body[at:end])))
        at = end
        closed = bool(flags & COUNTS_CLOSED)
        entries.append(Count(bucket, sent, given_up, first, stop, closed, runs, left_out))
    return Counts(producer, topic, tuple(entries))
