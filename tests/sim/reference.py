"""A second opinion: what the journal's facts mean, row by row, and which of them are lawful.

The broker keeps runs, shards and cursors; this keeps one small object per owed row and nothing
else. Every record that is written goes through ``apply``, which raises ``Violation`` when a fact
may not follow what was there: a leased row handed out again, a late settle that counted, attempts
that do not fit the policy, two consumers on one key, a stored batch that nobody sent or that was
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ternmq.broker.group.failedrows import HELD_US
from ternmq.broker.group.given import MOST_SPANS
from ternmq.broker.group.lease import DETACHED, LEASE_BITS
from ternmq.broker.group.progress import Progress
from ternmq.journal.log.scan import RawRecord
from ternmq.model.specs import Exhausted, Mode, SubscriptionSpec, TopicSpec
from ternmq.record.batch import batch
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.layout import U32
from ternmq.record.fact import control, facts, messages, moved, replay
from ternmq.record.fact.facts import Cause, CursorMoved, Extended, Move, Outcome, Pulled, Settled
from ternmq.record.fact.header import Kind
from ternmq.record.fact.messages import Messages
from ternmq.record.fact.replay import Replayed
from tests.sim import filters
from tests.sim.decided import Decided
from tests.sim.expiring import Expiries
from tests.sim.history import Asked, GroupKey, Name, Opening, Stored, Tried, kept_from
from tests.sim.instances import RefInstances
from tests.sim.levels import Levels
from tests.sim.numbers import RefNumbers
from tests.sim.opened import Opened
from tests.sim.scheduled import Scheduled
from tests.sim.switching import check_allowance
from tests.sim.tape import Violation

LEASED: Final = "leased"
READY: Final = "ready"
WAITING: Final = "waiting"
HELD: Final = "held"
DEAD: Final = "dead"


def at_once_of(session: int) -> int:
    """Return how many rows at one time a consumer of this session says to work on; 0: none."""
    return session % 3


class Row:
    """A row that a group is owed, or that is dead."""

    __slots__ = (
        "attempt", "deliveries", "failed_us", "key", "lease", "parked", "state", "told", "when_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state = ""
        self.attempt = 0
        self.deliveries = 0
        self.lease = 0
        self.when_us = 0
        self.key = 0
        self.parked = False
        """It waits behind another row of its key, and was never handed out."""
        self.told = 0
        """The record that tells of its newest failure, in whatever round that was."""
        self.failed_us = 0
        """When that was."""

    def plain(self) -> tuple[object, ...]:
        """Return what is compared with the broker's view."""
        lease = self.lease if self.state == LEASED else 0
        when = self.when_us if self.state in (WAITING, DEAD) else 0
        return self.state, self.attempt, self.deliveries, lease, when, self.told


class RefLease:
    """A lease that has not ended."""

    __slots__ = ("rows", "session", "until_us")

    def __init__(self, session: int, until_us: int) -> None:
        self.session = session
        self.until_us = until_us
        self.rows: set[int] = set()


class RefGiven:
    """Which rows a group was given of a queue, row by row."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.earlier: set[int] = set()
        """Before the last reset or a replay, as far as the broker remembers it."""
        self.others: set[int] = set()
        """Since the last reset, besides the rows from ``since`` to the cursor."""
        self.handed: set[int] = set()
        """Those that PULLED records name."""

    def all(self, cursor: int) -> set[int]:
        """Return all rows that the broker takes for given."""
        return self.earlier | self.others | set(range(self.since, cursor))

    def reset(self, before: int, cursor: int) -> None:
        """The cursor was reset."""
        self.earlier, self.others, self.since = few(self.all(before)), set(), cursor

    def skipped(self, before: int, cursor: int) -> None:
        """The cursor was moved forward, over rows that nobody was given."""
        if cursor > before:
            self.others = few(self.others | set(range(self.since, before)))
            self.since = cursor

    def replayed(self, rows: set[int], done: set[int], cursor: int) -> None:
        """Rows are to be handed out again, or for the first time; of ``done`` no count is known."""
        self.earlier = few(self.earlier | done)
        new = rows - self.all(cursor)
        if new:
            self.others = few(self.others | new)

    def differs(self, progress: Progress) -> str:
        """Return what the broker's view has that is not so; empty if nothing."""
        theirs = progress.given
        if self.since != theirs.since:
            return f"reads since {theirs.since}; should be {self.since}"
        for name, ours, spans in (
            ("earlier", self.earlier, theirs.earlier), ("others", self.others, theirs.others),
        ):  # fmt: skip
            edges = [one for start, stop in spans for one in (start, stop - 1)]
            rows = sum(stop - start for start, stop in spans)
            if len(ours) != rows or not ours.issuperset(edges):
                return f"given {name} {spans}; should be {sorted(ours)}"
        return ""


def few(rows: set[int]) -> set[int]:
    """Return the rows, with the smallest gaps closed if there are more spans than may be."""
    starts = sorted(one for one in rows if one - 1 not in rows)
    if len(starts) <= MOST_SPANS:
        return rows
    ends = sorted(one for one in rows if one + 1 not in rows)
    gaps = sorted(
        ((start - end, -at, end, start) for at, (end, start) in enumerate(
            zip(ends, starts[1:], strict=False))),
    )  # fmt: skip
    closed = set(rows)
    for _, _, end, start in gaps[: len(starts) - MOST_SPANS]:
        closed.update(range(end, start))
    return closed


class RefGroup:
    """What one group holds of one queue."""

    def __init__(self, group: int, topic: int, queue: int, cursor: int) -> None:
        self.key = (group, topic, queue)
        self.cursor = cursor
        self.given = RefGiven(cursor)
        self.round = 0
        self.ahead: set[int] = set()
        self.rows: dict[int, Row] = {}
        self.leases: dict[int, RefLease] = {}

    def owes(self, offset: int) -> bool:
        """Return whether the row is not done: unread, or owed and not dead."""
        row = self.rows.get(offset)
        if row is not None:
            return row.state != DEAD
        return offset >= self.cursor and offset not in self.ahead

    def done(self, offset: int) -> bool:
        """Return whether nothing will ever be delivered of the row."""
        return offset not in self.rows and (offset < self.cursor or offset in self.ahead)


