"""The state of one row in a group: unread, leased, ready, waiting, held, dead, or not owed."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ternmq.broker.group.failedrows import HELD_US, SHARD_BITS
from ternmq.broker.group.progress import Progress


class RowState(enum.StrEnum):
    """The state of a row in a group."""

    UNREAD = "unread"
    LEASED = "leased"
    READY = "ready"
    WAITING = "waiting"
    HELD = "held"
    DEAD = "dead"
    NOT_OWED = "not_owed"


@dataclass(slots=True, frozen=True)
class RowPlace:
    """The state of a row and what is known of it."""

    state: RowState
    attempts: int = 0
    """Failed attempts, as far as they count against the retry policy."""
    deliveries: int = 0
    behind: int | None = None
    """Ready: the first row of its ordering key, if that is another row."""
    position: int = 0
    """Position of the record that describes its newest failure; 0: there is none."""
    when_us: int = 0
    """Waiting: broker time from which it is delivered again."""


def row_state(progress: Progress, offset: int, first: int) -> RowPlace:
    """Return the state of a row; the offset may be any, stored or not.

    An offset that was not reached yet is unread, whether it is stored yet or not. Rows that the
    group's filter passed over, or that were removed unread (below ``first``, where the queue
    begins), are not owed.
    """
    failures = progress.failures
    dead = failures.dead_letter(offset)
    if dead is not None:
        return RowPlace(RowState.DEAD, dead.attempt, dead.deliveries, position=dead.position)
    waiting = failures.failure(offset)
    if waiting is not None:
        held_back = waiting.when_us == HELD_US
        return RowPlace(
            RowState.HELD if held_back else RowState.WAITING,
            waiting.attempt,
            waiting.deliveries,
            position=waiting.position,
            when_us=0 if held_back else waiting.when_us,
        )
    told_at = failures.history.get(offset, 0)
    run = progress.ready.find(offset)
    if run is not None:
        behind = progress.order.first_before(progress, offset)
        _, _, attempt, deliveries = run
        return RowPlace(RowState.READY, attempt - 1, deliveries, behind, told_at)
    for (start, stop, attempt, deliveries), _ in progress.leases_by_shard().get(
        offset >> SHARD_BITS, ()
    ):
        if start <= offset < stop:
            return RowPlace(RowState.LEASED, attempt - 1, deliveries, position=told_at)
    passed = max(
        progress.cursor, progress.scan, first
    )  # rows that the filter passed over are not unread
    if offset >= passed and not progress.ahead.overlaps(offset, offset + 1):
        return RowPlace(RowState.UNREAD)
    return RowPlace(RowState.NOT_OWED)
