"""What there is: topics, groups and their members, sessions, apps.

Everything is as of this moment, in memory, ordered, and comes in pages: one costs what is on it,
however much there is, and each names where to go on and the position that it rests on. A page ends
at its limit, when ``PAGE_WORK`` is done, or when so much was looked at that is not to be shown that
the turn would be long; so a page may be short, even empty, and others follow. To look up the
durable end of a queue may raise ``WouldBlock``: run the job, ask again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import islice
from typing import Final, NamedTuple

from ternmq.broker.catalog import Subscription, Topic
from ternmq.broker.ledger import Ledger
from ternmq.broker.queries import GroupStatus, Queries
from ternmq.broker.sessions import Session
from ternmq.broker.sight import EVERYTHING, Sight, names_under
from ternmq.broker.sortedkeys import SortedKeys
from ternmq.broker.undecided import Transaction
from ternmq.broker.writers import Decision, Writer
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import SubscriptionSpec, TopicSpec
from ternmq.record.control import App

MAX_LISTED: Final = 1000
"""Most of anything on a page, whatever its limit says."""
PAGE_WORK: Final = 300
"""What one page may cost, 2 to 3 us each: a page is below a millisecond. It has one entry at least.
"""
ENTRY_WORK: Final = 2
"""What a topic, group, session or app counts for besides what it has: queues, groups, leases,
grants."""


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
    """Topics by name."""

    topics: list[TopicStatus]
    next: str
    """Go on behind this name; empty: there are no others."""
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


class TransactionPlace(NamedTuple):
    """A place in both lists: behind a transaction's number, and behind a writer's name."""

    number: int
    writer: str


@dataclass(slots=True, frozen=True)
class TransactionPage:
    """Undecided transactions, oldest first, and writers by name."""

    undecided: list[TransactionStatus]
    writers: list[WriterStatus]
    next: TransactionPlace | None
    """Go on behind this place; None: there are no others of either."""
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


class GroupPlace(NamedTuple):
    """A place in a list of groups: behind a group, or behind all of a topic that has none such."""

    topic: str
    group: str


@dataclass(slots=True, frozen=True)
class GroupPage:
    """Groups, by topic and name."""

    groups: list[GroupOverview]
    next: GroupPlace | None
    """Go on behind this one; None: there are no others."""
    position: int


@dataclass(slots=True, frozen=True)
class SubscriptionPage:
    """Groups as the catalog has them: for this turn only."""

    groups: list[Subscription]
    more: bool
    """There may be others."""


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
    next: int
    """Go on behind this number; 0: there are no others."""
    position: int


@dataclass(slots=True, frozen=True)
class AppPage:
    """Apps, by name."""

    apps: list[App]
    next: str
    """Go on behind this name; empty: there are no others."""
    position: int


_BEGINNING: Final = TransactionPlace(0, "")
_DECISIONS_WORK: Final = 32
"""Decisions of a writer that are looked at as quickly as a queue is told of."""


class Listings:
    """Answers what there is: topics, groups, members, sessions, apps, transactions.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_ledger", "_queries")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._queries = Queries(ledger)

    def topics(
        self,
        names: Iterable[str] | None = None,
        after: str = "",
        limit: int = MAX_LISTED,
        sight: Sight = EVERYTHING,
    ) -> TopicPage:
        """Return topics by name.

        Args:
            names: Only these, as far as they are there; None: all. O(names).
            after: Only those behind this name.
            limit: At most so many.
            sight: Which may be shown.

        Raises:
            InvalidRequest: the limit is not 1 to 1000.
            WouldBlock: see the module.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidRequest(f"limit must be 1 to {MAX_LISTED}")
        catalog = self._ledger.views.catalog
        by_name, end = catalog.by_name, self._ledger.journal.end
        if names is None:
            wanted = names_under(sight.topics, catalog.topic_names, by_name, after)
        else:
            wanted = _ascending([one for one in set(names) if one > after and one in by_name])
        listed: list[TopicStatus] = []
        work, last = 0, after
        for looks, name in enumerate(wanted):
            if len(listed) == limit or looks >= sight.looks:
                return TopicPage(listed, last, end)
            if sight.sees_topic(name):
                topic = by_name[name]
                work += ENTRY_WORK + len(topic.queues) + len(topic.by_group)
                if listed and work > PAGE_WORK:
                    return TopicPage(listed, last, end)
                listed.append(self._topic(topic))
            last = name
        return TopicPage(listed, "", end)

    def _topic(self, topic: Topic) -> TopicStatus:
        ends: list[QueueEnds] = []
        for queue in topic.queues:
            next_ = self._queries.visible(topic, queue)
            ends.append(QueueEnds(min(queue.first, next_), next_))
        return TopicStatus(
            topic.name, topic.number, topic.spec, tuple(ends), tuple(topic.group_names())
        )

    def ends(self, topic: str, number: int) -> QueueEnds:
        """Return the offsets of a queue.

        Raises:
            UnknownTopic, UnknownQueue.
            WouldBlock: see the module.
        """
        found, queue = self._queries.queue(topic, number)
        next_ = self._queries.visible(found, queue)
        return QueueEnds(min(queue.first, next_), next_)

    def groups(
        self,
        topic: str | None = None,
        group: str | None = None,
        after: GroupPlace | None = None,
        limit: int = MAX_LISTED,
        sight: Sight = EVERYTHING,
    ) -> GroupPage:
        """Return how groups stand, by topic and name.

        Args:
            topic: Only on this one; None: on every topic.
            group: Only of this name.
            after: Only those behind this place.
            limit: At most so many.
            sight: Which may be shown.

        Raises:
            UnknownTopic: the topic named is not there.
            UnknownGroup: both are named, and the group is not there.
            InvalidRequest: the limit is not 1 to 1000.
            WouldBlock: see the module.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidRequest(f"limit must be 1 to {MAX_LISTED}")
        catalog, end = self._ledger.views.catalog, self._ledger.journal.end
        if topic is not None and group is not None:
            catalog.subscription(topic, group)
        elif topic is not None:
            catalog.topic(topic)
        listed: list[GroupOverview] = []
        work, last = 0, after
        for looks, place in enumerate(self._places(topic, group, after, sight)):
            if len(listed) == limit or looks >= sight.looks:
                return GroupPage(listed, last, end)
            one = catalog.by_name[place.topic].by_group.get(place.group)
            if one is not None and sight.sees_group(*place):
                work += _work_of(one)
                if listed and work > PAGE_WORK:
                    return GroupPage(listed, last, end)
                listed.append(self._group(one))
            last = place
        return GroupPage(listed, None, end)

    def places(self, limit: int, sight: Sight) -> SubscriptionPage:
        """Return the first groups that may be shown, by topic and name, as they are."""
        catalog = self._ledger.views.catalog
        found: list[Subscription] = []
        work = 0
        for looks, place in enumerate(self._places(None, None, None, sight)):
            if len(found) == limit or looks >= sight.looks or work > PAGE_WORK:
                return SubscriptionPage(found, more=True)
            one = catalog.by_name[place.topic].by_group.get(place.group)
            if one is not None and sight.sees_group(*place):
                work += ENTRY_WORK + len(one.queues)
                found.append(one)
        return SubscriptionPage(found, more=False)

    def _places(
        self, topic: str | None, group: str | None, after: GroupPlace | None, sight: Sight
    ) -> Iterator[GroupPlace]:
        """Yield where groups may be, behind a place: of every topic one place at least."""
        catalog = self._ledger.views.catalog
        begun = catalog.by_name.get(after.topic) if after is not None else None
        if (
            after is not None
            and begun is not None
            and group is None
            and topic in (None, after.topic)
        ):
            names = begun.group_names()
            for name in islice(names, bisect_right(names, after.group), None):
                yield GroupPlace(after.topic, name)
        above = "" if after is None else after.topic
        if topic is None:
            topics = names_under(sight.groups, catalog.topic_names, catalog.by_name, above)
        else:
            topics = iter([topic] if after is None else [])
        for found in topics:
            if group is not None:
                yield GroupPlace(found, group)
                continue
            names = catalog.by_name[found].group_names()
            if not names:
                yield GroupPlace(found, "")
            for name in names:
                yield GroupPlace(found, name)

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
        return self._members(self._ledger.views.catalog.subscription(topic, group))

    def _members(self, subscription: Subscription) -> list[Member]:
        leased: dict[int, int] = {}
        for held in subscription.queues:
            for lease in held.leases.values():
                rows = sum([stop - start for start, stop, _, _ in lease.runs])
                leased[lease.session] = leased.get(lease.session, 0) + rows
        waiting: dict[int, int] = {}
        for waiter in subscription.waiters.values():
            waiting[waiter.session] = waiting.get(waiter.session, 0) + 1
        known = self._ledger.views.sessions.by_number
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

    def sessions(self, after: int = 0, limit: int = MAX_LISTED) -> SessionPage:
        """Return sessions by number, which is the order in which they began."""
        known = self._ledger.views.sessions
        end = self._ledger.journal.end
        most = min(limit, PAGE_WORK // ENTRY_WORK)
        some = list(islice(known.numbers.behind(after), most + 1))
        more = len(some) > most
        if more:
            some.pop()
        listed = [_session_status(known.by_number[number]) for number in some]
        return SessionPage(listed, some[-1] if more else 0, end)

    def apps(self, after: str = "", limit: int = MAX_LISTED) -> AppPage:
        """Return apps by name."""
        catalog, end = self._ledger.views.catalog, self._ledger.journal.end
        listed: list[App] = []
        work = 0
        for name in catalog.app_names.behind(after):
            app = catalog.apps[name]
            work += len(app.grants) + ENTRY_WORK
            if len(listed) == limit or (listed and work > PAGE_WORK):
                return AppPage(listed, listed[-1].name, end)
            listed.append(app)
        return AppPage(listed, "", end)

    # -- transactions -----------------------------------------------------------------------------

    def transactions(
        self,
        app: str | None,
        writer: str | None,
        limit: int,
        after: TransactionPlace = _BEGINNING,
    ) -> TransactionPage:
        """Return the transactions that are undecided, and the writers.

        O(page), and of undecided transactions a look at each: there are a thousand at most.

        Args:
            app: Only what belongs to it; None: everything.
            writer: Only this one; None: every one.
            limit: Most of either.
            after: Only those behind this place.
        """
        views = self._ledger.views
        undecided: list[TransactionStatus] = []
        work, more = 0, False
        number, name = after
        for opened in views.undecided.by_number.values():
            owner = views.writers.by_number[opened.writer]
            if opened.number <= after.number or not _is_of(owner, app, writer):
                continue
            work += ENTRY_WORK + len(opened.topics)
            if len(undecided) == limit or (undecided and work > PAGE_WORK // 2):
                more = True
                break
            undecided.append(self._transaction(opened, owner))
            number = opened.number
        writers: list[WriterStatus] = []
        work = 0
        for found in self._writers(app, writer, after.writer):
            work += ENTRY_WORK + len(found.decisions) // _DECISIONS_WORK
            if len(writers) == limit or (writers and work > PAGE_WORK // 2):
                more = True
                break
            writers.append(_writer_status(found))
            name = found.name
        place = TransactionPlace(number, name) if more else None
        return TransactionPage(undecided, writers, place, self._ledger.journal.end)

    def _writers(self, app: str | None, writer: str | None, after: str) -> Iterator[Writer]:
        """Yield writers by name."""
        writers = self._ledger.views.writers
        if writer is not None:
            found = writers.by_name.get(writer)
            if found is not None and writer > after and _is_of(found, app, writer):
                yield found
            return
        names = writers.names if app is None else writers.by_app.get(app, SortedKeys())
        for name in names.behind(after):
            yield writers.by_name[name]

    def _transaction(self, opened: Transaction, owner: Writer) -> TransactionStatus:
        ledger = self._ledger
        return TransactionStatus(
            owner.name,
            opened.batch_id,
            owner.app,
            ledger.views.catalog.names_of(opened.topics),
            opened.count,
            opened.rows,
            opened.bytes,
            opened.opened_us,
            opened.opened_us + ledger.limits.transaction_us,
        )


def _is_of(one: Writer, app: str | None, writer: str | None) -> bool:
    return app in (None, one.app) and writer in (None, one.name)


def _writer_status(one: Writer) -> WriterStatus:
    highest = one.highest
    return WriterStatus(
        one.name,
        one.app,
        one.last_us,
        None if highest is None else one.decisions[highest],
        len(one.decisions),
        next(reversed(one.decisions.values()), None),
    )


def _ascending(names: list[str]) -> Iterator[str]:
    """Yield names in order; those that nobody takes are not put in order."""
    heapify(names)
    while names:
        yield heappop(names)


def _work_of(one: Subscription) -> int:
    return 2 * ENTRY_WORK + sum([1 + len(held.leases) for held in one.queues])


def _session_status(one: Session) -> SessionStatus:
    info = one.info
    return SessionStatus(
        one.number,
        info.app,
        info.client,
        info.address,
        info.pid,
        info.version,
        one.connected,
        info.since_us,
    )