class RefSubscription:
    """A group on a topic."""

    __slots__ = ("_filters", "filtered", "name", "spec")

    def __init__(self, name: str, spec: SubscriptionSpec) -> None:
        self.name = name
        self._filters: list[RefFilter] = []
        self.set(spec)

    def set(self, spec: SubscriptionSpec) -> None:
        """Take over settings."""
        self.spec = spec
        self._filters.append(RefFilter(spec))
        self.filtered = self._filters[-1].filters

    def passes(self, row: batch.Row) -> bool:
        """Return whether a message is for this group."""
        return self._filters[-1].answer(row) is True

    def passed(self, row: batch.Row) -> bool:
        """Return whether a message ever was for this group, whose filter may have changed."""
        return any(one.answer(row) for one in self._filters)

    def unknown(self, row: batch.Row) -> bool:
        """Return whether the filter says neither yes nor no to a message."""
        return self._filters[-1].answer(row) is None


class RefFilter:
    """The filters of a group."""

    __slots__ = ("_tags", "_tree", "filters")

    def __init__(self, spec: SubscriptionSpec) -> None:
        tags = [part.strip() for part in spec.tags.split("||")]
        self._tags = None if spec.tags.strip() in {"", "*"} else frozenset(tags)
        self._tree = filters.read(spec.filter) if spec.filter.strip() else None
        self.filters = self._tags is not None or self._tree is not None

    def answer(self, row: batch.Row) -> bool | None:
        """Return whether a message passes; None: its headers do not say it."""
        if self._tags is not None and row.tag not in self._tags:
            return False
        return self._tree is None or filters.truth(self._tree, row)


class RefTopic:
    """A topic and what its queues hold."""

    def __init__(self, number: int, spec: TopicSpec) -> None:
        self.number = number
        self.spec = spec
        self.queues: list[list[Stored]] = [[] for _ in range(spec.queues * spec.levels)]
        self.subscriptions: dict[int, RefSubscription] = {}


