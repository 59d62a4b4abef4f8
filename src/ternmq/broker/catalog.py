"""What exists: topics with their queues, the groups that consume them, and the apps.

Objects are named by number in every record; numbers are never reused, so a recreated name is a new
object. Changes are CONFIG records, decided in `administration` and applied here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ternmq.broker.filter import TagFilter, parse
from ternmq.broker.firsts import Firsts
from ternmq.broker.groupqueue import GroupQueue
from ternmq.broker.sortedkeys import SortedKeys
from ternmq.broker.tokens import Tokens
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from ternmq.model.specs import Mode, SubscriptionSpec, TopicSpec
from ternmq.record.batch import topic_seed
from ternmq.record.control import App
from ternmq.record.hashes import key_hash

PAGE_BITS: Final = 6
"""Topics and groups are written to STATE in pages of 64 numbers."""
QUEUE_BITS: Final = 4
"""Offsets are written in pages of 16 queues of 64 topics, cursors of 16 queues of 64 groups."""
APP_PAGES: Final = 1024
"""Apps are written in so many pages at most, by the hash of their names: ten apps of ten thousand
share one, so a page stays far below 64 KiB unless their grants are very many."""


_MANY_GROUPS: Final = 64
"""So many names of a topic's groups are kept in order between two looks."""


def app_page(name: str) -> int:
    """Return the page of STATE that an app is written in."""
    return key_hash(name.encode()) % APP_PAGES


class Queue:
    """One ordered sequence of messages. ``next`` is the offset that the next message gets."""

    __slots__ = (
        "_firsts",
        "end",
        "first_as_of",
        "followed",
        "known_first",
        "next",
        "number",
        "page",
        "recovered",
        "stamp",
        "topic",
        "watched",
    )

    def __init__(self, topic: Topic, number: int, page: list[int], firsts: Firsts) -> None:
        self.topic = topic
        self.number = number
        self.page = page
        self._firsts = firsts
        self.next = 0
        self.known_first = 0
        """What ``first`` was when it was looked up last."""
        self.first_as_of = firsts.removed
        """How many segments were gone then."""
        self.end = 0
        """Where the newest MESSAGES record ends: visible as a whole once that is durable."""
        self.stamp = 0
        self.recovered = 0
        """Volatile: what ``next`` was when this reign began."""
        self.watched = False
        """Volatile: some pull is parked on it, so a moved mark must be noticed."""
        self.followed = False
        """Volatile: somebody waits to read what comes next; see ``Parking.follow``."""

    def check_reset(self, offset: int) -> None:
        """See that a group can be set to an offset.

        Raises:
            InvalidRequest: It is older than what is kept, or behind the end.
        """
        if not self.first <= offset <= self.next:
            raise InvalidRequest(f"offset must be {self.first} to {self.next}")

    @property
    def first(self) -> int:
        """Oldest offset that is kept; derived from the index."""
        if self.first_as_of != self._firsts.removed:
            self._firsts.look_up(self)
        return self.known_first


class Topic:
    """A topic and what consumes it."""

    __slots__ = (
        "_group_names",
        "by_group",
        "name",
        "number",
        "queues",
        "round_robin",
        "seed",
        "spec",
        "subscriptions",
    )

    def __init__(self, number: int, spec: TopicSpec) -> None:
        self.number = number
        self.spec = spec
        self.name = spec.name
        self.seed = topic_seed(spec.name)
        self.queues: list[Queue] = []
        self.subscriptions: dict[int, Subscription] = {}
        self.by_group: dict[str, Subscription] = {}
        self._group_names: list[str] | None = None
        """Volatile: the names of many groups in order, while these are the same."""
        self.round_robin = 0
        """Volatile: which queue the next batch without a wish goes to."""

    def group_names(self) -> list[str]:
        """Return the names of its groups in order; not to be changed."""
        if self._group_names is not None:
            return self._group_names
        names = sorted(self.by_group)
        if len(names) >= _MANY_GROUPS:
            self._group_names = names
        return names

    def forget_order(self) -> None:
        """Take note that a group came or went."""
        self._group_names = None


