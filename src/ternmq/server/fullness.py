"""Says in the log that sends are refused for want of room, and what keeps the oldest file."""

from __future__ import annotations

import logging
from typing import Final

from ternmq.broker.broker import Broker
from ternmq.broker.moving import Moving
from ternmq.broker.pinned import pinned, sentence

AGAIN_S: Final = 60.0
CHANGED_S: Final = 10.0
"""A reason that changed is told of no sooner: while a group drains, they come and go."""

log = logging.getLogger("ternmq.server")


class Fullness:
    """Looks once a second. Loop only.

    Args:
        broker: The core.
        moving: Its retention.
    """

    def __init__(self, broker: Broker, moving: Moving) -> None:
        self._broker = broker
        self._moving = moving
        self._full = False
        self._said_at: float | None = None
        self._said = ""

    def look(self, now_s: float) -> None:
        """Log when sends are refused, the reason when it changes, all once a minute, and the end.

        Not at the first look that finds them refused: what keeps the oldest file is known only at
        the broker's next.

        Args:
            now_s: Of the loop's clock.
        """
        before, self._full = self._full, self._broker.ledger.room.refuses
        if not self._full:
            if self._said_at is not None:
                log.warning("there is room again: sends are taken")
            self._said_at = None
            return
        if not before:
            return
        why = sentence(pinned(self._broker.ledger, self._moving))
        pause_s = AGAIN_S if why == self._said else CHANGED_S
        if self._said_at is None or now_s - self._said_at >= pause_s:
            self._said_at, self._said = now_s, why
            log.warning("no room: sends are refused. Of the oldest file of the journal: %s", why)
