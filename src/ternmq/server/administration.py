"""The commands that look and change settings: topics, groups, failures, apps, clients, status."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from ternmq.access import Authoriser, Secret, new_token, regrant, seal
from ternmq.broker.listings import Listings
from ternmq.broker.queries import FailedRow, GroupStatus, Queries
from ternmq.journal.lookup import Cursor, Found
from ternmq.journal.tail import Place
from ternmq.model.errors import (
    GroupSettingsMismatch,
    InvalidRequest,
    MessageNotFound,
    UnknownGroup,
    UnknownQueue,
    UnknownTopic,
)
from ternmq.model.specs import Mode, Start, SubscriptionSpec, TopicSpec, check_name
from ternmq.model.types import Position
from ternmq.record.control import Count, Grant
from ternmq.record.facts import Cause, LeasedRun, Outcome
from ternmq.server.connection import Connection, Handler, Hub
from ternmq.wire import bodies, control
from ternmq.wire.commands import TABLE, Command, Right, Scope
from ternmq.wire.session import Request

T = TypeVar("T", bound=msgspec.Struct)

MAX_OFFSETS: Final = 10_000
"""Most offsets that one FAILED_RETRY or FAILED_DELETE may name."""
_MESSAGE_ID: Final = re.compile("[0-9a-f]{1,16}:[0-9a-f]{1,16}")
_CURSOR: Final = re.compile("[0-9]{1,19}[.][0-9]{1,9}[.][0-9]{1,20}")
_RIGHTS: Final = frozenset(one.value for one in Right)


class Administration:
    """Handlers of the control commands. Loop only."""

    def __init__(
        self,
        hub: Hub,
        authoriser: Authoriser,
        queries: Queries,
        status: Callable[[], control.Status],
    ) -> None:
        self._hub = hub
        self._core = hub.core
        self._broker = hub.core.broker
        self._authoriser = authoriser
        self._queries = queries
        self._listings = Listings(hub.core.broker)
        self._status = status
        self.handlers: dict[Command, Handler] = {
            Command.PING: self.ping,
            Command.KEEP: partial(self._run, Command.KEEP, control.Keep, self.keep),
            Command.REPORT: partial(self._run, Command.REPORT, control.Report, self.report),
            Command.TOPIC_CREATE: partial(
                self._run, Command.TOPIC_CREATE, control.TopicCreate, self.create_topic
            ),
            Command.TOPIC_CHANGE: partial(
                self._run, Command.TOPIC_CHANGE, control.TopicChange, self.change_topic
            ),
            Command.TOPIC_DELETE: partial(
                self._run, Command.TOPIC_DELETE, control.TopicDelete, self.delete_topic
            ),
            Command.TOPIC_LIST: partial(
                self._run, Command.TOPIC_LIST, control.TopicList, self.list_topics
            ),
            Command.GROUP_JOIN: partial(
                self._run, Command.GROUP_JOIN, control.GroupJoin, self.join_group
            ),
            Command.GROUP_CHANGE: partial(
                self._run, Command.GROUP_CHANGE, control.GroupChange, self.change_group
            ),
            Command.GROUP_DELETE: partial(
                self._run, Command.GROUP_DELETE, control.GroupDelete, self.delete_group
            ),
            Command.GROUP_LIST: partial(
                self._run, Command.GROUP_LIST, control.GroupList, self.list_groups
            ),
            Command.GROUP_RESET: partial(
                self._run, Command.GROUP_RESET, control.GroupReset, self.reset_group
            ),
            Command.GROUP_SKIP: partial(
                self._run, Command.GROUP_SKIP, control.GroupSkip, self.skip_group
            ),
            Command.FIND: partial(self._run, Command.FIND, control.Find, self.find),
            Command.OFFSET_AT: partial(
                self._run, Command.OFFSET_AT, control.OffsetAt, self.offset_at
            ),
            Command.FAILED_LIST: partial(
                self._run, Command.FAILED_LIST, control.FailedList, self.list_failed
            ),
            Command.FAILED_RETRY: partial(
                self._run, Command.FAILED_RETRY, control.FailedRetry, self.retry_failed
            ),
            Command.FAILED_DELETE: partial(
                self._run, Command.FAILED_DELETE, control.FailedDelete, self.delete_failed
            ),
            Command.CLIENT_LIST: partial(
                self._run, Command.CLIENT_LIST, control.ClientList, self.list_clients
            ),
            Command.STATUS: partial(self._run, Command.STATUS, control.StatusAsk, self.status),
            Command.APP_PUT: partial(self._run, Command.APP_PUT, control.AppPut, self.put_app),
            Command.APP_DELETE: partial(
                self._run, Command.APP_DELETE, control.AppDelete, self.delete_app
            ),
            Command.APP_LIST: partial(self._run, Command.APP_LIST, control.AppList, self.list_apps),
        }

    def _run(
        self,
        command: Command,
        kind: type[T],
        handler: Callable[[Connection, T], tuple[msgspec.Struct, int]],
        peer: Connection,
        request: Request,
    ) -> None:
        """Decode, authorise, carry out, answer."""
        asked = control.decode(request.body, kind)
        scope = TABLE[command].policy.scope
        topic = getattr(asked, "topic", None) if scope in (Scope.TOPIC, Scope.GROUP) else None
        group = getattr(asked, "group", None) if scope is Scope.GROUP else None
        self._authoriser.check(peer.app, command, topic, group)
        answer, position = handler(peer, asked)
        peer.answer(request, control.encode(answer), position)

    # -- the connection ---------------------------------------------------------------------------

    def ping(self, peer: Connection, request: Request) -> None:
        """PING: say what time it is."""
        bodies.unpack_nothing(request.body)
        peer.answer(request, bodies.pack_pong(self._core.now_us()))

    def keep(self, peer: Connection, asked: control.Keep) -> tuple[msgspec.Struct, int]:
        """KEEP: end the session's leases that have not reached the client."""
        leases = [(one.epoch, one.lease) for one in asked.leases]
        reply = self._broker.keep(self._core.now_us(), peer.session, leases)
        return control.Nothing(), reply.position

    def report(self, peer: Connection, asked: control.Report) -> tuple[msgspec.Struct, int]:
        """REPORT: keep what a producer says to have sent."""
        entries = [Count(one.bucket_us, one.sent, one.given_up) for one in asked.entries]
        reply = self._broker.report(
            self._core.now_us(), peer.session, asked.topic, asked.producer, entries
        )
        return control.Nothing(), reply.position

    # -- topics -----------------------------------------------------------------------------------

    def create_topic(
        self, peer: Connection, asked: control.TopicCreate
    ) -> tuple[msgspec.Struct, int]:
        """TOPIC_CREATE."""
        reply = self._broker.create_topic(self._core.now_us(), _named(asked.topic, asked.spec))
        return control.Nothing(), reply.position

    def change_topic(
        self, peer: Connection, asked: control.TopicChange
    ) -> tuple[msgspec.Struct, int]:
        """TOPIC_CHANGE."""
        reply = self._broker.change_topic(self._core.now_us(), _named(asked.topic, asked.spec))
        self._tell(Command.TOPIC_CHANGED, control.TopicChanged(topic=asked.topic))
        return control.Nothing(), reply.position

    def delete_topic(
        self, peer: Connection, asked: control.TopicDelete
    ) -> tuple[msgspec.Struct, int]:
        """TOPIC_DELETE."""
        reply = self._broker.delete_topic(self._core.now_us(), asked.topic)
        self._tell(Command.TOPIC_CHANGED, control.TopicChanged(topic=asked.topic, gone=True))
        return control.Nothing(), reply.position

    def list_topics(self, peer: Connection, asked: control.TopicList) -> tuple[msgspec.Struct, int]:
        """TOPIC_LIST: those that the app has a right on."""
        page = self._listings.topics(
            asked.names,
            asked.after,
            max(1, min(asked.limit, 1000)),
            lambda topic: self._authoriser.sees_topic(peer.app, topic),
        )
        topics = [
            control.TopicInfo(
                number=one.number,
                spec=one.spec,
                queues=[control.QueueInfo(first=ends.first, next=ends.next) for ends in one.queues],
                groups=list(one.groups),
            )
            for one in page.topics
        ]
        return control.Topics(topics=topics, more=page.more), page.position

    # -- groups -----------------------------------------------------------------------------------

    def join_group(self, peer: Connection, asked: control.GroupJoin) -> tuple[msgspec.Struct, int]:
        """GROUP_JOIN: see that the group is there, with the settings that are stated."""
        broker, now = self._broker, self._core.now_us()
        catalog = broker.views.catalog
        check_name(asked.group)
        if asked.topic not in catalog.by_name:
            if not self._hub.settings.create_topics:
                raise UnknownTopic(f"there is no topic {asked.topic!r}")
            ordered = asked.mode is Mode.ORDERED
            made = self._hub.settings.topic_spec(check_name(asked.topic))
            broker.create_topic(now, msgspec.structs.replace(made, ordered=ordered))
        try:
            found = catalog.subscription(asked.topic, asked.group)
        except UnknownGroup:
            topic = catalog.topic(asked.topic)
            mode = asked.mode or (Mode.ORDERED if topic.spec.ordered else Mode.SHARED)
            spec = SubscriptionSpec(
                mode=mode, tags=asked.tags or "", start=asked.start or Start.EARLIEST
            )
            reply = broker.subscribe(now, asked.topic, asked.group, spec)
            queues = len(topic.queues)
            return control.GroupJoined(created=True, spec=spec, queues=queues), reply.position
        _compare(found.spec, asked)
        joined = control.GroupJoined(created=False, spec=found.spec, queues=len(found.topic.queues))
        return joined, broker.journal.end

    def change_group(
        self, peer: Connection, asked: control.GroupChange
    ) -> tuple[msgspec.Struct, int]:
        """GROUP_CHANGE."""
        reply = self._broker.change_subscription(
            self._core.now_us(), asked.topic, asked.group, asked.spec
        )
        self._tell(
            Command.GROUP_CHANGED, control.GroupChanged(topic=asked.topic, group=asked.group)
        )
        return control.Nothing(), reply.position

    def delete_group(
        self, peer: Connection, asked: control.GroupDelete
    ) -> tuple[msgspec.Struct, int]:
        """GROUP_DELETE."""
        reply = self._broker.unsubscribe(self._core.now_us(), asked.topic, asked.group)
        self._tell(
            Command.GROUP_CHANGED,
            control.GroupChanged(topic=asked.topic, group=asked.group, gone=True),
        )
        return control.Nothing(), reply.position

    def list_groups(self, peer: Connection, asked: control.GroupList) -> tuple[msgspec.Struct, int]:
        """GROUP_LIST: those that the app has a right on."""
        page = self._listings.groups(
            asked.topic,
            asked.group,
            lambda topic, group: self._authoriser.sees_group(peer.app, topic, group),
        )
        groups = [
            control.GroupInfo(
                topic=one.topic,
                group=one.group,
                spec=one.spec,
                queues=[_stand(queue) for queue in one.queues],
                members=[_short(name) for name in one.members],
            )
            for one in page.groups
        ]
        return control.Groups(groups=groups), page.position

    def reset_group(
        self, peer: Connection, asked: control.GroupReset
    ) -> tuple[msgspec.Struct, int]:
        """GROUP_RESET: set where a group goes on, or say what that would do."""
        stated = [one is not None for one in (asked.offset, asked.time_us, asked.to)]
        if sum(stated) != 1 or (asked.offset is not None and asked.queue is None):
            raise InvalidRequest("state one of to, time_us, or offset with queue")
        topic = self._broker.views.catalog.subscription(asked.topic, asked.group).topic
        numbers = range(len(topic.queues)) if asked.queue is None else [asked.queue]
        done: list[control.ResetQueue] = []
        for number in numbers:  # all that may wait for the disk, before anything is changed
            offset = self._reset_offset(asked, number)
            preview = self._queries.preview_reset(asked.topic, asked.group, number, offset)
            done.append(
                control.ResetQueue(
                    queue=number,
                    offset=offset,
                    unread=preview.unread,
                    forgotten=preview.forgotten,
                )
            )
        position = 0
        if not asked.dry_run:
            for one in done:
                reply = self._broker.reset(
                    self._core.now_us(), asked.topic, asked.group, one.queue, one.offset
                )
                position = reply.position
        return control.ResetDone(queues=done), position

    def _reset_offset(self, asked: control.GroupReset, number: int) -> int:
        if asked.offset is not None:
            return asked.offset
        if asked.time_us is not None:
            return self._queries.offset_at(asked.topic, number, asked.time_us)
        page = self._listings.topics([asked.topic])
        queues = page.topics[0].queues
        if number >= len(queues):
            raise UnknownQueue(f"topic {asked.topic!r} has no queue {number}")
        ends = queues[number]
        return ends.first if asked.to is Start.EARLIEST else ends.next

    def skip_group(self, peer: Connection, asked: control.GroupSkip) -> tuple[msgspec.Struct, int]:
        """GROUP_SKIP."""
        reply = self._broker.skip(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offset
        )
        return control.Nothing(), reply.position

    # -- messages ---------------------------------------------------------------------------------

    def find(self, peer: Connection, asked: control.Find) -> tuple[msgspec.Struct, int]:
        """FIND: look messages up."""
        stated = [asked.id, asked.application_id, asked.key, asked.offset]
        if sum([one is not None for one in stated]) != 1:
            raise InvalidRequest("state one of id, application_id, key, offset")
        queries = self._queries
        topic = self._broker.views.catalog.topic(asked.topic)
        following = ""
        if asked.key is not None:
            page = queries.by_key(
                asked.topic,
                asked.key,
                since_us=asked.since_us,
                until_us=asked.until_us,
                limit=asked.limit,
                after=_cursor(asked.after) if asked.after else None,
            )
            found = page.found
            if page.next is not None:
                place = page.next.place
                following = f"{place.position}.{place.row}.{page.next.below}"
        elif asked.id is not None:
            found = [queries.by_id(*_message_id(asked.id))]
            if found[0].topic != topic.number:
                raise MessageNotFound(f"no message {asked.id} is kept in {asked.topic!r}")
        elif asked.application_id is not None:
            found = [queries.by_application_id(asked.topic, asked.application_id)]
        else:
            assert asked.offset is not None
            found = [queries.by_offset(asked.topic, asked.queue, asked.offset)]
        told = [_message(asked.topic, one) for one in found]
        return control.FoundPage(found=told, next=following), 0

    def offset_at(self, peer: Connection, asked: control.OffsetAt) -> tuple[msgspec.Struct, int]:
        """OFFSET_AT."""
        offset = self._queries.offset_at(asked.topic, asked.queue, asked.time_us)
        return control.OffsetFound(offset=offset), 0

    # -- failures ---------------------------------------------------------------------------------

    def list_failed(
        self, peer: Connection, asked: control.FailedList
    ) -> tuple[msgspec.Struct, int]:
        """FAILED_LIST: rows that wait, or dead letters, with their content."""
        ask = self._queries.dead_letters if asked.dead else self._queries.waiting
        limit = max(1, min(asked.limit, 1000))
        rows = ask(asked.topic, asked.group, asked.queue, after=asked.after, limit=limit + 1)
        told = [self._failed(asked.topic, asked.queue, row) for row in rows[:limit]]
        page = control.FailedPage(rows=told, more=len(rows) > limit)
        return page, self._broker.journal.end

    def _failed(self, topic: str, queue: int, row: FailedRow) -> control.FailedMessage:
        try:
            message = _message(topic, self._queries.by_offset(topic, queue, row.offset))
        except MessageNotFound:
            message = None  # its topic does not keep what its groups are owed
        return control.FailedMessage(
            queue=queue,
            offset=row.offset,
            attempts=row.attempts,
            deliveries=row.deliveries,
            when_us=row.when_us,
            held=row.held,
            failures=[
                control.FailureInfo(
                    time_us=one.time_us,
                    session=one.session,
                    attempt=one.attempt,
                    outcome=Outcome(one.outcome).name.lower(),
                    cause=Cause(one.cause).name.lower(),
                    reason=one.reason.decode(errors="replace"),
                )
                for one in row.failures
            ],
            message=message,
        )

    def retry_failed(
        self, peer: Connection, asked: control.FailedRetry
    ) -> tuple[msgspec.Struct, int]:
        """FAILED_RETRY."""
        _few(asked.offsets)
        reply = self._broker.retry_now(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offsets
        )
        return _done(reply.settled, asked.offsets), reply.position

    def delete_failed(
        self, peer: Connection, asked: control.FailedDelete
    ) -> tuple[msgspec.Struct, int]:
        """FAILED_DELETE."""
        _few(asked.offsets)
        reply = self._broker.delete_failures(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offsets
        )
        return _done(reply.settled, asked.offsets), reply.position

    # -- clients, status, apps --------------------------------------------------------------------

    def list_clients(
        self, peer: Connection, asked: control.ClientList
    ) -> tuple[msgspec.Struct, int]:
        """CLIENT_LIST."""
        page = self._listings.sessions()
        clients = [
            control.ClientInfo(
                session=one.session,
                app=one.app,
                client=_short(one.client),
                address=one.address,
                library=one.version,
                pid=one.pid,
                connected=one.connected,
                since_us=one.since_us,
            )
            for one in page.sessions
        ]
        return control.Clients(clients=clients), page.position

    def status(self, peer: Connection, asked: control.StatusAsk) -> tuple[msgspec.Struct, int]:
        """STATUS."""
        return self._status(), 0

    def put_app(self, peer: Connection, asked: control.AppPut) -> tuple[msgspec.Struct, int]:
        """APP_PUT: make an app, change its grants, give it another token."""
        check_name(asked.app)
        grants = [_grant(one) for one in asked.grants]
        known = self._broker.views.catalog.apps.get(asked.app)
        token = Secret("")
        if known is None or asked.new_token:
            token = new_token()
            made_us = self._core.now_us() if known is None else known.created_us
            app = seal(asked.app, token, owner=asked.owner, grants=grants, now_us=made_us)
        else:
            app = regrant(known, asked.owner, grants)
        reply = self._broker.put_app(self._core.now_us(), app)
        return control.AppToken(token=token.reveal()), reply.position

    def delete_app(self, peer: Connection, asked: control.AppDelete) -> tuple[msgspec.Struct, int]:
        """APP_DELETE: its connections are closed."""
        reply = self._broker.delete_app(self._core.now_us(), asked.app)
        for other in list(self._hub.peers):
            if other.app == asked.app and other is not peer and other.session:
                other.abandon("its app was removed")
        return control.Nothing(), reply.position

    def list_apps(self, peer: Connection, asked: control.AppList) -> tuple[msgspec.Struct, int]:
        """APP_LIST."""
        page = self._listings.apps()
        apps = [
            control.AppInfo(
                app=one.name,
                owner=one.owner,
                grants=[
                    control.GrantInfo(
                        right=grant.right, topic=grant.topic, group=grant.group, deny=grant.deny
                    )
                    for grant in one.grants
                ],
            )
            for one in page.apps
        ]
        return control.Apps(apps=apps), page.position

    def _tell(self, command: Command, body: control.TopicChanged | control.GroupChanged) -> None:
        """Push what changed to every connection whose app has a right on it."""
        data = control.encode(body)
        authoriser = self._authoriser
        for peer in self._hub.peers:
            if not peer.session:
                continue
            if isinstance(body, control.TopicChanged):
                sees = authoriser.sees_topic(peer.app, body.topic)
            else:
                sees = authoriser.sees_group(peer.app, body.topic, body.group)
            if sees:
                peer.push(command, data)


