"""The progress of a query: the next offset to read of every queue.

Spark receives and shows it as ``{"orders": {"0": 123, "1": 456}}``: the form that
``startingOffsets`` accepts, so that the offsets shown by a query can be pasted as an option. Spark
compares these as texts, so the order is fixed: topics by name, queues by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ternmq.model.errors import OptionError

EARLIEST: Final = -2
"""In options: the oldest message kept."""
LATEST: Final = -1
"""In options: after the newest message."""


class TopicQueue(NamedTuple):
    """A queue."""

    topic: str
    queue: int

    def __str__(self) -> str:
        return f"queue {self.queue} of {self.topic!r}"


Offsets = Mapping[TopicQueue, int]
"""The next offset of queues."""


class OffsetRange(NamedTuple):
    """Rows ``[start, stop)`` of a queue."""

    topic: str
    queue: int
    start: int
    stop: int

    @property
    def place(self) -> TopicQueue:
        """The queue."""
        return TopicQueue(self.topic, self.queue)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.stop} of queue {self.queue} of {self.topic!r}"


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return offsets in the form that Spark stores, in order."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.queue)] = offsets[place]
    return found


def of_json(told: Mapping[str, Mapping[str, int]]) -> dict[TopicQueue, int]:
    """Parse offsets that Spark stored.

    Raises:
        OptionError: They are not valid: the checkpoint belongs to another source.
    """
    try:
        return {
            TopicQueue(topic, int(queue)): int(offset)
            for topic, queues in told.items()
            for queue, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionError(
            f"option checkpointLocation: its offsets belong to another source: "
            f"{str(told)[:200]}; give this query a checkpoint of its own"
        ) from None
