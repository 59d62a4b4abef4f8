"""A group on a topic, with its stated settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from ternmq.client.content.validation import choose, flag, lease_us_of, text, whole
from ternmq.client.declaration.policy import RetryPolicy, spec_of
from ternmq.model.assignments import Assignment, check_assignments
from ternmq.model.errors import GroupSettingsMismatch, InvalidRequest
from ternmq.model.header_filter import check_header_filter, same_header_filter
from ternmq.model.printing import quoted
from ternmq.model.specs import (
    BROADCAST_GROUP,
    INSTANCE_GROUPS,
    Mode,
    Start,
    SubscriptionSpec,
    check_instance,
    check_name,
)
from ternmq.model.tag_filter import check_filter, tags_of
from ternmq.wire import control

_ASSIGN: Final = (
    "assign is a dict of patterns of member names, each with a list of queue numbers, such as "
    '{"billing-*": [0, 1]}'
)


def _queues_of(member: str, queues: object) -> list[int]:
    if isinstance(queues, str | bytes | Mapping) or not isinstance(queues, Iterable):
        kind = type(queues).__name__
        raise InvalidRequest(f"the queues of {quoted(member)} are a list, not {kind}")
    return [whole(f"a queue of {quoted(member)}", one) for one in queues]


def check_tags(tags: object) -> str:
    """Return a tag filter that a group may be given.

    Raises:
        InvalidRequest: It is no filter, or no message could pass it.
    """
    given = text("tags", tags)
    check_filter(given)
    return given


def check_headers(expression: object) -> str:
    """Return a header filter that a group may be given.

    Raises:
        InvalidRequest: It is no text.
        InvalidFilter: It is no filter.
    """
    given = text("filter", expression)
    check_header_filter(given)
    return given


def mode_of(mode: Mode | str) -> Mode:
    """Return the mode that a group may be given.

    Raises:
        InvalidRequest: There is no such mode, or only broadcast instances have it.
    """
    if mode is Mode.BROADCAST or (isinstance(mode, str) and mode == Mode.BROADCAST.value):
        raise InvalidRequest(
            "mode broadcast is not for groups: a consumer states broadcast=True in place of group= "
            "and mode="
        )
    known = [one for one in Mode if one is not Mode.BROADCAST]
    return choose("mode", Mode, mode, known)


def assignments_of(assign: Mapping[str, Sequence[int]]) -> tuple[Assignment, ...]:
    """Return the entries of ``assign``: patterns of member names, each with numbers of queues.

    Raises:
        InvalidRequest: It is no such mapping, or an entry is not allowed.
    """
    if not isinstance(assign, Mapping):
        raise InvalidRequest(f"{_ASSIGN}, not {type(assign).__name__}")
    made: list[Assignment] = []
    for member, queues in assign.items():
        try:
            numbers = _queues_of(text("a pattern", member), queues)
        except InvalidRequest as error:
            raise InvalidRequest(f"{_ASSIGN}: {error.args[0]}") from None
        made.append(Assignment(tuple(sorted(set(numbers))), member))
    check_assignments(made)
    return tuple(made)


def check_left(group: object) -> str:
    """Return the name of a group that a client can leave.

    Raises:
        InvalidName: It is no name.
        InvalidRequest: It is that of a broadcast instance, which belongs to its client.
    """
    if isinstance(group, str) and group.startswith((BROADCAST_GROUP, *INSTANCE_GROUPS)):
        raise InvalidRequest(
            f"{quoted(group)} is a broadcast instance, which belongs to its client until the "
            "client is closed: it cannot be left before"
        )
    return check_name(group, "group")


class Source:
    """A group on a topic, or a broadcast instance of it, as requested.

    Attributes:
        topic: Name of the topic.
        group: Name of the group. Of an instance: ``$broadcast`` until it is joined, then that of
            its group.
        broadcast: Whether it is an instance.
        instance: Name of the instance; empty: it has none.
    """

    __slots__ = (
        "_if_topic", "assign", "broadcast", "filter", "group", "instance", "lease_us", "mode",
        "retry", "start", "tags", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        group: str | None,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        filter: str | None = None,  # noqa: A002
        assign: Mapping[str, Sequence[int]] | None = None,
        *,
        broadcast: bool | None = None,
        instance: str | None = None,
        own_instance: str = "",
    ) -> None:
        """``broadcast`` None: as the topic says, if no group is named.

        ``own_instance`` is the instance of the client, which ``instance`` replaces.

        Raises:
            InvalidName, InvalidRequest: A value is not valid, or two contradict each other.
        """
        self.topic = check_name(topic, "a topic's name")
        self.broadcast = group is None
        self.instance = ""
        self._if_topic = not broadcast
        if instance is not None:
            text("instance", instance)
        if group is not None:
            self.group = check_name(group, "group")
        else:
            self.group = BROADCAST_GROUP
            self.instance = own_instance if instance is None else instance
            if self.instance:
                check_instance(self.instance)
        _check_broadcast(topic, group, broadcast, instance)
        if self.broadcast and (mode, start, retry) != (None, None, None):
            raise InvalidRequest(
                f"a broadcast instance of topic {topic!r} begins with the next message and has no "
                "retries: leave out mode, start and retry, or state group="
            )
        self.tags = tags
        if tags is not None:
            check_tags(tags)
        self.mode = None if mode is None else mode_of(mode)
        if self.mode is not None and self.mode.keeps_order and tags_of(tags or "") is not None:
            raise InvalidRequest(
                f"group {group!r} on topic {topic!r} states a tag filter and mode "
                f"{self.mode.value}: a group that keeps an order cannot have one; state "
                'mode="shared", or leave out tags'
            )
        self.filter = filter
        if filter is not None:
            check_headers(filter)
        if self.mode is not None and self.mode.keeps_order and (filter or "").strip():
            raise InvalidRequest(
                f"group {group!r} on topic {topic!r} states a header filter and mode "
                f"{self.mode.value}: a group that keeps an order cannot have one; state "
                'mode="shared", or leave out filter'
            )
        self.start = None if start is None else choose("start", Start, start)
        self.retry = None if retry is None else spec_of(retry)
        self.lease_us = None if lease is None else lease_us_of(lease)
        self.assign = None if assign is None else assignments_of(assign)

    @property
    def settings_stated(self) -> bool:
        """Whether a setting is stated that may differ from the group's."""
        return any(one is not None for one in self.stated[2:])

    def join(self, name: str | None = None) -> control.GroupJoin:
        """Return the request that joins the group, and creates it if it is missing.

        ``name``: of the member; None: the client makes the group, but does not consume.
        """
        if self.broadcast:
            return control.GroupJoin(
                topic=self.topic,
                group=BROADCAST_GROUP,
                tags=self.tags,
                lease_us=self.lease_us,
                filter=self.filter,
                instance=self.instance,
                if_topic=self._if_topic,
            )
        return control.GroupJoin(
            topic=self.topic,
            group=self.group,
            tags=self.tags,
            mode=self.mode,
            start=self.start,
            retry=self.retry,
            lease_us=self.lease_us,
            filter=self.filter,
            assign=self.assign,
            member=name is not None,
            name=name or "",
        )

    def check_joined(self, spec: SubscriptionSpec) -> None:
        """Check the settings of the joined group that an older broker ignores.

        Raises:
            GroupSettingsMismatch: The group lets messages pass that the filter does not, or retries
                them for longer.
        """
        if self.filter is not None and not same_header_filter(self.filter, spec.filter):
            raise GroupSettingsMismatch(
                f"group {self.group!r} on {self.topic!r} has no header filter: the broker is too "
                "old for filter="
            )
        if self.retry is not None and self.retry.expires_us != spec.retry.expires_us:
            raise GroupSettingsMismatch(
                f"the retry policy of group {self.group!r} on {self.topic!r} has no expires: the "
                "broker is too old for RetryPolicy(expires=)"
            )

    @property
    def place(self) -> tuple[str, str, str]:
        """The topic, the group and the instance: a client has one handler for each place."""
        return self.topic, BROADCAST_GROUP if self.broadcast else self.group, self.instance

    @property
    def stated(self) -> tuple[object, ...]:
        """All that is stated; identifies a join."""
        named = (BROADCAST_GROUP, self.instance) if self.broadcast else self.group
        return (
            self.topic, named, self.tags, self.mode, self.start, self.retry, self.lease_us,
            self.filter, self.assign,
        )  # fmt: skip


def _check_broadcast(
    topic: str, group: str | None, broadcast: object, instance: str | None
) -> None:
    """Refuse a group and an instance at once, and neither of them.

    Raises:
        InvalidRequest: The text names the arguments.
    """
    if broadcast is not None:
        flag("broadcast", broadcast)
    if group is None and broadcast is False:
        raise InvalidRequest(
            f"a consumer of topic {topic!r} with broadcast=False states group=; if it is a "
            "broadcast instance, as all consumers of a broadcast topic are, leave out "
            "broadcast=False"
        )
    if group is not None and (broadcast or instance is not None):
        raise InvalidRequest(
            f"group {group!r} on topic {topic!r} is no broadcast instance: leave out "
            f"{'broadcast=True' if broadcast else 'instance='}, or group="
        )
