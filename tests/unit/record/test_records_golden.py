"""Records of released versions stay readable, and this version still writes the same bytes.

``tests/golden/records_v1.bin`` and the files with longer names beside it are small journals
(segments of 8 KiB, one after another); together they have at least one record of every kind. The
``.json`` files beside them say what is in them. ``python -m tests.unit.record.test_records_golden``
writes the files that are missing. Files that are there are never written again: they are what a
released version wrote. A new kind gets a journal of its own.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ternmq.broker.catalog.numbers import GivenNumbers
from ternmq.broker.delivery.broadcast import BROADCAST
from ternmq.broker.delivery.locked import QUEUE_LOCK
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.delivery.ordered import ORDERED
from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.cursors import encode_given, encode_page, given_entries
from ternmq.broker.group.given import NOTHING, Given
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.mode import GroupModes
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.queueorder import QUEUE_ORDER
from ternmq.broker.group.shards import encode_shard, load_shard
from ternmq.broker.transaction.duetimes import DueTimes, Times
from ternmq.broker.transaction.stateobjects import DueTimesObjects
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.journal import Journal
from ternmq.journal.log.scan import RawRecord, scan
from ternmq.journal.log.segment import segment_name
from ternmq.journal.state import sets
from ternmq.journal.state.sets import StateKey, StateWriter
from ternmq.model.specs import (
    Exhausted,
    Expired,
    Instance,
    Mode,
    ProducerGroupSpec,
    RetryPolicy,
    Start,
    SubscriptionSpec,
    TopicSpec,
    Unanswered,
)
from ternmq.model.types import Position
from ternmq.record.batch.batch import Row, encode, slice_batch, topic_seed
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact import (
    checked,
    control,
    facts,
    messages,
    moved,
    numbers,
    replay,
    schedule,
    state,
    transactions,
)
from ternmq.record.fact.checked import Checked, What
from ternmq.record.fact.facts import Cause, CursorMoved, Extended, Move, Outcome, Pulled, Settled
from ternmq.record.fact.header import KNOWN_KINDS, Kind
from ternmq.record.fact.messages import Fulfilment, Origin
from ternmq.record.fact.moved import FailureEntry, Moved, MovedFailure, Piece
from ternmq.record.fact.numbers import Numbers
from ternmq.record.fact.replay import Cause as Replay
from ternmq.record.fact.replay import Replayed
from ternmq.record.fact.schedule import NO_QUEUE, CancelCause, Cancelled, CancelledRow
from ternmq.record.fact.stateset import CHUNK, HEAD, KEY
from ternmq.record.fact.transactions import DuePart, Part, Prepared, Resolution, Resolved, Why
from tests.unit.journal.kit import commit

FOLDER = Path(__file__).parents[2] / "golden"
SEGMENT = 8192
TIME_US = 1_700_000_000_000_001
BATCH = bytes(range(97))
DUE_US = TIME_US + 86_400_000_000
SEED = topic_seed("orders")
DUE_BATCH = encode(
    [
        Row(body=b"first", key="k", due_us=DUE_US),
        Row(body=b"second", due_us=DUE_US),
        Row(body=b"third", due_us=TIME_US - 5, application_id="id-3"),
    ],
    topic_seed=SEED,
    producer_id=0x1122334455667788,
    first_sequence=40,
    born_us=TIME_US - 9,
)

SPEC = SubscriptionSpec(
    mode=Mode.ORDERED,
    tags="paid || refunded",
    start=Start.LATEST,
    retry=RetryPolicy(
        enabled=False,
        first_us=5,
        factor=1.5,
        cap_us=77,
        jitter=0.25,
        attempts=3,
        exhausted=Exhausted.HOLD,
    ),
    lease_us=123_456,
    window=77,
    paused=True,
)

ONE_RUN = Pulled(1, 2, 3, 4, 5, TIME_US + 30_000_000, 40, [(8, 40, 1, 1)])
KEYED = Pulled(
    1, 2, 3, 4, 6, TIME_US, 99, [(50, 52, 2, 3), (60, 61, 65_535, 1)], [(40, 50)],
    [(70, 72), (80, 81)], (1, 2**64 - 1, 3, 4, 5, 6),
)  # fmt: skip
DONE = Settled(1, 2, 3, 4, 5, 1, 7, Outcome.DONE, Cause.CONSUMER, 0, [(8, 40, 1, 1)])
RETRY = Settled(
    1, 2, 3, 4, 6, 1, 7, Outcome.RETRY, Cause.CONSUMER, TIME_US + 1, [(50, 51, 2, 3)], [4096],
    "kaputt: ü".encode(),
)  # fmt: skip
ENDED = [
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.DEAD, Cause.TIME, TIME_US, [(51, 52, 16, 20)], [0]),
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.HELD, Cause.EXHAUSTED, TIME_US, [(60, 61, 3, 3)], [8]),
    Settled(1, 2, 3, 4, 6, 1, 7, Outcome.RELEASED, Cause.KEY, 0, [(70, 72, 1, 2), (80, 81, 1, 1)]),
]
MOVED = Moved(
    2,
    3,
    (Piece(8, TIME_US - 5, 3, 2, b"0123456789"), Piece(60, TIME_US - 4, 0, 1, bytes(8))),
    (
        MovedFailure(
            1, 2, 3, 60, TIME_US, (FailureEntry(TIME_US - 9, 4, 1, 1, 0, b"why"), FailureEntry(
                TIME_US, 4, 2, 4, 8, b"")),
        ),
    ),
)  # fmt: skip
REPLAYED = Replayed(
    1, 2, 3, 4, 8, Replay.REPLAY, [(50, 51, 1, 3), (60, 62, 1, 0)], [(90, 92)], [7, 1 << 63, 9]
)
REDRIVEN = Replayed(1, 2, 3, 0, 9, Replay.REDRIVE, [(51, 52, 1, 20)])
PREPARED = Prepared(2, 3, 9, 2**64 - 1, 5, 17, 6, "writer-ü", "3/0", "shop", BATCH)
COMMITTED = Resolved(
    9, 2**64 - 1, 2**64 - 2, 11, 5, Resolution.COMMITTED, Why.WRITER, "writer-ü", "shop",
    (Part(4096, 8, 1 << 63, 2, 3, 6, 216), Part(8192, 0, 0, 2, 1, 5, 320)), (512, 1024, 2048),
)  # fmt: skip
ROLLED_BACK = Resolved(10, 1, 0, 0, 5, Resolution.ROLLED_BACK, Why.EXPIRED, "w", "s", (), (512,))
COUNTS = control.pack_counts(
    control.Counts(
        7,
        2,
        (
            control.Count(
                TIME_US - TIME_US % control.BUCKET_US,
                1000,
                3,
                5,
                1010,
                True,
                (control.SequenceRange(7, 10),),
                1,
            ),
        ),
    )
)
JOINED = control.Joined(4, "shop", "c-1", "10.0.0.1:5", 77, "0.1", TIME_US)
CONFIGS: list[control.Config] = [
    control.TopicCreated(2, TopicSpec(name="orders", queues=4, ordered=True, retention_us=99)),
    control.Subscribed(1, "billing", 2, SPEC, [0, 1, 2, 3]),
    control.TopicChanged(2, TopicSpec(name="orders", ordered=True, keep_until_consumed=False)),
    control.SubscriptionChanged(1, 2, SubscriptionSpec()),
    control.Unsubscribed(1, 2),
    control.TopicDeleted(2),
    control.App(
        "shop", "the shop team", bytes(range(16)), bytes(range(32)),
        (control.Grant("produce", "orders.*"), control.Grant("consume", "orders", "b*", True)),
        TIME_US,
    ),
    control.AppDeleted("shop"),
    control.Hold("spark.archive", 4096, "archive", "pipeline", TIME_US - 5, TIME_US),
    control.HoldDeleted("spark.archive"),
]  # fmt: skip


class _Source:
    """Two objects for a STATE set."""

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(1)
        yield StateKey(9, 1, 2, 3, 4)

    def state_changed(self, key: StateKey) -> int:
        del key
        return 1 << 63

    def state_encode(self, key: StateKey) -> bytes:
        return b"object %d" % key.type

    def state_written(self, key: StateKey) -> None:
        del key


def written() -> bytes:
    """Write the first journal anew, as this version does."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    bodies: list[tuple[Kind, bytes]] = [(Kind.CONFIG, control.pack(one)) for one in CONFIGS]
    bodies += [
        (Kind.JOINED, control.pack(JOINED)),
        (Kind.MESSAGES, messages.pack(2, 3, 8, 5, BATCH, ())),
        (Kind.MESSAGES, messages.pack(2, 3, 13, 3, BATCH, ((0, 2), (4, 5)))),
        (Kind.PULLED, facts.pack_pulled([ONE_RUN])),
        (Kind.PULLED, facts.pack_pulled([KEYED, ONE_RUN])),
        (Kind.EXTENDED, facts.pack_extended([Extended(1, 2, 3, 4, 5, 1, TIME_US + 60)])),
        (Kind.SETTLED, facts.pack_settled([DONE])),
        (Kind.SETTLED, facts.pack_settled([RETRY])),
        (Kind.ENDED, facts.pack_settled(ENDED)),
    ]
    bodies += [
        (Kind.CURSOR, facts.pack_cursor(CursorMoved(1, 2, 3, move, 500, 8))) for move in Move
    ]
    bodies += [
        (Kind.MOVED, moved.pack(MOVED)),
        (Kind.PREPARED, transactions.pack_prepared(PREPARED)),
        (Kind.RESOLVED, transactions.pack_resolved(COMMITTED)),
        (Kind.RESOLVED, transactions.pack_resolved(ROLLED_BACK)),
        (Kind.LEFT, control.pack(control.Left(4, "closed"))),
        (Kind.COUNTS, COUNTS),
        (Kind.ALARM, control.pack(control.Alarm("clock", "the wall clock is 7 s ahead"))),
        (Kind.REPLAY, replay.pack(REPLAYED)),
        (Kind.REPLAY, replay.pack(REDRIVEN)),
    ]
    for at, (kind, body) in enumerate(bodies):
        journal.append(kind, body, TIME_US + at, flags=at % 2)
    commit(journal)
    writer = StateWriter(journal, _Source(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    journal.mark(TIME_US)
    while journal.end < SEGMENT:  # the last of them does not fit: PAD, and the next segment
        journal.append(Kind.COUNTS, bytes(1000), TIME_US)
    journal.close(TIME_US)
    data = disk.open(segment_name(0)).pread(SEGMENT, 0)
    return data + disk.open(segment_name(SEGMENT)).pread(journal.end - SEGMENT, 0)


def written_scheduled() -> bytes:
    """Write the journal of scheduled rows anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    first = journal.append(Kind.SCHEDULED, messages.pack(2, NO_QUEUE, 7, 3, DUE_BATCH, ()), TIME_US)
    journal.append(Kind.SCHEDULED, messages.pack(2, 3, 10, 2, DUE_BATCH, ((0, 1), (2, 3))), TIME_US)
    copy = slice_batch(DUE_BATCH, 0, 2, SEED)
    body = messages.pack_copy(2, NO_QUEUE, 7, 2, copy, Origin(first, TIME_US))
    second = journal.append(Kind.SCHEDULED, body, TIME_US + 1)
    cancelled = [CancelledRow(2, DUE_US, 10), CancelledRow(2, TIME_US, 11)]
    for cause in CancelCause:
        body = schedule.pack_cancelled(Cancelled(cause, cancelled[: 2 - cause % 2]))
        journal.append(Kind.CANCELLED, body, TIME_US + 2)
    for at in range(2):
        batch = slice_batch(DUE_BATCH, at, at + 1, SEED)
        fulfils = Fulfilment(second, 7 + at, DUE_US)
        body = messages.pack_fulfilled(2, 1, 500 + at, 1, batch, fulfils)
        journal.append(Kind.MESSAGES, body, DUE_US + at)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


def written_checked() -> bytes:
    """Write the journal of transactions with check-back anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    spec = ProducerGroupSpec(
        name="order-service", first_us=5_000_000, factor=2.0, cap_us=60_000_000, jitter=0.0,
        attempts=3, give_up_us=7_000_000, then=Unanswered.ROLL_BACK, without_checker=True,
    )  # fmt: skip
    for change in (
        control.ProducerGroupPut(spec, "shop"), control.ProducerGroupDeleted("order-service"),
    ):  # fmt: skip
        journal.append(Kind.CONFIG, control.pack(change), TIME_US)
    opening = Prepared(
        2, 3, 9, 2**64 - 1, 0, 0, 3, "", "", "shop", DUE_BATCH, 2**63 + 5, "order-service",
        "order-ü", 4, 5_000_000,
    )  # fmt: skip
    position = journal.append(Kind.PREPARED, transactions.pack_prepared(opening), TIME_US)
    taken = msgspec.structs.replace(RETRY, due_us=-1, previous=[0])
    inside = msgspec.structs.replace(
        opening, topic=0, queue=0, ordinal=1, count=0, batch=b"", check_after_us=0,
        settles=[DONE, taken], moves=(CursorMoved(1, 2, 3, Move.COMMIT, 77, 0),),
    )  # fmt: skip
    journal.append(Kind.PREPARED, transactions.pack_prepared(inside), TIME_US + 1)
    copy = msgspec.structs.replace(opening, replaced=position)
    copied = journal.append(Kind.PREPARED, transactions.pack_prepared(copy), TIME_US + 2)
    for what, attempt in ((What.ASKED, 1), (What.PARKED, 1), (What.TAKEN_UP, 0)):
        next_us = 0 if what is What.PARKED else TIME_US + 90
        fact = Checked(9, attempt, 4 if what is What.ASKED else 0, next_us, what)
        journal.append(Kind.CHECKED, checked.pack_checked(fact), TIME_US + 3)
    own = msgspec.structs.replace(DONE, session=0, lease=9, lease_epoch=0)
    again = msgspec.structs.replace(own, outcome=Outcome.RELEASED)
    committed = Resolved(
        9, 2**64 - 1, 0, 3, 0, Resolution.COMMITTED, Why.CHECKER, "", "shop", (), (),
        2**63 + 5, "order-service", 1,
        (DuePart(copied, 50, 2, NO_QUEUE, (DUE_US, DUE_US, TIME_US + 4), 640),),
        [own], (CursorMoved(1, 2, 3, Move.COMMIT, 77, 0),),
    )  # fmt: skip
    rolled_back = Resolved(
        10, 1, 0, 0, 0, Resolution.ROLLED_BACK, Why.POLICY, "", "shop", (), (512,), 7,
        "order-service", 3, (), [again],
    )  # fmt: skip
    for resolved in (committed, rolled_back):
        body = transactions.pack_resolved(resolved)
        journal.append(Kind.RESOLVED, body, TIME_US + 4)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


def written_due() -> bytes:
    """Write the journal of a writer's transaction with due times anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    prepared = Prepared(
        2, NO_QUEUE, 9, 2**64 - 1, 5, 0, 3, "quelle-ü", "3/0", "shop", DUE_BATCH, scheduled=True
    )
    position = journal.append(Kind.PREPARED, transactions.pack_prepared(prepared), TIME_US)
    commit(journal)
    times = DueTimes()
    times.add(9, 0, Times(position, array("q", due_times_of(DUE_BATCH))))
    writer = StateWriter(journal, _TimesObjects(times), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    committed = Resolved(
        9, 2**64 - 1, 2**63 + 1, 5, 5, Resolution.COMMITTED, Why.WRITER, "quelle-ü", "shop",
        [Part(1024, 8, 1, 2, 3, 2, 216)], (512,),
        due=(DuePart(position, 50, 2, NO_QUEUE, (DUE_US, DUE_US, TIME_US + 4), 640),),
    )  # fmt: skip
    journal.append(Kind.RESOLVED, transactions.pack_resolved(committed), TIME_US + 4)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


class _TimesObjects:
    """A STATE set of due times."""

    def __init__(self, times: DueTimes) -> None:
        self._owner = DueTimesObjects(times)

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        return self._owner.keys(begin)

    def state_changed(self, key: StateKey) -> int:
        return self._owner.changed(key)

    def state_encode(self, key: StateKey) -> bytes:
        return self._owner.encode(key)

    def state_written(self, key: StateKey) -> None:
        del key


def written_alarms() -> bytes:
    """Write the journal of alarms, and of a clock that was accepted, anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    raised = control.Alarm("held", "key k is held", "t/g/0", since_us=TIME_US - 7)
    cleared = control.Alarm("held", "", "t/g/0", raised=False, since_us=TIME_US + 1)
    for alarm in (raised, cleared):
        journal.append(Kind.ALARM, control.pack(alarm), TIME_US)
    journal.append(Kind.CONFIG, control.pack(control.ClockAccepted(TIME_US - 5, "ops")), TIME_US)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


GIVEN = {
    7: Given(6, ((0, 9), (12, 40)), ((41, 45),)),
    8: Given(1 << 40),
    9: NOTHING,
}  # fmt: skip
"""Group -> what it was given of queue 3 of topic 2."""


class _Groups:
    """A STATE set of groups: their cursors, and what they were given before."""

    def __init__(self) -> None:
        self._queues = [Progress(group, 2, 3, 0, HeldPage(), SHARED) for group in GIVEN]
        for one, given in zip(self._queues, GIVEN.values(), strict=True):
            one.cursor, one.round, one.given = 50, 4, given

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.HELD)
        yield StateKey(state.GIVEN)

    def state_changed(self, key: StateKey) -> int:
        del key
        return 1 << 63

    def state_encode(self, key: StateKey) -> bytes:
        return (encode_page if key.type == state.HELD else encode_given)(self._queues)

    def state_written(self, key: StateKey) -> None:
        del key


def written_given() -> bytes:
    """Write the journal of what groups were given before anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    for at, given in enumerate(([(60, 61)], [])):
        fact = msgspec.structs.replace(REPLAYED, given=given)
        journal.append(Kind.REPLAY, replay.pack(fact), TIME_US + at)
    commit(journal)
    writer = StateWriter(journal, _Groups(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


def written_levels() -> bytes:
    """Write the journal of a topic with levels anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    spec = TopicSpec(name="orders", queues=2, levels=3)
    grown = msgspec.structs.replace(spec, queues=3)
    for change in (control.TopicCreated(2, spec), control.TopicChanged(2, grown)):
        journal.append(Kind.CONFIG, control.pack(change), TIME_US)
    for at, priorities in enumerate(((2, 2), (1,), (0, 0))):
        batch = encode(
            [Row(body=b"%d" % priority, key="k", priority=priority) for priority in priorities],
            topic_seed=SEED,
            producer_id=7,
            first_sequence=10 * at,
            born_us=TIME_US,
        )
        queue = 3 * at + priorities[0]
        body = messages.pack(2, queue, 0, len(priorities), batch, ())
        journal.append(Kind.MESSAGES, body, TIME_US + at)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


FILTERED: list[control.Config] = [
    control.Subscribed(1, "eu", 2, SubscriptionSpec(filter="region = 'eu' AND n >= 100"), [0]),
    control.SubscriptionChanged(1, 2, SubscriptionSpec(tags="paid", filter="`x y` IS NULL")),
    control.SubscriptionChanged(1, 2, SubscriptionSpec()),
]


def written_filters() -> bytes:
    """Write the journal of groups with header filters anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    for at, config in enumerate(FILTERED):
        journal.append(Kind.CONFIG, control.pack(config), TIME_US + at)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


LOCKED = control.Subscribed(
    9, "sums", 2, SubscriptionSpec(mode=Mode.QUEUE_LOCK, lease_us=9_000_000), [4]
)
"""A group of mode queue_lock is created."""


class _Locked(_Groups):
    """A STATE set of a group with this mode, which reads queue 0 and has a lease."""

    def __init__(self) -> None:
        progress = Progress(LOCKED.group, LOCKED.topic, 0, 40, HeldPage(), QUEUE_LOCK)
        progress.leases[1 << 40 | 3] = Lease(1 << 40 | 3, 5, TIME_US, [(38, 40, 2, 3)])
        self._queues = [progress]

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.HELD)
        yield StateKey(state.SHARD, LOCKED.group, LOCKED.topic)

    def state_encode(self, key: StateKey) -> bytes:
        if key.type == state.HELD:
            return encode_page(self._queues)
        return encode_shard(self._queues[0], 0)


def written_locked() -> bytes:
    """Write the journal of a group that locks queues anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    journal.append(Kind.CONFIG, control.pack(LOCKED), TIME_US)
    writer = StateWriter(journal, _Locked(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


SWITCHED: list[control.Config] = [
    control.Subscribed(1, "eu", 2, SubscriptionSpec(mode=Mode.ORDERED, concurrency=8), [0, 0]),
    control.SubscriptionChanged(
        1, 2, SubscriptionSpec(mode=Mode.SHARED, offline=("1f3a77c0", "billing/*"))
    ),
    control.SubscriptionChanged(1, 2, SubscriptionSpec(mode=Mode.QUEUE_LOCK)),
]
"""A group gets other modes and limits."""


class _Switched(_Groups):
    """A STATE set of it, after the first change: no row has an ordering hash any more."""

    def __init__(self) -> None:
        progress = Progress(1, 2, 0, 0, HeldPage(), ORDERED)
        leased = [(0, 2, 1, 1)]
        progress.apply_pulled(1, 1, Pulled(1, 2, 0, 5, 3, TIME_US, 4, leased, (), [(2, 4)],
                                           [11, 12, 11, 12]))  # fmt: skip
        progress.switch(2, SHARED)
        self._queues = [progress]

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.HELD)
        yield StateKey(state.SHARD, 1, 2)

    def state_encode(self, key: StateKey) -> bytes:
        if key.type == state.HELD:
            return encode_page(self._queues)
        return encode_shard(self._queues[0], 0)


def written_switched() -> bytes:
    """Write the journal of a group whose mode changes anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    for at, config in enumerate(SWITCHED):
        journal.append(Kind.CONFIG, control.pack(config), TIME_US + at)
    writer = StateWriter(journal, _Switched(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


EXPIRING: list[control.Config] = [
    control.TopicCreated(1, TopicSpec(name="quotes", expires_us=10_000_000)),
    control.Subscribed(1, "eu", 1, SubscriptionSpec(expired=Expired.DROP), [0]),
    control.SubscriptionChanged(
        1, 1, SubscriptionSpec(retry=RetryPolicy(attempts=3, expires_us=3_600_000_000))
    ),
]


def written_expiry() -> bytes:
    """Write the journal of a topic whose messages expire anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    for at, config in enumerate(EXPIRING):
        journal.append(Kind.CONFIG, control.pack(config), TIME_US + at)
    rows = [Row(body=b"101.5", expiry_us=TIME_US + 5), Row(body=b"102.0")]
    batch = encode(
        rows, topic_seed=topic_seed("quotes"), producer_id=3, first_sequence=0, born_us=TIME_US
    )
    journal.append(Kind.MESSAGES, messages.pack(1, 0, 0, 2, batch, ()), TIME_US + 4)
    gone = Settled(
        1, 1, 0, 0, 0, 0, 0, Outcome.DEAD, Cause.EXPIRED, TIME_US + 5, [(0, 1, 0, 0)], [0]
    )
    journal.append(Kind.SETTLED, facts.pack_settled([gone]), TIME_US + 5)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


INSTANCE = control.Subscribed(
    11,
    "$b.web-1",
    2,
    SubscriptionSpec(
        mode=Mode.BROADCAST,
        start=Start.LATEST,
        retry=RetryPolicy(enabled=False),
        expired=Expired.DROP,
        instance=Instance(named=True, session=5, seen_us=TIME_US),
    ),
    [4],
)
"""A broadcast instance joins."""
LEFT_INSTANCE = control.SubscriptionChanged(
    11,
    2,
    msgspec.structs.replace(
        INSTANCE.spec, instance=Instance(named=True, seen_us=TIME_US + 1_000_000)
    ),
)
"""Its client left."""


class _Instance(_Groups):
    """A STATE set of an instance, which reads queue 0."""

    def __init__(self) -> None:
        self._queues = [Progress(INSTANCE.group, INSTANCE.topic, 0, 5, HeldPage(), BROADCAST)]

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.HELD)

    def state_encode(self, key: StateKey) -> bytes:
        del key
        return encode_page(self._queues)


def written_broadcast() -> bytes:
    """Write the journal of a broadcast instance anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    topic = control.TopicCreated(2, TopicSpec(name="prices", broadcast=True))
    for change in (topic, INSTANCE, LEFT_INSTANCE):
        journal.append(Kind.CONFIG, control.pack(change), TIME_US)
    failed = Settled(
        11, 2, 0, 5, 3, 1, 0, Outcome.DONE, Cause.FAILED, 0, [(4, 5, 1, 1)], [], b"boom"
    )
    journal.append(Kind.SETTLED, facts.pack_settled([failed]), TIME_US)
    writer = StateWriter(journal, _Instance(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


class _Numbers(_Groups):
    """A STATE set with the sequences of a page of topics, one of which was deleted."""

    def __init__(self) -> None:
        self._given = GivenNumbers()
        self._given.apply_given(0, Numbers(3, 1, 1_000_000))
        self._given.drop_topic(0, 3)
        for given in NUMBERS:
            self._given.apply_given(0, given)

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        yield StateKey(state.NUMBERS)

    def state_encode(self, key: StateKey) -> bytes:
        return self._given.encode(key.a)


NUMBERS = (
    Numbers(2, 1_000_001, 100, 0),
    Numbers(2, 1_000_101, 1_000_000),
    Numbers(5, numbers.END - 1, 1, numbers.RESERVES - 1),
)


def written_numbers() -> bytes:
    """Write the journal of blocks of numbers anew."""
    disk = MemoryDisk()
    journal = Journal.create(disk, segment_size=SEGMENT, time_us=TIME_US)
    commit(journal)
    for given in NUMBERS:
        journal.append(Kind.NUMBERS, numbers.pack(given), TIME_US)
    writer = StateWriter(journal, _Numbers(), chunk_bytes=1)
    writer.begin(TIME_US)
    assert writer.step(TIME_US, lambda: True)
    commit(journal)
    return disk.open(segment_name(0)).pread(journal.end, 0)


class Golden(NamedTuple):
    """A journal that is kept."""

    name: str
    write: Callable[[], bytes]

    @property
    def bytes(self) -> Path:
        """Its bytes."""
        return FOLDER / f"{self.name}.bin"

    @property
    def fields(self) -> Path:
        """What is in it."""
        return FOLDER / f"{self.name}.json"


GOLDEN = (
    Golden("records_v1", written),
    Golden("records_v1_scheduled", written_scheduled),
    Golden("records_v1_alarms", written_alarms),
    Golden("records_v1_checked", written_checked),
    Golden("records_v1_given", written_given),
    Golden("records_v1_due", written_due),
    Golden("records_v1_levels", written_levels),
    Golden("records_v1_filters", written_filters),
    Golden("records_v1_locked", written_locked),
    Golden("records_v1_broadcast", written_broadcast),
    Golden("records_v1_expiry", written_expiry),
    Golden("records_v1_switched", written_switched),
    Golden("records_v1_numbers", written_numbers),
)


def records(data: bytes) -> list[RawRecord]:
    """Read a journal that consists of these bytes."""
    disk = MemoryDisk()
    for base in range(0, len(data), SEGMENT):
        part = data[base : base + SEGMENT]
        disk.allocate(segment_name(base), SEGMENT)
        disk.open(segment_name(base)).pwrite(part, 0)
    return list(scan(disk, Position(0)))


def _state(body: bytes) -> list[Any]:
    return [*HEAD.unpack_from(body), body[HEAD.size :].hex()]


DECODERS: dict[int, Callable[[bytes], Any]] = {
    Kind.SEGMENT: control.SEGMENT.unpack_from,
    Kind.PAD: lambda body: None,
    Kind.EPOCH: control.EPOCH.unpack_from,
    Kind.MARK: control.MARK.unpack_from,
    Kind.STATE: _state,
    Kind.MESSAGES: messages.unpack,
    Kind.PULLED: lambda body: list(facts.unpack_pulled(body)),
    Kind.EXTENDED: lambda body: list(facts.unpack_extended(body)),
    Kind.ENDED: lambda body: list(facts.unpack_settled(body)),
    Kind.SETTLED: lambda body: list(facts.unpack_settled(body)),
    Kind.CURSOR: facts.unpack_cursor,
    Kind.MOVED: moved.unpack,
    Kind.PREPARED: transactions.unpack_prepared,
    Kind.RESOLVED: transactions.unpack_resolved,
    Kind.CONFIG: control.unpack_config,
    Kind.JOINED: control.unpack_joined,
    Kind.LEFT: control.unpack_left,
    Kind.COUNTS: control.unpack_counts,
    Kind.ALARM: control.unpack_alarm,
    Kind.REPLAY: replay.unpack,
    Kind.SCHEDULED: messages.unpack,
    Kind.CANCELLED: schedule.unpack_cancelled,
    Kind.CHECKED: checked.unpack_checked,
    Kind.NUMBERS: numbers.unpack,
}


def described(data: bytes) -> Any:
    """Say what stands in a journal, as JSON reads it back."""
    found = [
        {
            "position": record.position,
            "kind": Kind(record.kind).name,
            "flags": record.flags,
            "epoch": record.epoch,
            "time_us": record.time_us,
            "durable": record.durable,
            "crc": record.crc,
            "body": DECODERS[record.kind](record.body),
        }
        for record in records(data)
    ]
    return json.loads(msgspec.json.encode(found))


CHECKED_ONLY = {
    "producer", "group", "query_id", "session", "check_after_us", "replaced", "settles", "moves",
    "attempt", "due",
}  # fmt: skip
"""Fields of PREPARED and RESOLVED that only version 2 has."""


def _older(found: Any) -> Any:
    """Leave out what a file does not say that is older than the field."""
    for record in found:
        body = record["body"]
        if record["kind"] in {"MESSAGES", "SCHEDULED"}:
            for field in ("fulfils", "origin"):
                if body[field] is None:
                    del body[field]
        if record["kind"] in {"PREPARED", "RESOLVED"}:
            scheduled = body.get("scheduled") or body.get("due")
            if not body.get("scheduled"):
                body.pop("scheduled", None)
            if not body["group"] and not scheduled:
                for field in CHECKED_ONLY & body.keys():
                    del body[field]
        if record["kind"] == "REPLAY" and body["given"] is None:
            del body["given"]
    return found


@pytest.mark.parametrize("golden", GOLDEN, ids=[one.name for one in GOLDEN])
def test_what_version_1_wrote_is_still_read(golden: Golden) -> None:
    found = _older(described(golden.bytes.read_bytes()))
    assert found == json.loads(golden.fields.read_text())


@pytest.mark.parametrize("golden", GOLDEN, ids=[one.name for one in GOLDEN])
def test_the_same_bytes_are_still_written(golden: Golden) -> None:
    assert golden.write() == golden.bytes.read_bytes()


def test_every_kind_is_there() -> None:
    kinds = {record.kind for one in GOLDEN for record in records(one.bytes.read_bytes())}
    assert kinds == KNOWN_KINDS
    assert set(DECODERS) == KNOWN_KINDS


def test_what_scheduled_rows_became_is_in_their_records() -> None:
    found = records((FOLDER / "records_v1_scheduled.bin").read_bytes())
    stored = [
        messages.unpack(one.body) for one in found if one.kind in {Kind.SCHEDULED, Kind.MESSAGES}
    ]
    assert [one.origin is not None for one in stored] == [
        False, False, True, False, False,
    ]  # fmt: skip
    assert [one.fulfils is not None for one in stored] == [False] * 3 + [True] * 2
    assert schedule.due_times_us(stored[0], TIME_US) == [DUE_US, DUE_US, TIME_US]
    assert schedule.due_times_us(stored[2], TIME_US + 1) == [DUE_US, DUE_US]


def test_sequences_are_in_their_set() -> None:
    found = records((FOLDER / "records_v1_numbers.bin").read_bytes())
    chunks = [one.body for one in found if one.kind == Kind.STATE and one.body[8] == CHUNK]
    objects = dict(entry for body in chunks for entry in sets._objects_of(body))
    given = GivenNumbers()
    given.load(0, objects[KEY.pack(*StateKey(state.NUMBERS))])
    assert [given.next_of(topic) for topic in (2, 3, 5)] == [2_000_101, 1_000_001, numbers.END]


def test_what_groups_were_given_is_in_their_set() -> None:
    found = records((FOLDER / "records_v1_given.bin").read_bytes())
    chunks = [one.body for one in found if one.kind == Kind.STATE and one.body[8] == CHUNK]
    objects = dict(entry for body in chunks for entry in sets._objects_of(body))
    held = objects[KEY.pack(*StateKey(state.HELD))]
    assert [entry[-1] for entry in state.CURSOR.iter_unpack(held)] == [1, 1, 1]
    given = given_entries(objects[KEY.pack(*StateKey(state.GIVEN))])
    assert list(given) == [
        (group, 2, 3, given) for group, given in GIVEN.items() if given != NOTHING
    ]


def test_a_group_that_locks_queues_is_in_its_set() -> None:
    found = records((FOLDER / "records_v1_locked.bin").read_bytes())
    chunks = [one.body for one in found if one.kind == Kind.STATE and one.body[8] == CHUNK]
    objects = dict(entry for body in chunks for entry in sets._objects_of(body))
    ((group, topic, queue, _, cursor, mode, _),) = state.CURSOR.iter_unpack(
        objects[KEY.pack(*StateKey(state.HELD))]
    )
    assert (group, topic, queue, cursor, mode) == (9, 2, 0, 40, 2)
    loaded = Progress(9, 2, 0, 40, HeldPage(), GroupModes(MODES).numbered(mode))
    load_shard(loaded, 0, objects[KEY.pack(*StateKey(state.SHARD, 9, 2))], 1)
    assert [lease.runs for lease in loaded.leases.values()] == [[(38, 40, 2, 3)]]
    assert loaded.order is QUEUE_ORDER


def test_a_set_of_a_group_that_is_not_ordered_any_more_has_no_hashes() -> None:
    found = records((FOLDER / "records_v1_switched.bin").read_bytes())
    chunks = [one.body for one in found if one.kind == Kind.STATE and one.body[8] == CHUNK]
    objects = dict(entry for body in chunks for entry in sets._objects_of(body))
    held = objects[KEY.pack(*StateKey(state.HELD))]
    assert [entry[5] for entry in state.CURSOR.iter_unpack(held)] == [0]
    loaded = Progress(1, 2, 0, 4, HeldPage(), ORDERED)  # in a replay it may be that still
    load_shard(loaded, 0, objects[KEY.pack(*StateKey(state.SHARD, 1, 2))], 1)
    assert [lease.runs for lease in loaded.leases.values()] == [[(0, 2, 1, 1)]]
    assert loaded.ready.runs == [(2, 4, 1, 0)]
    assert loaded.order.hashes(0, 4) == []


def test_an_instance_is_in_its_set() -> None:
    found = records((FOLDER / "records_v1_broadcast.bin").read_bytes())
    chunks = [one.body for one in found if one.kind == Kind.STATE and one.body[8] == CHUNK]
    objects = dict(entry for body in chunks for entry in sets._objects_of(body))
    ((group, _, _, _, cursor, mode, _),) = state.CURSOR.iter_unpack(
        objects[KEY.pack(*StateKey(state.HELD))]
    )
    assert (group, cursor, mode) == (11, 5, 5)
    assert GroupModes(MODES).numbered(mode) is BROADCAST


def main() -> None:
    """Write the golden files that are missing."""
    for golden in GOLDEN:
        if golden.bytes.exists() or golden.fields.exists():
            print(f"{golden.bytes} is there: it stays as it is")
            continue
        golden.bytes.write_bytes(golden.write())
        found = _older(described(golden.bytes.read_bytes()))
        golden.fields.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
