"""Managing a broker: topics, groups, apps; who is connected, and how it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from ternmq.client.lookup import to_us
from ternmq.client.session import Session
from ternmq.client.validation import check_topic, choose, duration_us
from ternmq.model.errors import InvalidRequest, UnknownGroup, UnknownTopic
from ternmq.model.specs import (
    Durability,
    Mode,
    RetryPolicy,
    Start,
    SubscriptionSpec,
    TopicSpec,
    check_name,
)
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.control import (
    AppInfo,
    ClientInfo,
    GrantInfo,
    GroupInfo,
    Groups,
    HoldInfo,
    ResetQueue,
    Status,
    TopicInfo,
    Transactions,
)

T = TypeVar("T", bound=msgspec.Struct)

Place = int | datetime | Start | Literal["earliest", "latest"]
"""Where a group goes on."""


class Admin:
    """Topics, groups, apps, and how the broker is. Each call needs a right on what it names."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # -- topics

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 1,
        ordered: bool = False,
        durability: Durability | str = Durability.NORMAL,
        retention: timedelta | None = None,
        keep_until_consumed: bool = True,
    ) -> TopicSpec:
        """Make a topic.

        Args:
            name: Its name.
            queues: More than one spreads it; consumers need no more than one.
            ordered: Messages have ordering keys, and groups keep the order of each key.
            durability: When sends are answered: ``normal``, ``strict``, ``fast``.
            retention: How long messages are kept; None: 7 days.
            keep_until_consumed: Keep unread ones longer, while the disk has room.

        Raises:
            TopicExists: There is one of that name.
            InvalidName, InvalidRequest: It cannot be.
        """
        spec = TopicSpec(
            name=name,
            queues=queues,
            ordered=ordered,
            durability=_durability(durability),
            keep_until_consumed=keep_until_consumed,
        )
        if retention is not None:
            spec = msgspec.structs.replace(spec, retention_us=duration_us("retention", retention))
        await self._do(Command.TOPIC_CREATE, control.TopicCreate(topic=name, spec=spec.check()))
        return spec

    async def change_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        durability: Durability | str | None = None,
        retention: timedelta | None = None,
        keep_until_consumed: bool | None = None,
    ) -> TopicSpec:
        """Give a topic other settings; None leaves one as it is.

        Raises:
            UnknownTopic: There is none.
        """
        spec = (await self.topic(name)).spec
        if queues is not None:
            spec = msgspec.structs.replace(spec, queues=queues)
        if durability is not None:
            spec = msgspec.structs.replace(spec, durability=_durability(durability))
        if retention is not None:
            spec = msgspec.structs.replace(spec, retention_us=duration_us("retention", retention))
        if keep_until_consumed is not None:
            spec = msgspec.structs.replace(spec, keep_until_consumed=keep_until_consumed)
        await self._do(Command.TOPIC_CHANGE, control.TopicChange(topic=name, spec=spec.check()))
        return spec

    async def delete_topic(self, name: str) -> None:
        """Remove a topic, with its messages and groups.

        Raises:
            UnknownTopic: There is none.
        """
        await self._do(Command.TOPIC_DELETE, control.TopicDelete(topic=check_topic(name)))

    async def topics(self, names: Iterable[str] | None = None) -> list[TopicInfo]:
        """Return the topics that this app has a right on, by name."""
        wanted = None if names is None else [check_topic(name) for name in names]
        found: list[TopicInfo] = []
        after = ""
        while True:
            asked = control.TopicList(names=wanted, after=after)
            page = await self._ask(Command.TOPIC_LIST, asked, control.Topics)
            found += page.topics
            if not page.more or not page.topics:
                return found
            after = page.topics[-1].spec.name

    async def topic(self, name: str) -> TopicInfo:
        """Return a topic.

        Raises:
            UnknownTopic: There is none, or this app has no right on it.
        """
        for info in await self.topics([name]):
            return info
        raise UnknownTopic(f"there is no topic {name!r}, or this app has no right on it")

    # -- groups

    async def create_group(
        self,
        topic: str,
        group: str,
        *,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
    ) -> SubscriptionSpec:
        """See that a group consumes a topic, as stated; consuming does it by itself.

        Raises:
            GroupSettingsMismatch: It is there with other settings.
        """
        asked = control.GroupJoin(
            topic=check_topic(topic),
            group=check_name(group),
            tags=tags,
            mode=None if mode is None else choose("mode", Mode, mode),
            start=None if start is None else choose("start", Start, start),
        )
        return (await self._ask(Command.GROUP_JOIN, asked, control.GroupJoined)).spec

    async def change_group(
        self,
        topic: str,
        group: str,
        *,
        tags: str | None = None,
        retry: RetryPolicy | None = None,
        lease: timedelta | None = None,
        window: int | None = None,
        paused: bool | None = None,
    ) -> SubscriptionSpec:
        """Give a group other settings on a topic; None leaves one as it is.

        Raises:
            UnknownTopic, UnknownGroup: It is not there.
        """
        spec = (await self.group(topic, group)).spec
        if tags is not None:
            spec = msgspec.structs.replace(spec, tags=tags)
        if retry is not None:
            spec = msgspec.structs.replace(spec, retry=retry)
        if lease is not None:
            spec = msgspec.structs.replace(spec, lease_us=duration_us("lease", lease))
        if window is not None:
            spec = msgspec.structs.replace(spec, window=window)
        if paused is not None:
            spec = msgspec.structs.replace(spec, paused=paused)
        asked = control.GroupChange(topic=topic, group=group, spec=spec.check())
        await self._do(Command.GROUP_CHANGE, asked)
        return spec

    async def pause_group(self, topic: str, group: str) -> None:
        """Hand out no more messages to a group until it is resumed."""
        await self.change_group(topic, group, paused=True)

    async def resume_group(self, topic: str, group: str) -> None:
        """Hand out messages to a group again."""
        await self.change_group(topic, group, paused=False)

    async def delete_group(self, topic: str, group: str) -> None:
        """Let a group no longer consume a topic; what it was owed is forgotten."""
        await self._do(Command.GROUP_DELETE, control.GroupDelete(topic=topic, group=group))

    async def groups(self, topic: str | None = None, group: str | None = None) -> list[GroupInfo]:
        """Return the groups that this app has a right on, and how they stand.

        Args:
            topic: Only on this topic; none, if it is not there.
            group: Only of this name; none, if it is not there.
        """
        try:
            return await self._groups(topic, group)
        except (UnknownTopic, UnknownGroup):
            return []

    async def _groups(self, topic: str | None, group: str | None) -> list[GroupInfo]:
        asked = control.GroupList(topic=topic, group=group)
        return (await self._ask(Command.GROUP_LIST, asked, control.Groups)).groups

    async def standing(self, group: str | None = None) -> Groups:
        """Return how groups stand on every topic, and the holds on the journal: both can lag.

        Args:
            group: Only of this name.
        """
        asked = control.GroupList(group=None if group is None else check_name(group))
        return await self._ask(Command.GROUP_LIST, asked, control.Groups)

    async def group(self, topic: str, group: str) -> GroupInfo:
        """Return a group on a topic.

        Raises:
            UnknownTopic: There is no such topic.
            UnknownGroup: It does not consume it, or this app has no right on it.
        """
        for info in await self._groups(check_topic(topic), check_name(group)):
            return info
        raise UnknownGroup(f"group {group!r} does not consume topic {topic!r}")

    async def reset_group(
        self,
        topic: str,
        group: str,
        to: Place,
        *,
        queue: int | None = None,
        dry_run: bool = False,
    ) -> list[ResetQueue]:
        """Set where a group goes on.

        Args:
            topic: The topic.
            group: The group.
            to: An offset (of one queue), a time, ``Start.EARLIEST`` or ``LATEST``, or their names.
            queue: The queue; None: all.
            dry_run: Only say what would happen.

        Returns:
            For each queue where it goes on, how many messages are unread then, and how many that
            were leased or waited for a retry are forgotten as such.
        """
        if isinstance(to, bool) or not isinstance(to, int | datetime | Start | str):
            raise InvalidRequest(
                f"to is an offset, a datetime, Start.EARLIEST or Start.LATEST; "
                f"not {type(to).__name__}"
            )
        if isinstance(to, int) and queue is None:
            raise InvalidRequest("an offset is a place in one queue: say queue=0 or another")
        asked = control.GroupReset(
            topic=check_topic(topic),
            group=check_name(group),
            queue=queue,
            offset=to if isinstance(to, int) else None,
            time_us=to_us(to) if isinstance(to, datetime) else None,
            to=choose("to", Start, to) if isinstance(to, Start | str) else None,
            dry_run=dry_run,
        )
        return (await self._ask(Command.GROUP_RESET, asked, control.ResetDone)).queues

    async def skip(self, topic: str, group: str, *, queue: int, offset: int) -> None:
        """Let a group pass over what it has not read below an offset."""
        asked = control.GroupSkip(topic=topic, group=group, queue=queue, offset=offset)
        await self._do(Command.GROUP_SKIP, asked)

    # -- apps

    async def put_app(
        self,
        app: str,
        grants: Sequence[GrantInfo] = (),
        *,
        owner: str = "",
        new_token: bool = False,
    ) -> str:
        """Make an app, change its grants, or give it another token.

        Returns:
            The token, if it is new: told this one time.
        """
        asked = control.AppPut(
            app=check_name(app), grants=list(grants), owner=owner, new_token=new_token
        )
        return (await self._ask(Command.APP_PUT, asked, control.AppToken)).token

    async def delete_app(self, app: str) -> None:
        """Remove an app; its connections are closed."""
        await self._do(Command.APP_DELETE, control.AppDelete(app=check_name(app)))

    async def apps(self) -> list[AppInfo]:
        """Return the apps, by name."""
        return (await self._ask(Command.APP_LIST, control.AppList(), control.Apps)).apps

    # -- the journal

    async def put_hold(
        self, name: str, position: int, *, note: str = "", back: bool = False
    ) -> int:
        """Keep the journal from a position on, until the hold moves on or is deleted.

        Sends are refused, and nothing goes, when the disk is at its watermark and a hold is far
        behind. Needs the right to audit or to manage everything.

        Args:
            name: Of the hold.
            position: Where it is to stand; 0: as far back as the journal reaches.
            note: For people.
            back: It may also move back; else a lower position has no effect.

        Returns:
            Where it stands.
        """
        asked = control.HoldPut(name=check_name(name), position=position, note=note, back=back)
        return (await self._ask(Command.HOLD_PUT, asked, control.HoldPlaced)).position

    async def delete_hold(self, name: str) -> None:
        """Remove a hold; no error if there is none."""
        await self._do(Command.HOLD_DELETE, control.HoldDelete(name=check_name(name)))

    async def holds(self) -> list[HoldInfo]:
        """Return the holds on the journal, by name."""
        return (await self._ask(Command.HOLD_LIST, control.HoldList(), control.Holds)).holds

    # -- transactions

    async def transactions(self, writer: str = "", *, limit: int = 100) -> Transactions:
        """Return what is undecided, oldest first, and the writers with their decisions.

        Those of this app; with the right to manage everything those of every app, which
        ``client.abort_prepared`` rolls back then.

        Args:
            writer: Only of this one.
            limit: Most transactions, and most writers; ``more`` says whether there are others.
        """
        asked = control.TransactionList(writer=writer or None, limit=limit)
        return await self._ask(Command.TRANSACTION_LIST, asked, Transactions)

    # -- the broker

    async def clients(self) -> list[ClientInfo]:
        """Return the sessions, oldest first."""
        found = await self._ask(Command.CLIENT_LIST, control.ClientList(), control.Clients)
        return found.clients

    async def status(self) -> Status:
        """Return how the broker is."""
        return await self._ask(Command.STATUS, control.StatusAsk(), control.Status)

    # -- parts

    async def _do(self, command: Command, asked: msgspec.Struct) -> None:
        await self._session.control(command, asked, control.Nothing)

    async def _ask(self, command: Command, asked: msgspec.Struct, answer: type[T]) -> T:
        return await self._session.control(command, asked, answer)


def _durability(name: Durability | str) -> Durability:
    return choose("durability", Durability, name)
