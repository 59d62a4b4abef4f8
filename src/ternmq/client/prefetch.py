"""How many messages a consumer asks for beyond those that are worked on.

What waits in one consumer is out of reach of the others of its group. So a consumer asks for as
many as it has handlers that are free, and for more only as fast as messages are done: for what
they do in ``SPAN_S``. A pull costs as much as 50 quick messages; quick handlers ask for hundreds
at once.

The measure is one message after the other, from being handed out to being settled, and how many
were worked on when it was settled: by Little's law the one divided by the other is the rate. A
count of what was settled in a while would be wrong where slow handlers end together.
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
    """The number, as it follows from the times of messages. Not thread-safe; has no clock.

    Attributes:
        size: Messages to ask for beyond those that are worked on.
        due: The next message that is handed out is to be timed: ``begin``.
    """

    __slots__ = ("_began", "_workers", "due", "size")

    def __init__(self, workers: int) -> None:
        """Begin with none; ``workers`` is how many messages can be worked on at one time."""
        self._workers = workers
        self._began: float | None = None
        self.size = 0
        self.due = True

    def begin(self, now: float) -> None:
        """A message is handed out, and timed."""
        self._began = now
        self.due = False

    def end(self, now: float, busy: int) -> None:
        """The timed message is settled; ``busy`` were worked on at one time, this one included."""
        if self._began is None:
            return
        took = max(now - self._began, _SHORTEST_S)
        self._began = None
        # One message is not all: no more than twice as many, and no less than a quarter.
        wanted = min(int(max(busy, 1) * SPAN_S / took), MOST_AHEAD)
        self.size = min(max(wanted, self.size // 4), 2 * max(self.size, self._workers))

    def more(self, now: float, busy: int) -> None:
        """Messages came: time the next. One that is timed for too long counts as it stands."""
        if self._began is not None:
            if now - self._began < LONGEST_S:
                return
            self.end(now, busy)
        self.due = True

    def forget(self) -> None:
        """The timed message is lost: it says nothing."""
        self._began = None

    def none(self) -> None:
        """Messages waited here for too long: ask for none ahead until one is seen to be quick."""
        self.size = 0