def _short(client: str) -> str:
    """Return enough of a client's name to tell it by: who knows all of it has the session."""
    return client[:8]


def _named(name: str, spec: TopicSpec) -> TopicSpec:
    if spec.name != name:
        raise InvalidRequest(f"topic {name!r} is asked for, the settings are of {spec.name!r}")
    return spec


def _compare(spec: SubscriptionSpec, asked: control.GroupJoin) -> None:
    """Raise GroupSettingsMismatch if a stated setting is not the group's."""
    for name in ("tags", "mode", "start"):
        stated, has = getattr(asked, name), getattr(spec, name)
        if stated is not None and stated != has:
            raise GroupSettingsMismatch(
                f"group {asked.group!r} on {asked.topic!r} has {name} {_show(has)}, "
                f"not {_show(stated)}"
            )


def _show(value: object) -> str:
    return repr(value.value if isinstance(value, Mode | Start) else value)


def _stand(queue: GroupStatus) -> control.GroupQueueInfo:
    return control.GroupQueueInfo(
        cursor=queue.cursor,
        floor=queue.floor,
        end=queue.end,
        leased=queue.leased,
        ready=queue.ready,
        waiting=queue.waiting,
        dead=queue.dead,
    )


def _message(topic: str, found: Found) -> control.FoundMessage:
    return control.FoundMessage(
        topic=topic,
        queue=found.queue,
        offset=found.offset,
        stored_us=found.stored_us,
        row=found.row,
        batch=found.batch,
    )


