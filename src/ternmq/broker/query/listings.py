"""Listings of topics, groups and their members, sessions, apps and transactions.

Listings show the state of this moment; they are made from memory, ordered, and divided into pages.
The cost of a page depends on its entries only, and each page contains where the next one begins and
the position that it depends on. A page ends at its limit, when ``PAGE_WORK`` is done, or when so
many entries that may not be shown were skipped that the turn would be long. So a page may be short,
even empty, and others follow. Looking up the durable end of a queue may raise ``WouldBlock``: run
the job, then call again.

Entries are structs of the protocol where it has one for them: a client receives what is returned
here (docs/adr/0015-the-core-returns-structs-of-the-protocol.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from itertools import islice
from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Subscription, Topic
from ternmq.broker.catalog.sessions import Session
from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.broker.delivery.allowance import switched_off
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.query.held import Held
from ternmq.broker.query.messages import Queries
from ternmq.broker.query.sight import EVERYTHING, Sight, names_under
from ternmq.broker.transaction.undecided import Transaction
from ternmq.broker.transaction.writers import Decision, Writer
from ternmq.model.errors import InvalidRequest
from ternmq.record.fact.control import App
from ternmq.wire.control.connection import short_name
from ternmq.wire.control.groups import GroupInfo
from ternmq.wire.control.topics import QueueInfo, TopicInfo
from ternmq.wire.control.transactions import DecisionInfo, TransactionInfo, WriterInfo

MAX_LISTED: Final = 1000
"""Most entries of a page."""
PAGE_WORK: Final = 300
"""Work units that one page may take, 2 to 3 us each: a page takes less than a millisecond. Only the
first entry of a page may take more."""
MAX_CONSUMED: Final = 16
"""Most groups that are listed of a session."""
_LOOKS: Final = 64
"""Most group queues, and parked pulls, that are looked at for this."""
ENTRY_WORK: Final = 2
"""Work units of a topic, group, session or app, besides its queues, groups, leases or grants."""
_BEHIND_INSTANCES: Final = "$b/"
"""Names of groups that are broadcast instances are below this text, all others above."""


@dataclass(slots=True, frozen=True)
class TopicPage:
    """A page of topics, by name."""

    topics: list[TopicInfo]
    next: str
    """The next page begins behind this name; empty: this is the last page."""
    position: int


class TransactionPlace(NamedTuple):
    """A place in both lists of a page: the last transaction's number, the last writer's name."""

    number: int
    writer: str


@dataclass(slots=True, frozen=True)
class TransactionPage:
    """A page of undecided transactions, oldest first, and of writers by name."""

    undecided: list[TransactionInfo]
    writers: list[WriterInfo]
    next: TransactionPlace | None
    """The next page begins behind this place; None: this is the last page of both lists."""
    position: int


@dataclass(slots=True, frozen=True)
class Member:
    """A session that has leases of a group, waits for messages, or joined (modes with members)."""

    session: int
    app: str
    client: str
    leased: int
    """Number of leased rows."""
    waiting: int
    """Number of parked pulls."""


class GroupPlace(NamedTuple):
    """A place in a list of groups: behind a group, or behind a topic that does not have it."""

    topic: str
    group: str


@dataclass(slots=True, frozen=True)
class GroupPage:
    """A page of groups, by topic and name."""

    groups: list[GroupInfo]
    next: GroupPlace | None
    """The next page begins behind this place; None: this is the last page."""
    position: int


@dataclass(slots=True, frozen=True)
class SubscriptionPage:
    """Groups as objects of the catalog: valid for this turn only."""

    groups: list[Subscription]
    more: bool
    """Whether there may be others."""


@dataclass(slots=True, frozen=True)
class Consumed:
    """A group that a session consumes with."""

    topic: str
    group: str
    offline: bool
    """Whether the client is switched off for the group."""


@dataclass(slots=True, frozen=True)
class SessionStatus:
    """A client instance that is connected, or within its grace."""

    session: int
    app: str
    client: str
    address: str
    """Address from which the session was opened."""
    pid: int
    version: str
    connected: bool
    since_us: int
    """When the session began."""
    away_us: int
    """Since when it has no connection, or since the broker's start; 0: it has one."""
    consumes: list[Consumed]
    """The groups of which it has messages, or waits for some; at most ``MAX_CONSUMED``."""


