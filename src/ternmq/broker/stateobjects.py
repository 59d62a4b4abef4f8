"""The objects that the views are written to STATE as: which there are, their bytes, taking them in.

Each type of object is one row of the table in ``StateObjects``: how it is loaded, how it is encoded
and which record changed it last. Bytes and meanings are in ``docs/format/state.md``.

While a journal is replayed, what was loaded is kept together with its *stamp*, the position it is
valid at: a record before the stamp of an object is in the object already.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ternmq.broker.catalog import PAGE_BITS, QUEUE_BITS, Topic
from ternmq.broker.gone import PageKey
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.shards import encode_main, encode_shard, load_main, load_shard, shards_of
from ternmq.journal.state import IMMUTABLE, StateKey
from ternmq.model.errors import CorruptJournal
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.model.types import Position
from ternmq.record import control

if TYPE_CHECKING:
    from ternmq.broker.views import Views

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
HOLDS: Final = 20
GONE: Final = 21
"""Types of STATE objects. Numbers are never reused; see ``docs/format/state.md``."""

_QUEUE: Final = struct.Struct("<IIQQ")
_ALWAYS: Final = 1 << 63


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
_decode_holds: Final = msgspec.msgpack.Decoder(list[control.Hold])
_encode: Final = msgspec.msgpack.encode


class _Type(NamedTuple):
    load: Callable[[StateKey, bytes, Position], None]
    encode: Callable[[StateKey], bytes]
    changed: Callable[[StateKey], int]


class _QueueState(NamedTuple):
    next: int
    end: int
    stamp: int


class StateObjects:
    """The views as objects of STATE (`journal.state.StateSource`). Loop only."""

    __slots__ = ("_queues", "_stamps", "_types", "_views")

    def __init__(self, views: Views) -> None:
        self._views = views
        self._stamps: dict[StateKey, int] = {}
        self._queues: dict[tuple[int, int], _QueueState] = {}
        self._types = {
            GLOBAL: _Type(self._load_global, self._encode_global, _always),
            TOPICS: _Type(self._load_topics, self._encode_topics, self._changed_topics),
            SUBSCRIPTIONS: _Type(
                self._load_subscriptions, self._encode_subscriptions, self._changed_subscriptions
            ),
            QUEUES: _Type(self._load_queues, self._encode_queues, self._changed_queues),
            SESSIONS: _Type(self._load_sessions, self._encode_sessions, self._changed_sessions),
            FORGOTTEN: _Type(self._load_forgotten, self._encode_forgotten, _always),
            DEDUP: _Type(self._load_dedup, self._encode_dedup, _never),
            HELD: _Type(self._load_held, self._encode_held, self._changed_held),
            SHARD: _Type(self._load_shard, self._encode_shard, self._changed_shard),
            APPS: _Type(self._load_apps, self._encode_apps, self._changed_apps),
            HOLDS: _Type(self._load_holds, self._encode_holds, self._changed_holds),
            GONE: _Type(self._load_gone, self._encode_gone, self._changed_gone),
        }

    # -- a set is written -------------------------------------------------------------------------

    def state_keys(self, begin: int) -> Iterator[StateKey]:
        """Yield the objects there are, lazily; deduplication is cut at once, which is at BEGIN."""
        self._views.dedup.cut(begin)
        return self._keys()

    def _keys(self) -> Iterator[StateKey]:
        catalog, dedup = self._views.catalog, self._views.dedup
        yield StateKey(GLOBAL)
        for page in sorted(catalog.topic_pages):
            yield StateKey(TOPICS, page)
        for topic in sorted(catalog.subscription_pages):
            for page in sorted(catalog.subscription_pages.get(topic, {})):
                yield StateKey(SUBSCRIPTIONS, topic, page)
        for topics, queues in sorted(catalog.queue_pages):
            yield StateKey(QUEUES, topics, queues)
        for page in sorted(self._views.sessions.pages):
            yield StateKey(SESSIONS, page)
        for page in sorted(catalog.app_pages):
            yield StateKey(APPS, page)
        if self._views.holds_changed:
            yield StateKey(HOLDS)
        # Behind topics, subscriptions and sessions: what goes in between is in both, not in none.
        for sort, page in sorted(self._views.gone.pages):
            yield StateKey(GONE, sort, page)
        for page in dedup.pages():
            yield StateKey(FORGOTTEN, page)
        for at, part in sorted(dedup.runs):
            yield StateKey(DEDUP, 0, 0, part, at)
        for key in sorted(self._views.held):
            held = self._views.held.get(key)
            if held is not None:
                yield StateKey(HELD, *key)
                for shard in shards_of(held):
                    yield StateKey(SHARD, *key, shard)

    def state_changed(self, key: StateKey) -> int:
        """Return the position of the newest record that changed the object."""
        return self._types[key.type].changed(key)

    def state_encode(self, key: StateKey) -> bytes:
        """Return the object as it is now; empty if it is gone."""
        return self._types[key.type].encode(key)

    def state_written(self, key: StateKey) -> None:
        """Take note that the object stands in a chunk now."""
        if key.type == DEDUP:
            self._views.dedup.run_written(key.d, key.c)

    # -- a set is loaded --------------------------------------------------------------------------

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """Take over an object of a STATE set."""
        type_ = self._types.get(key.type)
        if type_ is None:
            raise CorruptJournal(f"unknown type of STATE object: {key.type}", byte=stamp)
        self._stamps[key] = stamp
        type_.load(key, payload, stamp)

    def stamp(self, type_: int, a: int, b: int = 0) -> int:
        """Return the position that an object was loaded at, 0 if it was not."""
        return self._stamps.get(StateKey(type_, a, b), 0) if self._stamps else 0

    def place_queues(self, topic: Topic) -> None:
        """Give a topic's queues the offsets that were loaded for them."""
        for queue in topic.queues:
            found = self._queues.pop((topic.number, queue.number), None)
            if found is not None:
                queue.next, queue.end, queue.stamp = found
                queue.page[0] = max(queue.page[0], queue.stamp)

    def finish(self) -> None:
        """Forget the stamps, once everything is replayed."""
        self._stamps.clear()
        self._queues.clear()

    # -- what the catalog and the sessions hold ---------------------------------------------------

    def _load_global(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key, stamp
        views = self._views
        known = _decode_global.decode(payload)
        views.catalog.next_topic = known.next_topic
        views.catalog.next_group = known.next_group
        views.sessions.next_number = known.next_session
        views.suspect_below = known.suspect_below
        views.dedup.cut_horizon = known.dedup_horizon

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
            )
        )

    def _load_topics(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.catalog.topic_pages[key.a] = stamp
        for one in _decode_topics.decode(payload):
            self._views.catalog.put_topic(one.number, one.spec)

    def _encode_topics(self, key: StateKey) -> bytes:
        found = [self._views.catalog.topics.get(number) for number in _page(key.a)]
        return _encode([_TopicState(one.number, one.spec) for one in found if one is not None])

    def _changed_topics(self, key: StateKey) -> int:
        return self._views.catalog.topic_pages.get(key.a, _ALWAYS)

    def _load_subscriptions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        catalog = self._views.catalog
        topic = catalog.topics.get(key.a)
        if topic is None:
            # Made after the chunk of its page of topics: all that became of it stands behind BEGIN.
            del self._stamps[key]
            return
        catalog.subscription_pages.setdefault(key.a, {})[key.b] = stamp
        for one in _decode_subscriptions.decode(payload):
            catalog.put_subscription(topic, one.group, one.name, one.spec)

    def _encode_subscriptions(self, key: StateKey) -> bytes:
        topic = self._views.catalog.topics.get(key.a)
        found = topic.subscriptions if topic is not None else {}
        return _encode(
            [
                _SubscriptionState(group, found[group].name, found[group].spec)
                for group in sorted(found)
                if group >> PAGE_BITS == key.b
            ]
        )

    def _changed_subscriptions(self, key: StateKey) -> int:
        return self._views.catalog.subscription_pages.get(key.a, {}).get(key.b, _ALWAYS)

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
        return _ALWAYS if page is None else page[0]

    def _load_sessions(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.sessions.pages[key.a] = stamp
        for joined in _decode_sessions.decode(payload):
            self._views.sessions.apply_joined(stamp, joined)

    def _encode_sessions(self, key: StateKey) -> bytes:
        known = self._views.sessions.by_number
        return _encode([known[number].info for number in _page(key.a) if number in known])

    def _changed_sessions(self, key: StateKey) -> int:
        return self._views.sessions.pages.get(key.a, _ALWAYS)

    def _load_apps(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._views.catalog.app_pages[key.a] = stamp
        for app in _decode_apps.decode(payload):
            self._views.catalog.put_app(app)

    def _encode_apps(self, key: StateKey) -> bytes:
        return _encode(self._views.catalog.apps_of_page(key.a))

    def _changed_apps(self, key: StateKey) -> int:
        return self._views.catalog.app_pages.get(key.a, _ALWAYS)

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
        return self._views.gone.pages.get(PageKey(key.a, key.b), _ALWAYS)

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

    # -- group queues -----------------------------------------------------------------------------

    def _load_held(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        if payload:
            load_main(self._held_of(key), payload, stamp)

    def _encode_held(self, key: StateKey) -> bytes:
        held = self._views.held.get((key.a, key.b, key.c))
        return b"" if held is None else encode_main(held)

    def _changed_held(self, key: StateKey) -> int:
        held = self._views.held.get((key.a, key.b, key.c))
        return _ALWAYS if held is None else held.changed

    def _load_shard(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        load_shard(self._held_of(key), key.d, payload, stamp)

    def _encode_shard(self, key: StateKey) -> bytes:
        held = self._views.held.get((key.a, key.b, key.c))
        return b"" if held is None else encode_shard(held, key.d)

    def _changed_shard(self, key: StateKey) -> int:
        held = self._views.held.get((key.a, key.b, key.c))
        return _ALWAYS if held is None else held.shard_changed.get(key.d, 0)

    def _held_of(self, key: StateKey) -> GroupQueue:
        place = (key.a, key.b, key.c)
        held = self._views.held.get(place)
        if held is None:
            held = self._views.held[place] = GroupQueue(*place, 0)
        return held


def _always(key: StateKey) -> int:
    del key
    return _ALWAYS


def _never(key: StateKey) -> int:
    del key
    return IMMUTABLE


def _page(number: int) -> range:
    """Return the numbers (of topics, of sessions) that a page covers."""
    return range(number << PAGE_BITS, (number + 1) << PAGE_BITS)
