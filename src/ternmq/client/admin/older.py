"""Notices an older broker that ignores settings which it does not know, and answers no error."""

from __future__ import annotations

from collections.abc import Sequence

from ternmq.model.errors import GroupSettingsMismatch, InvalidRequest
from ternmq.model.specs import RetryPolicy, SubscriptionSpec, TopicSpec


def newer_settings(spec: TopicSpec) -> Sequence[str]:
    """Return the stated settings of a topic that older brokers ignore."""
    default = TopicSpec(name=spec.name)
    return [
        one
        for one in ("levels", "expires_us", "broadcast")
        if getattr(spec, one) != getattr(default, one)
    ]


def check_topic_stored(stated: TopicSpec, stored: TopicSpec) -> None:
    """Check that the broker stored the settings of a topic that it may not know.

    Raises:
        InvalidRequest: It did not: it is too old.
    """
    for one, argument in (
        ("levels", "levels"),
        ("expires_us", "expires_after"),
        ("broadcast", "broadcast"),
    ):
        if getattr(stored, one) != getattr(stated, one):
            raise InvalidRequest(
                f"topic {stated.name!r} is stored without {argument}: the broker is too old for "
                f"{argument}="
            )


def check_group_stored(
    topic: str, group: str, stated: SubscriptionSpec, stored: SubscriptionSpec
) -> None:
    """Check that the broker stored the settings of a group that it may not know.

    Raises:
        GroupSettingsMismatch: It did not: it is too old.
    """
    check_retry_stored(topic, group, stated.retry, stored.retry)
    for one in ("concurrency", "offline"):
        if getattr(stated, one) and getattr(stated, one) != getattr(stored, one):
            raise GroupSettingsMismatch(
                f"group {group!r} on {topic!r} is stored without {one}: the broker is too old for "
                f"{one}="
            )


def check_retry_stored(topic: str, group: str, stated: RetryPolicy, stored: RetryPolicy) -> None:
    """Check that the broker stored how long a group retries messages.

    Raises:
        GroupSettingsMismatch: It did not: it is too old.
    """
    if stored.expires_us != stated.expires_us:
        raise GroupSettingsMismatch(
            f"the retry policy of group {group!r} on {topic!r} has no expires: the broker is too "
            "old for RetryPolicy(expires=)"
        )