@dataclass(slots=True, frozen=True)
class SessionPage:
    """A page of sessions, oldest first."""

    sessions: list[SessionStatus]
    next: int
    """The next page begins behind this number; 0: this is the last page."""
    position: int


@dataclass(slots=True, frozen=True)
class AppPage:
    """A page of apps, by name."""

    apps: list[App]
    next: str
    """The next page begins behind this name; empty: this is the last page."""
    position: int


_BEGINNING: Final = TransactionPlace(0, "")
_DECISIONS_WORK: Final = 32
"""Decisions of a writer that take one work unit."""


class Listings:
    """Lists topics, groups, members, sessions, apps and transactions.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_held", "_parking", "_queries")

    def __init__(self, held: Held, parking: Parking | None = None) -> None:
        self._held = held
        self._parking = parking
        self._queries = Queries(held)

    def topics(
        self,
        names: Iterable[str] | None = None,
        after: str = "",
        limit: int = MAX_LISTED,
        sight: Sight = EVERYTHING,
    ) -> TopicPage:
        """Return topics by name.

        Args:
            names: Only these, as far as they exist; None: all. O(names).
            after: Only topics behind this name.
            limit: Number of topics at most.
            sight: The topics that may be shown.

        Raises:
            InvalidRequest: the limit is not 1 to 1000.
            WouldBlock: see the module.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidRequest(f"limit must be 1 to {MAX_LISTED}")
        catalog = self._held.views.catalog
        by_name, end = catalog.by_name, self._held.journal.end
        if names is None:
            wanted = names_under(sight.topics, catalog.topic_names, by_name, after)
        else:
            wanted = _ascending([one for one in set(names) if one > after and one in by_name])
        listed: list[TopicInfo] = []
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

    def _topic(self, topic: Topic) -> TopicInfo:
        ends: list[QueueInfo] = []
        for queue in topic.queues:
            next_ = self._queries.visible(topic, queue)
            ends.append(QueueInfo(first=min(queue.first, next_), next=next_))
        scheduled = self._held.views.schedule.topics.get(topic.number)
        names = topic.group_names()
        return TopicInfo(
            number=topic.number,
            spec=topic.spec,
            queues=ends,
            groups=names[_first_of(names) :],
            instances=_first_of(names),
            scheduled=0 if scheduled is None else scheduled.rows,
        )

    def ends(self, topic: str, number: int) -> QueueInfo:
        """Return the offsets of a queue.

        Raises:
            UnknownTopic, UnknownQueue.
            WouldBlock: see the module.
        """
        found, queue = self._queries.queue(topic, number)
        next_ = self._queries.visible(found, queue)
        return QueueInfo(first=min(queue.first, next_), next=next_)

    def groups(
        self,
        topic: str | None = None,
        group: str | None = None,
        after: GroupPlace | None = None,
        limit: int = MAX_LISTED,
        sight: Sight = EVERYTHING,
        *,
        broadcast: bool = False,
    ) -> GroupPage:
        """Return groups with their status, by topic and name.

        Args:
            topic: Only groups on this topic; None: on every topic.
            group: Only groups of this name; None: all.
            after: Only groups behind this place.
            limit: Number of groups at most.
            sight: The groups that may be shown.
            broadcast: Whether broadcast instances are listed that are not named.

        Raises:
            UnknownTopic: the named topic does not exist.
            UnknownGroup: both are named, and the group does not exist.
            InvalidRequest: the limit is not 1 to 1000.
            WouldBlock: see the module.
        """
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidRequest(f"limit must be 1 to {MAX_LISTED}")
        catalog, end = self._held.views.catalog, self._held.journal.end
        if topic is not None and group is not None:
            catalog.subscription(topic, group)
        elif topic is not None:
            catalog.topic(topic)
        listed: list[GroupInfo] = []
        work, last = 0, after
        places = self._places(topic, group, after, sight, broadcast=broadcast)
        for looks, place in enumerate(places):
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
        """Return the first groups that may be shown, by topic and name, as catalog objects."""
        catalog = self._held.views.catalog
        found: list[Subscription] = []
        work = 0
        places = self._places(None, None, None, sight, broadcast=False)
        for looks, place in enumerate(places):
            if len(found) == limit or looks >= sight.looks or work > PAGE_WORK:
                return SubscriptionPage(found, more=True)
            one = catalog.by_name[place.topic].by_group.get(place.group)
            if one is not None and sight.sees_group(*place):
                work += ENTRY_WORK + len(one.queues)
                found.append(one)
        return SubscriptionPage(found, more=False)

    def _places(
        self,
        topic: str | None,
        group: str | None,
        after: GroupPlace | None,
        sight: Sight,
        *,
        broadcast: bool,
    ) -> Iterator[GroupPlace]:
        """Yield the places behind ``after`` where groups may be, at least one for each topic."""
        catalog = self._held.views.catalog
        begun = catalog.by_name.get(after.topic) if after is not None else None
        if (
            after is not None
            and begun is not None
            and group is None
            and topic in (None, after.topic)
        ):
            names = begun.group_names()
            first = max(bisect_right(names, after.group), 0 if broadcast else _first_of(names))
            for name in islice(names, first, None):
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
            first = 0 if broadcast else _first_of(names)
            if first == len(names):
                yield GroupPlace(found, "")
            for name in islice(names, first, None):
                yield GroupPlace(found, name)

    def _group(self, one: Subscription) -> GroupInfo:
        queues = [
            self._queries.status(one.topic.name, one.name, number)
            for number in range(len(one.queues))
        ]
        names = sorted({member.client for member in self._members(one)})
        return GroupInfo(
            topic=one.topic.name,
            group=one.name,
            spec=one.spec,
            queues=queues,
            members=[short_name(name) for name in names],
        )

    def members(self, topic: str, group: str) -> list[Member]:
        """Return the members of a group on a topic, by session.

        Raises:
            UnknownTopic, UnknownGroup.
        """
        return self._members(self._held.views.catalog.subscription(topic, group))

    def _members(self, subscription: Subscription) -> list[Member]:
        leased: dict[int, int] = {}
        for progress in subscription.queues:
            for lease in progress.leases.values():
                rows = sum([stop - start for start, stop, _, _ in lease.runs])
                leased[lease.session] = leased.get(lease.session, 0) + rows
        waiting: dict[int, int] = {}
        for waiter in subscription.waiters.values():
            waiting[waiter.session] = waiting.get(waiter.session, 0) + 1
        known = self._held.views.sessions.by_number
        joined = () if subscription.owners is None else subscription.owners.members
        return [
            Member(
                number,
                known[number].info.app,
                known[number].info.client,
                leased.get(number, 0),
                waiting.get(number, 0),
            )
            for number in sorted({*leased, *waiting, *joined})
            if number in known
        ]

    def sessions(self, after: int = 0, limit: int = MAX_LISTED) -> SessionPage:
        """Return sessions by number, which is the order in which they began."""
        known = self._held.views.sessions
        end = self._held.journal.end
        most = min(limit, PAGE_WORK // ENTRY_WORK)
        some = list(islice(known.numbers.behind(after), most + 1))
        more = len(some) > most
        if more:
            some.pop()
        listed = [self._session(known.by_number[number]) for number in some]
        return SessionPage(listed, some[-1] if more else 0, end)

    def _session(self, one: Session) -> SessionStatus:
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
            0 if one.connected else one.away_us,
            self._consumes(one.number),
        )

    def _consumes(self, session: int) -> list[Consumed]:
        """Return the groups of which a session has leases or parked pulls. O(those)."""
        views = self._held.views
        groups = views.catalog.groups
        found: dict[int, Subscription] = {}
        held = [one.group for one in islice(views.figures.by_session.get(session, ()), _LOOKS)]
        waits = self._parking.groups_of(session, _LOOKS) if self._parking is not None else ()
        for group in [*waits, *held]:
            if group in groups and len(found) < MAX_CONSUMED:
                found[group] = groups[group]
        return [
            Consumed(one.topic.name, one.name, switched_off(views, one, session))
            for one in sorted(found.values(), key=lambda one: (one.topic.name, one.name))
        ]

    def apps(self, after: str = "", limit: int = MAX_LISTED) -> AppPage:
        """Return apps by name."""
        catalog, end = self._held.views.catalog, self._held.journal.end
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
        """Return the undecided transactions and the writers.

        O(page), plus a short step for each undecided transaction (``limits.transactions`` at most).

        Args:
            app: Only transactions and writers of this app; None: all.
            writer: Only this writer; None: all.
            limit: Number of entries of either list at most.
            after: Only entries behind this place.
        """
        views = self._held.views
        undecided: list[TransactionInfo] = []
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
        writers: list[WriterInfo] = []
        work = 0
        for found in self._writers(app, writer, after.writer):
            work += ENTRY_WORK + len(found.decisions) // _DECISIONS_WORK
            if len(writers) == limit or (writers and work > PAGE_WORK // 2):
                more = True
                break
            writers.append(_writer(found))
            name = found.name
        place = TransactionPlace(number, name) if more else None
        return TransactionPage(undecided, writers, place, self._held.journal.end)

    def _writers(self, app: str | None, writer: str | None, after: str) -> Iterator[Writer]:
        """Yield writers by name."""
        writers = self._held.views.writers
        if writer is not None:
            found = writers.by_name.get(writer)
            if found is not None and writer > after and _is_of(found, app, writer):
                yield found
            return
        names = writers.names if app is None else writers.by_app.get(app, SortedKeys())
        for name in names.behind(after):
            yield writers.by_name[name]

    def _transaction(self, opened: Transaction, owner: Writer) -> TransactionInfo:
        held = self._held
        return TransactionInfo(
            writer=owner.name,
            batch_id=opened.batch_id,
            app=owner.app,
            topics=held.views.catalog.names_of(opened.topics),
            batches=opened.count,
            rows=opened.rows,
            bytes=opened.bytes,
            opened_us=opened.opened_us,
            expires_us=opened.opened_us + held.limits.transaction_us,
        )


def _first_of(names: Sequence[str]) -> int:
    """Return where the groups begin in the sorted names of a topic: behind its instances."""
    return bisect_left(names, _BEHIND_INSTANCES)


def _is_of(one: Writer, app: str | None, writer: str | None) -> bool:
    return app in (None, one.app) and writer in (None, one.name)


def _writer(one: Writer) -> WriterInfo:
    highest = None if one.highest is None else one.decisions[one.highest]
    newest = next(reversed(one.decisions.values()), None)
    return WriterInfo(
        writer=one.name,
        app=one.app,
        last_us=one.last_us,
        highest=None if highest is None else highest.batch_id,
        digest=None if highest is None else highest.digest,
        rows=0 if highest is None else highest.rows,
        decisions=len(one.decisions),
        newest=None if newest is None else _decision(newest),
    )


def _decision(made: Decision) -> DecisionInfo:
    return DecisionInfo(
        batch_id=made.batch_id,
        committed=made.committed,
        rows=made.rows,
        decided_us=made.time_us,
    )


def _ascending(names: list[str]) -> Iterator[str]:
    """Yield names in order; names that are not consumed are not sorted."""
    heapify(names)
    while names:
        yield heappop(names)


def _work_of(one: Subscription) -> int:
    return 2 * ENTRY_WORK + sum([1 + len(progress.leases) for progress in one.queues])
