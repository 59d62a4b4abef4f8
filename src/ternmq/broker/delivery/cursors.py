"""Moves the cursor of a group queue without a pull."""

from __future__ import annotations

from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.factkinds import CURSOR
from ternmq.broker.ledger.ledger import Ledger
from ternmq.record.fact.facts import CursorMoved, Move


def move_cursor(ledger: Ledger, now_us: int, progress: Progress, move: Move, cursor: int) -> int:
    """Record that a cursor moved; return the end of the record.

    Raises:
        JournalFull: no segment is ready; nothing was changed.
    """
    round_ = progress.round + (1 if move is Move.RESET else 0)
    fact = CursorMoved(progress.group, progress.topic, progress.queue, move, cursor, round_)
    ledger.record(now_us, CURSOR, fact)
    progress.scan_since_us = 0
    return ledger.end
