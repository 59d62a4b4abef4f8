"""Connected clients in the form of JSON."""

from __future__ import annotations

from ternmq.wire.control import ClientInfo


def plain(one: ClientInfo) -> dict[str, object]:
    """Return a connected client in the form of JSON."""
    return {
        "session": one.session,
        "app": one.app,
        "client": one.client,
        "address": one.address,
        "library": one.library,
        "language": one.language,
        "pid": one.pid,
        "topics": one.topics,
        "connected": one.connected,
        "since": one.since if one.since_us else None,
        "away_since": one.away_since,
        "consumes": [
            {"topic": of.topic, "group": of.group, "offline": of.offline} for of in one.consumes
        ],
    }
