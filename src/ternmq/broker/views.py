"""Everything the broker remembers, computed from the journal's records and from nothing else.

``apply`` is the one way in which a record changes the views, live and at a start. At a start the
objects of the newest STATE set come first (``load_object``), each with the position it is valid at;
then the facts from the set's BEGIN on: each object takes those behind its stamp. Which objects
there are, and their bytes, is in `stateobjects`; what transactions change, in `transactionviews`.
"""

from __future__ import annotations

from collections.abc import Callable

from ternmq.broker.catalog import PAGE_BITS, QUEUE_BITS, Catalog, Topic, app_page
from ternmq.broker.dedup import Dedup
from ternmq.broker.discarded import Discarded
from ternmq.broker.figures import NOTHING, Figures
from ternmq.broker.firsts import Firsts
from ternmq.broker.gone import Gone, GoneName, Sort
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.heldpage import HeldPage
from ternmq.broker.preparedrows import PreparedRows
from ternmq.broker.sessions import Sessions
from ternmq.broker.stateobjects import StateObjects
from ternmq.broker.statetypes import APPS, HOLDS, SESSIONS, SUBSCRIPTIONS, TOPICS
from ternmq.broker.transactionviews import TransactionViews
from ternmq.broker.undecided import Undecided
from ternmq.broker.writers import Writers
from ternmq.journal.batch_facts import facts_of, facts_of_moved
from ternmq.journal.index import Index
from ternmq.journal.scan import RawRecord
from ternmq.journal.state import StateKey
from ternmq.model.specs import Limits
from ternmq.model.types import Position
from ternmq.record import control, facts, messages, moved, replay, transactions
from ternmq.record.batch import Batch
from ternmq.record.header import Kind

HeldKey = tuple[int, int, int]
"""group, topic, queue."""