class Reference:
    """The second opinion on one journal.

    Args:
        tried: Every batch that any producer ever made, by its bytes.
        asked: What was asked for transactions.
        openings: Likewise for those with check-back.
    """

    def __init__(
        self,
        tried: dict[bytes, Tried],
        asked: dict[Name, Asked],
        openings: dict[tuple[int, int], Opening],
    ) -> None:
        self.tried = tried
        self.asked: dict[GroupKey, set[int]] = {}
        """Rows that somebody asked to be handed out again."""
        self.decided = Decided(self, asked)
        self.opened = Opened(self, openings)
        self.scheduled = Scheduled(self)
        self.levels = Levels(self)
        self.expiries = Expiries(self)
        self.instances = RefInstances(self)
        self.numbers = RefNumbers(self)
        self.topics: dict[int, RefTopic] = {}
        self.groups: dict[tuple[int, int, int], RefGroup] = {}
        self.sessions: dict[int, control.Joined] = {}
        self.left: dict[int, int] = {}
        """Sessions that left and still held rows -> epoch in which they did."""
        self.apps: dict[str, control.App] = {}
        self.holds: dict[str, control.Hold] = {}
        self.stored: dict[bytes, int] = {}
        """Batch -> position of its record, while deduplication must know it."""
        self.moved: dict[tuple[int, int, int], int] = {}
        """(topic, queue, offset) -> newest MOVED record with its content."""
        self.ids: dict[tuple[int, str], tuple[int, int]] = {}
        """(topic, application id) -> (time, position)."""
        self.first = 0
        """Where the journal begins; retention moves it."""
        self.touched: list[tuple[int, int, int]] = []
        self.segment_size = 0
        self.dedup_window_us = 0
        self.producer_idle_us = 0
        self.dead_letter_us = 0
        self.session_grace_us = 0
        self.began_us = 0
        """When the broker started last."""
        self.suspect_below = 0
        """Rows stored below it may have been handed out by pulls that a crash took away."""
        self.counts: dict[str, int] = {}
        self.committed: int | None = None
        """The commit mark as the record is appended; None: what its header says is durable."""

    def count(self, name: str) -> None:
        """Note that something happened."""
        self.counts[name] = self.counts.get(name, 0) + 1

    def apply(self, record: RawRecord) -> None:
        """Take over a record's facts, or say why they may not be.

        Raises:
            Violation: see the module.
        """
        kind = record.kind
        self.touched.clear()
        self.scheduled.touched.clear()
        self.opened.touched.clear()
        if kind == Kind.MESSAGES:
            self._messages(record)
        elif kind == Kind.CONFIG:
            self._config(record, control.unpack_config(record.body))
        elif kind == Kind.MOVED:
            self._moved(record, moved.unpack(record.body))
        elif kind in (Kind.PREPARED, Kind.RESOLVED, Kind.CHECKED):
            self._transaction(record)
        elif kind == Kind.SCHEDULED:
            self.scheduled.stored(record)
        elif kind == Kind.CANCELLED:
            self.scheduled.cancelled(record)
        elif kind in (Kind.JOINED, Kind.LEFT):
            self._session(record)
        elif kind == Kind.COUNTS:
            self._counts(record)
        elif kind == Kind.NUMBERS:
            self.numbers.given(record)
        else:
            self._delivery(record)

    def _transaction(self, record: RawRecord) -> None:
        if record.kind == Kind.CHECKED:
            self.opened.checked(record)
        elif record.kind == Kind.PREPARED:
            (writer,) = U32.unpack_from(record.body, 24)
            part: Decided | Opened = self.decided if writer else self.opened
            part.prepared(record)
        else:
            (writer,) = U32.unpack_from(record.body, 32)
            part = self.decided if writer else self.opened
            part.resolved(record)

    def _delivery(self, record: RawRecord) -> None:
        kind = record.kind
        if kind == Kind.PULLED:
            for pulled in facts.unpack_pulled(record.body):
                self._pulled(record, pulled)
        elif kind in (Kind.SETTLED, Kind.ENDED):
            for settled in facts.unpack_settled(record.body):
                self.settled(record, settled)
                if kind == Kind.ENDED:
                    self._check_begun(record, settled)
            for key in self.touched:
                self.check_lines(record, key)
        elif kind == Kind.EXTENDED:
            for extended in facts.unpack_extended(record.body):
                self._extended(record, extended)
        elif kind == Kind.CURSOR:
            self.moved_cursor(record, facts.unpack_cursor(record.body))
        elif kind == Kind.REPLAY:
            self._replayed(record, replay.unpack(record.body))
        elif kind == Kind.EPOCH:
            self.began_us = record.time_us
            flags = control.EPOCH.unpack_from(record.body)[1]
            if not flags & (control.EPOCH_CLEAN | control.EPOCH_FIRST):
                self.suspect_below = record.position

    def _session(self, record: RawRecord) -> None:
        if record.kind == Kind.JOINED:
            joined = control.unpack_joined(record.body)
            if joined.session in self.sessions:
                raise Violation(f"session {joined.session} joined twice")
            self.sessions[joined.session] = joined
            return
        left = control.unpack_left(record.body)
        self.instances.ended_us[left.session] = record.time_us
        if self.sessions.pop(left.session, None) is None:
            raise Violation(f"session {left.session} left without being there")
        for group in self.groups.values():
            for lease in group.leases.values():
                if lease.session != left.session:
                    continue
                if left.reason != "closed":
                    raise Violation(f"session {left.session} ended and still holds rows")
                self.left[left.session] = record.epoch

    def _counts(self, record: RawRecord) -> None:
        counts = control.unpack_counts(record.body)
        if counts.topic not in self.topics:
            raise Violation(f"COUNTS at {record.position}: no topic {counts.topic}")
        if not counts.entries:
            raise Violation(f"COUNTS at {record.position} says nothing")

    # -- messages ---------------------------------------------------------------------------------

    def _messages(self, record: RawRecord) -> None:
        stored = messages.unpack(record.body)
        if stored.fulfils is not None:
            self.scheduled.fulfilled(record, stored, stored.fulfils)
            return
        tried = self.taken(record, stored)
        topic = self.topics[stored.topic]
        rows = topic.queues[stored.queue]
        if stored.first_offset != len(rows):
            raise Violation(
                f"offsets from {stored.first_offset} at {record.position}, {len(rows)} are next"
            )
        early_us = max(row.due_us for row in tried.rows) - record.time_us
        if early_us > 0:
            raise Violation(f"the batch at {record.position} is a message {early_us} us early")
        kept = self.kept(record, stored, tried)
        where = f"MESSAGES at {record.position}"
        self.levels.check_stored(where, topic, stored.queue, tried.rows, kept)
        rows += [Stored(tried, row, record.position, record.end, record.time_us) for row in kept]

    def taken(self, record: RawRecord, stored: Messages) -> Tried:
        """Return the batch that was stored, as messages or to be delivered later.

        Raises:
            Violation: it may not have been.
        """
        tried = self.tried.get(stored.batch)
        if tried is None:
            raise Violation(f"phantom: the batch at {record.position} was never sent")
        if tried.transaction is not None or tried.opened is not None:
            raise Violation(f"the batch at {record.position} was prepared, not sent")
        if tried.refused:
            raise Violation(f"the batch at {record.position} was stored after a definite refusal")
        topic = self.topics.get(stored.topic)
        if topic is None or topic.spec.name != tried.topic:
            raise Violation(f"the batch at {record.position} landed in topic {stored.topic}")
        before = self.stored.get(stored.batch)
        if before is not None and record.time_us - tried.time_us < self.producer_idle_us:
            raise Violation(f"stored twice: at {before} and at {record.position}")
        self.stored[stored.batch] = record.position
        tried.topic_number, tried.time_us = stored.topic, record.time_us
        return tried

    def kept(self, record: RawRecord, stored: Messages, tried: Tried) -> list[int]:
        """Return the rows of a batch that were not left out for their ids.

        Raises:
            Violation: others should have been.
        """
        runs = stored.runs or ((0, len(tried.rows)),)
        named = [row for start, stop in runs for row in range(start, stop)]
        kept = set(named)
        for row in range(len(tried.rows)):
            self._given_id(record, stored.topic, tried, row, kept=row in kept)
        if len(named) != stored.count:
            raise Violation(f"the batch at {record.position} counts {stored.count} rows")
        return named

    def _given_id(
        self, record: RawRecord, topic: int, tried: Tried, row: int, *, kept: bool
    ) -> None:
        given = tried.rows[row].application_id
        if not given:
            if not kept:
                raise Violation(f"row {row} without an id was left out at {record.position}")
            return
        known = self.ids.get((topic, given))
        if kept:
            if known is not None and record.time_us - known[0] < self.dedup_window_us:
                raise Violation(f"id {given!r} stored twice: at {known[1]} and {record.position}")
            self.ids[topic, given] = (record.time_us, record.position)
        elif known is None:
            raise Violation(f"row {row} was left out at {record.position}; its id is new")

    def forget_batches(self, now_us: int) -> None:
        """Let go what deduplication need not know any more."""

    # -- hand-outs --------------------------------------------------------------------------------

    def group_of(self, key: tuple[int, int, int]) -> RefGroup | None:
        """Return a group queue, which a record is about."""
        return self._group(key)

    @staticmethod
    def lease_id(epoch: int, number: int) -> int:
        """Return the id of a lease."""
        return epoch << LEASE_BITS | number

    @staticmethod
    def new_lease(session: int, until_us: int) -> RefLease:
        """Return a lease without rows."""
        return RefLease(session, until_us)

    def _group(self, key: tuple[int, int, int]) -> RefGroup | None:
        self.touched.append(key)
        return self.groups.get(key)

    def _pulled(self, record: RawRecord, fact: Pulled) -> None:
        where = f"PULLED at {record.position}"
        group = self._group((fact.group, fact.topic, fact.queue))
        if group is None:
            raise Violation(f"{where}: no such group")
        topic = self.topics[fact.topic]
        subscription = topic.subscriptions[fact.group]
        if fact.session not in self.sessions and fact.session != DETACHED:
            raise Violation(f"{where}: no session {fact.session}")
        self.levels.pulled(where, record, fact, topic)
        self.instances.pulled(where, fact.group, fact.topic, fact.session)
        stored = topic.queues[fact.queue]
        mode = subscription.spec.mode
        ordered = mode is Mode.ORDERED
        if mode.locks_queues:
            self._check_locked(where, record, group, fact)
        if subscription.spec.offline or subscription.spec.concurrency:
            joined, of = self.sessions.get(fact.session), (fact.group, fact.topic)
            groups = [one for key, one in self.groups.items() if key[:2] == of]
            check_allowance(where, fact, subscription.spec, joined, groups, self.count)
        fresh: set[int] = set()
        lease_id = record.epoch << LEASE_BITS | fact.lease
        if lease_id in group.leases:
            raise Violation(f"{where}: lease {lease_id} is given out twice")
        lease = RefLease(fact.session, fact.until_us)
        hashes = iter(fact.hashes)
        for start, stop, attempt, deliveries in fact.leased:
            for offset in range(start, stop):
                self.expiries.handed_out(where, record, topic, group, stored, offset, deliveries)
                row = self._lease_row(where, record, group, stored, offset, attempt, deliveries)
                self._check_mark(where, group, stored[offset], offset, deliveries)
                if offset >= group.cursor and offset not in group.ahead:
                    fresh.add(offset)
                self._check_content(where, subscription, stored[offset], new=offset in fresh)
                row.state, row.attempt, row.deliveries = LEASED, attempt, deliveries
                row.parked = False
                row.lease = lease_id
                row.key = _checked_hash(where, next(hashes), stored, offset) if ordered else 0
                lease.rows.add(offset)
        if lease.rows:
            group.leases[lease_id] = lease
        self._park(where, group, fact, stored, hashes)
        fresh.update(one for start, stop in fact.parked for one in range(start, stop))
        self._pass_cursor(where, group, subscription, stored, fact.cursor, fresh)
        if sum(row.state == LEASED for row in group.rows.values()) > subscription.spec.window:
            raise Violation(f"{where}: more rows than the window")
        if mode.keeps_order:  # in a group that locks queues, all rows have the key 0
            self._check_order(where, group, lease)

    def _check_locked(self, where: str, record: RawRecord, group: RefGroup, fact: Pulled) -> None:
        """Nobody holds a row of the queue, none is to wait, and the rows come in their order."""
        if fact.parked or fact.hashes:
            raise Violation(f"{where}: rows of a locked queue are parked, or have hashes")
        for offset, row in group.rows.items():
            if row.state == LEASED:
                raise Violation(f"{where}: the queue is locked: {offset} is leased")
            if row.state == HELD or (row.state == WAITING and row.when_us > record.time_us):
                raise Violation(f"{where}: the queue is closed: {offset} waits")
        starts = [run[0] for run in fact.leased]
        if starts != sorted(starts):
            raise Violation(f"{where}: {starts} are not in order")
        if any(run[2] > 1 for run in fact.leased) and len(fact.leased) > 1:
            self.count("a failed row of a locked queue comes again before others")

    @staticmethod
    def _park(
        where: str,
        group: RefGroup,
        fact: Pulled,
        stored: Sequence[Stored],
        hashes: Iterator[int],
    ) -> None:
        for start, stop in fact.parked:
            for offset in range(start, stop):
                if offset in group.rows or not group.cursor <= offset < len(stored):
                    raise Violation(f"{where}: {offset} cannot be parked")
                row = group.rows[offset] = Row()
                row.state, row.attempt, row.deliveries = READY, 1, 0
                row.parked = True
                row.key = _checked_hash(where, next(hashes), stored, offset)

    def _lease_row(
        self,
        where: str,
        record: RawRecord,
        group: RefGroup,
        stored: Sequence[Stored],
        offset: int,
        attempt: int,
        deliveries: int,
    ) -> Row:
        if offset >= len(stored):
            raise Violation(f"{where}: {offset} is not there")
        seen_below = record.durable if self.committed is None else self.committed
        if stored[offset].end > seen_below:
            raise Violation(f"{where}: {offset} is not committed yet")
        row = group.rows.get(offset)
        if row is None:
            if group.done(offset):
                raise Violation(f"{where}: {offset} is done and comes again")
            wanted = (1, self._first_count(group, offset))
            row = group.rows[offset] = Row()
        elif row.state == READY:
            wanted = (row.attempt, row.deliveries + 1)
            if not row.deliveries:
                wanted = (row.attempt, self._first_count(group, offset))
            self.count("released and again")
        elif row.state == WAITING:
            wanted = (row.attempt + 1, row.deliveries + 1)
            if row.when_us > record.time_us:
                raise Violation(f"{where}: {offset} comes {row.when_us - record.time_us} us early")
            self.count("retried")
        else:
            raise Violation(f"{where}: {offset} is {row.state}")
        if (attempt, deliveries) != wanted:
            raise Violation(f"{where}: {offset} has {(attempt, deliveries)}, not {wanted}")
        return row

    def _first_count(self, group: RefGroup, offset: int) -> int:
        """Return the count of deliveries of a row of which none is known since a reset."""
        if offset in group.given.earlier:
            self.count("read anew, was given before a reset")
            return 2
        if group.round:
            self.count("read behind a reset, was never given")
        return 1

    def _check_mark(
        self, where: str, group: RefGroup, stored: Stored, offset: int, deliveries: int
    ) -> None:
        """A row that the journal says was handed out before is handed out as such."""
        handed = group.given.handed
        if offset in handed and deliveries < 2 and stored.position >= self.suspect_below:
            raise Violation(f"{where}: {offset} comes again as if new")
        handed.add(offset)

    def _check_content(
        self, where: str, subscription: RefSubscription, stored: Stored, *, new: bool
    ) -> None:
        passes = subscription.passes if new else subscription.passed
        if not passes(stored.row()):
            raise Violation(f"{where}: {stored.row()} does not match the filter")

    def _pass_cursor(
        self,
        where: str,
        group: RefGroup,
        subscription: RefSubscription,
        stored: Sequence[Stored],
        cursor: int,
        fresh: set[int],
    ) -> None:
        if cursor > len(stored):
            raise Violation(f"{where}: cursor {cursor} is beyond the queue's {len(stored)}")
        gone = kept_from(stored, self.first) if cursor > group.cursor else 0
        for offset in range(group.cursor, cursor):
            if offset in fresh or offset in group.ahead:
                continue
            one = stored[offset]
            if offset < gone:
                self.count("expired rows passed")
                continue
            if not subscription.filtered or subscription.passes(one.row()):
                raise Violation(f"{where}: {offset} is passed over")
            self.count("filter skip")
            if subscription.unknown(one.row()):
                self.count("filter skip of what is unknown")
        if fresh and max(fresh) >= max(cursor, group.cursor):
            raise Violation(f"{where}: leased beyond its cursor")
        if cursor > group.cursor:
            group.cursor = cursor
            group.ahead = {one for one in group.ahead if one >= cursor}

    def _check_order(self, where: str, group: RefGroup, lease: RefLease) -> None:
        heads: dict[int, int] = {}
        for offset in lease.rows:
            key = group.rows[offset].key
            heads[key] = max(heads.get(key, 0), offset)
        for offset, row in group.rows.items():
            last = heads.get(row.key)
            if last is None or row.state == DEAD or offset in lease.rows:
                continue
            if row.state == LEASED:
                raise Violation(f"{where}: two consumers hold rows of one key ({offset})")
            if offset < last:
                raise Violation(f"{where}: {last} overtakes {offset} of its key")

    # -- what became of rows ----------------------------------------------------------------------

    def settled(self, record: RawRecord, fact: Settled) -> None:
        """Rows were settled.

        Raises:
            Violation: they may not have been.
        """
        where = f"{Kind(record.kind).name} at {record.position}"
        group = self._group((fact.group, fact.topic, fact.queue))
        if group is None:
            raise Violation(f"{where}: no such group")
        lease_id = fact.lease_epoch << LEASE_BITS | fact.lease
        lease = group.leases.get(lease_id)
        self._check_cause(where, record, fact, lease)
        self.instances.settled(where, fact, ended=record.kind == Kind.ENDED)
        if record.kind == Kind.SETTLED and fact.outcome in (Outcome.DONE, Outcome.DEAD):
            self._check_closed(where, group, fact)
        if fact.round != group.round:
            raise Violation(f"{where}: round {fact.round}, it is {group.round}")
        spec = self.topics[fact.topic].subscriptions[fact.group].spec
        for start, stop, attempt, deliveries in fact.runs:
            for offset in range(start, stop):
                row = group.rows.get(offset)
                expires = self.expiries.ends(fact, row)
                if expires:
                    self.expiries.ended(where, record, fact, group, offset, row)
                elif not fact.lease and fact.cause in (Cause.OPERATOR, Cause.EXPIRED):
                    self._operated(where, record, fact, offset, row)
                elif lease is not None:
                    self._give_up(where, lease, lease_id, offset, row)
                else:
                    self._check_late(where, record, fact, group, offset)
                if row is None:
                    row = group.rows[offset] = Row()
                elif not expires and (attempt, deliveries) != (row.attempt, row.deliveries):
                    raise Violation(
                        f"{where}: {offset} settled as {(attempt, deliveries)}, "
                        f"it is {(row.attempt, row.deliveries)}"
                    )
                if not expires:
                    self._check_policy(where, record, fact, spec, offset, attempt)
                if facts.failing(fact.outcome):
                    row.told, row.failed_us = record.position, record.time_us
                self._become(group, offset, row, fact, attempt, deliveries)
        if lease is not None and not lease.rows:
            del group.leases[lease_id]

    @staticmethod
    def _give_up(where: str, lease: RefLease, lease_id: int, offset: int, row: Row | None) -> None:
        """A row leaves its lease."""
        if row is None or row.state != LEASED or row.lease != lease_id:
            raise Violation(f"{where}: {offset} is not held under the lease")
        lease.rows.discard(offset)

    def _check_begun(self, record: RawRecord, fact: Settled) -> None:
        """What is released for its session's end, or its time, was not begun: so many are left."""
        where = f"{Kind(record.kind).name} at {record.position}"
        spec = self.topics[fact.topic].subscriptions[fact.group].spec
        if fact.outcome is not Outcome.RELEASED or fact.cause not in (Cause.SESSION, Cause.TIME):
            return
        if spec.mode is Mode.BROADCAST:
            return  # no attempt counts there
        of = self.groups[fact.group, fact.topic, fact.queue]
        if any(of.rows[run[0]].key < 0 for run in fact.runs):
            return  # leased before a switch: begun in another order than that of the mode now
        self.count(f"released unbegun by {fact.cause.name.lower()}")
        at_once = at_once_of(fact.session)
        left = sum(
            len(lease.rows)
            for key, group in self.groups.items()
            if key[:2] == (fact.group, fact.topic)
            for lease in group.leases.values()
            # In a group with an order, rows also wait behind those that a transaction holds.
            if lease.session == fact.session or (not lease.session and spec.mode.keeps_order)
        )
        if not at_once:
            raise Violation(f"{where}: nobody said what was begun, and rows are released")
        if left < (1 if spec.mode.keeps_order else at_once):
            raise Violation(f"{where}: {left} rows count, {at_once} may have been begun")

    def _check_late(
        self, where: str, record: RawRecord, fact: Settled, group: RefGroup, offset: int
    ) -> None:
        """A settle of a lease that is not known counts for rows whose hand-out was lost."""
        stored = self.topics[fact.topic].queues[fact.queue]
        if (
            fact.lease_epoch >= record.epoch
            or not group.cursor <= offset < len(stored)
            or offset in group.ahead
            or offset in group.rows
        ):
            raise Violation(f"{where}: a late settle of {offset} counted")
        if group.round:
            raise Violation(f"{where}: {offset} is settled by a word of an earlier round")
        self.count("settle of a lost hand-out")

    def _check_closed(self, where: str, group: RefGroup, fact: Settled) -> None:
        """No row is done behind one of its key that a transaction may give back."""
        if fact.cause not in (Cause.OPERATOR, Cause.EXPIRED):
            for start, stop, _, _ in fact.runs:
                for offset in range(start, stop):
                    if offset in group.rows:
                        self.opened.check_closed(where, group, offset)

    def check_lines(self, record: RawRecord, key: tuple[int, int, int]) -> None:
        """Of a key's rows nobody holds one that stands behind a row that is to come again."""
        group = self.groups[key]
        if not self.topics[key[1]].subscriptions[key[0]].spec.mode.keeps_order:
            return
        waits: dict[int, int] = {}
        for offset in sorted(group.rows):
            row = group.rows[offset]
            if row.state == LEASED and row.key in waits:
                raise Violation(
                    f"{Kind(record.kind).name} at {record.position}: {offset} is still leased, "
                    f"{waits[row.key]} of its key comes again"
                )
            if row.state not in (LEASED, DEAD):
                waits.setdefault(row.key, offset)

    def _check_cause(
        self, where: str, record: RawRecord, fact: Settled, lease: RefLease | None
    ) -> None:
        cause = fact.cause
        spec = self.topics[fact.topic].subscriptions[fact.group].spec
        if cause is Cause.KEY and not spec.mode.keeps_order:
            raise Violation(f"{where}: released for the sake of a key in a group without order")
        if record.kind == Kind.ENDED:
            if lease is None:
                raise Violation(f"{where}: a lease ends that is not there")
            if cause is Cause.TIME and lease.until_us > record.time_us:
                raise Violation(f"{where}: a lease ends {lease.until_us - record.time_us} us early")
            if cause in (Cause.DRAIN, Cause.KEY) and fact.outcome is not Outcome.RELEASED:
                raise Violation(f"{where}: {cause.name} counts an attempt")
            if not lease.session:
                if cause is not Cause.KEY:
                    raise Violation(f"{where}: a transaction's lease ends by {cause.name}")
                self.count("taken out of a transaction behind a row of its key")
                return
            self._check_holder(where, record, cause, lease.session)
            self.count(f"lease ended by {cause.name.lower()}")
        elif cause is Cause.KEY:
            if lease is None or fact.outcome is not Outcome.RELEASED:
                raise Violation(f"{where}: cause KEY, {fact.outcome.name}")
            self.count("released behind a failed row of its key")
        elif cause in (Cause.TIME, Cause.SESSION, Cause.DRAIN):
            raise Violation(f"{where}: cause {cause.name} in a settle")

    def _check_holder(self, where: str, record: RawRecord, cause: Cause, session: int) -> None:
        """A lease ends with its own session only, and a detached one with none."""
        if session == DETACHED:
            if cause in (Cause.SESSION, Cause.DRAIN):
                raise Violation(f"{where}: a detached lease ends by {cause.name}")
            self.count(f"detached lease ended by {cause.name.lower()}")
        elif session not in self.sessions:
            if cause is Cause.SESSION:
                raise Violation(f"{where}: session {session} left, and an attempt counts")
            self.count("given back behind the end of its session")
            if record.epoch != self.left[session]:
                self.count("given back after a start")

    def _operated(
        self, where: str, record: RawRecord, fact: Settled, offset: int, row: Row | None
    ) -> None:
        if row is None or row.state in (LEASED, READY):
            raise Violation(f"{where}: an operator settled {offset}, which is not failed")
        if row.state == DEAD and fact.outcome is not Outcome.DONE:
            raise Violation(f"{where}: a dead row comes again")
        if fact.cause is Cause.EXPIRED and row.when_us > record.time_us - self.dead_letter_us:
            raise Violation(f"{where}: {offset} expired early")

    def _check_policy(
        self,
        where: str,
        record: RawRecord,
        fact: Settled,
        spec: SubscriptionSpec,
        offset: int,
        attempt: int,
    ) -> None:
        outcome, cause = fact.outcome, fact.cause
        if outcome is Outcome.DONE:
            self.count("done")
            return
        if outcome is Outcome.RELEASED or cause is Cause.OPERATOR:
            return
        exhausted = not spec.retry.enabled or attempt >= spec.retry.attempts
        if outcome is Outcome.RETRY:
            if exhausted:
                raise Violation(f"{where}: {offset} is tried again after its last attempt")
            if fact.due_us < record.time_us:
                raise Violation(f"{where}: {offset} comes due in the past")
            return
        if cause is Cause.EXPIRED and not exhausted:
            self.expiries.check_age(where, record, fact, spec, offset)
        elif cause is not Cause.REJECTED and not exhausted:
            raise Violation(f"{where}: {offset} is {outcome.name} at attempt {attempt}")
        if outcome is Outcome.HELD and spec.retry.exhausted is not Exhausted.HOLD:
            raise Violation(f"{where}: {offset} is held")
        self.count("dead letter" if outcome is Outcome.DEAD else "held")

    def _become(
        self,
        group: RefGroup,
        offset: int,
        row: Row,
        fact: Settled,
        attempt: int,
        deliveries: int,
    ) -> None:
        if offset >= group.cursor:
            group.ahead.add(offset)
        row.attempt, row.deliveries, row.lease = attempt, deliveries, 0
        row.when_us = fact.due_us
        if fact.outcome is Outcome.DONE:
            del group.rows[offset]
        elif fact.outcome is Outcome.RELEASED:
            row.state = READY
        elif fact.outcome is Outcome.RETRY:
            row.state = WAITING
        elif fact.outcome is Outcome.HELD:
            row.state = HELD
        else:
            row.state = DEAD

    def _extended(self, record: RawRecord, fact: Extended) -> None:
        group = self._group((fact.group, fact.topic, fact.queue))
        lease = None
        if group is not None:
            lease = group.leases.get(fact.lease_epoch << LEASE_BITS | fact.lease)
        if lease is None:
            raise Violation(f"EXTENDED at {record.position}: the lease is over")
        if fact.until_us < lease.until_us:
            raise Violation(f"EXTENDED at {record.position}: the lease becomes shorter")
        lease.until_us = fact.until_us
        self.count("extended")

    def moved_cursor(self, record: RawRecord, fact: CursorMoved) -> None:
        """A cursor was moved.

        Raises:
            Violation: it may not have been, or not so.
        """
        where = f"CURSOR at {record.position}"
        group = self._group((fact.group, fact.topic, fact.queue))
        if group is None:
            raise Violation(f"{where}: no such group")
        topic = self.topics[fact.topic]
        stored = topic.queues[fact.queue]
        self.count(f"cursor {fact.move.name.lower()}")
        if fact.move is Move.RESET:
            if fact.round != group.round + 1 or fact.cursor > len(stored):
                raise Violation(f"{where}: round {fact.round}, cursor {fact.cursor}")
            group.given.reset(group.cursor, fact.cursor)
            group.round, group.cursor = fact.round, fact.cursor
            group.ahead.clear()
            group.leases.clear()
            self.opened.reset(group.key)
            group.rows = {
                offset: row
                for offset, row in group.rows.items()
                if row.state == DEAD and offset < fact.cursor
            }
            return
        if fact.move in (Move.SKIP, Move.COMMIT):
            if not group.cursor <= fact.cursor <= len(stored):
                raise Violation(f"{where}: skip to {fact.cursor}")
            if fact.move is Move.SKIP:
                group.given.skipped(group.cursor, fact.cursor)
            group.cursor = fact.cursor
            group.ahead = {one for one in group.ahead if one >= fact.cursor}
            return
        subscription = topic.subscriptions[fact.group]
        self._pass_cursor(where, group, subscription, stored, fact.cursor, set())

    # -- what comes again -------------------------------------------------------------------------

    def _replayed(self, record: RawRecord, fact: Replayed) -> None:
        where = f"REPLAY at {record.position}"
        key = (fact.group, fact.topic, fact.queue)
        group = self._group(key)
        if group is None:
            raise Violation(f"{where}: no such group")
        if fact.round != group.round + 1:
            raise Violation(f"{where}: round {fact.round}, it was {group.round}")
        if not fact.runs and not fact.ahead:
            raise Violation(f"{where}: it says nothing")
        group.round = fact.round
        given = group.given.all(group.cursor)
        done = {one for start, stop, _, _ in fact.runs for one in range(start, stop)}
        done -= group.rows.keys()
        topic = self.topics[fact.topic]
        stored = topic.queues[fact.queue]
        subscription = topic.subscriptions[fact.group]
        named = self._named(where, key, fact)
        ordered = subscription.spec.mode is Mode.ORDERED
        hashes = iter(fact.hashes)
        for offset, attempt, deliveries in named:
            row = group.rows.get(offset)
            if offset >= group.cursor and row is None:
                raise Violation(f"{where}: {offset} is not behind the cursor {group.cursor}")
            if row is None:
                if self.first < 1 << 62 and stored[offset].position < self.first:
                    raise Violation(f"{where}: the content of {offset} is gone")
                self._check_content(where, subscription, stored[offset], new=True)
            if fact.cause is replay.Cause.REDRIVE and (row is None or row.state != DEAD):
                raise Violation(f"{where}: {offset} is redriven and was not dead")
            if (attempt, deliveries) != (1, _known_deliveries(row)):
                raise Violation(f"{where}: {offset} begins with {(attempt, deliveries)}")
            self._come_again(group, offset, row, deliveries)
            row = group.rows[offset]
            row.key = _checked_hash(where, next(hashes), stored, offset) if ordered else 0
        told = {one for start, stop in fact.given or () for one in range(start, stop)}
        if told != given & done:
            raise Violation(f"{where}: {sorted(told)} were given, not {sorted(given & done)}")
        self.counts["replayed: was never given"] = self.counts.get(
            "replayed: was never given", 0
        ) + len(done - given)
        group.given.replayed({row[0] for row in named}, told, group.cursor)
        for offset in [one for start, stop in fact.ahead for one in range(start, stop)]:
            if offset not in group.ahead or offset in group.rows:
                raise Violation(f"{where}: {offset} was not settled ahead of the cursor")
            group.ahead.discard(offset)
            self.count("replayed: settled ahead of the cursor")
        self.check_lines(record, key)

    def _named(self, where: str, key: GroupKey, fact: Replayed) -> list[tuple[int, int, int]]:
        """Return the rows of the runs with attempt and deliveries, if they were asked for."""
        named = [
            (offset, attempt, deliveries)
            for start, stop, attempt, deliveries in fact.runs
            for offset in range(start, stop)
        ]
        if named != sorted(named) or len({row[0] for row in named}) != len(named):
            raise Violation(f"{where}: its rows are not in order")
        ahead = [offset for start, stop in fact.ahead for offset in range(start, stop)]
        strangers = {row[0] for row in named} | set(ahead)
        strangers -= self.asked.get(key, set())
        if strangers:
            raise Violation(f"{where}: nobody asked for {sorted(strangers)}")
        return named

    def _come_again(self, group: RefGroup, offset: int, row: Row | None, deliveries: int) -> None:
        self.count(f"replayed: was {'done' if row is None else row.state}")
        if row is None:
            row = group.rows[offset] = Row()
        elif row.state == LEASED:
            lease = group.leases[row.lease]
            lease.rows.discard(offset)
            if not lease.rows:
                del group.leases[row.lease]
        row.state, row.attempt, row.deliveries, row.lease = READY, 1, deliveries, 0

    # -- settings ---------------------------------------------------------------------------------

    def _config(self, record: RawRecord, change: control.Config) -> None:
        if isinstance(change, control.App):
            self.apps[change.name] = change
        elif isinstance(change, control.AppDeleted):
            if self.apps.pop(change.name, None) is None:
                raise Violation(f"app {change.name} is deleted and was not there")
        elif isinstance(change, control.Hold):
            self.holds[change.name] = change
            self.count("hold")
        elif isinstance(change, control.HoldDeleted):
            if self.holds.pop(change.name, None) is None:
                raise Violation(f"hold {change.name} is deleted and was not there")
        elif isinstance(change, control.ProducerGroupPut):
            self.opened.groups[change.spec.name] = change
        elif isinstance(change, control.ProducerGroupDeleted):
            del self.opened.groups[change.name]
        elif not isinstance(change, control.ClockAccepted):
            self._topics(record, change)

    def _topics(
        self,
        record: RawRecord,
        change: control.TopicCreated
        | control.TopicChanged
        | control.TopicDeleted
        | control.Subscribed
        | control.SubscriptionChanged
        | control.Unsubscribed,
    ) -> None:
        self.instances.config(record, change)
        if isinstance(change, control.TopicCreated):
            if change.number in self.topics:
                raise Violation(f"topic number {change.number} is used again")
            self.topics[change.number] = RefTopic(change.number, change.spec)
        elif isinstance(change, control.TopicChanged):
            topic = self.topics[change.number]
            topic.spec = change.spec
            for queue in range(len(topic.queues), change.spec.queues * change.spec.levels):
                topic.queues.append([])
                for group in topic.subscriptions:
                    key = (group, change.number, queue)
                    self.groups[key] = RefGroup(*key, 0)
        elif isinstance(change, control.TopicDeleted):
            topic = self.topics.pop(change.number)
            self.scheduled.drop_topic(change.number, record.time_us)
            self.numbers.drop_topic(change.number)
            for group in topic.subscriptions:
                self._drop(group, change.number)
        elif isinstance(change, control.Subscribed):
            topic = self.topics[change.topic]
            topic.subscriptions[change.group] = RefSubscription(change.group_name, change.spec)
            for queue, cursor in enumerate(change.cursors):
                key = (change.group, change.topic, queue)
                if key in self.groups:
                    raise Violation(f"group number {change.group} is used again")
                self.groups[key] = RefGroup(*key, cursor)
        elif isinstance(change, control.SubscriptionChanged):
            subscription = self.topics[change.topic].subscriptions[change.group]
            if change.spec.mode is not subscription.spec.mode:
                self._switched(record, change, subscription.spec.mode)
            subscription.set(change.spec)
        else:
            del self.topics[change.topic].subscriptions[change.group]
            self._drop(change.group, change.topic)

    def _switched(
        self, record: RawRecord, change: control.SubscriptionChanged, before: Mode
    ) -> None:
        """A group has another mode: its rows are what they were.

        Rows that were parked wait for no other row any more, but were never handed out. Rows that
        are leased wait for others of their lease only, until they are handed out again.
        """
        where, after = f"CONFIG at {record.position}", change.spec.mode
        self.count(f"switched from {before.value} to {after.value}")
        for key, group in self.groups.items():
            if key[:2] != (change.group, change.topic):
                continue
            self.touched.append(key)
            for offset, row in group.rows.items():
                if row.state != DEAD and after is Mode.ORDERED:
                    raise Violation(f"{where}: ordered, and {offset} of {key} is {row.state}")
                if row.parked:
                    self.count("parked row of a group that is not ordered any more")
                if row.state == LEASED:
                    self.count("lease from before a switch")
                row.key = -row.lease if row.state == LEASED else 0

    def _drop(self, group: int, topic: int) -> None:
        for key in [key for key in self.groups if key[:2] == (group, topic)]:
            del self.groups[key]

    # -- retention --------------------------------------------------------------------------------

    def _moved(self, record: RawRecord, fact: moved.Moved) -> None:
        where = f"MOVED at {record.position}"
        topic = self.topics.get(fact.topic)
        if topic is None:
            raise Violation(f"{where}: no such topic")
        stored = topic.queues[fact.queue]
        for piece in fact.pieces:
            batch = Batch(piece.batch)
            for at in range(piece.row_count):
                offset = piece.first_offset + at
                if batch.row(piece.row_start + at) != stored[offset].row():
                    raise Violation(f"{where}: {offset} was moved with other content")
                key = fact.topic, fact.queue, offset
                self.count("moved row again" if key in self.moved else "moved row")
                self.moved[key] = record.position
        for failure in fact.failures:
            group = self._group((failure.group, fact.topic, fact.queue))
            row = None if group is None else group.rows.get(failure.offset)
            if row is None:
                raise Violation(f"{where}: {failure.offset} is not owed")
            if (failure.attempt, failure.deliveries) != (row.attempt, row.deliveries):
                raise Violation(f"{where}: {failure.offset} was moved with other attempts")
            if not failure.entries:
                raise Violation(f"{where}: the failures of {failure.offset} are lost")
            row.told = record.position
            self.count("moved failure")

    def removed(self, first: int) -> None:
        """Retention took everything below ``first`` away: nothing owed may be lost with it."""
        self.first = first
        self.scheduled.removed(first)
        self.opened.removed(first)
        for hold in self.holds.values():
            if hold.position < first:
                where = f"hold {hold.name} at {hold.position}"
                raise Violation(f"{where}: the journal begins at {first}")
        for key, group in self.groups.items():
            topic = self.topics[key[1]]
            stored = topic.queues[key[2]]
            gone = kept_from(stored, first)
            for offset, row in group.rows.items():
                if offset < gone and (self.moved.get((key[1], key[2], offset), -1) < first):
                    raise Violation(f"group {key}: {offset} is {row.state}, its content is gone")
            mode = topic.subscriptions[key[0]].spec.mode
            kept = topic.spec.keep_until_consumed and mode is not Mode.BROADCAST
            if kept and group.cursor < len(stored):
                unread = [one for one in range(group.cursor, len(stored)) if one not in group.ahead]
                if unread and unread[0] < gone:
                    raise Violation(f"group {key}: unread {unread[0]} went with its segment")

    # -- comparison -------------------------------------------------------------------------------

    def compare_apps(self, apps: dict[str, control.App]) -> None:
        """Compare with the broker's view of the apps.

        Raises:
            Violation: they differ.
        """
        if apps != self.apps:
            raise Violation(f"the apps are {sorted(apps)}; should be {sorted(self.apps)}")

    def compare(self, key: tuple[int, int, int], progress: Progress | None) -> None:
        """Compare with the broker's view of one group queue.

        Raises:
            Violation: they differ.
        """
        group = self.groups.get(key)
        if group is None or progress is None:
            if (group is None) != (progress is None):
                raise Violation(f"group {key} is {'not ' if progress is None else ''}in the views")
            return
        ours = {offset: row.plain() for offset, row in group.rows.items()}
        theirs = rows_of(progress)
        if ours != theirs:
            for offset in sorted({*ours, *theirs}):
                if ours.get(offset) != theirs.get(offset):
                    raise Violation(
                        f"group {key}: {offset} should be {ours.get(offset)}, "
                        f"the view has {theirs.get(offset)}"
                    )
        ahead = {one for start, stop in progress.ahead for one in range(start, stop)}
        if (group.cursor, group.round, group.ahead) != (progress.cursor, progress.round, ahead):
            raise Violation(
                f"group {key}: cursor {progress.cursor} round {progress.round} "
                f"ahead {sorted(ahead)}; "
                f"should be {group.cursor}, {group.round}, {sorted(group.ahead)}"
            )
        wrong = group.given.differs(progress)
        if wrong:
            raise Violation(f"group {key}: {wrong}")
        if progress.leased_rows != sum(row.state == LEASED for row in group.rows.values()):
            raise Violation(f"group {key}: leased_rows is {progress.leased_rows}")


