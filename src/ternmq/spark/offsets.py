"""Where a query stands: the next offset to read of every queue.

Told to Spark, and shown by it, as ``{"orders": {"0": 123, "1": 456}}``: the shape that
``startingOffsets`` takes, so that what a query shows can be pasted as an option. Spark compares
these as texts, so the order is always the same: topics by name, queues by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ternmq.model.errors import OptionError

EARLIEST: Final = -2
"""In options: the oldest message kept."""
LATEST: Final = -1
"""In options: behind the newest message."""


class Place(NamedTuple):
    """A queue."""

    topic: str
    queue: int

    def __str__(self) -> str:
        return f"queue {self.queue} of {self.topic!r}"


Offsets = Mapping[Place, int]
"""The next offset of queues."""


class Span(NamedTuple):
    """Rows ``[start, stop)`` of a queue."""

    topic: str
    queue: int
    start: int
    stop: int

    @property
    def place(self) -> Place:
        """The queue."""
        return Place(self.topic, self.queue)

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.stop} of queue {self.queue} of {self.topic!r}"


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets as Spark keeps them, in order."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.queue)] = offsets[place]
    return found


def of_json(told: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """Return the offsets that Spark kept.

    Raises:
        OptionError: These are none: the checkpoint is another source's.
    """
    try:
        return {
            Place(topic, int(queue)): int(offset)
            for topic, queues in told.items()
            for queue, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f"option checkpointLocation: the offsets there are of another source: "
            f"{str(told)[:200]}; give this query a checkpoint of its own"
        ) from None
