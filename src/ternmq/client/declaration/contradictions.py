"""Groups that a broker always refuses: detected before anything is made."""

from __future__ import annotations

from ternmq.client.declaration.changes import Change
from ternmq.client.declaration.source import Source
from ternmq.client.declaration.topic import Topic
from ternmq.model.specs import Mode, SubscriptionSpec, TopicSpec
from ternmq.model.tag_filter import tags_of


def contradiction(
    source: Source,
    declared: Topic | None,
    topic: TopicSpec | None,
    has: SubscriptionSpec | None,
    first: Source,
) -> Change | None:
    """Return a conflict if a topic does not allow a group; None: the broker accepts it.

    Args:
        source: The group, as declared.
        declared: Its topic, if it is declared.
        topic: Its topic, if it exists.
        has: The group, if it exists.
        first: The first group declared on the topic: it creates the topic if it is missing.
    """
    ordered = _is_ordered(declared, topic, first)
    mode = source.mode or (has.mode if has else Mode.ORDERED if ordered else Mode.SHARED)
    group = f"group {source.group} on {source.topic}"
    if not mode.keeps_order:
        return None
    if mode is Mode.ORDERED and not ordered:
        other = (
            "whether a topic is ordered cannot be changed"
            if topic is not None
            else f'or declare ternmq.Topic("{source.topic}", ordered=True)'
        )
        return Change(
            "conflict", source.topic, source.group, "mode", "", mode.value,
            f"topic {source.topic} is not {'ordered' if topic else 'declared as ordered'}",
            f'leave out mode="ordered" of {group}; {other}',
        )  # fmt: skip
    tagged = tags_of(source.tags or "") is not None
    if not tagged and not (source.filter or "").strip():
        return None
    setting, kind = ("tags", "a tag") if tagged else ("filter", "a header")
    shared = (
        f'state mode="shared" for {group}'
        if has is None
        else f'handle them in a new group with mode="shared" instead of {group}'
    )
    return Change(
        "conflict", source.topic, source.group, setting,
        "" if has is None else repr(getattr(has, setting)), repr(getattr(source, setting)),
        f"topic {source.topic} is ordered, and an ordered group cannot have {kind} filter"
        if mode is Mode.ORDERED
        else f"the group has mode {mode.value}, and such a group cannot have {kind} filter",
        f"{shared}, or leave its {setting} out",
    )  # fmt: skip


def _is_ordered(declared: Topic | None, topic: TopicSpec | None, first: Source) -> bool:
    """Return whether the topic is ordered: as it is, since that cannot change, or will be made."""
    if topic is not None:
        return topic.ordered  # a declaration that differs is a conflict of its own
    if declared is not None and declared.ordered is not None:
        return declared.ordered
    # A topic that is not declared is created by the join of a group, with that group's mode.
    return declared is None and first.mode is Mode.ORDERED
