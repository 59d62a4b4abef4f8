"""Scheduled messages in the form of JSON."""

from __future__ import annotations

from ternmq.wire.control import ScheduledInfo


def plain(one: ScheduledInfo) -> dict[str, object]:
    """Return a scheduled message in the form of JSON."""
    return {
        "id": one.id,
        "due_at": one.due_at,
        "stored_at": one.stored_at,
        "application_id": one.application_id,
        "key": one.key,
        "ordering_key": one.ordering_key,
        "queue": one.queue,
    }