class Waiter:
    """A parked pull."""

    __slots__ = (
        "at_once", "deadline_us", "max_bytes", "max_messages", "session", "subscription", "token",
    )  # fmt: skip

    def __init__(
        self,
        token: int,
        session: int,
        subscription: Subscription,
        max_messages: int,
        max_bytes: int,
        deadline_us: int,
        at_once: int = 0,
    ) -> None:
        self.token = token
        self.session = session
        self.subscription = subscription
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.deadline_us = deadline_us
        self.at_once = at_once


class Counts:
    """What was handed out to a group and settled by it since the start; the shell counts it.

    It belongs to the group as an object: a group that is deleted takes its counts along.
    """

    __slots__ = ("delivered", "settled")

    def __init__(self) -> None:
        self.delivered = 0
        """Rows."""
        self.settled: dict[str, int] = {}
        """Rows by outcome."""


class Subscription:
    """A consumer group on a topic; ``group`` is the number of just this pair."""

    __slots__ = (
        "counts",
        "filter",
        "group",
        "name",
        "ordered",
        "queues",
        "spec",
        "topic",
        "turn",
        "waiters",
    )

    def __init__(self, group: int, name: str, topic: Topic, spec: SubscriptionSpec) -> None:
        self.group = group
        self.name = name
        self.topic = topic
        self.waiters: Tokens[Waiter] = Tokens()
        """Volatile: pulls that wait for rows."""
        self.queues: list[GroupQueue] = []
        self.turn = 0
        """Volatile: which queue the next pull looks at first."""
        self.counts: Counts | None = None
        """Volatile: None until something is counted."""
        self.set(spec)

    def counted(self) -> Counts:
        """Return where to count."""
        if self.counts is None:
            self.counts = Counts()
        return self.counts

    def set(self, spec: SubscriptionSpec) -> None:
        """Take over settings."""
        self.spec = spec
        self.ordered = spec.mode is Mode.ORDERED
        self.filter: TagFilter | None = parse(spec.tags)


