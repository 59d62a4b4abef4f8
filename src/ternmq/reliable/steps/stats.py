"""Counts of the steps of orderly sessions."""

from __future__ import annotations

from dataclasses import dataclass

from ternmq.reliable.database.counts import Counts


@dataclass(slots=True)
class StepsStats(Counts):
    """What a ``Steps`` did in this process.

    Attributes:
        items: Messages of sessions that came; those that came again, too.
        rejected: Messages that were rejected: they are no items, or do not fit their session.
        done: Steps whose transaction was committed.
        undone: Steps that were undone, in a committed transaction.
        failures: Attempts, of steps and of undoing, that failed.
        stopped: Sessions that stopped: an operator decides.
        incomplete: Sessions whose missing items were given up.
        ended: Sessions that are done, undone or cancelled.
    """

    items: int = 0
    rejected: int = 0
    done: int = 0
    undone: int = 0
    failures: int = 0
    stopped: int = 0
    incomplete: int = 0
    ended: int = 0
