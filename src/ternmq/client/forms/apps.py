"""Apps in the form of JSON."""

from __future__ import annotations

from ternmq.wire.control import AppInfo


def plain(info: AppInfo) -> dict[str, object]:
    """Return an app in the form of JSON."""
    return {
        "app": info.app,
        "owner": info.owner,
        "grants": [
            {"right": one.right, "topic": one.topic, "group": one.group, "deny": one.deny}
            for one in info.grants
        ],
    }