class Catalog:
    """All topics and subscriptions, by number and by name; all apps, by name."""

    __slots__ = (
        "_apps_by_page",
        "app_names",
        "app_pages",
        "apps",
        "by_name",
        "firsts",
        "group_numbers",
        "groups",
        "next_group",
        "next_topic",
        "queue_pages",
        "subscription_pages",
        "topic_names",
        "topic_numbers",
        "topic_pages",
        "topics",
    )

    def __init__(self, firsts: Firsts) -> None:
        self.firsts = firsts
        self.topics: dict[int, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self.groups: dict[int, Subscription] = {}
        # What lists go through: the same as in the three above, in order.
        self.topic_names: SortedKeys[str] = SortedKeys()
        self.topic_numbers: SortedKeys[int] = SortedKeys()
        self.group_numbers: SortedKeys[int] = SortedKeys()
        self.next_topic = 1
        self.next_group = 1
        self.topic_pages: dict[int, int] = {}
        """Page of topics -> newest record that changed a setting in it."""
        self.subscription_pages: dict[int, int] = {}
        """Page of group numbers -> newest record that changed a setting in it."""
        self.queue_pages: dict[tuple[int, int], list[int]] = {}
        """(page of topics, page of queues) -> newest record that moved an offset in it."""
        self.apps: dict[str, App] = {}
        self.app_pages: dict[int, int] = {}
        """Page of apps -> newest record that changed one in it."""
        self.app_names: SortedKeys[str] = SortedKeys()
        self._apps_by_page: dict[int, set[str]] = {}

    def topic(self, name: str) -> Topic:
        """Return the topic of that name, or raise UnknownTopic."""
        topic = self.by_name.get(name)
        if topic is None:
            raise UnknownTopic(f"no topic {name!r}")
        return topic

    def subscription(self, topic: str, group: str) -> Subscription:
        """Return the group's subscription of the topic, or raise UnknownTopic or UnknownGroup."""
        known = self.by_name.get(topic)
        if known is None:
            raise UnknownTopic(f"no topic {topic!r}")
        subscription = known.by_group.get(group)
        if subscription is None:
            raise UnknownGroup(f"no group {group!r} on topic {topic!r}")
        return subscription

    def consumer_of(self, held: GroupQueue) -> Subscription | None:
        """Return the subscription that a group queue belongs to, or None if it is gone."""
        topic = self.topics.get(held.topic)
        return topic.subscriptions.get(held.group) if topic is not None else None

    def names_of(self, numbers: Iterable[int]) -> list[str]:
        """Return the names of those topics that are there, sorted."""
        return sorted(self.topics[number].name for number in numbers if number in self.topics)

    def put_topic(self, number: int, spec: TopicSpec) -> Topic:
        """Put a topic in, or give one other settings; queues are added, never taken away."""
        topic = self.topics.get(number)
        if topic is None:
            topic = self.topics[number] = Topic(number, spec)
            self.by_name[spec.name] = topic
            self.topic_names.add(spec.name)
            self.topic_numbers.add(number)
            self.next_topic = max(self.next_topic, number + 1)
        topic.spec = spec
        for queue in range(len(topic.queues), spec.queues):
            page = self.queue_pages.setdefault((number >> PAGE_BITS, queue >> QUEUE_BITS), [0])
            topic.queues.append(Queue(topic, queue, page, self.firsts))
        return topic

    def remove_topic(self, number: int) -> Topic | None:
        """Take a topic out; its subscriptions are taken out one by one."""
        topic = self.topics.pop(number, None)
        self.topic_numbers.discard(number)
        if topic is not None and self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            self.topic_names.discard(topic.name)
        return topic

    def put_subscription(
        self, topic: Topic, group: int, name: str, spec: SubscriptionSpec
    ) -> Subscription:
        """Put a subscription in, without queues, or give one other settings."""
        subscription = topic.subscriptions.get(group)
        if subscription is None:
            subscription = Subscription(group, name, topic, spec)
            topic.subscriptions[group] = self.groups[group] = subscription
            topic.by_group[name] = subscription
            topic.forget_order()
            self.group_numbers.add(group)
            self.next_group = max(self.next_group, group + 1)
        else:
            subscription.set(spec)
        return subscription

    def remove_subscription(self, topic: Topic, group: int) -> Subscription | None:
        """Take a subscription out."""
        subscription = topic.subscriptions.pop(group, None)
        self.groups.pop(group, None)
        self.group_numbers.discard(group)
        if subscription is not None and topic.by_group.get(subscription.name) is subscription:
            del topic.by_group[subscription.name]
            topic.forget_order()
        return subscription

    def remove_subscriptions(self, topic: Topic) -> dict[int, Subscription]:
        """Take all subscriptions of a topic out, and return them by number."""
        gone = topic.subscriptions
        for group in gone:
            del self.groups[group]
        self.group_numbers.discard_all(gone)
        topic.subscriptions, topic.by_group = {}, {}
        topic.forget_order()
        return gone

    def groups_of_page(self, page: int) -> list[Subscription]:
        """Return the subscriptions of a page, by number."""
        groups = self.groups
        low = page << PAGE_BITS
        return [groups[number] for number in range(low, low + (1 << PAGE_BITS)) if number in groups]

    def held_of_page(self, groups: int, queues: int) -> list[GroupQueue]:
        """Return the group queues of a page, by group and queue."""
        low = queues << QUEUE_BITS
        high = low + (1 << QUEUE_BITS)
        return [held for one in self.groups_of_page(groups) for held in one.queues[low:high]]

    def put_app(self, app: App) -> None:
        """Put an app in, in place of the one of that name."""
        self.apps[app.name] = app
        self.app_names.add(app.name)
        self._apps_by_page.setdefault(app_page(app.name), set()).add(app.name)

    def remove_app(self, name: str) -> None:
        """Take an app out."""
        if self.apps.pop(name, None) is not None:
            self.app_names.discard(name)
            self._apps_by_page[app_page(name)].discard(name)

    def apps_of_page(self, page: int) -> list[App]:
        """Return the apps of a page, by name."""
        return [self.apps[name] for name in sorted(self._apps_by_page.get(page, ()))]
