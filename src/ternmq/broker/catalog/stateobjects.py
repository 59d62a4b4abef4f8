"""The STATE objects of what exists.

TOPICS, SUBSCRIPTIONS, QUEUES, EXPIRING, SESSIONS, APPS, GONE, NUMBERS.

A page that contains nothing is not written, and is forgotten: what is added to it later is in the
records behind BEGIN.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final, NamedTuple

import msgspec

from ternmq.broker.catalog.catalog import PAGE_BITS, QUEUE_BITS, Catalog, Topic
from ternmq.broker.catalog.gone import Gone, PageKey
from ternmq.broker.catalog.numbers import GivenNumbers
from ternmq.broker.catalog.sessions import Sessions
from ternmq.broker.containers.stateobject import ALWAYS, LOADED, StateType
from ternmq.journal.state.sets import StateKey
from ternmq.model.types import Position
from ternmq.record.fact import control, state

_decode_topics: Final = msgspec.msgpack.Decoder(list[state.TopicState])
_decode_subscriptions: Final = msgspec.msgpack.Decoder(list[state.SubscriptionState])
_decode_sessions: Final = msgspec.msgpack.Decoder(list[control.Joined])
_decode_apps: Final = msgspec.msgpack.Decoder(list[control.App])
_encode: Final = msgspec.msgpack.encode


class _QueueState(NamedTuple):
    next: int
    end: int
    stamp: int


class Unplaced:
    """Replay only: loaded offsets of queues, and subscriptions that were loaded before their topic.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_catalog", "expiring", "queues", "subscriptions")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.queues: dict[tuple[int, int], _QueueState] = {}
        """(topic number, queue number) -> offsets."""
        self.expiring: dict[tuple[int, int], int] = {}
        """(topic number, queue number) -> end of the rows that may expire."""
        self.subscriptions: dict[int, list[state.SubscriptionState]] = {}
        """Topic number -> subscriptions."""

    def place(self, topic: Topic) -> None:
        """Give a topic what was loaded for it: the offsets of its queues, and its subscriptions."""
        for one in self.subscriptions.pop(topic.number, ()):
            self._catalog.put_subscription(topic, one.group, one.name, one.spec)
        for queue in topic.queues:
            found = self.queues.pop((topic.number, queue.number), None)
            if found is not None:
                queue.next, queue.end, queue.stamp = found
            stop = self.expiring.pop((topic.number, queue.number), 0)
            if stop:
                queue.note_expiring(stop)
                self._catalog.expiring[topic.number] = topic

    def clear(self) -> None:
        """Forget the rest, once everything is replayed."""
        self.queues.clear()
        self.expiring.clear()
        self.subscriptions.clear()


