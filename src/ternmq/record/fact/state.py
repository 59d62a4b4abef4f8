"""The objects of STATE: the numbers of their types, and the layouts of their entries.

The view that an object belongs to writes it and reads it; meanings are in ``docs/format/state.md``.

Rulers::

    QUEUES      0  u32 topic, u32 queue
                8  u64 next offset, u64 end of its newest MESSAGES

    EXPIRING    0  u32 topic, u32 queue, u64 one above the highest row that states when it expires

    HELD        0  u32 group, u32 topic, u32 queue, u32 round
               16  u64 cursor
               24  u32 mode, u32 known (1; 0 in what older brokers wrote: see GIVEN)

    GIVEN       0  u32 group, u32 topic, u32 queue, u16 earlier, u16 others (numbers of spans)
               16  u64 since
               24  earlier x (u64 start, u64 stop), others x (u64 start, u64 stop)

    SHARD       0  u32 leased, u32 ready, u32 ahead, u32 history (numbers of entries)
               16  u64 hashes (number of entries), u64 0
               32  leased x (u64 lease, u32 session, u32 rows, i64 until_us, u64 start,
                   u16 attempt, u16 deliveries, u32 0)
                .  ready x (u64 start, u32 rows, u16 attempt, u16 deliveries)
                .  ahead x (u64 start, u64 stop), history x (u64 offset, u64 position),
                   hashes x (u64 offset, u64 hash)
                .  twice, waiting and dead: u32 rows, u32 0, four columns of ``group/failedrows``

    FORGOTTEN   0  u64 producer, u64 highest forgotten sequence + 1, i64 time_us of its newest entry

    DEDUP       0  u32 entries, u32 ids, u32 bytes of the frame, u32 0
               16  entries x u32 crc, the frame of columns of ``dedup/runs``, each padded to 8
                .  ids x (u64 low, u64 high, u64 body hash, u64 position, i64 time_us, u32 topic,
                   u32 row)

    TRANSACTION 0  u32 writer, u32 entries, u64 batch_id, i64 opened_us
               24  entries x (u64 position, u64 tag_mask, u32 topic, u32 queue, u32 rows, u32 bytes)

    DUE TIMES   0  i64 due_us of each row of a PREPARED of a writer

    PREPARED    0  u32 topic, u32 queue, u64 stop, i64 time_us
    ROWS

    SCHEDULE    0  u32 topic, u32 0, i64 due_us and u64 entry of the last row that came due, u64 0

    SCHEDULED   0  u32 rows, u32 0, then the columns of ``broker/schedule/page``
    ROWS

    NUMBERS     0  u64 one above the highest number of the page's deleted topics (0: none)
                8  x (u32 topic, u32 0, u64 next number)
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
SCHEDULE: Final = 14
SCHEDULED_ROWS: Final = 15
CHECKED: Final = 16
DUE_TIMES: Final = 17
PRODUCER_GROUPS: Final = 18
ALARMS: Final = 19
HOLDS: Final = 20
GONE: Final = 21
GIVEN: Final = 22
EXPIRING: Final = 23
NUMBERS: Final = 24
"""Types of STATE objects. Numbers are never reused."""

CLIENT_SHOWN: Final = 8
"""Number of characters of a session's client that others may see: the whole name is secret."""

QUEUE: Final = struct.Struct("<IIQQ")
"""An entry of QUEUES."""
EXPIRING_QUEUE: Final = struct.Struct("<IIQ")
"""An entry of EXPIRING: topic, queue, one above the highest row that may expire."""
CURSOR: Final = struct.Struct("<IIIIQII")
"""An entry of HELD: group, topic, queue, round, cursor, number of the group's mode, known."""
GIVEN_HEAD: Final = struct.Struct("<IIIHHQ")
SHARD_HEAD: Final = struct.Struct("<IIII")
SHARD_LEASED: Final = struct.Struct("<QIIqQHHI")
SHARD_READY: Final = struct.Struct("<QIHH")
SHARD_PAIR: Final = struct.Struct("<QQ")
SHARD_FAILED: Final = struct.Struct("<II")
"""In front of the columns of waiting rows, and of dead ones: their number, 0."""
FORGOTTEN_ENTRY: Final = struct.Struct("<QQq")
DEDUP_HEAD: Final = struct.Struct("<IIII")
DEDUP_ID: Final = struct.Struct("<QQQQQII")
TRANSACTION_HEAD: Final = struct.Struct("<IIQq")
TRANSACTION_ENTRY: Final = struct.Struct("<QQIIII")
PREPARED_ROWS_ENTRY: Final = struct.Struct("<IIQq")
SCHEDULE_ENTRY: Final = struct.Struct("<IIqQQ")
SCHEDULED_ROWS_HEAD: Final = struct.Struct("<II")
NUMBERS_HEAD: Final = struct.Struct("<Q")
NUMBERS_ENTRY: Final = struct.Struct("<I4xQ")
"""An entry of NUMBERS: topic, its next number."""


class Global(msgspec.Struct, frozen=True):
    """GLOBAL: numbers that are not used yet, and positions below which something holds."""

    next_topic: int
    next_group: int
    next_session: int
    suspect_below: int
    dedup_horizon: int
    next_writer: int = 1
    next_transaction: int = 1
    next_entry: int = 1
    next_reserve: int = 0


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
