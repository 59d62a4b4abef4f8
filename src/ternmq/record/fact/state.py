"""The objects of STATE: the numbers of their types, and the layouts that more than one layer reads.

Bytes and meanings are in ``docs/format/state.md``. Layouts that only the broker reads are stated
where they are written: SHARD in ``group/shards``, DEDUP and FORGOTTEN in ``dedup``, TRANSACTION,
WRITER and PREPARED_ROWS in ``transaction``.

Rulers::

    QUEUES      0  u32 topic, u32 queue
                8  u64 next offset, u64 end of its newest MESSAGES

    HELD        0  u32 group, u32 topic, u32 queue, u32 round
               16  u64 cursor
               24  u32 ordered, u32 0
"""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

from ternmq.model.specs import SubscriptionSpec, TopicSpec

GLOBAL: Final = 1
TOPICS: Final = 2
SUBSCRIPTIONS: Final = 3
QUEUES: Final = 4
SESSIONS: Final = 5
FORGOTTEN: Final = 6
DEDUP: Final = 7
HELD: Final = 8
SHARD: Final = 9
APPS: Final = 10
TRANSACTION: Final = 11
WRITER: Final = 12
PREPARED_ROWS: Final = 13
HOLDS: Final = 20
GONE: Final = 21
"""Types of STATE objects. Numbers are never reused."""

CLIENT_SHOWN: Final = 8
"""Number of characters of a session's client that others may see: the whole name is secret."""

QUEUE: Final = struct.Struct("<IIQQ")
"""An entry of QUEUES."""
CURSOR: Final = struct.Struct("<IIIIQII")
"""An entry of HELD: group, topic, queue, round, cursor, number of the group's mode, 0."""


class Global(msgspec.Struct, frozen=True):
    """GLOBAL: numbers that are not used yet, and positions below which something holds."""

    next_topic: int
    next_group: int
    next_session: int
    suspect_below: int
    dedup_horizon: int
    next_writer: int = 1
    next_transaction: int = 1


class TopicState(msgspec.Struct, frozen=True):
    """An entry of TOPICS."""

    number: int
    spec: TopicSpec


class SubscriptionState(msgspec.Struct, frozen=True):
    """An entry of SUBSCRIPTIONS."""

    topic: int
    group: int
    name: str
    spec: SubscriptionSpec


class Sort(enum.IntEnum):
    """What kind of object is gone. The numbers are stored in STATE and never reused."""

    TOPIC = 1
    GROUP = 2
    SESSION = 3


class GoneName(msgspec.Struct, frozen=True, array_like=True):
    """An entry of GONE: an object that was deleted or ended."""

    number: int
    name: str
    """Name of a topic or group; the app of a session."""
    position: int
    """Position of the record that ended it."""
    topic: int = 0
    """Topic of a group."""
    client: str = ""
    """The first characters of a session's client."""
    address: str = ""
    """Address from which a session was opened."""
