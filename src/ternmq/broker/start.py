"""Builds the broker over a data folder: journal, index, views, core."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.catalog.stateobjects import (
    AppObjects,
    ExpiringObjects,
    GoneObjects,
    NumbersObjects,
    QueueObjects,
    SessionObjects,
    SubscriptionObjects,
    TopicObjects,
)
from ternmq.broker.clock.clock import START_JUMP_US
from ternmq.broker.dedup.stateobjects import DedupObjects, ForgottenObjects
from ternmq.broker.delivery.modes import MODES
from ternmq.broker.group.mode import GroupModes
from ternmq.broker.group.retry import Chance
from ternmq.broker.ledger.heldobjects import GivenObjects, HeldObjects, ShardObjects
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.resolving import TransactionViews
from ternmq.broker.ledger.scheduling import ScheduleViews
from ternmq.broker.ledger.viewobjects import AlarmsObject, GlobalObject, HoldsObject
from ternmq.broker.ledger.views import Views
from ternmq.broker.schedule.stateobjects import ScheduledRowsObjects, ScheduleObjects
from ternmq.broker.transaction.stateobjects import (
    CheckedObjects,
    DueTimesObjects,
    PreparedRowsObjects,
    ProducerGroupObjects,
    TransactionObjects,
    WriterObjects,
)
from ternmq.broker.upkeep.upkeep import LOOK_EVERY_US, Upkeep
from ternmq.journal.cache.cold import ColdCache
from ternmq.journal.disk.port import Disk
from ternmq.journal.index.index import Index
from ternmq.journal.index.open import Gap, fill, hints, open_index
from ternmq.journal.log.journal import DEFAULT_TAIL_BYTES
from ternmq.journal.log.retention import RetentionSpec
from ternmq.journal.log.segment import DEFAULT_SEGMENT_BYTES
from ternmq.journal.log.space import default_segment_bytes
from ternmq.journal.recovery.ending import Ending
from ternmq.journal.recovery.recovery import RecoveryReport, Replayed, open_journal
from ternmq.journal.state.sets import (
    CHUNK_BYTES,
    DEFAULT_INTERVAL_BYTES,
    DEFAULT_INTERVAL_RECORDS,
    StateWriter,
)
from ternmq.journal.store.store import RecordStore
from ternmq.model.specs import Limits
from ternmq.model.types import Epoch, Position
from ternmq.record.fact import state

_NOTHING_TO_ADD: Final = 1 << 63


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """Options of a broker's core; the segment size is fixed when the data folder is made."""

    limits: Limits = field(default_factory=Limits)
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    """0: chosen by the size of the volume, at least ``least_segment_bytes``."""
    least_segment_bytes: int = 0
    reserve_bytes: int | None = None
    tail_bytes: int = DEFAULT_TAIL_BYTES
    state_bytes: int = DEFAULT_INTERVAL_BYTES
    state_records: int = DEFAULT_INTERVAL_RECORDS
    chunk_bytes: int = CHUNK_BYTES
    retention: RetentionSpec = field(default_factory=RetentionSpec)
    look_every_us: int = LOOK_EVERY_US
    start_jump_us: int = START_JUMP_US
    """How far ahead of the last record the wall clock is believed at a start."""
    min_epoch: Epoch = Epoch(1)
    """Least epoch of this start: one above that of a journal that was lost, if there was one."""
    begins_us: int | None = None
    """Broker time to begin with, in the place of the wall clock: that of the broker whose copy this
    is. None: the wall clock."""


@dataclass(slots=True, frozen=True)
class Started:
    """A broker ready for commands, and what the start found."""

    broker: Broker
    upkeep: Upkeep
    report: RecoveryReport


class Ready(NamedTuple):
    """The views of a copy, for the broker that begins to lead with it: see ``standby``.

    Attributes:
        views: Everything in the copy is applied to them.
        cache: That of their index.
        replayed: Where the copy ends, and its newest STATE set.
    """

    views: Views
    cache: ColdCache
    replayed: Replayed


def open_broker(
    disk: Disk,
    *,
    wall_us: int,
    chance: Chance,
    options: Options | None = None,
    ready: Ready | None = None,
) -> Started:
    """Recover the journal on the disk, or make a new one; blocks until the new EPOCH is durable.

    Args:
        disk: The data root; the caller holds its lock.
        wall_us: The wall clock. It is believed up to ``Options.start_jump_us`` ahead of the last
            record.
        chance: Randomness, for jitter.
        options: See ``Options``.
        ready: The views of the copy on the disk, with everything applied: nothing is replayed. The
            copy was open until now, with the disk's lock held.

    Raises:
        CorruptJournal: bytes that were durable are damaged; the journal was not changed.
        UnknownRecordKind: a newer version wrote the journal; it was not changed.
        DiskError: the disk failed.
    """
    with collector_paused():
        return _open(disk, wall_us, chance, options or Options(), ready)


