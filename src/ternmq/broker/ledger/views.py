"""Everything the broker remembers, computed from the journal's records and from nothing else.

One table, keyed by the kind of record, holds what a fact does to the views: `ledger` uses it when a
decision is recorded, ``apply`` when the journal is replayed at a start. A start first loads the
objects of the newest STATE set (``load_object``), each with its stamp: the position at which it is
valid. Then it applies the facts from the set's BEGIN on; each object takes those at or behind its
stamp. The table of the objects is in `objects`; what transactions change is in `resolving`. `start`
registers both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ternmq.broker.catalog.alarms import OpenAlarms
from ternmq.broker.catalog.catalog import PAGE_BITS, QUEUE_BITS, Catalog, Queue, Topic, app_page
from ternmq.broker.catalog.firsts import Firsts
from ternmq.broker.catalog.gone import Gone
from ternmq.broker.catalog.numbers import GivenNumbers
from ternmq.broker.catalog.sessions import Sessions
from ternmq.broker.catalog.stateobjects import Unplaced
from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.dedup.dedup import Dedup
from ternmq.broker.group.figures import NOTHING, Figures
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.mode import GroupMode, GroupModes
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.factkinds import (
    ALARM,
    CONFIG,
    COUNTS,
    CURSOR,
    ENDED,
    EXTENDED,
    JOINED,
    LEFT,
    MESSAGES,
    MOVED,
    NUMBERS,
    PULLED,
    REPLAY,
    SETTLED,
    At,
    F,
    FactKind,
)
from ternmq.broker.ledger.objects import StateObjects
from ternmq.broker.schedule.pending import Schedule
from ternmq.broker.transaction.checked import PAGE_BITS as CHECKED_BITS
from ternmq.broker.transaction.checked import CheckedTransactions
from ternmq.broker.transaction.preparedrows import PreparedRows
from ternmq.broker.transaction.producergroups import ProducerGroups
from ternmq.broker.transaction.undecided import Undecided
from ternmq.broker.transaction.writers import Writers
from ternmq.journal.index.batch_facts import facts_of, facts_of_moved
from ternmq.journal.index.index import Index
from ternmq.journal.log.scan import RawRecord
from ternmq.journal.state.sets import StateKey
from ternmq.model.specs import Limits
from ternmq.model.types import Position
from ternmq.record.batch.batch import Batch
from ternmq.record.batch.layout import EXPIRY_AT, EXPIRY_BIT
from ternmq.record.fact import control, messages, moved, numbers, replay, state
from ternmq.record.fact.facts import CursorMoved, Extended, Move, Pulled, Settled
from ternmq.record.fact.header import Kind
from ternmq.record.fact.state import (
    ALARMS,
    APPS,
    CHECKED,
    CLIENT_SHOWN,
    GIVEN,
    HOLDS,
    PRODUCER_GROUPS,
    SESSIONS,
    SUBSCRIPTIONS,
    TOPICS,
    GoneName,
    Sort,
)

HeldKey = tuple[int, int, int]
"""group, topic, queue."""


class Row(NamedTuple):
    """A row of the table: how a kind of record is unpacked and applied."""

    unpack: Callable[[bytes], Any]
    apply: Callable[[At, Any], None] | None
    """None: no view depends on the kind."""


class Views:
    """All views, and the table of what each kind of record does to them. Deterministic; no I/O.

    Not thread-safe: call it from the broker's loop.
    """

    def __init__(self, limits: Limits, index: Index, modes: GroupModes) -> None:
        self.limits = limits
        self.index = index
        self.catalog = Catalog(Firsts(index, self._count_expired), modes)
        self.sessions = Sessions()
        self.dedup = Dedup(limits)
        self.progress: dict[HeldKey, Progress] = {}
        self.figures: Figures[Progress] = Figures(limits.failures)
        """The sums over all group queues."""
        self.discarded = Discarded()
        self.held_pages: dict[tuple[int, int], HeldPage] = {}
        """(page of groups, page of queues) -> the group queues that STATE stores as one object."""
        self.holds: dict[str, control.Hold] = {}
        self.holds_changed = 0
        """Position of the newest record that changed a hold."""
        self.gone = Gone(limits.gone_names)
        self.numbers = GivenNumbers()
        self.alarms = OpenAlarms()
        self.checked = CheckedTransactions(index.coverage.segment_size)
        self.producer_groups = ProducerGroups()
        self.undecided = Undecided(index.coverage.segment_size)
        self.writers = Writers(limits, self.undecided.writers)
        self.prepared_rows = PreparedRows(index.coverage.segment_size)
        self.schedule = Schedule(index.coverage.segment_size)
        self.objects = StateObjects()
        """The views as objects of STATE."""
        self.unplaced = Unplaced(self.catalog)
        """Replay only: what was loaded for topics that are not known yet."""
        self.suspect_below = 0
        """Rows stored below may have been handed out before without a record: see ``PullReply``."""
        self.last_time_us = 0
        self.index_from = 0
        """Replay only: the index already has the records below this position."""
        self.live = False
        """Whether everything is replayed, so that the views are complete."""
        self.first = 0
        """Replay only: where the journal begins."""
        self.begin = 0
        """Replay only: deduplication already has the records below this position."""
        self.expired_rows = 0
        """Rows removed with their segment before a group received them, since the start; a row
        counts once for each group."""
        self.missed_rows = 0
        """The same of broadcast instances."""
        self.table: dict[int, Row] = {Kind.EPOCH: Row(control.EPOCH.unpack_from, self._epoch)}
        """What each kind of record does to the views, live and in a replay."""
        self.on(MESSAGES, self._messages)
        self.on(PULLED, self._pulled)
        self.on(SETTLED, self._settled)
        self.on(ENDED, self._settled)
        self.on(EXTENDED, self._extended)
        self.on(CURSOR, self._cursor)
        self.on(REPLAY, self._replayed)
        self.on(CONFIG, self._config)
        self.on(JOINED, self._joined)
        self.on(LEFT, self._left)
        self.on(MOVED, self._moved)
        self.on(COUNTS, None)
        self.on(ALARM, self._alarm)
        self.on(NUMBERS, self._numbers)

    @property
    def lowest_hold(self) -> int | None:
        """The smallest position that is held; None without holds."""
        return min([one.position for one in self.holds.values()], default=None)

    # -- records ----------------------------------------------------------------------------------

    def on(self, what: FactKind[F], apply: Callable[[At, F], None] | None) -> None:
        """Add a row to the table: what a kind of record changes; None: nothing."""
        if what.kind in self.table:
            raise ValueError(f"kind {what.kind.name} is registered already")
        self.table[what.kind] = Row(what.unpack, apply)

    def apply(self, record: RawRecord) -> None:
        """Apply a record's facts; kinds that no view depends on are ignored."""
        if record.time_us > self.last_time_us:
            self.last_time_us = record.time_us
        row = self.table.get(record.kind)
        if row is not None and row.apply is not None:
            row.apply(record, row.unpack(record.body))

    def _messages(self, at: At, stored: messages.Messages) -> None:
        self.apply_messages(at.position, at.position + at.length, at.time_us, stored)

    def _pulled(self, at: At, pulled: Sequence[Pulled]) -> None:
        for fact in pulled:
            progress = self.progress.get((fact.group, fact.topic, fact.queue))
            if progress is not None:
                progress.apply_pulled(at.position, at.epoch, fact)

    def _settled(self, at: At, settled: Sequence[Settled]) -> None:
        for fact in settled:
            progress = self.progress.get((fact.group, fact.topic, fact.queue))
            if progress is not None:
                progress.apply_settled(at.position, fact)

    def _extended(self, at: At, extended: Sequence[Extended]) -> None:
        for fact in extended:
            progress = self.progress.get((fact.group, fact.topic, fact.queue))
            if progress is not None:
                progress.apply_extended(at.position, fact)

    def _cursor(self, at: At, fact: CursorMoved) -> None:
        progress = self.progress.get((fact.group, fact.topic, fact.queue))
        if progress is not None:
            progress.apply_cursor(at.position, fact)
        if fact.move is Move.RESET:
            self._reset_moves(at.position, fact)

    def _reset_moves(self, position: int, fact: CursorMoved) -> None:
        """Take the moves of a group that is reset out of undecided transactions."""
        key = fact.group, fact.topic, fact.queue
        for number, ordinal in self.checked.moves_of(*key):
            page = ordinal >> CHECKED_BITS
            if position >= self.objects.stamp(CHECKED, 0, 0, page, number):
                self.checked.apply_reset(position, number, ordinal, *key)

    def _replayed(self, at: At, fact: replay.Replayed) -> None:
        progress = self.progress.get((fact.group, fact.topic, fact.queue))
        if progress is not None:
            progress.apply_replayed(at.position, fact)

    def _joined(self, at: At, joined: control.Joined) -> None:
        self.sessions.next_number = max(self.sessions.next_number, joined.session + 1)
        if at.position >= self.objects.stamp(SESSIONS, joined.session >> PAGE_BITS):
            self.sessions.apply_joined(at.position, joined)

    def _left(self, at: At, left: control.Left) -> None:
        """Apply LEFT: end a session and keep its name."""
        number = left.session
        if at.position < self.objects.stamp(SESSIONS, number >> PAGE_BITS):
            return
        session = self.sessions.by_number.get(number)
        if session is not None:
            info = session.info
            client = info.client[:CLIENT_SHOWN]
            one = GoneName(number, info.app, at.position, 0, client, info.address)
            self.gone.add(Sort.SESSION, one)
        self.sessions.apply_left(at.position, number)

    def _alarm(self, at: At, alarm: control.Alarm) -> None:
        if at.position >= self.objects.stamp(ALARMS, 0):
            self.alarms.apply_alarm(at.position, at.time_us, alarm)

    def _numbers(self, at: At, given: numbers.Numbers) -> None:
        self.numbers.note_reserve(given.reserve)
        if at.position >= self._stamp_of_numbers(given.topic):
            self.numbers.apply_given(at.position, given)

    def _drop_numbers(self, position: int, topic: int) -> None:
        if position >= self._stamp_of_numbers(topic):
            self.numbers.drop_topic(position, topic)

    def _stamp_of_numbers(self, topic: int) -> int:
        return self.objects.stamp(state.NUMBERS, topic >> PAGE_BITS)

    def _epoch(self, at: At, epoch: tuple[int, int, int, int]) -> None:
        if not epoch[1] & (control.EPOCH_CLEAN | control.EPOCH_FIRST):
            self.suspect_below = max(self.suspect_below, at.position)

    def apply_messages(
        self, position: int, end: int, time_us: int, stored: messages.Messages
    ) -> None:
        """Apply MESSAGES: add rows to their queue, to the index and to deduplication."""
        topic_number, number = stored.topic, stored.queue
        first, count = stored.first_offset, stored.count
        producer_id, sequence, rows, crc, tag_mask, key_hashes, ids = facts_of(stored.batch)
        if position >= self.index_from:
            self.index.add(
                topic_number,
                number,
                first,
                count,
                position,
                end - position,
                tag_mask,
                producer_id,
                sequence,
                key_hashes,
                ids,
                time_us,
                rows if rows != count else 0,
            )
            if stored.fulfils is not None:
                self.index.note_fulfilled()
        topic = self.catalog.topics.get(topic_number)
        if topic is not None and number < len(topic.queues):
            queue = topic.queues[number]
            if stored.batch[EXPIRY_AT] & EXPIRY_BIT:  # as `may_expire`: a call takes 60 ns
                self.catalog.note_expiring(position, queue, first + count)
            if position >= queue.stamp:
                queue.next = first + count
                queue.end = end
                queue.page[0] = position
        if stored.fulfils is not None:  # deduplication knows the rows by their SCHEDULED record
            self.schedule.apply_fulfilled(position, topic_number, count, stored.fulfils)
        elif position >= self.begin:
            self.dedup.add(position, time_us, producer_id, sequence, rows, crc)
            if ids:
                self.add_ids(topic_number, position, time_us, stored)

    def add_ids(self, topic: int, position: int, time_us: int, stored: messages.Messages) -> None:
        """Remember the application ids of the rows of a MESSAGES or SCHEDULED record."""
        batch = Batch(stored.batch)
        for row, ((low, high), body_hash) in enumerate(
            zip(batch.application_ids(), batch.body_hashes(), strict=True)
        ):
            if (low or high) and stored.offset_of(row) is not None:
                self.dedup.add_id(topic, low | high << 64, body_hash, position, row, time_us)

    def _config(self, at: At, change: control.Config) -> None:
        """Apply CONFIG: a change of settings."""
        catalog, position = self.catalog, at.position
        if isinstance(change, control.TopicCreated | control.TopicChanged):
            page = change.number >> PAGE_BITS
            catalog.next_topic = max(catalog.next_topic, change.number + 1)
            if position >= self.objects.stamp(TOPICS, page):
                known = catalog.topics.get(change.number)
                had = len(known.queues) if known is not None and self.live else -1
                topic = catalog.put_topic(change.number, change.spec)
                catalog.topic_pages[page] = position
                self.unplaced.place(topic)
                if len(topic.queues) != had:
                    self._hold_new_queues(position, topic)
        elif isinstance(change, control.TopicDeleted):
            gone = catalog.topics.get(change.number)
            if gone is not None:
                self.gone.add(Sort.TOPIC, GoneName(change.number, gone.name, position))
                self._drop_all(position, gone)
            catalog.remove_topic(change.number)
            self.schedule.drop_topic(change.number)
            self._drop_numbers(position, change.number)
            catalog.topic_pages[change.number >> PAGE_BITS] = position
        elif isinstance(change, control.Subscribed):
            self._subscribe(position, change)
        elif isinstance(change, control.SubscriptionChanged):
            self._switch(position, change.topic, change.group, catalog.modes[change.spec.mode])
            known = catalog.topics.get(change.topic)
            if known is not None and position >= self._stamp_of_subscription(change.group):
                subscription = known.subscriptions.get(change.group)
                if subscription is not None:
                    catalog.set_subscription(subscription, change.spec)
                    for progress in subscription.queues:
                        progress.scan = (
                            0  # the new filter has to judge what the old one passed over
                        )
                    self._touch_subscription(position, change.group)
        elif isinstance(change, control.Unsubscribed):
            self._drop(position, change.topic, change.group)
        elif isinstance(change, control.Hold | control.HoldDeleted):
            self._change_hold(position, change)
        elif not isinstance(change, control.ClockAccepted):
            self._change_app(position, change)

    def _change_hold(self, position: int, change: control.Hold | control.HoldDeleted) -> None:
        if position < self.objects.stamp(HOLDS, 0):
            return
        self.holds_changed = position
        if isinstance(change, control.Hold):
            self.holds[change.name] = change
        else:
            self.holds.pop(change.name, None)

    def _change_producers(
        self, position: int, change: control.ProducerGroupPut | control.ProducerGroupDeleted
    ) -> None:
        if isinstance(change, control.ProducerGroupPut):
            if position >= self.objects.stamp(PRODUCER_GROUPS, app_page(change.spec.name)):
                self.producer_groups.apply_put(position, change)
        elif position >= self.objects.stamp(PRODUCER_GROUPS, app_page(change.name)):
            self.producer_groups.apply_deleted(position, change)

    def _group_gone(self, position: int, topic: Topic, group: int) -> None:
        known = topic.subscriptions.get(group)
        if known is not None:
            self.gone.add(Sort.GROUP, GoneName(group, known.name, position, topic.number))

    def _change_app(
        self,
        position: int,
        change: control.App
        | control.AppDeleted
        | control.ProducerGroupPut
        | control.ProducerGroupDeleted,
    ) -> None:
        if isinstance(change, control.ProducerGroupPut | control.ProducerGroupDeleted):
            self._change_producers(position, change)
            return
        page = app_page(change.name)
        if position < self.objects.stamp(APPS, page):
            return
        self.catalog.app_pages[page] = position
        if isinstance(change, control.App):
            self.catalog.put_app(change)
        else:
            self.catalog.remove_app(change.name)

    def _subscribe(self, position: int, change: control.Subscribed) -> None:
        catalog = self.catalog
        catalog.next_group = max(catalog.next_group, change.group + 1)
        topic = catalog.topics.get(change.topic)
        if topic is None:
            return
        if position >= self._stamp_of_subscription(change.group):
            catalog.put_subscription(topic, change.group, change.group_name, change.spec)
            self._touch_subscription(position, change.group)
        mode = catalog.modes[change.spec.mode]
        for number, cursor in enumerate(change.cursors):
            key = (change.group, change.topic, number)
            progress = self.progress.get(key)
            # A group queue that no chunk loaded was created by a settings change of the topic: it
            # starts here.
            if progress is None or not progress.admission.loaded:
                self.hold(position, *key, cursor, mode)
        self._hold_new_queues(position, topic)

    def _switch(self, position: int, topic: int, group: int, mode: GroupMode) -> None:
        """Give the queues of a group the mode that a change of its settings names.

        In a replay, each of them decides what it contains already: the object with the settings may
        have been written after the change, and those of its queues before it.
        """
        number = 0
        while (progress := self.progress.get((group, topic, number))) is not None:
            if progress.mode is not mode:
                progress.switch(position, mode)
            number += 1

    def hold(
        self, position: int, group: int, topic: int, queue: int, cursor: int, mode: GroupMode
    ) -> Progress:
        """Create the view of a (group, topic, queue); it replaces an existing one."""
        place = (group >> PAGE_BITS, queue >> QUEUE_BITS)
        page = self.held_pages.get(place)
        if page is None:
            page = self.held_pages[place] = HeldPage(self.figures, self.discarded)
        page.changed = position
        before = self.progress.get((group, topic, queue))
        if before is not None:
            self.figures.forget(before)
        progress = Progress(group, topic, queue, cursor, page, mode)
        if cursor:
            page.note_given(position)
        progress.share = NOTHING
        self.progress[group, topic, queue] = progress
        return progress

    def _hold_new_queues(self, position: int, topic: Topic) -> None:
        """Give every subscription a view of every queue; new queues are read from the start."""
        for group, subscription in topic.subscriptions.items():
            subscription.queues.clear()
            for number in range(len(topic.queues)):
                key = (group, topic.number, number)
                progress = self.progress.get(key)
                if progress is None:
                    progress = self.hold(position, *key, 0, subscription.mode)
                subscription.queues.append(progress)

    def _stamp_of_subscription(self, group: int) -> int:
        return self.objects.stamp(SUBSCRIPTIONS, group >> PAGE_BITS)

    def _touch_subscription(self, position: int, group: int) -> None:
        self.catalog.subscription_pages[group >> PAGE_BITS] = position

    def _drop(self, position: int, topic_number: int, group: int) -> None:
        topic = self.catalog.topics.get(topic_number)
        if topic is not None:
            self._group_gone(position, topic, group)
            self.catalog.remove_subscription(topic, group)
        self._touch_subscription(position, group)
        number = 0
        while (progress := self.progress.pop((group, topic_number, number), None)) is not None:
            progress.page.changed = position
            self.figures.forget(progress)
            progress.end(position)
            number += 1

    def _drop_all(self, position: int, topic: Topic) -> None:
        """Do the same as ``_drop`` for every group of a topic, but faster."""
        catalog, progress = self.catalog, self.progress
        number, queues = topic.number, range(len(topic.queues))
        groups = sorted(topic.subscriptions)
        names = [
            GoneName(group, topic.subscriptions[group].name, position, number) for group in groups
        ]
        self.gone.add_all(Sort.GROUP, names)
        dropped: list[Progress] = []
        for group in groups:
            for queue in queues:
                one = progress.pop((group, number, queue), None)
                if one is not None:
                    one.page.changed = position
                    self.figures.forget(one)
                    one.end(position)
                    dropped.append(one)
        for page in {group >> PAGE_BITS for group in groups}:
            catalog.subscription_pages[page] = position
        self.discarded.put(dropped, catalog.remove_subscriptions(topic))

    def _moved(self, at: At, fact: moved.Moved) -> None:
        """Apply MOVED: this record now holds copies of owed rows and of their failures."""
        position = at.position
        if position >= self.index_from and fact.pieces:
            self.index.add_moved(facts_of_moved(fact), position, at.time_us)
        for failure in fact.failures:
            progress = self.progress.get((failure.group, fact.topic, fact.queue))
            if progress is not None:
                progress.apply_moved(position, failure.offset)

    # -- segments that are gone -------------------------------------------------------------------

    def _count_expired(self, queue: Queue, before: int) -> None:
        """Count the removed rows of a queue that its groups had not read.

        ``before``: First offset of the queue before the removal.
        """
        first = queue.known_first
        if first <= before:
            return
        for group, one in queue.topic.subscriptions.items():
            cursor = self.progress[group, queue.topic.number, queue.number].cursor
            if cursor < first:
                if one.mode.keeps_journal:
                    self.expired_rows += first - max(cursor, before)
                else:
                    self.missed_rows += first - max(cursor, before)

    # -- replay -----------------------------------------------------------------------------------

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object of a STATE set."""
        self.objects.load(key, payload, stamp)

    def loaded(self, begin: Position) -> None:
        """Prepare for the facts from ``begin`` on, once all objects are loaded."""
        self.begin = begin
        self.dedup.loaded()
        for progress in self.progress.values():
            if progress.page.gives:  # the stamp holds for those without an entry, too
                page, queues = progress.group >> PAGE_BITS, progress.queue >> QUEUE_BITS
                progress.admission.load_given(self.objects.stamp(GIVEN, page, queues))
        for topic in self.catalog.topics.values():
            self.unplaced.place(topic)

    def finish(self, end: Position) -> None:
        """Compute what is derived, once everything is replayed."""
        self.objects.finish()
        self.unplaced.clear()
        self.live = True
        self.begin = 0
        self.index_from = 0
        self.dedup.finish_load()
        self.gone.finish()
        self.alarms.finish()
        self.undecided.finish()
        self.checked.finish()
        self.schedule.finish(self.catalog.topics, self.last_time_us)
        self.prepared_rows.drop_below(self.index, self.first)
        while self.prepared_rows.forget_some(self.index):
            pass
        alive = {
            (group, topic.number, queue.number)
            for topic in self.catalog.topics.values()
            for group in topic.subscriptions
            for queue in topic.queues
        }
        self.progress = {key: progress for key, progress in self.progress.items() if key in alive}
        for topic in self.catalog.topics.values():
            self._hold_new_queues(end, topic)
            for queue in topic.queues:
                queue.stamp = 0
                queue.recovered = queue.next
                self.catalog.firsts.look_up(queue)
        topics = self.catalog.topics
        for progress in self.progress.values():
            progress.finish_load(topics[progress.topic].queues[progress.queue].next)
        self.figures.rebuild(self.progress.values())
