"""Administration of a broker: topics, groups, apps, holds, sessions, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeVar

import msgspec

from ternmq.client.admin.grants import grants_of
from ternmq.client.admin.older import check_group_stored, check_topic_stored, newer_settings
from ternmq.client.admin.places import queue_meant
from ternmq.client.connection.session import Session
from ternmq.client.content.validation import (
    check_positive,
    choose,
    flag,
    lease_us_of,
    length_us,
    limit_us,
    query_text,
    real,
    seconds_us,
    span_us,
    text,
    time_us,
    whole,
)
from ternmq.client.declaration.policy import RetryPolicy, spec_of
from ternmq.client.declaration.redeclaring import Redeclaring
from ternmq.client.declaration.source import (
    Source,
    assignments_of,
    check_headers,
    check_tags,
    mode_of,
)
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.declaration.topic import spec_of as topic_spec_of
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.process import pickling
from ternmq.model.errors import InvalidRequest, UnknownCommand, UnknownGroup, UnknownTopic
from ternmq.model.printing import quoted
from ternmq.model.specs import (
    Durability,
    Expired,
    Mode,
    Start,
    SubscriptionSpec,
    TopicSpec,
    check_group,
    check_name,
)
from ternmq.model.transaction_ids import transaction_number
from ternmq.model.words import article
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import (
    AlarmCleared,
    AlarmInfo,
    Alarms,
    AppInfo,
    CheckedTransaction,
    ClientInfo,
    ClockAccepted,
    GrantInfo,
    GroupInfo,
    Groups,
    HoldInfo,
    ProducerGroupInfo,
    ProducerGroups,
    ResetQueue,
    ScheduledHour,
    ScheduledInfo,
    Status,
    TopicInfo,
    Transactions,
)

T = TypeVar("T", bound=msgspec.Struct)

PAGE: Final = 1000
"""Most entries of a list per request; the broker may return fewer, to keep its turns short."""
RIGHTS_AT_ONCE: Final = 32
"""Most questions about rights per request."""
Place = int | datetime | Start | Literal["earliest", "latest"]
"""The position from which a group continues: an offset, a time, ``earliest`` or ``latest``."""


@looked_after("client.admin")
class Admin(pickling.NotPickled):
    """Topics, groups, apps, and the state of the broker. Each call needs a right on its object."""

    _not_pickled = pickling.PART.format("admin")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.redeclaring = Redeclaring(session)
        """What was declared over this client, for a broker that lost its data."""

    @property
    def app(self) -> str:
        """The app whose rights are used; empty if the client names none."""
        return self._session.options.app

    # -- topics

    async def create_topic(
        self,
        name: str | Topic,
        *,
        queues: int = 1,
        ordered: bool = False,
        durability: Durability | str = Durability.NORMAL,
        retention: float | timedelta | None = None,
        keep_until_consumed: bool = True,
        ignore_ordering_keys: bool = False,
        levels: int = 1,
        expires_after: float | timedelta | None = None,
        broadcast: bool = False,
    ) -> TopicSpec:
        """Make a topic.

        Args:
            name: Its name; or a ``Topic`` with its settings, and then no other argument.
            queues: Several queues spread the load; consumers need only one. With levels, the number
                of each level.
            ordered: Messages have ordering keys, and groups keep the order of each key.
            durability: When sends are answered: ``normal``, ``strict``, ``fast``.
            retention: How long messages are kept, in seconds or as a timedelta; None: 7 days.
            keep_until_consumed: Keep them longer, until every group has finished them.
            ignore_ordering_keys: For a topic that is not ordered: store messages with an ordering
                key, and keep no order by it. Otherwise they are refused.
            levels: Number of levels of priority, 1 to 8, of a topic that is not ordered. Messages
                of a higher level are delivered first. It cannot be changed.
            expires_after: Time after which a message expires, counted from when it was stored, in
                seconds or as a timedelta: from then on, it is neither delivered for the first time
                nor retried. None or 0: it never expires.
            broadcast: Its consumers are broadcast instances: they name no group, and each gets
                every message. It cannot be changed.

        Raises:
            TopicExists: There is a topic of that name.
            InvalidName, InvalidRequest: A value is not valid.
        """
        topic = Topic(
            name_of(name),
            queues=queues,
            ordered=ordered,
            durability=durability,
            retention=retention,
            keep_until_consumed=keep_until_consumed,
            ignore_ordering_keys=ignore_ordering_keys,
            levels=levels,
            expires_after=expires_after,
            broadcast=broadcast,
        )
        spec = topic_spec_of(topic)
        if isinstance(name, Topic):
            if spec != TopicSpec(name=name.name):
                raise InvalidRequest(
                    f"create_topic got topic {name.name!r} and other settings beside it: put all "
                    f"settings into the Topic"
                )
            spec = topic_spec_of(name)
        return await self.make_topic(spec)

    async def make_topic(self, spec: TopicSpec) -> TopicSpec:
        """Make a topic from all its settings; see ``create_topic``."""
        if not isinstance(spec, TopicSpec):
            raise InvalidRequest(f"spec is a TopicSpec, not {type(spec).__name__}")
        asked = control.TopicCreate(topic=spec.name, spec=spec.check())
        await self._do(Command.TOPIC_CREATE, asked)
        if newer_settings(spec):
            check_topic_stored(spec, (await self.topic(spec.name)).spec)
        return spec

    async def change_topic(
        self,
        name: str | Topic,
        *,
        queues: int | None = None,
        durability: Durability | str | None = None,
        retention: float | timedelta | None = None,
        keep_until_consumed: bool | None = None,
        ignore_ordering_keys: bool | None = None,
        expires_after: float | timedelta | None = None,
    ) -> TopicSpec:
        """Change settings of a topic; None leaves one unchanged.

        ``expires_after`` counts for messages that are stored already, too; 0: they never expire.

        Raises:
            UnknownTopic: There is no such topic.
        """
        name = name_of(name)
        spec = (await self.topic(name)).spec
        Topic(  # checks these values
            name,
            queues=queues,
            keep_until_consumed=keep_until_consumed,
            ignore_ordering_keys=ignore_ordering_keys,
            expires_after=expires_after,
        )
        if queues is not None:
            spec = msgspec.structs.replace(spec, queues=queues)
        if durability is not None:
            spec = msgspec.structs.replace(spec, durability=_durability(durability))
        if retention is not None:
            spec = msgspec.structs.replace(spec, retention_us=length_us("retention", retention))
        if keep_until_consumed is not None:
            spec = msgspec.structs.replace(spec, keep_until_consumed=keep_until_consumed)
        if ignore_ordering_keys is not None:
            spec = msgspec.structs.replace(spec, ignore_ordering_keys=ignore_ordering_keys)
        if expires_after is not None:
            lives = limit_us("expires_after", expires_after)
            spec = msgspec.structs.replace(spec, expires_us=lives)
        await self._do(Command.TOPIC_CHANGE, control.TopicChange(topic=name, spec=spec.check()))
        if expires_after is not None and newer_settings(spec):
            check_topic_stored(spec, (await self.topic(name)).spec)
        return spec

    async def delete_topic(self, name: str | Topic) -> None:
        """Remove a topic, with its messages and groups.

        Raises:
            UnknownTopic: There is no such topic.
        """
        await self._do(Command.TOPIC_DELETE, control.TopicDelete(topic=name_of(name)))

    async def topics(self, names: Iterable[str | Topic] | None = None) -> list[TopicInfo]:
        """Return the topics that this app has a right on, sorted by name."""
        if names is not None and (isinstance(names, str) or not isinstance(names, Iterable)):
            raise InvalidRequest(f"names is a list of topics, not {type(names).__name__}")
        if names is None:
            return await self._topics(None)
        wanted = sorted({name_of(name) for name in names})
        some = [wanted[at : at + PAGE] for at in range(0, len(wanted), PAGE)]
        return [one for part in some or [[]] for one in await self._topics(part)]

    async def _topics(self, wanted: list[str] | None) -> list[TopicInfo]:
        """Return all topics, or those of some names, which are sorted."""
        found: list[TopicInfo] = []
        after = ""
        while True:
            asked = control.TopicList(names=wanted, after=after)
            page = await self._ask(Command.TOPIC_LIST, asked, control.Topics)
            found += page.topics
            if not page.more or not (page.next or page.topics):
                return found
            after = page.next or page.topics[-1].spec.name  # an older broker has no `next`
            if wanted is not None:
                wanted = [name for name in wanted if name > after]

    async def topic(self, name: str | Topic) -> TopicInfo:
        """Return a topic.

        Raises:
            UnknownTopic: There is no such topic, or this app has no right on it.
        """
        name = name_of(name)
        for info in await self.topics([name]):
            return info
        raise UnknownTopic(f"there is no topic {name!r}, or this app has no right on it")

    # -- groups

    async def create_group(
        self,
        topic: str | Topic,
        group: str,
        *,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        assign: Mapping[str, Sequence[int]] | None = None,
    ) -> SubscriptionSpec:
        """Create a group on a topic, or check that it has these settings; consuming does the same.

        Args:
            topic: The topic.
            group: The group.
            tags: Filter, such as ``paid || refunded``.
            filter: Header filter, such as ``region = 'eu' AND amount >= 100``.
            mode: ``shared``, ``ordered``, ``queue_lock``, ``owned`` or ``exclusive``; None: the
                topic's.
            start: Where it begins, ``earliest`` or ``latest``.
            retry: When failed messages are delivered again.
            lease: How long messages are leased, in seconds or as a timedelta; 0.1 s to a day.
            assign: For mode ``owned``: patterns of member names, each with the numbers of the
                queues that such a member owns, such as ``{"billing-*": [0, 1]}``. If several
                patterns have the same queue, the first that matches a member counts. A queue that
                no pattern gives to a member waits. None: the queues are divided equally among the
                members.

        Raises:
            GroupSettingsMismatch: The group exists with other settings.
        """
        source = Source(name_of(topic), group, tags, mode, start, retry, lease, filter, assign)
        return await self.join_group(source)

    async def join_group(self, source: Source) -> SubscriptionSpec:
        """Create a group on a topic, or check that it has the settings that a handler states."""
        asked = source.join()
        spec = (await self._ask(Command.GROUP_JOIN, asked, control.GroupJoined)).spec
        source.check_joined(spec)
        return spec

    async def change_group(
        self,
        topic: str | Topic,
        group: str,
        *,
        tags: str | None = None,
        filter: str | None = None,  # noqa: A002
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        window: int | None = None,
        paused: bool | None = None,
        expired: Expired | str | None = None,
        mode: Mode | str | None = None,
        concurrency: int | None = None,
        offline: Iterable[str] | None = None,
        assign: Mapping[str, Sequence[int]] | None = None,
    ) -> SubscriptionSpec:
        """Change settings of a group on a topic; None leaves one unchanged.

        All of them apply from the next pull on. A message that a consumer holds stays leased to it.

        Args:
            topic: The topic.
            group: The group.
            tags: Filter, such as ``paid || refunded``.
            filter: Header filter, such as ``region = 'eu' AND amount >= 100``.
            retry: When failed messages are delivered again.
            lease: How long messages are leased, in seconds or as a timedelta; 0.1 s to a day.
            window: Most messages of a queue that are leased at one time.
            paused: Whether no messages are delivered.
            expired: What becomes of messages that expire before their first delivery or a retry:
                ``dead-letter`` or ``drop``.
            mode: ``shared``, ``ordered``, ``queue_lock``, ``owned`` or ``exclusive``.
            concurrency: Most messages that one client holds at the same time, in all queues
                together; 0: no limit.
            offline: Clients that get no messages: the beginning of the client's name, as
                ``clients`` shows it, or ``APP/CLIENT``; either part may end in ``*``. Empty: no
                client is switched off.
            assign: As for ``create_group``; empty: the queues are divided equally among the
                members. A change from mode ``owned`` to another mode removes the assignment.

        Raises:
            UnknownTopic, UnknownGroup: There is no such topic or group.
            GroupBusy: The new mode is ``ordered``, and the group is owed messages: leased ones,
                ready ones, or ones that wait for a retry.
            ModeNotAllowed: The new mode is ``ordered``, and the topic is not.
            InvalidRequest: The new mode keeps an order, and the group has a filter.
            GroupSettingsMismatch: The broker is too old for a setting.
        """
        topic = name_of(topic)
        if window is not None:
            whole("window", window)
        if concurrency is not None:
            whole("concurrency", concurrency)
        off = None if offline is None else _clients_off(offline)
        spec = (await self.group(topic, group)).spec
        if tags is not None and tags != spec.tags:
            spec = msgspec.structs.replace(spec, tags=check_tags(tags))
        if filter is not None and filter != spec.filter:
            spec = msgspec.structs.replace(spec, filter=check_headers(filter))
        stated = {
            "retry": None if retry is None else spec_of(retry),
            "lease_us": None if lease is None else lease_us_of(lease),
            "window": window,
            "paused": paused,
            "expired": None if expired is None else choose("expired", Expired, expired),
            "mode": None if mode is None else mode_of(mode),
            "concurrency": concurrency,
            "offline": off,
            "assign": None if assign is None else assignments_of(assign),
        }
        if stated["mode"] not in {None, Mode.OWNED} and assign is None:
            stated["assign"] = ()
        named = {name: value for name, value in stated.items() if value is not None}
        spec = msgspec.structs.replace(spec, **named)
        asked = control.GroupChange(topic=topic, group=group, spec=spec.check())
        await self._do(Command.GROUP_CHANGE, asked)
        newer = (retry is not None and spec.retry.expires_us) or concurrency or off
        if newer:
            stored = (await self.group(topic, group)).spec
            check_group_stored(topic, group, spec, stored)
        return spec

    async def switch_off(self, topic: str | Topic, group: str, *clients: str) -> SubscriptionSpec:
        """Deliver no more messages of a group to some clients; see ``change_group``, ``offline``.

        A pull of such a client gets nothing. The client may still settle the messages that it
        holds. An entry that matches no client now is stored, too: it may match later clients.

        Raises:
            InvalidRequest: No client is named.
        """
        has = (await self.group(topic, group)).spec.offline
        if not clients:
            raise InvalidRequest("switch_off needs at least one client, such as '1f3a77c0'")
        return await self.change_group(topic, group, offline=[*has, *clients])

    async def switch_on(self, topic: str | Topic, group: str, *clients: str) -> SubscriptionSpec:
        """Deliver messages to clients again that were switched off; without clients, to all.

        Raises:
            InvalidRequest: One of them is not switched off.
        """
        has = (await self.group(topic, group)).spec.offline
        for one in clients:
            if one not in has:
                listed = ", ".join(has) or "none"
                raise InvalidRequest(
                    f"{quoted(one)} is not switched off for group {group!r}; clients that are "
                    f"switched off: {listed}"
                )
        left = [one for one in has if clients and one not in clients]
        return await self.change_group(topic, group, offline=left)

    async def pause_group(self, topic: str | Topic, group: str) -> None:
        """Deliver no more messages to a group until it is resumed."""
        await self.change_group(topic, group, paused=True)

    async def resume_group(self, topic: str | Topic, group: str) -> None:
        """Deliver messages to a group again."""
        await self.change_group(topic, group, paused=False)

    async def delete_group(self, topic: str | Topic, group: str) -> None:
        """Remove a group from a topic, with its cursors, retries and dead letters."""
        await self._do(
            Command.GROUP_DELETE,
            control.GroupDelete(topic=name_of(topic), group=check_group(group)),
        )

    async def groups(
        self,
        topic: str | Topic | None = None,
        group: str | None = None,
        *,
        broadcast: bool = False,
    ) -> list[GroupInfo]:
        """Return the groups that this app has a right on, with their progress.

        Args:
            topic: Only groups on this topic; none if there is no such topic.
            group: Only groups of this name; none if there is no such group.
            broadcast: Also the broadcast instances: groups whose names begin with ``$b.``.

        Raises:
            InvalidName: No topic or group can have this name.
        """
        try:
            return await self._groups(
                None if topic is None else name_of(topic),
                None if group is None else check_group(group, "a group's name"),
                broadcast=flag("broadcast", broadcast),
            )
        except (UnknownTopic, UnknownGroup):
            return []

    async def _groups(
        self, topic: str | None, group: str | None, *, broadcast: bool = False
    ) -> list[GroupInfo]:
        return (await self._standing(topic, group, broadcast=broadcast)).groups

    async def _standing(
        self, topic: str | None, group: str | None, *, broadcast: bool = False
    ) -> Groups:
        asked = control.GroupList(topic=topic, group=group, limit=PAGE, broadcast=broadcast)
        first = page = await self._ask(Command.GROUP_LIST, asked, control.Groups)
        while page.next:
            asked = msgspec.structs.replace(asked, after=page.next)
            try:
                page = await self._ask(Command.GROUP_LIST, asked, control.Groups)
            except (UnknownTopic, UnknownGroup):  # the topic or group was deleted meanwhile
                break
            first.groups.extend(page.groups)
        return first

    async def standing(self, group: str | None = None) -> Groups:
        """Return the progress of groups on every topic, and the holds on the journal: both can lag.

        Args:
            group: Only groups of this name.
        """
        return await self._standing(None, None if group is None else check_group(group))

    async def group(self, topic: str | Topic, group: str) -> GroupInfo:
        """Return a group on a topic.

        Raises:
            UnknownTopic: There is no such topic.
            UnknownGroup: The group does not consume it, or this app has no right on it.
        """
        topic = name_of(topic)
        for info in await self._groups(topic, check_group(group)):
            return info
        raise UnknownGroup(f"group {group!r} does not consume topic {topic!r}")

    async def reset_group(
        self,
        topic: str | Topic,
        group: str,
        to: Place,
        *,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> list[ResetQueue]:
        """Set the position from which a group continues.

        Args:
            topic: The topic.
            group: The group.
            to: An offset (of one queue, which may be omitted if the topic has only one), a time,
                ``Start.EARLIEST`` or ``LATEST``, or their names.
            queue: The queue; None: all.
            dry_run: Only return what would happen.

        Returns:
            Where the group continues on each queue, how many messages are unread then, and how many
            are forgotten: they were leased, ready for a consumer, or waited for a retry.
        """
        if isinstance(to, bool) or not isinstance(to, int | datetime | Start | str):
            raise InvalidRequest(
                f"to is an offset, a datetime, Start.EARLIEST or Start.LATEST; "
                f"not {type(to).__name__}"
            )
        if isinstance(to, int):
            if not 0 <= to < 2**63:
                raise InvalidRequest(f"to is an offset from 0 to {2**63 - 1}; this one is not")
            queue = await queue_meant(self._session, name_of(topic), queue)
        asked = control.GroupReset(
            topic=name_of(topic),
            group=check_group(group),
            queue=queue,
            offset=to if isinstance(to, int) else None,
            time_us=time_us("to", to) if isinstance(to, datetime) else None,
            to=_end_of(to) if isinstance(to, Start | str) else None,
            dry_run=dry_run,
        )
        return (await self._ask(Command.GROUP_RESET, asked, control.ResetDone)).queues

    async def skip(self, topic: str | Topic, group: str, *, queue: int, offset: int) -> None:
        """Make a group skip the unread messages below an offset."""
        asked = control.GroupSkip(
            topic=name_of(topic), group=check_group(group), queue=queue, offset=offset
        )
        await self._do(Command.GROUP_SKIP, asked)

    # -- apps

    async def put_app(
        self,
        app: str,
        grants: Iterable[GrantInfo | str] = (),
        *,
        owner: str = "",
        new_token: bool = False,
    ) -> str:
        """Make an app, change its grants, or give it a new token.

        Args:
            app: Its name.
            grants: All grants it has from now on: ``GrantInfo``, or text as on the command line,
                such as ``produce:orders`` or ``consume:orders.*:billing``.
            owner: For people: a contact.
            new_token: Give it a new token; the previous one is no longer valid.

        Returns:
            The token, if it is new. It is returned only this once.
        """
        asked = control.AppPut(
            app=check_name(app, "app"),
            grants=grants_of(grants),
            owner=text("owner", owner),
            new_token=flag("new_token", new_token),
        )
        return (await self._ask(Command.APP_PUT, asked, control.AppToken)).token

    async def delete_app(self, app: str) -> None:
        """Remove an app; its connections are closed."""
        await self._do(Command.APP_DELETE, control.AppDelete(app=check_name(app, "app")))

    async def apps(self) -> list[AppInfo]:
        """Return the apps, sorted by name."""
        found: list[AppInfo] = []
        after = ""
        while True:
            asked = control.AppList(after=after, limit=PAGE)
            page = await self._ask(Command.APP_LIST, asked, control.Apps)
            found += page.apps
            if not page.next:
                return found
            after = page.next

    async def refusals(self, asked: Iterable[control.RightsQuestion]) -> list[str] | None:
        """Return the refusals that this app would get for missing rights; empty if none.

        Returns:
            Refusals in the order of the questions. None: the broker is too old to report them.
        """
        questions = list(asked)
        found: list[str] = []
        for at in range(0, len(questions), RIGHTS_AT_ONCE):
            check = control.RightsCheck(questions=questions[at : at + RIGHTS_AT_ONCE])
            try:
                told = await self._ask(Command.RIGHTS_CHECK, check, control.RightsChecked)
            except UnknownCommand:
                return None
            found += told.refusals
        return found

    # -- the journal

    async def put_hold(
        self, name: str, position: int, *, note: str = "", back: bool = False
    ) -> int:
        """Keep the journal from a position on, until the hold moves on or is deleted.

        If the disk is full up to the setting ``retention_watermark`` and a hold keeps the oldest
        file of the journal, sends are refused, and nothing is removed. Needs the right to audit or
        to manage everything.

        Args:
            name: Name of the hold.
            position: Its position; 0: as far back as the journal reaches.
            note: For people.
            back: It may also move back; otherwise a lower position has no effect.

        Returns:
            Its position.
        """
        asked = control.HoldPut(name=check_name(name), position=position, note=note, back=back)
        return (await self._ask(Command.HOLD_PUT, asked, control.HoldPlaced)).position

    async def delete_hold(self, name: str) -> None:
        """Remove a hold; no error if there is none."""
        await self._do(Command.HOLD_DELETE, control.HoldDelete(name=check_name(name)))

    async def holds(self) -> list[HoldInfo]:
        """Return the holds on the journal, sorted by name."""
        return (await self._ask(Command.HOLD_LIST, control.HoldList(), control.Holds)).holds

    # -- transactions

    async def transactions(self, writer: str = "", *, limit: int = 100) -> Transactions:
        """Return undecided transactions, oldest first, and the writers with their decisions.

        They are those of this app; with the right to manage everything, those of every app, and
        then ``client.abort_prepared`` can roll them back.

        Args:
            writer: Only those of this writer.
            limit: Most transactions, and most writers; ``more`` is true if there are others.
        """
        text("writer", writer)
        limit = whole("limit", limit)
        asked = control.TransactionList(writer=writer or None, limit=limit)
        page = await self._ask(Command.TRANSACTION_LIST, asked, Transactions)
        undecided, writers = page.undecided, page.writers
        while page.next and (len(undecided) < limit or len(writers) < limit):
            asked = msgspec.structs.replace(asked, after=page.next)
            page = await self._ask(Command.TRANSACTION_LIST, asked, Transactions)
            undecided += page.undecided
            writers += page.writers
        more = page.more or len(undecided) > limit or len(writers) > limit
        return Transactions(undecided=undecided[:limit], writers=writers[:limit], more=more)

    async def transaction(self, id: str) -> CheckedTransaction:  # noqa: A002
        """Return the state of a transaction with check-back, decided or not.

        Args:
            id: Its id, such as ``t-1f3``.

        Raises:
            UnknownTransaction: There never was one, or its decision is no longer in the journal.
        """
        asked = control.TransactionShow(transaction=transaction_number(id))
        return await self._ask(Command.TRANSACTION_SHOW, asked, CheckedTransaction)

    async def checked_transactions(
        self, group: str = "", *, query_id: str = "", limit: int = 100
    ) -> list[CheckedTransaction]:
        """Return undecided transactions with check-back, oldest first.

        They are those of this app; with the right to manage everything, those of every app.

        Args:
            group: Only those of this producer group; "": of all.
            query_id: Only those with this query id; "": with any.
            limit: Most that are returned.

        Raises:
            InvalidName, InvalidRequest: A value is not valid.
        """
        check_positive("limit", limit)
        asked = control.TransactionList(
            limit=min(limit, PAGE),
            checked=True,
            group=text("group", group) and check_name(group, "a producer group's name"),
            query_id=query_text(query_id),
        )
        found: list[CheckedTransaction] = []
        while True:
            page = await self._ask(Command.TRANSACTION_LIST, asked, Transactions)
            found += page.checked
            if not page.next or len(found) >= limit:
                return found[:limit]
            asked = msgspec.structs.replace(asked, after=page.next)

    async def resolve_transaction(self, id: str, *, commit: bool) -> bool:  # noqa: A002
        """Decide a transaction with check-back in the place of its client; durable.

        With the right to manage everything, it also works on transactions of other apps; this is
        recorded, and logged in the audit log.

        Args:
            id: Its id.
            commit: Commit; False: roll back.

        Returns:
            Whether it was decided now; False: the same decision was made before.

        Raises:
            TransactionDecided: The opposite decision was made before.
            UnknownTransaction: There never was one, or its decision is no longer in the journal.
        """
        flag("commit", commit)
        asked = control.TransactionDecide(transaction=transaction_number(id), commit=commit)
        done = await self._ask(Command.TRANSACTION_DECIDE, asked, control.TransactionDone)
        return not done.repeated

    async def check_transaction(self, id: str) -> None:  # noqa: A002
        """Start the check-back of an undecided transaction again, even if it is parked.

        Raises:
            TransactionDecided, UnknownTransaction: There is nothing to ask.
        """
        asked = control.TransactionCheckAgain(transaction=transaction_number(id))
        await self._do(Command.TRANSACTION_CHECK_AGAIN, asked)

    # -- producer groups

    async def put_producer_group(
        self,
        group: str,
        *,
        app: str | None = None,
        first: float | timedelta | None = None,
        factor: float | None = None,
        cap: float | timedelta | None = None,
        jitter: float | None = None,
        attempts: int | None = None,
        give_up: float | timedelta | None = None,
        then: Literal["park", "roll-back", "commit"] | None = None,
        without_checker: bool | None = None,
    ) -> None:
        """Make a producer group, or change it; None: unchanged, or for a new group the default.

        Transactions that are open follow the new settings from their next question on.

        Args:
            group: Its name.
            app: The app that a new group belongs to; by default the client's own.
            first: Time from the opening of a transaction to the first question; 60 s.
            factor: Factor by which each pause between questions is longer than the one before; 1.5.
            cap: Longest pause; 10 minutes.
            jitter: Random variation of each pause, up and down, 0 to below 1; 0.1.
            attempts: Maximum number of questions about a transaction; 15.
            give_up: Time from opening after which no more questions are asked; a day.
            then: What happens to a transaction after that: ``park`` (an operator must decide it),
                ``roll-back`` or ``commit``.
            without_checker: Whether transactions may be opened while no checker is connected; no.

        Raises:
            InvalidName, InvalidRequest: A value is not valid.
        """
        check_name(group, "a producer group's name")
        changes: dict[str, object] = {
            "app": None if app is None else text("app", app),
            "first_us": None if first is None else seconds_us("first", first),
            "factor": None if factor is None else real("factor", factor),
            "cap_us": None if cap is None else seconds_us("cap", cap),
            "jitter": None if jitter is None else real("jitter", jitter),
            "attempts": None if attempts is None else whole("attempts", attempts),
            "give_up_us": None if give_up is None else seconds_us("give_up", give_up),
            "then": then,
            "without_checker": (
                None if without_checker is None else flag("without_checker", without_checker)
            ),
        }
        given = {name: value for name, value in changes.items() if value is not None}
        known = {one.group: one for one in await self.producer_groups()}.get(group)
        if known is not None:
            now = msgspec.structs.asdict(known)
            given = {name: now[name] for name in changes} | given
        put = msgspec.structs.replace(control.ProducerGroupPut(group=group), **given)
        await self._do(Command.PRODUCER_GROUP_PUT, put)

    async def producer_groups(self) -> list[ProducerGroupInfo]:
        """Return the producer groups, by name: those that were created or used."""
        found: list[ProducerGroupInfo] = []
        after = ""
        while True:
            asked = control.ProducerGroupList(limit=PAGE, after=after)
            page = await self._ask(Command.PRODUCER_GROUP_LIST, asked, ProducerGroups)
            found += page.groups
            after = page.next
            if not after:
                return found

    async def delete_producer_group(self, group: str) -> None:
        """Delete a producer group without undecided transactions: its name may be used anew.

        Raises:
            InvalidRequest: It has undecided transactions.
            UnknownProducerGroup: There is no such group.
        """
        check_name(group, "a producer group's name")
        await self._do(Command.PRODUCER_GROUP_DELETE, control.ProducerGroupDelete(group=group))

    # -- scheduled messages

    async def scheduled(self, topic: str | Topic) -> list[ScheduledHour]:
        """Return how many messages of a topic are due in each hour, the earliest hour first.

        Hours without any are left out.

        Raises:
            UnknownTopic: There is no such topic.
        """
        topic = name_of(topic)
        found: list[ScheduledHour] = []
        after = ""
        while True:
            asked = control.ScheduleHours(topic=topic, after=after)
            page = await self._ask(Command.SCHEDULE_HOURS, asked, control.ScheduledHours)
            found += page.hours
            after = page.next
            if not after:
                return found

    async def scheduled_messages(
        self,
        topic: str | Topic,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
    ) -> list[ScheduledInfo]:
        """Return scheduled messages of a topic, in the order in which they were sent.

        If ``limit`` messages are returned, there may be more, and one that was not returned may be
        due before them. For those that are due next, set ``until``: ``scheduled`` tells how many
        messages are due in each hour.

        ``client.get`` returns one with its body, ``client.cancel`` cancels it.

        Args:
            topic: The topic.
            since: Only those that are due at or after this time.
            until: Only those that are due before this time.
            limit: Most that are returned.

        Raises:
            UnknownTopic: There is no such topic.
            InvalidRequest: ``since`` is not before ``until``, or a value is not valid.
        """
        topic = name_of(topic)
        check_positive("limit", limit)
        since_us, until_us = span_us(since, until)
        found: list[ScheduledInfo] = []
        after = ""
        while True:
            asked = control.ScheduleList(
                topic=topic,
                since_us=max(0, since_us),
                until_us=max(0, until_us),
                limit=min(limit - len(found), PAGE),
                after=after,
            )
            page = await self._ask(Command.SCHEDULE_LIST, asked, control.ScheduledPage)
            found += page.messages
            after = page.next
            if not after or len(found) >= limit:
                return found

    # -- the broker

    async def clients(self) -> list[ClientInfo]:
        """Return the sessions, oldest first."""
        found: list[ClientInfo] = []
        after = 0
        while True:
            asked = control.ClientList(after=after, limit=PAGE)
            page = await self._ask(Command.CLIENT_LIST, asked, control.Clients)
            found += page.clients
            if not page.next:
                return found
            after = page.next

    async def status(self) -> Status:
        """Return the state of the broker."""
        return await self._ask(Command.STATUS, control.StatusAsk(), control.Status)

    async def accept_clock(self) -> ClockAccepted:
        """Let broker time follow the clock of the broker's machine again; return both times.

        The broker does not follow jumps of that clock while it runs, nor a clock that is too far
        ahead at a start (setting ``start_jump``); ``status().clock_gap`` is the gap. If the clock
        is ahead, broker time jumps to it at once: leases end, retries and scheduled messages come
        due, and what is older than its retention is removed. This cannot be undone.

        Raises:
            InvalidRequest: The clock is behind broker time, which never goes back.
        """
        return await self._ask(Command.CLOCK_ACCEPT, control.ClockAccept(), ClockAccepted)

    async def alarms(self) -> list[AlarmInfo]:
        """Return the open alarms, those raised first in front."""
        return (await self._ask(Command.ALARM_LIST, control.AlarmList(), Alarms)).alarms

    async def clear_alarm(self, name: str, subject: str = "") -> bool:
        """Clear an alarm; return whether it was open.

        The broker clears an alarm itself when its reason is gone, except ``due-unreadable`` and
        ``expired-dropped``. If the reason still exists, the broker raises the alarm again within a
        second or two.

        Args:
            name: Its name, such as ``due-unreadable``.
            subject: Its subject, as ``alarms`` returns it.
        """
        asked = control.AlarmClear(name=text("name", name), subject=text("subject", subject))
        return (await self._ask(Command.ALARM_CLEAR, asked, AlarmCleared)).cleared

    # -- requests

    async def _do(self, command: Command, asked: msgspec.Struct) -> None:
        await self._session.control(command, asked, control.Nothing)

    async def _ask(self, command: Command, asked: msgspec.Struct, answer: type[T]) -> T:
        return await self._session.control(command, asked, answer)


def _end_of(to: Start | str) -> Start:
    """Return the end of a queue that a place names."""
    try:
        return Start(to)
    except ValueError:
        raise InvalidRequest(
            f"to is an offset, a datetime with a time zone, 'earliest' or 'latest', not {to!r:.80}"
        ) from None


def _durability(name: Durability | str) -> Durability:
    return choose("durability", Durability, name)


def _clients_off(offline: object) -> tuple[str, ...]:
    """Return the entries of ``offline``, each once; what they say, the settings check.

    Raises:
        InvalidRequest: It is no list of texts.
    """
    if isinstance(offline, str | bytes) or not isinstance(offline, Iterable):
        raise InvalidRequest(f"offline is a list of clients, not {article(type(offline).__name__)}")
    return tuple(dict.fromkeys(text("offline: a client", one) for one in offline))
