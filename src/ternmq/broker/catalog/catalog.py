"""What exists: topics with their queues, the groups that consume them, and the apps.

Every record names objects by number. Numbers are never reused, so a name that is created again is
a new object. Changes are CONFIG records, decided in `administration` and applied here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ternmq.broker.catalog.filter import GroupFilter, filter_of
from ternmq.broker.catalog.firsts import Firsts
from ternmq.broker.catalog.instances import Instances
from ternmq.broker.catalog.joined import JoinedGroups
from ternmq.broker.catalog.levels import LevelTurns
from ternmq.broker.catalog.owners import Owners
from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.broker.containers.tokens import Tokens
from ternmq.broker.group.mode import GroupMode, GroupModes
from ternmq.broker.group.progress import Progress
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.batch.batch import topic_seed
from ternmq.record.batch.hashes import key_hash
from ternmq.record.batch.layout import may_expire
from ternmq.record.fact.control import App

PAGE_BITS: Final = 6
"""Topics and groups are written to STATE in pages of 64 numbers."""
QUEUE_BITS: Final = 4
"""STATE pages of offsets have 16 queues of 64 topics, those of cursors 16 queues of 64 groups."""
APP_PAGES: Final = 1024
"""Most STATE pages of apps; the hash of an app's name selects its page. With ten thousand apps, ten
share a page, which stays far below 64 KiB unless they have very many grants."""


_NEVER: Final = 1 << 63
_MANY_GROUPS: Final = 64
"""Number of groups from which a topic keeps the sorted list of their names between calls."""


def app_page(name: str) -> int:
    """Return the page of STATE that contains an app."""
    return key_hash(name.encode()) % APP_PAGES


class Queue:
    """One ordered sequence of messages. ``next`` is the offset that the next message gets."""

    __slots__ = (
        "_firsts",
        "end",
        "expiring_stop",
        "first_as_of",
        "followed",
        "judged_below",
        "known_first",
        "next",
        "number",
        "page",
        "recovered",
        "stamp",
        "topic",
        "watched",
    )

    def __init__(self, topic: Topic, number: int, page: list[int], firsts: Firsts[Queue]) -> None:
        self.topic = topic
        self.number = number
        self.page = page
        self._firsts = firsts
        self.next = 0
        self.known_first = 0
        """Value of ``first`` when it was last looked up."""
        self.first_as_of = firsts.removed
        """Number of segments that had been removed by then."""
        self.end = 0
        """End of the newest record that added rows; once it is durable, all rows are visible."""
        self.stamp = 0
        self.expiring_stop = 0
        """One above the highest row that states when it expires."""
        self.judged_below = _NEVER if topic.spec.expires_us else 0
        """Rows below it may expire: ``expiring_stop``, or all rows if the topic says so."""
        self.recovered = 0
        """Volatile: value of ``next`` when this epoch began."""
        self.watched = False
        """Volatile: a parked pull or a reader waits for new rows; see ``Parking.grew``."""
        self.followed = False
        """Volatile: a reader waits for the next rows; see ``Parking.follow``."""

    def note_expiring(self, stop: int) -> None:
        """Note that rows below an offset may expire."""
        if stop > self.expiring_stop:
            self.expiring_stop = stop
            if stop > self.judged_below:
                self.judged_below = stop

    def judge(self) -> None:
        """Derive ``judged_below`` again: the settings of the topic were changed."""
        self.judged_below = _NEVER if self.topic.spec.expires_us else self.expiring_stop

    def check_reset(self, offset: int) -> None:
        """Check that a group can be reset to an offset.

        Raises:
            InvalidRequest: The offset is below the oldest one that is kept, or behind the end.
        """
        if not self.first <= offset <= self.next:
            raise InvalidRequest(
                f"offset must be {self.first} to {self.next}: from the oldest message that the "
                "queue keeps to its end"
            )

    @property
    def first(self) -> int:
        """Oldest offset that is kept, derived from the index."""
        if self.first_as_of != self._firsts.removed:
            self._firsts.look_up(self)
        return self.known_first


class Topic:
    """A topic with its queues and the groups that consume it."""

    __slots__ = (
        "_group_names",
        "by_group",
        "level_turns",
        "name",
        "number",
        "queues",
        "round_robin",
        "seed",
        "spec",
        "special",
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
        """Volatile: the sorted names of the groups, if they are many, until one comes or goes."""
        self.round_robin = 0
        """Volatile: the queue that got the newest batch without a requested queue."""
        self.level_turns = [0] * spec.levels if spec.levels > 1 else []
        """Volatile: the same for each level, as the index of the queue in it; empty without
        levels."""
        self.special = spec.ordered or spec.levels > 1
        """Whether the queue of a batch depends on its messages; it never changes."""

    def group_names(self) -> list[str]:
        """Return the sorted names of its groups; the caller must not change the list."""
        if self._group_names is not None:
            return self._group_names
        names = sorted(self.by_group)
        if len(names) >= _MANY_GROUPS:
            self._group_names = names
        return names

    def forget_order(self) -> None:
        """Drop the sorted names: a group came or went."""
        self._group_names = None


class Waiter:
    """A parked pull."""

    __slots__ = (
        "at_once", "deadline_us", "detached_us", "max_bytes", "max_messages", "session",
        "subscription", "token",
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
        detached_us: int = 0,
    ) -> None:
        self.token = token
        self.session = session
        self.subscription = subscription
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.deadline_us = deadline_us
        self.at_once = at_once
        self.detached_us = detached_us


class Counts:
    """Rows handed out to a group and settled by it since the start; the shell counts them.

    The counts are deleted with the group.
    """

    __slots__ = ("delivered", "settled")

    def __init__(self) -> None:
        self.delivered = 0
        """Number of rows handed out."""
        self.settled: dict[str, int] = {}
        """Outcome -> number of rows."""


class Subscription:
    """A consumer group on a topic; ``group`` is the number of this (group, topic) pair."""

    __slots__ = (
        "confirmed",
        "counts",
        "filter",
        "group",
        "guarded",
        "level_turns",
        "limited",
        "locks",
        "mode",
        "name",
        "owners",
        "queues",
        "spec",
        "straight",
        "topic",
        "turn",
        "waiters",
    )

    def __init__(
        self, group: int, name: str, topic: Topic, spec: SubscriptionSpec, mode: GroupMode
    ) -> None:
        self.group = group
        self.name = name
        self.topic = topic
        self.waiters: Tokens[Waiter] = Tokens()
        """Volatile: pulls that wait for rows."""
        self.queues: list[Progress] = []
        self.turn = 0
        """Volatile: the queue that the next pull tries first."""
        levels = topic.spec.levels
        self.level_turns = LevelTurns(levels) if levels > 1 else None
        """Volatile: the turns on a topic with levels, in place of ``turn``."""
        self.counts: Counts | None = None
        """Volatile: None until something is counted."""
        self.owners: Owners | None = None
        """Volatile: the members, and whose each queue is; None if queues belong to nobody."""
        self.set(spec, mode)

    def counted(self) -> Counts:
        """Return the counts; create them at the first call."""
        if self.counts is None:
            self.counts = Counts()
        return self.counts

    def set(self, spec: SubscriptionSpec, mode: GroupMode) -> None:
        """Set the settings; ``mode``: the row of the mode that they name."""
        self.spec = spec
        self.mode = mode
        self.filter: GroupFilter | None = filter_of(spec)
        # What each pull asks, without a second look-up.
        self.confirmed = mode.confirmed
        self.guarded = spec.paused or spec.instance is not None or mode.assigns
        self.straight = mode.straight and self.filter is None
        self.locks = mode.locks
        self.limited = bool(spec.concurrency or spec.offline)
        if not mode.assigns:
            self.owners = None
        elif self.owners is None:
            self.owners = Owners()


class Catalog:
    """All topics and subscriptions, by number and by name; all apps, by name."""

    __slots__ = (
        "_apps_by_page",
        "app_names",
        "app_pages",
        "apps",
        "by_name",
        "expiring",
        "expiring_pages",
        "firsts",
        "group_numbers",
        "groups",
        "instances",
        "joined",
        "modes",
        "next_group",
        "next_topic",
        "offline_entries",
        "queue_pages",
        "subscription_pages",
        "topic_names",
        "topic_numbers",
        "topic_pages",
        "topics",
    )

    def __init__(self, firsts: Firsts[Queue], modes: GroupModes) -> None:
        self.firsts = firsts
        self.modes = modes
        """The table of group modes."""
        self.topics: dict[int, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self.groups: dict[int, Subscription] = {}
        # For listings: the keys of the three dicts above, in order.
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
        self.expiring: dict[int, Topic] = {}
        """Topics with rows that may expire, or that had some, by number; until they are removed."""
        self.expiring_pages: dict[tuple[int, int], int] = {}
        """(page of topics, page of queues) -> newest record with rows that may expire."""
        self.instances = Instances()
        self.joined = JoinedGroups()
        self.offline_entries = 0
        """Clients that are switched off, counted by the entries of all groups."""
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

    def consumer_of(self, progress: Progress) -> Subscription | None:
        """Return the subscription that a group queue belongs to, or None if it is gone."""
        topic = self.topics.get(progress.topic)
        return topic.subscriptions.get(progress.group) if topic is not None else None

    def names_of(self, numbers: Iterable[int]) -> list[str]:
        """Return the sorted names of those topics that exist."""
        return sorted(self.topics[number].name for number in numbers if number in self.topics)

    def put_topic(self, number: int, spec: TopicSpec) -> Topic:
        """Add a topic, or change its settings; queues are added, never removed."""
        topic = self.topics.get(number)
        if topic is None:
            topic = self.topics[number] = Topic(number, spec)
            self.by_name[spec.name] = topic
            self.topic_names.add(spec.name)
            self.topic_numbers.add(number)
            self.next_topic = max(self.next_topic, number + 1)
        topic.spec = spec
        for known in topic.queues:
            known.judge()
        if spec.expires_us:
            self.expiring[number] = topic
        for queue in range(len(topic.queues), spec.queue_count):
            page = self.queue_pages.setdefault((number >> PAGE_BITS, queue >> QUEUE_BITS), [0])
            topic.queues.append(Queue(topic, queue, page, self.firsts))
        return topic

    def note_expiring(self, position: int, queue: Queue, stop: int) -> None:
        """Note that a record stored rows below ``stop`` that may expire."""
        number = queue.topic.number
        queue.note_expiring(stop)
        self.expiring[number] = queue.topic
        self.expiring_pages[number >> PAGE_BITS, queue.number >> QUEUE_BITS] = position

    def note_prepared(self, position: int, number: int, batch: bytes) -> None:
        """Note that a transaction prepared rows of a topic, if they may expire.

        Their RESOLVED does not say whether they do. So from here on, all rows of the topic that
        come by a transaction count as rows that may expire: ``expiring_stop`` of queue 0 is not 0.
        """
        topic = self.topics.get(number)
        if topic is not None and may_expire(batch):
            self.note_expiring(position, topic.queues[0], 1)

    def remove_topic(self, number: int) -> Topic | None:
        """Remove a topic; the caller removes its subscriptions."""
        topic = self.topics.pop(number, None)
        self.topic_numbers.discard(number)
        self.expiring.pop(number, None)
        if topic is not None and self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            self.topic_names.discard(topic.name)
        return topic

    def put_subscription(
        self, topic: Topic, group: int, name: str, spec: SubscriptionSpec
    ) -> Subscription:
        """Add a subscription without queues, or change its settings."""
        subscription = topic.subscriptions.get(group)
        if subscription is None:
            subscription = Subscription(group, name, topic, spec, self.modes[spec.mode])
            topic.subscriptions[group] = self.groups[group] = subscription
            topic.by_group[name] = subscription
            topic.forget_order()
            self.group_numbers.add(group)
            self.next_group = max(self.next_group, group + 1)
            self.offline_entries += len(spec.offline)
            if spec.instance is not None:
                self.instances.put(group, spec.instance)
        else:
            self.set_subscription(subscription, spec)
        return subscription

    def set_subscription(self, subscription: Subscription, spec: SubscriptionSpec) -> None:
        """Change the settings of a subscription."""
        self.offline_entries += len(spec.offline) - len(subscription.spec.offline)
        subscription.set(spec, self.modes[spec.mode])
        if subscription.owners is None:
            self.joined.discard(subscription.group)
        if spec.instance is not None:
            self.instances.put(subscription.group, spec.instance)

    def remove_subscription(self, topic: Topic, group: int) -> Subscription | None:
        """Remove a subscription and return it."""
        subscription = topic.subscriptions.pop(group, None)
        self.groups.pop(group, None)
        self.group_numbers.discard(group)
        self.instances.discard(group)
        self.joined.discard(group)
        if subscription is not None:
            self.offline_entries -= len(subscription.spec.offline)
        if subscription is not None and topic.by_group.get(subscription.name) is subscription:
            del topic.by_group[subscription.name]
            topic.forget_order()
        return subscription

    def remove_subscriptions(self, topic: Topic) -> dict[int, Subscription]:
        """Remove all subscriptions of a topic, and return them by number."""
        gone = topic.subscriptions
        for group, one in gone.items():
            del self.groups[group]
            self.offline_entries -= len(one.spec.offline)
        self.instances.discard_all(gone)
        self.joined.discard_all(gone)
        self.group_numbers.discard_all(gone)
        topic.subscriptions, topic.by_group = {}, {}
        topic.forget_order()
        return gone

    def groups_of_page(self, page: int) -> list[Subscription]:
        """Return the subscriptions of a page, by number."""
        groups = self.groups
        low = page << PAGE_BITS
        return [groups[number] for number in range(low, low + (1 << PAGE_BITS)) if number in groups]

    def held_of_page(self, groups: int, queues: int) -> list[Progress]:
        """Return the group queues of a page, by group and queue."""
        low = queues << QUEUE_BITS
        high = low + (1 << QUEUE_BITS)
        return [
            progress for one in self.groups_of_page(groups) for progress in one.queues[low:high]
        ]

    def put_app(self, app: App) -> None:
        """Add an app; it replaces one of the same name."""
        self.apps[app.name] = app
        self.app_names.add(app.name)
        self._apps_by_page.setdefault(app_page(app.name), set()).add(app.name)

    def remove_app(self, name: str) -> None:
        """Remove an app."""
        if self.apps.pop(name, None) is not None:
            self.app_names.discard(name)
            self._apps_by_page[app_page(name)].discard(name)

    def apps_of_page(self, page: int) -> list[App]:
        """Return the apps of a page, by name."""
        return [self.apps[name] for name in sorted(self._apps_by_page.get(page, ()))]
