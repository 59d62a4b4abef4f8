"""The commands about topics and groups."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ternmq.access import Authoriser
from ternmq.broker.operation.administration import default_mode
from ternmq.broker.operation.broadcasting import InstanceAsked
from ternmq.broker.query.listings import MAX_LISTED, GroupPlace
from ternmq.broker.query.messages import Queries
from ternmq.model.assignments import write_assignment
from ternmq.model.errors import (
    Forbidden,
    GroupSettingsMismatch,
    InvalidRequest,
    UnknownGroup,
    UnknownTopic,
)
from ternmq.model.header_filter import same_header_filter
from ternmq.model.policies import write_retry
from ternmq.model.specs import (
    BROADCAST_GROUP,
    Mode,
    RetryPolicy,
    Start,
    SubscriptionSpec,
    TopicSpec,
    check_instance,
    check_name,
)
from ternmq.model.tag_filter import same_filter
from ternmq.model.units import write_duration
from ternmq.server.commands.control import Answer, BrokerCommands, ControlCommands
from ternmq.server.desk.desk import Desk, ReadingDesk
from ternmq.server.desk.telling import Telling
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.port import Caller


class TopicLists(ControlCommands):
    """Handlers that list topics and groups. Not thread-safe: call it from the broker's loop.

    Args:
        desk: State shared by all callers.
        authoriser: Checks rights.
        queries: Queries to what is read.
        held: Returns the holds that a list of groups contains.
    """

    def __init__(
        self,
        desk: ReadingDesk,
        authoriser: Authoriser,
        queries: Queries,
        held: Callable[[], list[control.HoldInfo]] = list,
    ) -> None:
        super().__init__(desk, authoriser, queries)
        self._held = held
        self.handlers |= {
            Command.TOPIC_LIST: self.control(
                Command.TOPIC_LIST, control.TopicList, self.list_topics
            ),
            Command.GROUP_LIST: self.listing(
                Command.GROUP_LIST, control.GroupList, "groups", self.list_groups
            ),
        }

    def list_topics(self, caller: Caller, asked: control.TopicList) -> Answer:
        """TOPIC_LIST: list the topics that the app has a right on."""
        page = self._listings.topics(
            asked.names,
            asked.after,
            min(asked.limit, MAX_LISTED),
            self._authoriser.sight(caller.app),
        )
        told = control.Topics(topics=page.topics, more=bool(page.next), next=page.next)
        return told, page.position

    def list_groups(self, caller: Caller, asked: control.GroupList) -> Answer:
        """GROUP_LIST: list the groups that the app has a right on."""
        page = self._listings.groups(
            asked.topic,
            asked.group,
            _place(asked.after),
            min(asked.limit or MAX_LISTED, MAX_LISTED),
            self._authoriser.sight(caller.app),
            broadcast=asked.broadcast,
        )
        next_ = "" if page.next is None else "/".join(page.next)
        told = control.Groups(groups=page.groups, holds=self._holds(caller, asked), next=next_)
        return told, page.position

    def _holds(self, caller: Caller, asked: control.GroupList) -> list[control.HoldInfo]:
        if asked.topic is not None or asked.after or not self._broker.views.holds:
            return []
        if not self._authoriser.may(caller.app, Command.HOLD_LIST):
            return []
        return [one for one in self._held() if asked.group in (None, one.name)]


class TopicCommands(BrokerCommands):
    """Handlers about topics and groups. Not thread-safe: call it from the broker's loop."""

    def __init__(self, desk: Desk, authoriser: Authoriser, queries: Queries) -> None:
        super().__init__(desk, authoriser, queries)
        self._telling = Telling(desk)
        self.handlers |= {
            Command.TOPIC_CREATE: self.control(
                Command.TOPIC_CREATE, control.TopicCreate, self.create_topic
            ),
            Command.TOPIC_CHANGE: self.control(
                Command.TOPIC_CHANGE, control.TopicChange, self.change_topic
            ),
            Command.TOPIC_DELETE: self.control(
                Command.TOPIC_DELETE, control.TopicDelete, self.delete_topic
            ),
            Command.GROUP_JOIN: self.control(
                Command.GROUP_JOIN, control.GroupJoin, self.join_group
            ),
            Command.GROUP_LEAVE: self.control(
                Command.GROUP_LEAVE, control.GroupLeave, self.leave_group
            ),
            Command.GROUP_CHANGE: self.control(
                Command.GROUP_CHANGE, control.GroupChange, self.change_group
            ),
            Command.GROUP_DELETE: self.control(
                Command.GROUP_DELETE, control.GroupDelete, self.delete_group
            ),
            Command.GROUP_RESET: self.control(
                Command.GROUP_RESET, control.GroupReset, self.reset_group
            ),
            Command.GROUP_SKIP: self.control(
                Command.GROUP_SKIP, control.GroupSkip, self.skip_group
            ),
        }

    def create_topic(self, caller: Caller, asked: control.TopicCreate) -> Answer:
        """TOPIC_CREATE: make a topic."""
        reply = self._broker.administration.create_topic(
            self._core.now_us(), _named(asked.topic, asked.spec)
        )
        return control.Nothing(), reply.position

    def change_topic(self, caller: Caller, asked: control.TopicChange) -> Answer:
        """TOPIC_CHANGE: change a topic's settings; notify connections."""
        reply = self._broker.administration.change_topic(
            self._core.now_us(), _named(asked.topic, asked.spec)
        )
        self._tell(Command.TOPIC_CHANGED, control.TopicChanged(topic=asked.topic))
        return control.Nothing(), reply.position

    def delete_topic(self, caller: Caller, asked: control.TopicDelete) -> Answer:
        """TOPIC_DELETE: remove a topic; notify connections."""
        reply = self._broker.administration.delete_topic(self._core.now_us(), asked.topic)
        self._tell(Command.TOPIC_CHANGED, control.TopicChanged(topic=asked.topic, gone=True))
        return control.Nothing(), reply.position

    def join_group(self, caller: Caller, asked: control.GroupJoin) -> Answer:
        """GROUP_JOIN: make the group if it is missing; check the settings that are stated."""
        if asked.group == BROADCAST_GROUP:
            return self._join_instance(caller, asked)
        if asked.instance or asked.if_topic:
            raise InvalidRequest("instance and if_topic are for the group $broadcast")
        broker, now = self._broker, self._core.now_us()
        catalog = broker.views.catalog
        check_name(asked.group)
        if asked.existing:
            catalog.subscription(asked.topic, asked.group)
        if asked.topic not in catalog.by_name:
            if not self._desk.settings.create_topics:
                raise UnknownTopic(f"there is no topic {asked.topic!r}")
            mode = asked.mode or Mode.SHARED
            ordered = catalog.modes[mode].ordered_topics_only
            made = self._desk.settings.topic_spec(check_name(asked.topic))
            made = msgspec.structs.replace(made, ordered=ordered)
            # Before the topic is made: a refused join leaves no topic behind.
            broker.administration.check_new_group(made, asked.group, _new_group(mode, asked))
            broker.administration.check_places(1, made.queue_count)
            broker.administration.create_topic(now, made)
        try:
            found = catalog.subscription(asked.topic, asked.group)
        except UnknownGroup:
            topic = catalog.topic(asked.topic)
            mode = asked.mode or default_mode(topic.spec)
            spec = _new_group(mode, asked)
            reply = broker.administration.subscribe(now, asked.topic, asked.group, spec)
            self._desk.audit.changed(
                caller.app, caller.address, Command.GROUP_JOIN, asked.topic, asked.group
            )
            queues = len(topic.queues)
            self._become_member(caller, asked)
            return control.GroupJoined(created=True, spec=spec, queues=queues), reply.position
        _compare(found.spec, asked)
        self._become_member(caller, asked)
        joined = control.GroupJoined(created=False, spec=found.spec, queues=len(found.topic.queues))
        return joined, broker.journal.end

    def _become_member(self, caller: Caller, asked: control.GroupJoin) -> None:
        """Make the session a member, if it wants to be one and may consume."""
        found = self._broker.views.catalog.subscription(asked.topic, asked.group)
        if not asked.member or found.owners is None:
            return
        try:
            self._authoriser.check(caller.app, Command.PULL, asked.topic, asked.group)
        except Forbidden:
            return  # it may make the group, but could never pull: its queues would wait
        self._broker.membership.join(self._core.now_us(), caller.session, found, asked.name)

    def leave_group(self, caller: Caller, asked: control.GroupLeave) -> Answer:
        """GROUP_LEAVE: end the session's membership of a group."""
        broker = self._broker
        found = broker.views.catalog.subscription(asked.topic, asked.group)
        broker.membership.leave(self._core.now_us(), caller.session, found)
        return control.Nothing(), 0

    def _join_instance(self, caller: Caller, asked: control.GroupJoin) -> Answer:
        """Let the caller be a broadcast instance; make the instance if it is missing."""
        broker, now = self._broker, self._core.now_us()
        if (asked.mode, asked.start, asked.retry) != (None, None, None):
            raise InvalidRequest(
                "a broadcast instance begins at latest and has no retries: leave out mode, start "
                "and retry"
            )
        if asked.instance:
            check_instance(asked.instance)
        settings = InstanceAsked(asked.tags, asked.filter, asked.lease_us)
        catalog = broker.views.catalog
        if asked.topic not in catalog.by_name:
            if asked.if_topic or not self._desk.settings.create_topics:
                raise UnknownTopic(f"there is no topic {asked.topic!r}")
            made = self._desk.settings.topic_spec(check_name(asked.topic))
            # Before the topic is made: a refused join leaves no topic behind.
            broker.broadcasting.check_new(now, caller.session, made, asked.instance, settings)
            broker.administration.create_topic(now, made)
        if asked.if_topic and not catalog.topic(asked.topic).spec.broadcast:
            raise InvalidRequest(
                f"topic {asked.topic!r} is no broadcast topic: state a group, or consume it as a "
                "broadcast instance"
            )
        reply = broker.broadcasting.join(now, caller.session, asked.topic, asked.instance, settings)
        one, created = reply.value
        if created:
            self._desk.audit.changed(
                caller.app, caller.address, Command.GROUP_JOIN, asked.topic, one.name
            )
        joined = control.GroupJoined(
            created=created, spec=one.spec, queues=len(one.topic.queues), group=one.name
        )
        return joined, reply.position

    def change_group(self, caller: Caller, asked: control.GroupChange) -> Answer:
        """GROUP_CHANGE: change a group's settings; notify connections."""
        before = self._broker.views.catalog.subscription(asked.topic, asked.group).spec.mode
        reply = self._broker.administration.change_subscription(
            self._core.now_us(), asked.topic, asked.group, asked.spec
        )
        told = control.GroupChanged(topic=asked.topic, group=asked.group)
        if asked.spec.mode is not before:
            told = msgspec.structs.replace(told, mode=asked.spec.mode)
        self._tell(Command.GROUP_CHANGED, told)
        return control.Nothing(), reply.position

    def delete_group(self, caller: Caller, asked: control.GroupDelete) -> Answer:
        """GROUP_DELETE: remove a group; notify connections."""
        reply = self._broker.administration.unsubscribe(
            self._core.now_us(), asked.topic, asked.group
        )
        self._tell(
            Command.GROUP_CHANGED,
            control.GroupChanged(topic=asked.topic, group=asked.group, gone=True),
        )
        return control.Nothing(), reply.position

    def reset_group(self, caller: Caller, asked: control.GroupReset) -> Answer:
        """GROUP_RESET: set the group's next offsets, or return what that would do."""
        stated = [one is not None for one in (asked.offset, asked.time_us, asked.to)]
        if sum(stated) != 1 or (asked.offset is not None and asked.queue is None):
            raise InvalidRequest("state one of to, time_us, or offset with queue")
        topic = self._broker.views.catalog.subscription(asked.topic, asked.group).topic
        numbers = range(len(topic.queues)) if asked.queue is None else [asked.queue]
        done: list[control.ResetQueue] = []
        for number in numbers:  # all that may wait for the disk, before anything is changed
            offset = self._reset_offset(asked, number)
            done.append(self._queries.preview_reset(asked.topic, asked.group, number, offset))
        position = 0
        if not asked.dry_run:
            for one in done:
                reply = self._broker.operating.reset(
                    self._core.now_us(), asked.topic, asked.group, one.queue, one.offset
                )
                position = reply.position
        return control.ResetDone(queues=done), position

    def _reset_offset(self, asked: control.GroupReset, number: int) -> int:
        if asked.offset is not None:
            return asked.offset
        if asked.time_us is not None:
            return self._queries.offset_at(asked.topic, number, asked.time_us)
        ends = self._listings.ends(asked.topic, number)
        return ends.first if asked.to is Start.EARLIEST else ends.next

    def skip_group(self, caller: Caller, asked: control.GroupSkip) -> Answer:
        """GROUP_SKIP: skip rows that a group has not read."""
        reply = self._broker.operating.skip(
            self._core.now_us(), asked.topic, asked.group, asked.queue, asked.offset
        )
        return control.Nothing(), reply.position

    def _tell(self, command: Command, body: control.TopicChanged | control.GroupChanged) -> None:
        """Push a change to every connection whose app has a right on the topic or group."""
        authoriser, topic = self._authoriser, body.topic
        if isinstance(body, control.TopicChanged):
            self._telling.tell(
                command, control.encode(body), lambda app: authoriser.sees_topic(app, topic)
            )
        else:
            group = body.group
            # Rows of a pull in a new mode must not come before the client knows of the mode.
            tell = self._telling.tell if body.mode is None else self._telling.tell_now
            tell(
                command, control.encode(body), lambda app: authoriser.sees_group(app, topic, group)
            )


