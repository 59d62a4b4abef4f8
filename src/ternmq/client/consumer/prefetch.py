"""The number of messages that a consumer requests beyond those that are being processed.

Messages that wait in one consumer are out of reach of the others of its group. So a consumer
requests as many as it has free handlers, and beyond that only as many as its handlers process in
``SPAN_S``. A pull costs as much as 50 quick messages, so quick handlers request hundreds at once.

The measure is one message at a time: the time from its hand-out to its settle, and the number of
messages being processed when it was settled. By Little's law, that number divided by the time is
the rate. Counting the settles in an interval would be wrong where slow handlers end together.
"""

from __future__ import annotations

from typing import Final

SPAN_S: Final = 0.1
"""As much work may wait in a consumer as its handlers do in this time."""
MOST_AHEAD: Final = 1024
LONGEST_S: Final = 1.0
"""A message that waits this long in a consumer goes back to the group, for others to take."""
_SHORTEST_S: Final = 1e-6


class Prefetch:
    """Computes the number from the times of messages. Not thread-safe; has no clock.

    Attributes:
        size: Messages to request beyond those that are being processed.
        due: Whether the next message that is handed out is to be timed with ``begin``.
    """

    __slots__ = ("_began", "_workers", "due", "size")

    def __init__(self, workers: int) -> None:
        """Begin with 0; ``workers`` is the number of messages that can be processed at one time."""
        self._workers = workers
        self._began: float | None = None
        self.size = 0
        self.due = True

    def begin(self, now: float) -> None:
        """Start timing a message that is handed out."""
        self._began = now
        self.due = False

    def end(self, now: float, busy: int) -> None:
        """End the timing: the message is settled, one of ``busy`` that were being processed."""
        if self._began is None:
            return
        took = max(now - self._began, _SHORTEST_S)
        self._began = None
        # One message is no proof: at most twice the size, and at least a quarter of it.
        wanted = min(int(max(busy, 1) * SPAN_S / took), MOST_AHEAD)
        self.size = min(max(wanted, self.size // 4), 2 * max(self.size, self._workers))

    def more(self, now: float, busy: int) -> None:
        """Time the next message, as new ones came. A timing of ``LONGEST_S`` or more ends now."""
        if self._began is not None:
            if now - self._began < LONGEST_S:
                return
            self.end(now, busy)
        self.due = True

    def forget(self) -> None:
        """Discard the timing: the message is lost."""
        self._began = None

    def none(self) -> None:
        """Request none ahead until a message is quick: those here waited for too long."""
        self.size = 0
