"""Everything the broker remembers, computed from the journal's records and from nothing else.

``apply`` is the one way in which a record changes the views, live and at a start. At a start the
objects of the newest STATE set come first (``load_object``), each with the position it is valid at;
then the facts from the set's BEGIN on: each object takes those behind its stamp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ternmq.broker.catalog import PAGE_BITS, QUEUE_BITS, Catalog, Topic, app_page
from ternmq.broker.dedup import Dedup
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.sessions import Sessions
from ternmq.broker.shards import encode_shard, load_shard
from ternmq.journal.batch_facts import facts_of, facts_of_moved
from ternmq.journal.index import Index
from ternmq.journal.scan import RawRecord
from ternmq.journal.state import IMMUTABLE, StateKey
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import Limits, SubscriptionSpec, TopicSpec
from ternmq.model.types import Position
from ternmq.record import control, facts, messages, moved
from ternmq.record.batch import Batch
from ternmq.record.header import Kind

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
"""Types of STATE objects. Numbers are never reused; see ``docs/format/state.md``."""

_QUEUE: Final = struct.Struct("<IIQQ")
_ALWAYS: Final = 1 << 63

HeldKey = tuple[int, int, int]
"""group, topic, queue."""


class _Global(msgspec.Struct, frozen=True):
    next_topic: int
    next_group: int
    next_session: int
    suspect_below: int
    dedup_horizon: int


class _TopicState(msgspec.Struct, frozen=True):
    number: int
    spec: TopicSpec


class _SubscriptionState(msgspec.Struct, frozen=True):
    group: int
    name: str
    spec: SubscriptionSpec


_decode_global: Final = msgspec.msgpack.Decoder(_Global)
_decode_topics: Final = msgspec.msgpack.Decoder(list[_TopicState])
_decode_subscriptions: Final = msgspec.msgpack.Decoder(list[_SubscriptionState])
_decode_sessions: Final = msgspec.msgpack.Decoder(list[control.Joined])
_decode_apps: Final = msgspec.msgpack.Decoder(list[control.App])


class Views:
    """All views. Loop only; deterministic; no I/O."""

    def __init__(self, limits: Limits, index: Index) -> None:
        self.limits = limits
        self.index = index
        self.catalog = Catalog()
        self.sessions = Sessions()
        self.dedup = Dedup(limits)
        self.held: dict[HeldKey, GroupQueue] = {}
        self.suspect_below = 0
        """First hand-outs of rows stored below may not be the first: see ``PullReply``."""
        self.last_time_us = 0
        self.index_from = 0
        """Records below are in the index already (only while replaying)."""
        self._by_kind: dict[int, Callable[[RawRecord], None]] = {
            Kind.MESSAGES: self._messages,
            Kind.PULLED: self._pulled,
            Kind.SETTLED: self._settled,
            Kind.ENDED: self._settled,
            Kind.EXTENDED: self._extended,
            Kind.CURSOR: self._cursor,
            Kind.CONFIG: self._config,
            Kind.JOINED: self._joined,
            Kind.LEFT: self._left,
            Kind.MOVED: self._moved,
            Kind.EPOCH: self._epoch,
        }
        self._by_type: dict[int, Callable[[StateKey, bytes, Position], None]] = {
            GLOBAL: self._load_global,
            TOPICS: self._load_topics,
            SUBSCRIPTIONS: self._load_subscriptions,
            QUEUES: self._load_queues,
            SESSIONS: self._load_sessions,
            FORGOTTEN: self._load_forgotten,
            DEDUP: self._load_dedup,
            HELD: self._load_held,
            SHARD: self._load_shard,
            APPS: self._load_apps,
        }
        self._begin = 0
        self._stamps: dict[StateKey, int] = {}
        self._queues: dict[tuple[int, int], tuple[int, int, int]] = {}

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
        self.apply_messages(record.position, record.end, record.time_us, stored)

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

    def _config(self, record: RawRecord) -> None:
        self.apply_config(record.position, control.unpack_config(record.body))

    def _joined(self, record: RawRecord) -> None:
        joined = control.unpack_joined(record.body)
        self.sessions.next_number = max(self.sessions.next_number, joined.session + 1)
        if record.position >= self._stamp(SESSIONS, joined.session >> PAGE_BITS):
            self.sessions.apply_joined(record.position, joined)

    def _left(self, record: RawRecord) -> None:
        left = control.unpack_left(record.body)
        if record.position >= self._stamp(SESSIONS, left.session >> PAGE_BITS):
            self.sessions.apply_left(record.position, left.session)

    def _moved(self, record: RawRecord) -> None:
        self.apply_moved(record.position, record.time_us, moved.unpack(record.body))

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
        known = facts_of(stored.batch)
        if position >= self.index_from:
            self.index.add(
                topic_number,
                number,
                first,
                count,
                position,
                end - position,
                known.tag_mask,
                known.producer_id,
                known.first_sequence,
                known.key_hashes,
                known.ids,
                time_us,
                known.rows if known.rows != count else 0,
            )
        topic = self.catalog.topics.get(topic_number)
        if topic is not None and number < len(topic.queues):
            queue = topic.queues[number]
            if position >= queue.stamp:
                queue.next = first + count
                queue.end = end
                queue.page[0] = position
        if position >= self._begin:
            self.dedup.add(
                position, time_us, known.producer_id, known.first_sequence, known.rows, known.crc
            )
            if known.ids:
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
            if position >= self._stamp(TOPICS, page):
                topic = catalog.put_topic(change.number, change.spec)
                catalog.topic_pages[page] = position
                self._place_queues(topic)
                self._hold_new_queues(topic)
        elif isinstance(change, control.TopicDeleted):
            page = change.number >> PAGE_BITS
            gone = catalog.remove_topic(change.number)
            catalog.topic_pages[page] = position
            if gone is not None:
                for group in list(gone.subscriptions):
                    self._drop(position, change.number, group)
            catalog.subscription_pages.pop(change.number, None)
        elif isinstance(change, control.Subscribed):
            self._subscribe(position, change)
        elif isinstance(change, control.SubscriptionChanged):
            known = catalog.topics.get(change.topic)
            if known is not None and position >= self._subscription_stamp(
                change.topic, change.group
            ):
                subscription = known.subscriptions.get(change.group)
                if subscription is not None:
                    subscription.set(change.spec)
                    for held in subscription.queues:
                        held.scan = 0  # what the filter before passed over is judged anew
                    self._touch_subscription(position, change.topic, change.group)
        elif isinstance(change, control.Unsubscribed):
            self._drop(position, change.topic, change.group)
        else:
            self._change_app(position, change)

    def _change_app(self, position: int, change: control.App | control.AppDeleted) -> None:
        page = app_page(change.name)
        if position < self._stamp(APPS, page):
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
        if position >= self._subscription_stamp(change.topic, change.group):
            catalog.put_subscription(topic, change.group, change.group_name, change.spec)
            self._touch_subscription(position, change.topic, change.group)
        ordered = change.spec.mode.value == "ordered"
        for number, cursor in enumerate(change.cursors):
            key = (change.group, change.topic, number)
            held = self.held.get(key)
            # One that no chunk told of was made by a settings change of the topic: it starts here.
            if held is None or not (held.stamp or held.stamps):
                self.held[key] = held = GroupQueue(*key, cursor, ordered=ordered)
                held.changed = position
        self._hold_new_queues(topic)

    def _hold_new_queues(self, topic: Topic) -> None:
        """Give every subscription a view of every queue; new queues are read from the start."""
        for group, subscription in topic.subscriptions.items():
            subscription.queues.clear()
            for number in range(len(topic.queues)):
                key = (group, topic.number, number)
                held = self.held.get(key)
                if held is None:
                    held = self.held[key] = GroupQueue(*key, 0, ordered=subscription.ordered)
                subscription.queues.append(held)

    def _touch_subscription(self, position: int, topic: int, group: int) -> None:
        self.catalog.subscription_pages.setdefault(topic, {})[group >> PAGE_BITS] = position

    def _drop(self, position: int, topic_number: int, group: int) -> None:
        topic = self.catalog.topics.get(topic_number)
        if topic is not None:
            self.catalog.remove_subscription(topic, group)
        self._touch_subscription(position, topic_number, group)
        number = 0
        while self.held.pop((group, topic_number, number), None) is not None:
            number += 1

    def apply_moved(self, position: int, time_us: int, fact: moved.Moved) -> None:
        """Owed rows, and what is known of their failures, stand here from now on."""
        if position >= self.index_from and fact.pieces:
            self.index.add_moved(facts_of_moved(fact), position, time_us)
        for failure in fact.failures:
            held = self.held.get((failure.group, fact.topic, fact.queue))
            if held is not None:
                held.apply_moved(position, failure.offset)

    # -- replay -----------------------------------------------------------------------------------

    def _stamp(self, type_: int, a: int, b: int = 0) -> int:
        return self._stamps.get(StateKey(type_, a, b), 0) if self._stamps else 0

    def _subscription_stamp(self, topic: int, group: int) -> int:
        return self._stamp(SUBSCRIPTIONS, topic, group >> PAGE_BITS)

    def load_object(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Take over an object of a STATE set."""
        load = self._by_type.get(key.type)
        if load is None:
            raise CorruptJournal(f"unknown type of STATE object: {key.type}", byte=stamp)
        self._stamps[key] = stamp
        load(key, payload, stamp)

    def _load_global(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        known = _decode_global.decode(payload)
        self.catalog.next_topic = known.next_topic
        self.catalog.next_group = known.next_group
        self.sessions.next_number = known.next_session
        self.suspect_below = known.suspect_below
        self.dedup.cut_horizon = known.dedup_horizon

    def _load_topics(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self.catalog.topic_pages[key.a] = stamp
        for one in _decode_topics.decode(payload):
            self.catalog.put_topic(one.number, one.spec)

    def _load_subscriptions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        topic = self.catalog.topics.get(key.a)
        if topic is None:
            # Made after the chunk of its page of topics: all that became of it stands behind BEGIN.
            del self._stamps[key]
            return
        self.catalog.subscription_pages.setdefault(key.a, {})[key.b] = stamp
        for one in _decode_subscriptions.decode(payload):
            self.catalog.put_subscription(topic, one.group, one.name, one.spec)

    def _load_queues(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        for number, queue, next_, end in _QUEUE.iter_unpack(payload):
            self._queues[number, queue] = (next_, end, stamp)

    def _load_sessions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self.sessions.pages[key.a] = stamp
        for joined in _decode_sessions.decode(payload):
            self.sessions.apply_joined(stamp, joined)

    def _load_apps(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self.catalog.app_pages[key.a] = stamp
        for app in _decode_apps.decode(payload):
            self.catalog.put_app(app)

    def _load_forgotten(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        self.dedup.load_forgotten(payload)

    def _load_dedup(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self.dedup.load_run(key.d, key.c, payload)

    def _load_held(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        if payload:
            self._held_of(key).load_main(payload, stamp)

    def _load_shard(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        load_shard(self._held_of(key), key.d, payload, stamp)

    def _held_of(self, key: StateKey) -> GroupQueue:
        place = (key.a, key.b, key.c)
        held = self.held.get(place)
        if held is None:
            held = self.held[place] = GroupQueue(*place, 0)
        return held

    def loaded(self, begin: Position) -> None:
        """All objects are there; facts from ``begin`` on follow."""
        self._begin = begin
        self.dedup.loaded()
        for topic in self.catalog.topics.values():
            self._place_queues(topic)

    def _place_queues(self, topic: Topic) -> None:
        for queue in topic.queues:
            found = self._queues.pop((topic.number, queue.number), None)
            if found is not None:
                queue.next, queue.end, queue.stamp = found
                queue.page[0] = max(queue.page[0], queue.stamp)

    def finish(self, end: Position) -> None:
        """Make what is derived, once everything is replayed."""
        del end
        self._stamps.clear()
        self._queues.clear()
        self._begin = 0
        self.index_from = 0
        self.dedup.finish_load()
        alive = {
            (group, topic.number, queue.number)
            for topic in self.catalog.topics.values()
            for group in topic.subscriptions
            for queue in topic.queues
        }
        self.held = {key: held for key, held in self.held.items() if key in alive}
        for topic in self.catalog.topics.values():
            self._hold_new_queues(topic)
            for queue in topic.queues:
                queue.stamp = 0
                queue.recovered = queue.next
                self.refresh_first(topic.number, queue.number)
        for held in self.held.values():
            held.finish_load()

    def refresh_first(self, topic_number: int, number: int) -> None:
        """Look up again what the oldest kept offset of a queue is."""
        queue = self.catalog.topics[topic_number].queues[number]
        first = self.index.first_offset(topic_number, number)
        queue.first = queue.next if first is None else first

    # -- STATE ------------------------------------------------------------------------------------

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the objects there are, lazily; deduplication is cut at once, which is at BEGIN."""
        self.dedup.cut(begin)
        return self._state_keys()

    def _state_keys(self) -> Iterator[StateKey]:
        yield StateKey(GLOBAL)
        for page in sorted(self.catalog.topic_pages):
            yield StateKey(TOPICS, page)
        for topic in sorted(self.catalog.subscription_pages):
            for page in sorted(self.catalog.subscription_pages.get(topic, {})):
                yield StateKey(SUBSCRIPTIONS, topic, page)
        for topics, queues in sorted(self.catalog.queue_pages):
            yield StateKey(QUEUES, topics, queues)
        for page in sorted(self.sessions.pages):
            yield StateKey(SESSIONS, page)
        for page in sorted(self.catalog.app_pages):
            yield StateKey(APPS, page)
        for page in self.dedup.pages():
            yield StateKey(FORGOTTEN, page)
        for at, part in sorted(self.dedup.runs):
            yield StateKey(DEDUP, 0, 0, part, at)
        for key in sorted(self.held):
            held = self.held.get(key)
            if held is not None:
                yield StateKey(HELD, *key)
                for shard in held.shards():
                    yield StateKey(SHARD, *key, shard)

    def state_changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        if key.type == TOPICS:
            return self.catalog.topic_pages.get(key.a, _ALWAYS)
        if key.type == SUBSCRIPTIONS:
            return self.catalog.subscription_pages.get(key.a, {}).get(key.b, _ALWAYS)
        if key.type == QUEUES:
            page = self.catalog.queue_pages.get((key.a, key.b))
            return _ALWAYS if page is None else page[0]
        if key.type == SESSIONS:
            return self.sessions.pages.get(key.a, _ALWAYS)
        if key.type == APPS:
            return self.catalog.app_pages.get(key.a, _ALWAYS)
        if key.type == DEDUP:
            return IMMUTABLE
        if key.type not in (HELD, SHARD):
            return _ALWAYS
        held = self.held.get((key.a, key.b, key.c))
        if held is None:
            return _ALWAYS
        return held.changed if key.type == HELD else held.shard_changed.get(key.d, 0)

    def state_encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        catalog = self.catalog
        encode = msgspec.msgpack.encode
        if key.type == GLOBAL:
            return encode(
                _Global(
                    catalog.next_topic,
                    catalog.next_group,
                    self.sessions.next_number,
                    self.suspect_below,
                    self.dedup.cut_horizon,
                )
            )
        if key.type == TOPICS:
            first = key.a << PAGE_BITS
            found = [
                catalog.topics.get(number) for number in range(first, first + (1 << PAGE_BITS))
            ]
            return encode([_TopicState(one.number, one.spec) for one in found if one is not None])
        if key.type == SUBSCRIPTIONS:
            return encode(self._subscriptions(key.a, key.b))
        if key.type == QUEUES:
            return self._encode_queues(key.a, key.b)
        if key.type == SESSIONS:
            first = key.a << PAGE_BITS
            known = self.sessions.by_number
            numbers = range(first, first + (1 << PAGE_BITS))
            return encode([known[number].info for number in numbers if number in known])
        if key.type == APPS:
            return encode(catalog.apps_of_page(key.a))
        if key.type == FORGOTTEN:
            return self.dedup.forgotten(key.a)
        if key.type == DEDUP:
            return self.dedup.encode_run(key.d, key.c)
        held = self.held.get((key.a, key.b, key.c))
        if held is None:
            return b""
        return held.encode_main() if key.type == HELD else encode_shard(held, key.d)

    def state_written(self, key: StateKey) -> None:
        """Take note that the object stands in a chunk now."""
        if key.type == DEDUP:
            self.dedup.run_written(key.d, key.c)

    def _subscriptions(self, topic_number: int, page: int) -> list[_SubscriptionState]:
        topic = self.catalog.topics.get(topic_number)
        if topic is None:
            return []
        return [
            _SubscriptionState(
                group, topic.subscriptions[group].name, topic.subscriptions[group].spec
            )
            for group in sorted(topic.subscriptions)
            if group >> PAGE_BITS == page
        ]

    def _encode_queues(self, topics: int, queues: int) -> bytes:
        parts: list[bytes] = []
        first, lowest = topics << PAGE_BITS, queues << QUEUE_BITS
        for number in range(first, first + (1 << PAGE_BITS)):
            topic = self.catalog.topics.get(number)
            if topic is not None:
                for queue in topic.queues[lowest : lowest + (1 << QUEUE_BITS)]:
                    parts.append(_QUEUE.pack(number, queue.number, queue.next, queue.end))
        return b"".join(parts)
