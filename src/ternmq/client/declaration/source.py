"""A group on a topic, with its stated settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from ternmq.client.content.validation import choose, lease_us_of, text, whole
from ternmq.client.declaration.policy import RetryPolicy, spec_of
from ternmq.model.assignments import Assignment, check_assignments
from ternmq.model.errors import GroupSettingsMismatch, InvalidRequest
from ternmq.model.header_filter import check_header_filter, same_header_filter
from ternmq.model.specs import Mode, Start, SubscriptionSpec, check_name
from ternmq.model.tag_filter import check_filter, tags_of
from ternmq.wire import control


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


def assignments_of(assign: Mapping[str, Sequence[int]]) -> tuple[Assignment, ...]:
    """Return the entries of ``assign``: patterns of member names, each with numbers of queues.

    Raises:
        InvalidRequest: It is no such mapping, or an entry is not allowed.
    """
    if not isinstance(assign, Mapping):
        raise InvalidRequest(
            "assign is a dict of patterns of member names and numbers of queues, such as "
            f'{{"billing-*": [0, 1]}}, not {type(assign).__name__}'
        )
    made: list[Assignment] = []
    for member, queues in assign.items():
        text("assign", member)
        numbers = [whole("assign", one) for one in queues]
        made.append(Assignment(tuple(sorted(set(numbers))), member))
    check_assignments(made)
    return tuple(made)


class Source:
    """A group on a topic, as requested.

    Attributes:
        topic: Name of the topic.
        group: Name of the group.
    """

    __slots__ = ("assign", "filter", "group", "lease_us", "mode", "retry", "start", "tags", "topic")

    def __init__(
        self,
        topic: str,
        group: str,
        tags: str | None = None,
        mode: Mode | str | None = None,
        start: Start | str | None = None,
        retry: RetryPolicy | None = None,
        lease: float | timedelta | None = None,
        filter: str | None = None,  # noqa: A002
        assign: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.topic = check_name(topic, "a topic's name")
        self.group = check_name(group, "group")
        self.tags = tags
        if tags is not None:
            check_tags(tags)
        self.mode = None if mode is None else choose("mode", Mode, mode)
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
    def stated(self) -> tuple[object, ...]:
        """All that is stated; identifies a join."""
        return (
            self.topic, self.group, self.tags, self.mode, self.start, self.retry, self.lease_us,
            self.filter, self.assign,
        )  # fmt: skip
