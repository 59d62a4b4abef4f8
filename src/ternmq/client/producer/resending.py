"""Which batches are sent again, with the same bytes, and when: functions of time over data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ternmq.client.connection.backoff import Backoff
from ternmq.client.producer.load import Load
from ternmq.model.errors import (
    OrderingKeyRequired,
    TernMQError,
    TopicNotOrdered,
    UnknownTopic,
)

_OF_THE_TOPIC: Final = (OrderingKeyRequired, TopicNotOrdered, UnknownTopic)


def outdates_facts(error: TernMQError) -> bool:
    """Return whether a refusal shows that the client's facts about the topic are outdated."""
    return isinstance(error, _OF_THE_TOPIC) or error.refresh_routes


def due_again(load: Load, error: TernMQError, now: float, backoff: Backoff) -> float | None:
    """Return when a refused load is to be sent again; None: it is to be given up."""
    if not error.retriable:
        return None
    load.last_error = error
    load.tries += 1
    due = now + backoff.pause(load.tries)
    return due if due < load.deadline else None


def unanswered(loads: Iterable[Load]) -> list[Load]:
    """Return the loads that the previous connection left unanswered."""
    return [load for load in loads if not load.asked and not load.resting]
