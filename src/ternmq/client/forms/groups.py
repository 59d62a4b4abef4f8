"""Consumer groups in the form of JSON."""

from __future__ import annotations

from typing import Any

from ternmq.model import specs
from ternmq.model.assignments import write_assignment
from ternmq.wire.control import GroupInfo


def plain(info: GroupInfo) -> dict[str, object]:
    """Return a group in the form of the JSON output."""
    spec = info.spec
    return {
        "topic": info.topic,
        "group": info.group,
        "mode": spec.mode.value,
        "tags": spec.tags,
        "filter": spec.filter,
        "start": spec.start.value,
        "paused": spec.paused,
        "lease_s": spec.lease_us / 1e6,
        "window": spec.window,
        "concurrency": spec.concurrency,
        "offline": list(spec.offline),
        "expired": spec.expired.value,
        "assign": [write_assignment(one) for one in spec.assign],
        "retry": policy(spec.policy),
        "members": info.members,
        "state": "paused" if spec.paused else "running",
        "lag": sum([one.lag for one in info.queues]),
        "ready": sum([one.ready for one in info.queues]),
        "leased": sum([one.leased for one in info.queues]),
        "retrying": sum([one.waiting for one in info.queues]),
        "dead": sum([one.dead for one in info.queues]),
        "queues": [
            {
                "queue": at,
                "floor": one.floor,
                "cursor": one.cursor,
                "end": one.end,
                "owner": one.owner,
                "lag": one.lag,
                "leased": one.leased,
                "ready": one.ready,
                "waiting": one.waiting,
                "retrying": one.waiting,
                "dead": one.dead,
            }
            for at, one in enumerate(info.queues)
        ],
    }


def policy(found: specs.RetryPolicy) -> dict[str, Any]:
    """Return a retry policy in the form of JSON."""
    return {
        "enabled": found.enabled,
        "first_s": found.first_us / 1e6,
        "factor": found.factor,
        "cap_s": found.cap_us / 1e6,
        "jitter": found.jitter,
        "attempts": found.attempts,
        "exhausted": found.exhausted.value,
        "expires_s": found.expires_us / 1e6,
    }