def _checked_hash(where: str, told: int, stored: Sequence[Stored], offset: int) -> int:
    if told != stored[offset].ordering_hash():
        raise Violation(f"{where}: a wrong ordering hash for {offset}")
    return told


def rows_of(progress: Progress) -> dict[int, tuple[object, ...]]:
    """Return every owed or dead row of a view, as ``Row.plain`` tells it."""
    found: dict[int, tuple[object, ...]] = {}
    told = progress.failures.history
    for lease in progress.leases.values():
        for start, stop, attempt, deliveries in lease.runs:
            for one in range(start, stop):
                found[one] = (LEASED, attempt, deliveries, lease.id, 0, told.get(one, 0))
    for start, stop, attempt, deliveries in progress.ready.runs:
        for one in range(start, stop):
            found[one] = (READY, attempt, deliveries, 0, 0, told.get(one, 0))
    for shard in progress.failures.waiting.values():
        for row in shard:
            held_row = row.when_us == HELD_US
            state, when = (HELD, 0) if held_row else (WAITING, row.when_us)
            found[row.offset] = (state, row.attempt, row.deliveries, 0, when, row.position)
    for shard in progress.failures.dead.values():
        for row in shard:
            found[row.offset] = (DEAD, row.attempt, row.deliveries, 0, row.when_us, row.position)
    return found


def _known_deliveries(row: Row | None) -> int:
    """Return the deliveries of a row with which a replay has it begin again."""
    if row is None:
        return 0
    # One that expired was never handed out: it must not look like a row that is judged.
    return max(row.deliveries, 1) if row.state == DEAD else row.deliveries
