"""What there is: topics, groups and their members, sessions, apps.

Everything is as of this moment, in memory, ordered, and bounded; each page names the position that
it rests on. Looking up the durable end of a queue may raise ``WouldBlock``: run the job, ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from ternmq.broker.broker import Broker
from ternmq.broker.catalog import Subscription, Topic
from ternmq.broker.queries import GroupStatus, Queries
from ternmq.broker.writers import Decision, Writer
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.control import App

MAX_TOPICS: Final = 1000
MAX_QUEUES: Final = 10_000
"""Queues that one page tells of: a page of topics ends early, a question about groups is refused.
A turn of the loop takes at most some tens of milliseconds for it."""


@dataclass(slots=True, frozen=True)
class QueueEnds:
    """Offsets of a queue."""

    first: int
    """The oldest that is kept."""
    next: int
    """The next, as far as messages are durable."""


@dataclass(slots=True, frozen=True)
class TopicStatus:
    """A topic as it is."""

    name: str
    number: int
    spec: TopicSpec
    queues: tuple[QueueEnds, ...]
    groups: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class TopicPage:
    """Topics by name; ``more`` when there are others behind the last."""

    topics: list[TopicStatus]
    more: bool
    position: int


@dataclass(slots=True, frozen=True)
class TransactionStatus:
    """A transaction that is undecided."""

    writer: str
    batch_id: int
    app: str
    topics: list[str]
    batches: int
    rows: int
    bytes: int
    opened_us: int
    expires_us: int


@dataclass(slots=True, frozen=True)
class WriterStatus:
    """A writer of transactions.

    ``highest`` is its committed one with the highest batch id, ``newest`` what was decided last.
    """

    name: str
    app: str
    last_us: int
    highest: Decision | None
    decisions: int
    newest: Decision | None


@dataclass(slots=True, frozen=True)
class TransactionPage:
    """Undecided transactions, oldest first, and writers by name."""

    undecided: list[TransactionStatus]
    writers: list[WriterStatus]
    more: bool
    position: int


@dataclass(slots=True, frozen=True)
class Member:
    """A session that holds messages of a group, or waits for some."""

    session: int
    app: str
    client: str
    leased: int
    """Rows in its hands."""
    waiting: int
    """Parked pulls."""


@dataclass(slots=True, frozen=True)
class GroupOverview:
    """A group on a topic."""

    topic: str
    group: str
    spec: SubscriptionSpec
    queues: tuple[GroupStatus, ...]
    members: tuple[str, ...]
    """Names of the clients, each once."""


@dataclass(slots=True, frozen=True)
class GroupPage:
    """Groups, by topic and name."""

    groups: list[GroupOverview]
    position: int


@dataclass(slots=True, frozen=True)
class SessionStatus:
    """A client instance that is here, or within its grace."""

    session: int
    app: str
    client: str
    address: str
    """Where it came from first."""
    pid: int
    version: str
    connected: bool
    since_us: int


@dataclass(slots=True, frozen=True)
class SessionPage:
    """Sessions, oldest first."""

    sessions: list[SessionStatus]
    position: int


@dataclass(slots=True, frozen=True)
class AppPage:
    """Apps, by name."""

    apps: list[App]
    position: int


class Listings:
    """Loop only."""

    __slots__ = ("_broker", "_queries")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queries = Queries(broker)

    def topics(
        self,
        names: Iterable[str] | None = None,
        after: str = "",
        limit: int = MAX_TOPICS,
        visible: Callable[[str], bool] | None = None,
    ) -> TopicPage:
        """Return topics by name. O(topics).

        Args:
            names: Only these, as far as they are there; None: all.
            after: Only those behind this name.
            limit: At most so many.
            visible: Which may be shown; None: all.

        Raises:
            InvalidRequest: the limit is not 1 to 1000.
            WouldBlock: see the module.
        """
        if not 1 <= limit <= MAX_TOPICS:
            raise InvalidRequest(f"limit must be 1 to {MAX_TOPICS}")
        by_name = self._broker.views.catalog.by_name
        wanted: Iterator[str] = iter(by_name)
        if names is not None:
            wanted = (name for name in set(names) if name in by_name)
        found = nsmallest(
            limit + 1,
            (name for name in wanted if name > after and (visible is None or visible(name))),
        )
        listed: list[TopicStatus] = []
        queues = 0
        for name in found[:limit]:
            topic = by_name[name]
            queues += len(topic.queues)
            if listed and queues > MAX_QUEUES:
                break
            listed.append(self._topic(topic))
        return TopicPage(listed, len(listed) < len(found), self._broker.journal.end)

    def _topic(self, topic: Topic) -> TopicStatus:
        ends: list[QueueEnds] = []
        for queue in topic.queues:
            next_ = self._queries.visible(topic, queue)
            ends.append(QueueEnds(min(queue.first, next_), next_))
        return TopicStatus(
            topic.name, topic.number, topic.spec, tuple(ends), tuple(sorted(topic.by_group))
        )

    def groups(
        self,
        topic: str | None = None,
        group: str | None = None,
        visible: Callable[[str, str], bool] | None = None,
    ) -> GroupPage:
        """Return how groups stand, by topic and name.

        Args:
            topic: Only on this one; None: on every topic.
            group: Only of this name.
            visible: Which (topic, group) may be shown; None: all.

        Raises:
            UnknownTopic: the topic named is not there.
            UnknownGroup: both are named, and the group is not there.
            InvalidRequest: there are too many; ask for one topic or one group.
            WouldBlock: see the module.
        """
        catalog = self._broker.views.catalog
        if topic is not None and group is not None:
            catalog.subscription(topic, group)
        chosen = [
            one
            for found in ([catalog.topic(topic)] if topic is not None else catalog.topics.values())
            for one in self._subscriptions(found, group)
            if visible is None or visible(found.name, one.name)
        ]
        if len(chosen) > 1 and sum([len(one.queues) for one in chosen]) > MAX_QUEUES:
            raise InvalidRequest(
                f"more than {MAX_QUEUES} queues of groups: ask for one topic or one group"
            )
        chosen.sort(key=lambda one: (one.topic.name, one.name))
        return GroupPage([self._group(one) for one in chosen], self._broker.journal.end)

    @staticmethod
    def _subscriptions(topic: Topic, group: str | None) -> Sequence[Subscription]:
        if group is None:
            return list(topic.by_group.values())
        found = topic.by_group.get(group)
        return () if found is None else (found,)

    def _group(self, one: Subscription) -> GroupOverview:
        queues = tuple(
            [
                self._queries.status(one.topic.name, one.name, number)
                for number in range(len(one.queues))
            ]
        )
        names = sorted({member.client for member in self._members(one)})
        return GroupOverview(one.topic.name, one.name, one.spec, queues, tuple(names))

    def members(self, topic: str, group: str) -> list[Member]:
        """Return who consumes a topic for a group now, by session.

        Raises:
            UnknownTopic, UnknownGroup.
        """
        return self._members(self._broker.views.catalog.subscription(topic, group))

    def _members(self, subscription: Subscription) -> list[Member]:
        leased: dict[int, int] = {}
        for held in subscription.queues:
            for lease in held.leases.values():
                rows = sum([stop - start for start, stop, _, _ in lease.runs])
                leased[lease.session] = leased.get(lease.session, 0) + rows
        waiting: dict[int, int] = {}
        for waiter in subscription.waiters:
            waiting[waiter.session] = waiting.get(waiter.session, 0) + 1
        known = self._broker.views.sessions.by_number
        return [
            Member(
                number,
                known[number].info.app,
                known[number].info.client,
                leased.get(number, 0),
                waiting.get(number, 0),
            )
            for number in sorted({*leased, *waiting})
            if number in known
        ]

    def sessions(self) -> SessionPage:
        """Return every session."""
        known = self._broker.views.sessions.by_number
        listed = [
            SessionStatus(
                one.number,
                one.info.app,
                one.info.client,
                one.info.address,
                one.info.pid,
                one.info.version,
                one.connected,
                one.info.since_us,
            )
            for _, one in sorted(known.items())
        ]
        return SessionPage(listed, self._broker.journal.end)

    def apps(self) -> AppPage:
        """Return every app."""
        apps = self._broker.views.catalog.apps
        return AppPage([apps[name] for name in sorted(apps)], self._broker.journal.end)

    # -- transactions -----------------------------------------------------------------------------

    def transactions(self, app: str | None, writer: str | None, limit: int) -> TransactionPage:
        """Return the transactions that are undecided, and the writers.

        Args:
            app: Only what belongs to it; None: everything.
            writer: Only this one; None: every one.
            limit: Most of either.
        """
        views = self._broker.views
        named = views.writers.by_name

        def wanted(one: Writer) -> bool:
            return app in (None, one.app) and writer in (None, one.name)

        undecided: list[TransactionStatus] = []
        more = False
        for opened in views.undecided.by_number.values():
            owner = views.writers.by_number[opened.writer]
            if not wanted(owner):
                continue
            if len(undecided) == limit:
                more = True
                break
            undecided.append(
                TransactionStatus(
                    owner.name,
                    opened.batch_id,
                    owner.app,
                    self._broker.transactions.topics_of(owner.name, opened.batch_id),
                    opened.count,
                    opened.rows,
                    opened.bytes,
                    opened.opened_us,
                    opened.opened_us + views.limits.transaction_us,
                )
            )
        some = nsmallest(limit + 1, [one for one in named.values() if wanted(one)], _name_of)
        writers = [
            WriterStatus(
                one.name,
                one.app,
                one.last_us,
                None if one.highest is None else one.decisions[one.highest],
                len(one.decisions),
                next(reversed(one.decisions.values()), None),
            )
            for one in some[:limit]
        ]
        more = more or len(some) > limit
        return TransactionPage(undecided, writers, more, self._broker.journal.end)


def _name_of(writer: Writer) -> str:
    return writer.name