def _message_id(text: str) -> tuple[int, int]:
    if _MESSAGE_ID.fullmatch(text) is None:
        raise InvalidRequest(f"{text[:40]!r} is no message id; one looks like 9f3c...:1a")
    producer, _, sequence = text.partition(":")
    return int(producer, 16), int(sequence, 16)


def _cursor(text: str) -> Cursor:
    if _CURSOR.fullmatch(text) is None:
        raise InvalidRequest("after is what next was on the page before")
    position, row, below = [int(part) for part in text.split(".")]
    return Cursor(Place(Position(position), row), Position(below))


def _few(offsets: list[int]) -> None:
    if not 0 < len(offsets) <= MAX_OFFSETS:
        raise InvalidRequest(f"name 1 to {MAX_OFFSETS} offsets")


def _done(settled: Sequence[LeasedRun], offsets: list[int]) -> control.FailedDone:
    done: set[int] = set()
    for start, stop, *_ in settled:
        done.update(range(start, stop))
    missing = [offset for offset in offsets if offset not in done]
    return control.FailedDone(done=len(done), missing=missing)


def _grant(told: control.GrantInfo) -> Grant:
    if told.right not in _RIGHTS:
        raise InvalidRequest(f"right {told.right[:20]!r} is none of {', '.join(sorted(_RIGHTS))}")
    return Grant(told.right, told.topic, told.group, told.deny)
