"""Records of the control plane, and the journal's own EPOCH, MARK and SEGMENT.

CONFIG, JOINED, LEFT and ALARM hold one msgpack map each; its field ``type`` names the struct below.
They are rare, so they are readable rather than small. Objects are named by number: a recreated name
gets a new number.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ternmq.model.specs import SubscriptionSpec, TopicSpec

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
COUNTS_ENTRY: Final = struct.Struct("<qQQ")


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


Config = (
    TopicCreated | TopicChanged | TopicDeleted | Subscribed | SubscriptionChanged | Unsubscribed
)


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A client came."""

    session: int
    app: str
    client: str
    address: str = ""
    pid: int = 0
    version: str = ""


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