def _place(token: str) -> GroupPlace | None:
    """Return where a list of groups continues; a token is a topic, ``/`` and a group."""
    topic, _, group = token.partition("/")
    return GroupPlace(topic, group) if token else None


def _named(name: str, spec: TopicSpec) -> TopicSpec:
    if spec.name != name:
        raise InvalidRequest(
            f"the request is for topic {name!r}, but the settings are of topic {spec.name!r}"
        )
    return spec


def _new_group(mode: Mode, asked: control.GroupJoin) -> SubscriptionSpec:
    """Return a new group's settings: the stated ones, and defaults for the others."""
    spec = SubscriptionSpec(
        mode=mode,
        tags=asked.tags or "",
        start=asked.start or Start.EARLIEST,
        filter=asked.filter or "",
        assign=asked.assign or (),
    )
    if asked.retry is not None:
        spec = msgspec.structs.replace(spec, retry=asked.retry)
    if asked.lease_us is not None:
        spec = msgspec.structs.replace(spec, lease_us=asked.lease_us)
    return spec


def _compare(spec: SubscriptionSpec, asked: control.GroupJoin) -> None:
    """Raise GroupSettingsMismatch if a stated setting is not the group's."""
    for name in ("tags", "filter", "mode", "start", "retry", "lease_us", "assign"):
        stated, has = getattr(asked, name), getattr(spec, name)
        if name == "retry" and stated is not None:  # as the group's mode lets both apply
            stated, has = msgspec.structs.replace(spec, retry=stated).policy, spec.policy
        if name == "tags" and stated is not None and same_filter(stated, has):
            continue
        if name == "filter" and stated is not None and same_header_filter(stated, has):
            continue
        if stated is not None and stated != has:
            raise GroupSettingsMismatch(
                f"group {asked.group!r} on {asked.topic!r} has {name.removesuffix('_us')} "
                f"{_show(has)}, not {_show(stated)}"
            )


def _show(value: object) -> str:
    if isinstance(value, RetryPolicy):
        return write_retry(value)
    if isinstance(value, int):
        return write_duration(value)
    if isinstance(value, tuple):
        return " ".join([write_assignment(one) for one in value]) or "none"
    return repr(value.value if isinstance(value, Mode | Start) else value)
