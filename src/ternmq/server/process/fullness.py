"""Logs that sends are refused because the disk is full, and what keeps the oldest file."""

from __future__ import annotations

import logging
from typing import Final

from ternmq.broker.broker import Broker
from ternmq.broker.upkeep.pinned import pinned, sentence
from ternmq.broker.upkeep.retention import Moving
from ternmq.journal.disk.port import Disk

AGAIN_S: Final = 60.0
CHANGED_S: Final = 10.0
"""Shortest time between two log lines with different reasons: while a group drains, reasons change
often."""

_MIB: Final = 1 << 20

log = logging.getLogger("ternmq.server")


class Fullness:
    """Checks once a second whether sends are refused. Not thread-safe: call it from the loop.

    Args:
        broker: The core.
        moving: The core's retention.
        disk: The disk that has the journal.
        watermark: Fraction of the disk above which retention is under pressure.
    """

    def __init__(self, broker: Broker, moving: Moving, disk: Disk, watermark: float) -> None:
        self._broker = broker
        self._moving = moving
        self._disk = disk
        self._watermark = watermark
        self._full = False
        self._said_at: float | None = None
        self._said = ""

    def look(self, now_s: float) -> None:
        """Log refused sends with the reason, also when it changes; and the end.

        The first call that finds sends refused logs nothing: the broker knows what keeps the oldest
        file only at its next check.

        Args:
            now_s: Time of the loop's clock.
        """
        before, self._full = self._full, self._broker.ledger.room.refuses
        if not self._full:
            if self._said_at is not None:
                log.warning("there is room again: sends are accepted")
            self._said_at = None
            return
        if not before:
            return
        why = sentence(pinned(self._broker.ledger, self._moving))
        pause_s = AGAIN_S if why == self._said else CHANGED_S
        if self._said_at is None or now_s - self._said_at >= pause_s:
            self._said_at, self._said = now_s, why
            self._tell(why)

    def _tell(self, why: str) -> None:
        free, total = self._disk.free_bytes(), self._disk.total_bytes()
        journal = self._broker.ledger.journal
        log.warning(
            "no room: sends are refused. The journal has %d MiB; the disk is %.0f %% full, %d MiB"
            " are free, as df counts (retention_watermark = %g). What keeps the oldest file of the"
            " journal: %s",
            (journal.durable - journal.first) // _MIB,
            100 * (total - free) / max(total, 1),
            free // _MIB,
            self._watermark,
            why,
        )