def _open(
    disk: Disk, wall_us: int, chance: Chance, options: Options, ready: Ready | None
) -> Started:
    cache = ColdCache(disk) if ready is None else ready.cache
    made: list[Views] = []
    segment_bytes = segment_bytes_of(disk, options)

    def prepare(ending: Ending | None) -> Views:
        if ending is None:
            index = Index(disk, segment_size=segment_bytes, cache=cache)
            views = new_views(options.limits, index)
        else:
            views = views_of(disk, ending, options.limits, cache)
        made.append(views)
        return views

    hint: Position | None = None
    if ready is None:
        hint = next((one.begin for one in hints(disk)), None)
    journal, report = open_journal(
        disk,
        wall_us=wall_us if options.begins_us is None else options.begins_us,
        prepare=prepare,
        hint=hint,
        segment_size=segment_bytes,
        reserve_bytes=options.reserve_bytes,
        tail_bytes=options.tail_bytes,
        min_epoch=options.min_epoch,
        start_jump_us=options.start_jump_us,
        replayed=None if ready is None else ready.replayed,
    )
    views = made[0] if ready is None else ready.views
    store = RecordStore(journal, disk, cache)
    writer = StateWriter(
        journal,
        views.objects,
        store.at,
        interval_bytes=options.state_bytes,
        interval_records=options.state_records,
        chunk_bytes=options.chunk_bytes,
    )
    writer.remember(report.directory, report.loaded_set)
    now_us = max(report.time_us, views.last_time_us)
    ledger = Ledger(journal, views, store, chance)
    broker = Broker(ledger, now_us, writer)
    upkeep = Upkeep(
        ledger,
        broker.state_sets,
        broker.fulfilling,
        broker.expiring,
        disk,
        options.retention,
        look_every_us=options.look_every_us,
    )
    return Started(broker, upkeep, report)


def views_of(disk: Disk, ending: Ending, limits: Limits, cache: ColdCache) -> Views:
    """Return empty views of a journal, with its index; ``load_and_replay`` fills them.

    Blocks: what no run file of the index contains is read, unless the replay will add it.

    Raises:
        CorruptJournal, DiskError: The journal cannot be read.
    """
    index, gaps = open_index(
        disk,
        segment_size=ending.segment_size,
        first=ending.first,
        end=ending.valid_end,
        last_crc=ending.last_crc,
        cache=cache,
    )
    begin = ending.sets[-1][0] if ending.sets else ending.first
    views = new_views(limits, index)
    views.first = ending.first
    views.index_from = _fill(index, gaps, begin, ending.valid_end)
    return views


def new_views(limits: Limits, index: Index) -> Views:
    """Return empty views with the whole of their tables: kinds of records, STATE objects, modes."""
    views = Views(limits, index, GroupModes(MODES))
    TransactionViews(views).register()
    ScheduleViews(views).register()
    catalog, register = views.catalog, views.objects.register
    # In the order in which sets are written.
    register(state.GLOBAL, GlobalObject(views))
    register(state.TOPICS, TopicObjects(catalog))
    register(state.SUBSCRIPTIONS, SubscriptionObjects(catalog, views.unplaced))
    register(state.QUEUES, QueueObjects(catalog, views.unplaced))
    register(state.EXPIRING, ExpiringObjects(catalog, views.unplaced))
    register(state.SESSIONS, SessionObjects(views.sessions))
    register(state.APPS, AppObjects(catalog))
    register(state.HOLDS, HoldsObject(views))
    register(state.ALARMS, AlarmsObject(views))
    # After topics, subscriptions, sessions: what is removed meanwhile is in both, not in none.
    register(state.GONE, GoneObjects(views.gone))
    register(state.NUMBERS, NumbersObjects(views.numbers))
    register(state.PRODUCER_GROUPS, ProducerGroupObjects(views.producer_groups))
    register(state.CHECKED, CheckedObjects(views.checked))
    register(state.TRANSACTION, TransactionObjects(views.undecided))
    register(state.DUE_TIMES, DueTimesObjects(views.undecided.times))
    register(state.WRITER, WriterObjects(views.writers))
    register(state.PREPARED_ROWS, PreparedRowsObjects(views.prepared_rows))
    register(state.SCHEDULE, ScheduleObjects(views.schedule))
    register(state.SCHEDULED_ROWS, ScheduledRowsObjects(views.schedule))
    register(state.FORGOTTEN, ForgottenObjects(views.dedup))
    register(state.DEDUP, DedupObjects(views.dedup))
    register(state.HELD, HeldObjects(views))
    register(state.GIVEN, GivenObjects(views))
    register(state.SHARD, ShardObjects(views))
    return views


def segment_bytes_of(disk: Disk, options: Options) -> int:
    """Return the segment size of a journal that is made now."""
    return options.segment_bytes or default_segment_bytes(disk, options.least_segment_bytes)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector.

    A start makes a million objects of which hardly any is garbage: the collector would take a tenth
    of its time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _fill(index: Index, gaps: list[Gap], begin: int, end: int) -> int:
    """Read what no run file contains into the index; return where the replay begins to add to it.

    The last gap is left to the replay if the replay begins at or before it.
    """
    for gap in gaps:
        if gap.stop == end and begin <= gap.start:
            return gap.start
        fill(index, gap)
    return end
