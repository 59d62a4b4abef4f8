"""Counts of an inbox."""

from __future__ import annotations

from dataclasses import dataclass

from ternmq.reliable.database.counts import Counts


@dataclass(slots=True)
class InboxStats(Counts):
    """What an inbox did in this process.

    Attributes:
        handled: Messages whose handler ran, and whose transaction was committed.
        suppressed: Messages that were known: their handler did not run.
        waited: Messages that another handler had at work for too long: they come again later.
        retried: Transactions that were run again at once, after a deadlock or a conflict.
    """

    handled: int = 0
    suppressed: int = 0
    waited: int = 0
    retried: int = 0
