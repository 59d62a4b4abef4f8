"""The objects of STATE that store the views: which there are, how they are encoded and loaded.

Each type of object is one row of the table in ``StateObjects``: how it is loaded, how it is encoded
and which record changed it last. The types of group queues are in `heldobjects`, those of
transactions in `transactionobjects`. Bytes and meanings are in ``docs/format/state.md``.

While a journal is replayed, each loaded object is stored with its *stamp*, the position at which it
is valid: records before the stamp are contained in the object already.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ternmq.broker.catalog.catalog import PAGE_BITS, QUEUE_BITS, Topic
from ternmq.broker.catalog.gone import PageKey
from ternmq.broker.ledger.heldobjects import HeldObjects
from ternmq.broker.ledger.transactionobjects import TransactionObjects
from ternmq.broker.ledger.types import (
    ALWAYS,
    APPS,
    DEDUP,
    FORGOTTEN,
    GLOBAL,
    GONE,
    HOLDS,
    LOADED,
    QUEUES,
    SESSIONS,
    SUBSCRIPTIONS,
    TOPICS,
    ObjectType,
    always,
    never,
)
from ternmq.journal.state.sets import StateKey
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.model.types import Position
from ternmq.record.fact import control

if TYPE_CHECKING:
    from ternmq.broker.ledger.views import Views

_QUEUE: Final = struct.Struct("<IIQQ")


class _Global(msgspec.Struct, frozen=True):
    next_topic: int
    next_group: int
    next_session: int
    suspect_below: int
    dedup_horizon: int
    next_writer: int = 1
    next_transaction: int = 1


class _TopicState(msgspec.Struct, frozen=True):
    number: int
    spec: TopicSpec


class _SubscriptionState(msgspec.Struct, frozen=True):
    topic: int
    group: int
    name: str
    spec: SubscriptionSpec


_decode_global: Final = msgspec.msgpack.Decoder(_Global)
_decode_topics: Final = msgspec.msgpack.Decoder(list[_TopicState])
_decode_subscriptions: Final = msgspec.msgpack.Decoder(list[_SubscriptionState])
_decode_sessions: Final = msgspec.msgpack.Decoder(list[control.Joined])
_decode_apps: Final = msgspec.msgpack.Decoder(list[control.App])
_decode_holds: Final = msgspec.msgpack.Decoder(list[control.Hold])
_encode: Final = msgspec.msgpack.encode


class _QueueState(NamedTuple):
    next: int
    end: int
    stamp: int


class StateObjects:
    """The views as objects of STATE (`journal.state.StateSource`).

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = (
        "_held",
        "_queues",
        "_stamps",
        "_subscriptions",
        "_transactions",
        "_types",
        "_views",
    )

    def __init__(self, views: Views) -> None:
        self._views = views
        self._stamps: dict[StateKey, int] = {}
        self._queues: dict[tuple[int, int], _QueueState] = {}
        self._subscriptions: dict[int, list[_SubscriptionState]] = {}
        """Topic number -> subscriptions that were loaded before their topic."""
        self._held = HeldObjects(views)
        self._transactions = TransactionObjects(views)
        self._types = {
            GLOBAL: ObjectType(self._load_global, self._encode_global, always),
            TOPICS: ObjectType(self._load_topics, self._encode_topics, self._changed_topics),
            SUBSCRIPTIONS: ObjectType(
                self._load_subscriptions, self._encode_subscriptions, self._changed_subscriptions
            ),
            QUEUES: ObjectType(self._load_queues, self._encode_queues, self._changed_queues),
            SESSIONS: ObjectType(
                self._load_sessions, self._encode_sessions, self._changed_sessions
            ),
            FORGOTTEN: ObjectType(self._load_forgotten, self._encode_forgotten, always),
            DEDUP: ObjectType(self._load_dedup, self._encode_dedup, never),
            APPS: ObjectType(self._load_apps, self._encode_apps, self._changed_apps),
            HOLDS: ObjectType(self._load_holds, self._encode_holds, self._changed_holds),
            GONE: ObjectType(self._load_gone, self._encode_gone, self._changed_gone),
        }
        self._types |= self._held.types | self._transactions.types

    # -- writing a set ----------------------------------------------------------------------------

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the objects lazily; deduplication is cut in this call, which is made at BEGIN."""
        self._views.dedup.cut(begin)
        return self._keys(begin)

    def _keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the objects, but no page that is empty now.

        An empty page is forgotten: what is added to it later is in the records behind BEGIN.
        """
        catalog, dedup, sessions = self._views.catalog, self._views.dedup, self._views.sessions
        yield StateKey(GLOBAL)
        for page in _filled(catalog.topic_pages, catalog.topics):
            yield StateKey(TOPICS, page)
        for page in _filled(catalog.subscription_pages, catalog.groups):
            yield StateKey(SUBSCRIPTIONS, page)
        for topics, queues in sorted(catalog.queue_pages):
            if any(number in catalog.topics for number in _page(topics)):
                yield StateKey(QUEUES, topics, queues)
            else:
                catalog.queue_pages.pop((topics, queues), None)
        for page in _filled(sessions.pages, sessions.by_number):
            yield StateKey(SESSIONS, page)
        for page in sorted(catalog.app_pages):
            yield StateKey(APPS, page)
        if self._views.holds_changed:
            yield StateKey(HOLDS)
        # After topics, subscriptions, sessions: what is removed meanwhile is in both, not in none.
        for sort, page in sorted(self._views.gone.pages):
            yield StateKey(GONE, sort, page)
        yield from self._transactions.keys()
        for page in dedup.pages():
            yield StateKey(FORGOTTEN, page)
        for at, part in sorted(dedup.runs):
            yield StateKey(DEDUP, 0, 0, part, at)
        yield from self._held.keys(begin)

    def state_changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        return self._types[key.type].changed(key)

    def state_encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        return self._types[key.type].encode(key)

    def state_written(self, key: StateKey) -> None:
        """Note that the object is stored in a chunk now."""
        if key.type == DEDUP:
            self._views.dedup.run_written(key.d, key.c)

    # -- loading a set ----------------------------------------------------------------------------

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Load an object of a STATE set."""
        type_ = self._types.get(key.type)
        if type_ is None:
            raise CorruptJournal(f"unknown type of STATE object: {key.type}", byte=stamp)
        self._stamps[key] = stamp
        type_.load(key, payload, stamp)

    def stamp(self, type_: int, a: int, b: int = 0, c: int = 0, d: int = 0) -> int:
        """Return the position at which an object was loaded, 0 if it was not."""
        return self._stamps.get(StateKey(type_, a, b, c, d), 0) if self._stamps else 0

    def place(self, topic: Topic) -> None:
        """Give a topic what was loaded for it: the offsets of its queues, and its subscriptions."""
        for one in self._subscriptions.pop(topic.number, ()):
            self._views.catalog.put_subscription(topic, one.group, one.name, one.spec)
        for queue in topic.queues:
            found = self._queues.pop((topic.number, queue.number), None)
            if found is not None:
                queue.next, queue.end, queue.stamp = found

    def finish(self) -> None:
        """Forget the stamps, once everything is replayed."""
        self._stamps.clear()
        self._queues.clear()
        self._subscriptions.clear()

    # -- catalog and sessions ---------------------------------------------------------------------

    def _load_global(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        views = self._views
        known = _decode_global.decode(payload)
        views.catalog.next_topic = known.next_topic
        views.catalog.next_group = known.next_group
        views.sessions.next_number = known.next_session
        views.suspect_below = known.suspect_below
        views.dedup.cut_horizon = known.dedup_horizon
        views.writers.next_number = known.next_writer
        views.undecided.next_number = known.next_transaction

    def _encode_global(self, key: StateKey) -> bytes:
        del key
        views = self._views
        return _encode(
            _Global(
                views.catalog.next_topic,
                views.catalog.next_group,
                views.sessions.next_number,
                views.suspect_below,
                views.dedup.cut_horizon,
                views.writers.next_number,
                views.undecided.next_number,
            )
        )

    def _load_topics(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._views.catalog.topic_pages[key.a] = LOADED
        for one in _decode_topics.decode(payload):
            self._views.catalog.put_topic(one.number, one.spec)

    def _encode_topics(self, key: StateKey) -> bytes:
        found = [self._views.catalog.topics.get(number) for number in _page(key.a)]
        return _encode([_TopicState(one.number, one.spec) for one in found if one is not None])

    def _changed_topics(self, key: StateKey) -> int:
        return self._views.catalog.topic_pages.get(key.a, ALWAYS)

    def _load_subscriptions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        catalog = self._views.catalog
        catalog.subscription_pages[key.a] = LOADED
        for one in _decode_subscriptions.decode(payload):
            topic = catalog.topics.get(one.topic)
            if topic is None:  # made after its page of topics was written: its record follows
                self._subscriptions.setdefault(one.topic, []).append(one)
            else:
                catalog.put_subscription(topic, one.group, one.name, one.spec)

    def _encode_subscriptions(self, key: StateKey) -> bytes:
        return _encode(
            [
                _SubscriptionState(one.topic.number, one.group, one.name, one.spec)
                for one in self._views.catalog.groups_of_page(key.a)
            ]
        )

    def _changed_subscriptions(self, key: StateKey) -> int:
        return self._views.catalog.subscription_pages.get(key.a, ALWAYS)

    def _load_queues(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        for number, queue, next_, end in _QUEUE.iter_unpack(payload):
            self._queues[number, queue] = _QueueState(next_, end, stamp)

    def _encode_queues(self, key: StateKey) -> bytes:
        parts: list[bytes] = []
        lowest = key.b << QUEUE_BITS
        for number in _page(key.a):
            topic = self._views.catalog.topics.get(number)
            if topic is not None:
                for queue in topic.queues[lowest : lowest + (1 << QUEUE_BITS)]:
                    parts.append(_QUEUE.pack(number, queue.number, queue.next, queue.end))
        return b"".join(parts)

    def _changed_queues(self, key: StateKey) -> int:
        page = self._views.catalog.queue_pages.get((key.a, key.b))
        return ALWAYS if page is None else page[0]

    def _load_sessions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        for joined in _decode_sessions.decode(payload):
            self._views.sessions.apply_joined(stamp, joined)
        self._views.sessions.pages[key.a] = LOADED

    def _encode_sessions(self, key: StateKey) -> bytes:
        known = self._views.sessions.by_number
        return _encode([known[number].info for number in _page(key.a) if number in known])

    def _changed_sessions(self, key: StateKey) -> int:
        return self._views.sessions.pages.get(key.a, ALWAYS)

    def _load_apps(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._views.catalog.app_pages[key.a] = LOADED
        for app in _decode_apps.decode(payload):
            self._views.catalog.put_app(app)

    def _encode_apps(self, key: StateKey) -> bytes:
        return _encode(self._views.catalog.apps_of_page(key.a))

    def _changed_apps(self, key: StateKey) -> int:
        return self._views.catalog.app_pages.get(key.a, ALWAYS)

    def _load_holds(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        self._views.holds_changed = stamp
        self._views.holds = {one.name: one for one in _decode_holds.decode(payload)}

    def _encode_holds(self, key: StateKey) -> bytes:
        del key
        return _encode([one for _, one in sorted(self._views.holds.items())])

    def _changed_holds(self, key: StateKey) -> int:
        del key
        return self._views.holds_changed

    def _load_gone(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.gone.load(key.a, key.b, payload, stamp)

    def _encode_gone(self, key: StateKey) -> bytes:
        return self._views.gone.encode(key.a, key.b)

    def _changed_gone(self, key: StateKey) -> int:
        return self._views.gone.pages.get(PageKey(key.a, key.b), ALWAYS)

    # -- deduplication ----------------------------------------------------------------------------

    def _load_forgotten(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        self._views.dedup.load_forgotten(payload)

    def _encode_forgotten(self, key: StateKey) -> bytes:
        return self._views.dedup.forgotten(key.a)

    def _load_dedup(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._views.dedup.load_run(key.d, key.c, payload)

    def _encode_dedup(self, key: StateKey) -> bytes:
        return self._views.dedup.encode_run(key.d, key.c)


def _filled(pages: dict[int, int], there: Container[int]) -> Iterator[int]:
    """Yield the pages that contain anything; forget the others."""
    for page in sorted(pages):
        if any(number in there for number in _page(page)):
            yield page
        else:
            pages.pop(page, None)


def _page(number: int) -> range:
    """Return the numbers (of topics, of groups, of sessions) that a page covers."""
    return range(number << PAGE_BITS, (number + 1) << PAGE_BITS)