class TopicObjects(StateType):
    """TOPICS: pages of topics with their settings."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in _filled(self._catalog.topic_pages, self._catalog.topics):
            yield StateKey(state.TOPICS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._catalog.topic_pages[key.a] = LOADED
        for one in _decode_topics.decode(payload):
            self._catalog.put_topic(one.number, one.spec)

    def encode(self, key: StateKey) -> bytes:
        found = [self._catalog.topics.get(number) for number in _page(key.a)]
        return _encode([state.TopicState(one.number, one.spec) for one in found if one is not None])

    def changed(self, key: StateKey) -> int:
        return self._catalog.topic_pages.get(key.a, ALWAYS)


class SubscriptionObjects(StateType):
    """SUBSCRIPTIONS: pages of groups with their settings."""

    def __init__(self, catalog: Catalog, unplaced: Unplaced) -> None:
        self._catalog = catalog
        self._unplaced = unplaced

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in _filled(self._catalog.subscription_pages, self._catalog.groups):
            yield StateKey(state.SUBSCRIPTIONS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        catalog = self._catalog
        catalog.subscription_pages[key.a] = LOADED
        for one in _decode_subscriptions.decode(payload):
            topic = catalog.topics.get(one.topic)
            if topic is None:  # made after its page of topics was written: its record follows
                self._unplaced.subscriptions.setdefault(one.topic, []).append(one)
            else:
                catalog.put_subscription(topic, one.group, one.name, one.spec)

    def encode(self, key: StateKey) -> bytes:
        return _encode(
            [
                state.SubscriptionState(one.topic.number, one.group, one.name, one.spec)
                for one in self._catalog.groups_of_page(key.a)
            ]
        )

    def changed(self, key: StateKey) -> int:
        return self._catalog.subscription_pages.get(key.a, ALWAYS)


class QueueObjects(StateType):
    """QUEUES: pages of queues with their next offsets."""

    def __init__(self, catalog: Catalog, unplaced: Unplaced) -> None:
        self._catalog = catalog
        self._unplaced = unplaced

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        catalog = self._catalog
        for topics, queues in sorted(catalog.queue_pages):
            if any(number in catalog.topics for number in _page(topics)):
                yield StateKey(state.QUEUES, topics, queues)
            else:
                catalog.queue_pages.pop((topics, queues), None)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del key
        for number, queue, next_, end in state.QUEUE.iter_unpack(payload):
            self._unplaced.queues[number, queue] = _QueueState(next_, end, stamp)

    def encode(self, key: StateKey) -> bytes:
        parts: list[bytes] = []
        lowest = key.b << QUEUE_BITS
        for number in _page(key.a):
            topic = self._catalog.topics.get(number)
            if topic is not None:
                for queue in topic.queues[lowest : lowest + (1 << QUEUE_BITS)]:
                    parts.append(state.QUEUE.pack(number, queue.number, queue.next, queue.end))
        return b"".join(parts)

    def changed(self, key: StateKey) -> int:
        page = self._catalog.queue_pages.get((key.a, key.b))
        return ALWAYS if page is None else page[0]


class ExpiringObjects(StateType):
    """EXPIRING: pages of queues with rows that may expire."""

    def __init__(self, catalog: Catalog, unplaced: Unplaced) -> None:
        self._catalog = catalog
        self._unplaced = unplaced

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        catalog = self._catalog
        for topics, queues in sorted(catalog.expiring_pages):
            if any(number in catalog.topics for number in _page(topics)):
                yield StateKey(state.EXPIRING, topics, queues)
            else:
                catalog.expiring_pages.pop((topics, queues), None)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._catalog.expiring_pages[key.a, key.b] = LOADED
        for number, queue, stop in state.EXPIRING_QUEUE.iter_unpack(payload):
            self._unplaced.expiring[number, queue] = stop

    def encode(self, key: StateKey) -> bytes:
        parts: list[bytes] = []
        lowest = key.b << QUEUE_BITS
        for number in _page(key.a):
            topic = self._catalog.topics.get(number)
            if topic is not None:
                for queue in topic.queues[lowest : lowest + (1 << QUEUE_BITS)]:
                    if queue.expiring_stop:
                        parts.append(
                            state.EXPIRING_QUEUE.pack(number, queue.number, queue.expiring_stop)
                        )
        return b"".join(parts)

    def changed(self, key: StateKey) -> int:
        return self._catalog.expiring_pages.get((key.a, key.b), ALWAYS)


class SessionObjects(StateType):
    """SESSIONS: pages of sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in _filled(self._sessions.pages, self._sessions.by_number):
            yield StateKey(state.SESSIONS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        for joined in _decode_sessions.decode(payload):
            self._sessions.apply_joined(stamp, joined)
        self._sessions.pages[key.a] = LOADED

    def encode(self, key: StateKey) -> bytes:
        known = self._sessions.by_number
        return _encode([known[number].info for number in _page(key.a) if number in known])

    def changed(self, key: StateKey) -> int:
        return self._sessions.pages.get(key.a, ALWAYS)


class AppObjects(StateType):
    """APPS: pages of apps, by a hash of their names."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for page in sorted(self._catalog.app_pages):
            yield StateKey(state.APPS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        del stamp
        self._catalog.app_pages[key.a] = LOADED
        for app in _decode_apps.decode(payload):
            self._catalog.put_app(app)

    def encode(self, key: StateKey) -> bytes:
        return _encode(self._catalog.apps_of_page(key.a))

    def changed(self, key: StateKey) -> int:
        return self._catalog.app_pages.get(key.a, ALWAYS)


class GoneObjects(StateType):
    """GONE: pages of names of deleted topics, groups and sessions."""

    def __init__(self, gone: Gone) -> None:
        self._gone = gone

    def keys(self, begin: int) -> Iterator[StateKey]:
        del begin
        for sort, page in sorted(self._gone.pages):
            yield StateKey(state.GONE, sort, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        self._gone.load(key.a, key.b, payload, stamp)

    def encode(self, key: StateKey) -> bytes:
        return self._gone.encode(key.a, key.b)

    def changed(self, key: StateKey) -> int:
        return self._gone.pages.get(PageKey(key.a, key.b), ALWAYS)


class NumbersObjects(StateType):
    """NUMBERS: pages of the sequences of topics."""

    def __init__(self, numbers: GivenNumbers) -> None:
        self._numbers = numbers

    def keys(self, begin: int) -> Iterator[StateKey]:
        """See ``StateType``."""
        del begin
        for page in self._numbers.pages():
            yield StateKey(state.NUMBERS, page)

    def load(self, key: StateKey, payload: bytes, stamp: Position) -> None:
        """See ``StateType``."""
        del stamp
        self._numbers.load(key.a, payload)

    def encode(self, key: StateKey) -> bytes:
        """See ``StateType``."""
        return self._numbers.encode(key.a)

    def changed(self, key: StateKey) -> int:
        """See ``StateType``."""
        return self._numbers.changed.get(key.a, ALWAYS)


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