class Views:
    """All views. Loop only; deterministic; no I/O."""

    def __init__(self, limits: Limits, index: Index) -> None:
        self.limits = limits
        self.index = index
        self.catalog = Catalog(Firsts(index))
        self.sessions = Sessions()
        self.dedup = Dedup(limits)
        self.held: dict[HeldKey, GroupQueue] = {}
        self.figures = Figures()
        """Of all group queues together."""
        self.discarded = Discarded()
        self.held_pages: dict[tuple[int, int], HeldPage] = {}
        """(page of groups, page of queues) -> what stands in STATE together."""
        self.holds: dict[str, control.Hold] = {}
        self.holds_changed = 0
        """Newest record that changed a hold."""
        self.gone = Gone(limits.gone_names)
        self.writers = Writers(limits)
        self.undecided = Undecided(index.segment_size)
        self.prepared_rows = PreparedRows(index.segment_size)
        self.transactions = TransactionViews(self)
        """What PREPARED and RESOLVED change."""
        self.objects = StateObjects(self)
        """The views as objects of STATE."""
        self.suspect_below = 0
        """First hand-outs of rows stored below may not be the first: see ``PullReply``."""
        self.last_time_us = 0
        self.index_from = 0
        """Records below are in the index already (only while replaying)."""
        self.live = False
        """Everything is replayed: what is here is whole."""
        self.first = 0
        """Where the journal begins (only while replaying)."""
        self.begin = 0
        """Records below are known to deduplication already (only while replaying)."""
        self._by_kind: dict[int, Callable[[RawRecord], None]] = {
            Kind.MESSAGES: self._messages,
            Kind.PULLED: self._pulled,
            Kind.SETTLED: self._settled,
            Kind.ENDED: self._settled,
            Kind.EXTENDED: self._extended,
            Kind.CURSOR: self._cursor,
            Kind.REPLAY: self._replayed,
            Kind.CONFIG: self._config,
            Kind.JOINED: self._joined,
            Kind.LEFT: self._left,
            Kind.MOVED: self._moved,
            Kind.PREPARED: self._prepared,
            Kind.RESOLVED: self._resolved,
            Kind.EPOCH: self._epoch,
        }

    # -- records ----------------------------------------------------------------------------------

    def apply(self, record: RawRecord) -> None:
        """Take over a record's facts; kinds that no view rests on pass by."""
        if record.time_us > self.last_time_us:
            self.last_time_us = record.time_us
        apply = self._by_kind.get(record.kind)
        if apply is not None:
            apply(record)

    def _messages(self, record: RawRecord) -> None:
        stored = messages.unpack(record.body)
        position = record.position
        self.apply_messages(position, position + record.length, record.time_us, stored)

    def _pulled(self, record: RawRecord) -> None:
        for fact in facts.unpack_pulled(record.body):
            held = self.held.get((fact.group, fact.topic, fact.queue))
            if held is not None:
                held.apply_pulled(record.position, record.epoch, fact)

    def _settled(self, record: RawRecord) -> None:
        for fact in facts.unpack_settled(record.body):
            held = self.held.get((fact.group, fact.topic, fact.queue))
            if held is not None:
                held.apply_settled(record.position, fact)

    def _extended(self, record: RawRecord) -> None:
        for fact in facts.unpack_extended(record.body):
            held = self.held.get((fact.group, fact.topic, fact.queue))
            if held is not None:
                held.apply_extended(record.position, fact)

    def _cursor(self, record: RawRecord) -> None:
        fact = facts.unpack_cursor(record.body)
        held = self.held.get((fact.group, fact.topic, fact.queue))
        if held is not None:
            held.apply_cursor(record.position, fact)

    def _replayed(self, record: RawRecord) -> None:
        fact = replay.unpack(record.body)
        held = self.held.get((fact.group, fact.topic, fact.queue))
        if held is not None:
            held.apply_replayed(record.position, fact)

    def _config(self, record: RawRecord) -> None:
        self.apply_config(record.position, control.unpack_config(record.body))

    def _joined(self, record: RawRecord) -> None:
        joined = control.unpack_joined(record.body)
        self.sessions.next_number = max(self.sessions.next_number, joined.session + 1)
        if record.position >= self.objects.stamp(SESSIONS, joined.session >> PAGE_BITS):
            self.sessions.apply_joined(record.position, joined)

    def _left(self, record: RawRecord) -> None:
        left = control.unpack_left(record.body)
        if record.position >= self.objects.stamp(SESSIONS, left.session >> PAGE_BITS):
            self.session_left(record.position, left.session)

    def _moved(self, record: RawRecord) -> None:
        self.apply_moved(record.position, record.time_us, moved.unpack(record.body))

    def _prepared(self, record: RawRecord) -> None:
        fact = transactions.unpack_prepared(record.body)
        self.transactions.apply_prepared(record.position, record.length, record.time_us, fact)

    def _resolved(self, record: RawRecord) -> None:
        fact = transactions.unpack_resolved(record.body)
        self.transactions.apply_resolved(record.position, record.end, record.time_us, fact)

    def _epoch(self, record: RawRecord) -> None:
        _, flags, _, _ = control.EPOCH.unpack_from(record.body)
        if not flags & (control.EPOCH_CLEAN | control.EPOCH_FIRST):
            self.suspect_below = max(self.suspect_below, record.position)

    def apply_messages(
        self, position: int, end: int, time_us: int, stored: messages.Messages
    ) -> None:
        """Rows are offsets of a queue from now on."""
        topic_number, number, first, count = (
            stored.topic,
            stored.queue,
            stored.first_offset,
            stored.count,
        )
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
        topic = self.catalog.topics.get(topic_number)
        if topic is not None and number < len(topic.queues):
            queue = topic.queues[number]
            if position >= queue.stamp:
                queue.next = first + count
                queue.end = end
                queue.page[0] = position
        if position >= self.begin:
            self.dedup.add(position, time_us, producer_id, sequence, rows, crc)
            if ids:
                self._add_ids(topic_number, position, time_us, stored)

    def _add_ids(self, topic: int, position: int, time_us: int, stored: messages.Messages) -> None:
        batch = Batch(stored.batch)
        for row, ((low, high), body_hash) in enumerate(
            zip(batch.application_ids(), batch.body_hashes(), strict=True)
        ):
            if (low or high) and stored.offset_of(row) is not None:
                self.dedup.add_id(topic, low | high << 64, body_hash, position, row, time_us)

    def apply_config(self, position: int, change: control.Config) -> None:
        """A setting changed."""
        catalog = self.catalog
        if isinstance(change, control.TopicCreated | control.TopicChanged):
            page = change.number >> PAGE_BITS
            catalog.next_topic = max(catalog.next_topic, change.number + 1)
            if position >= self.objects.stamp(TOPICS, page):
                known = catalog.topics.get(change.number)
                had = len(known.queues) if known is not None and self.live else -1
                topic = catalog.put_topic(change.number, change.spec)
                catalog.topic_pages[page] = position
                self.objects.place(topic)
                if len(topic.queues) != had:
                    self._hold_new_queues(position, topic)
        elif isinstance(change, control.TopicDeleted):
            gone = catalog.topics.get(change.number)
            if gone is not None:
                self.gone.add(Sort.TOPIC, GoneName(change.number, gone.name, position))
                self._drop_all(position, gone)
            catalog.remove_topic(change.number)
            catalog.topic_pages[change.number >> PAGE_BITS] = position
        elif isinstance(change, control.Subscribed):
            self._subscribe(position, change)
        elif isinstance(change, control.SubscriptionChanged):
            known = catalog.topics.get(change.topic)
            if known is not None and position >= self._stamp_of_subscription(change.group):
                subscription = known.subscriptions.get(change.group)
                if subscription is not None:
                    subscription.set(change.spec)
                    for held in subscription.queues:
                        held.scan = 0  # what the filter before passed over is judged anew
                    self._touch_subscription(position, change.group)
        elif isinstance(change, control.Unsubscribed):
            self._drop(position, change.topic, change.group)
        elif isinstance(change, control.Hold | control.HoldDeleted):
            self._change_hold(position, change)
        else:
            self._change_app(position, change)

    def _change_hold(self, position: int, change: control.Hold | control.HoldDeleted) -> None:
        if position < self.objects.stamp(HOLDS, 0):
            return
        self.holds_changed = position
        if isinstance(change, control.Hold):
            self.holds[change.name] = change
        else:
            self.holds.pop(change.name, None)

    def session_left(self, position: int, number: int) -> None:
        """A client went."""
        session = self.sessions.by_number.get(number)
        if session is not None:
            info = session.info
            one = GoneName(number, info.app, position, 0, info.client[:8], info.address)
            self.gone.add(Sort.SESSION, one)
        self.sessions.apply_left(position, number)

    def _group_gone(self, position: int, topic: Topic, group: int) -> None:
        known = topic.subscriptions.get(group)
        if known is not None:
            self.gone.add(Sort.GROUP, GoneName(group, known.name, position, topic.number))

    def _change_app(self, position: int, change: control.App | control.AppDeleted) -> None:
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
        ordered = change.spec.mode.value == "ordered"
        for number, cursor in enumerate(change.cursors):
            key = (change.group, change.topic, number)
            held = self.held.get(key)
            # One that no chunk told of was made by a settings change of the topic: it starts here.
            if held is None or not held.admission.loaded:
                self.hold(position, *key, cursor, ordered=ordered)
        self._hold_new_queues(position, topic)

    def hold(
        self, position: int, group: int, topic: int, queue: int, cursor: int, *, ordered: bool
    ) -> GroupQueue:
        """Make the view of a (group, topic, queue), in place of one there may be."""
        place = (group >> PAGE_BITS, queue >> QUEUE_BITS)
        page = self.held_pages.get(place)
        if page is None:
            page = self.held_pages[place] = HeldPage(self.figures, self.discarded)
        page.changed = position
        before = self.held.get((group, topic, queue))
        if before is not None:
            self.figures.forget(before)
        held = GroupQueue(group, topic, queue, cursor, page, ordered=ordered)
        held.share = NOTHING
        self.held[group, topic, queue] = held
        return held

    def _hold_new_queues(self, position: int, topic: Topic) -> None:
        """Give every subscription a view of every queue; new queues are read from the start."""
        for group, subscription in topic.subscriptions.items():
            subscription.queues.clear()
            for number in range(len(topic.queues)):
                key = (group, topic.number, number)
                held = self.held.get(key)
                if held is None:
                    held = self.hold(position, *key, 0, ordered=subscription.ordered)
                subscription.queues.append(held)

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
        while (held := self.held.pop((group, topic_number, number), None)) is not None:
            held.page.changed = position
            self.figures.forget(held)
            held.end(position)
            number += 1

    def _drop_all(self, position: int, topic: Topic) -> None:
        """The same as ``_drop`` for every group of a topic, and quicker."""
        catalog, held = self.catalog, self.held
        number, queues = topic.number, range(len(topic.queues))
        groups = sorted(topic.subscriptions)
        names = [
            GoneName(group, topic.subscriptions[group].name, position, number) for group in groups
        ]
        self.gone.add_all(Sort.GROUP, names)
        dropped: list[GroupQueue] = []
        for group in groups:
            for queue in queues:
                one = held.pop((group, number, queue), None)
                if one is not None:
                    one.page.changed = position
                    self.figures.forget(one)
                    one.end(position)
                    dropped.append(one)
        for page in {group >> PAGE_BITS for group in groups}:
            catalog.subscription_pages[page] = position
        self.discarded.put(dropped, catalog.remove_subscriptions(topic))

    def apply_moved(self, position: int, time_us: int, fact: moved.Moved) -> None:
        """Owed rows, and what is known of their failures, stand here from now on."""
        if position >= self.index_from and fact.pieces:
            self.index.add_moved(facts_of_moved(fact), position, time_us)
        for failure in fact.failures:
            held = self.held.get((failure.group, fact.topic, fact.queue))
            if held is not None:
                held.apply_moved(position, failure.offset)

    # -- replay -----------------------------------------------------------------------------------

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Take over an object of a STATE set."""
        self.objects.load(key, payload, stamp)

    def loaded(self, begin: Position) -> None:
        """All objects are there; facts from ``begin`` on follow."""
        self.begin = begin
        self.dedup.loaded()
        for topic in self.catalog.topics.values():
            self.objects.place(topic)

    def finish(self, end: Position) -> None:
        """Make what is derived, once everything is replayed."""
        self.objects.finish()
        self.live = True
        self.begin = 0
        self.index_from = 0
        self.dedup.finish_load()
        self.gone.finish()
        self.undecided.finish()
        self.prepared_rows.drop_below(self.index, self.first)
        while self.prepared_rows.forget_some(self.index):
            pass
        alive = {
            (group, topic.number, queue.number)
            for topic in self.catalog.topics.values()
            for group in topic.subscriptions
            for queue in topic.queues
        }
        self.held = {key: held for key, held in self.held.items() if key in alive}
        for topic in self.catalog.topics.values():
            self._hold_new_queues(end, topic)
            for queue in topic.queues:
                queue.stamp = 0
                queue.recovered = queue.next
                self.catalog.firsts.look_up(queue)
        for held in self.held.values():
            held.finish_load()
        self.figures.rebuild(self.held.values())
