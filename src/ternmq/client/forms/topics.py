"""Topics in the form of JSON."""

from __future__ import annotations

from ternmq.wire.control import TopicInfo


def messages_kept(info: TopicInfo) -> int:
    """Return the number of messages that a topic keeps."""
    return sum([one.next - one.first for one in info.queues])


def plain(info: TopicInfo) -> dict[str, object]:
    """Return a topic in the form of JSON."""
    spec = info.spec
    return {
        "topic": spec.name,
        "number": info.number,
        "ordered": spec.ordered,
        "durability": spec.durability.value,
        "retention_s": spec.retention_us / 1e6,
        "keep_until_consumed": spec.keep_until_consumed,
        "ignore_ordering_keys": spec.ignore_ordering_keys,
        "levels": spec.levels,
        "expires_s": spec.expires_us / 1e6,
        "broadcast": spec.broadcast,
        "messages": messages_kept(info),
        "scheduled": info.scheduled,
        "queues": [
            {"queue": at, "first": one.first, "next": one.next}
            for at, one in enumerate(info.queues)
        ],
        "groups": info.groups,
        "instances": info.instances,
    }
