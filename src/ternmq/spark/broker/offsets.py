"""The progress of a query: the next offset to read of every queue, and which topics these are.

Spark stores and shows it as::

    {"$topics": {"orders": {"number": 7}}, "$version": 2, "orders": {"0": 123, "1": 456}}

``startingOffsets`` accepts this form, so that the offsets shown by a query can be pasted as an
option. Names of topics that a client can read have no ``$``.

* ``$version``: 2. Version 1 has neither ``$version`` nor ``$topics``: nothing says which topics its
  offsets belong to. It is read, and never written. A higher version is refused.
* ``$topics``: the identity of each topic. ``number`` is the topic's number in records, which the
  broker never gives to another topic: one that is deleted and made again has another.

Spark compares offsets as texts, so the order is fixed: names in the order of their characters,
queues by number. ``tests/golden/offsets_v1.json`` and ``offsets_v2.json`` hold the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ternmq.model.errors import OptionError

EARLIEST: Final = -2
"""In options: the oldest message kept."""
LATEST: Final = -1
"""In options: after the newest message."""
VERSION: Final = 2
"""Version of the form in which Spark stores offsets."""

_VERSION: Final = "$version"
_TOPICS: Final = "$topics"
_NUMBER: Final = "number"


class TopicQueue(NamedTuple):
    """A queue."""

    topic: str
    queue: int

    def __str__(self) -> str:
        return f"queue {self.queue} of {self.topic!r}"


Offsets = Mapping[TopicQueue, int]
"""The next offset of queues."""
Numbers = Mapping[str, int]
"""The numbers of topics, by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a query.

    Attributes:
        offsets: The next offset of each queue.
        numbers: The numbers of the topics that the offsets belong to. A topic without one was
            stored by a version that did not record it.
    """

    offsets: Offsets
    numbers: Numbers = field(default_factory=dict)

    def same(self, topic: str, number: int) -> bool:
        """Return whether a topic of this number may be the one that the offsets belong to."""
        return self.numbers.get(topic, number) == number


class OffsetRange(NamedTuple):
    """Rows ``[start, stop)`` of a queue.

    Attributes:
        number: Number of the topic; 0: not known.
    """

    topic: str
    queue: int
    start: int
    stop: int
    number: int = 0

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


def another(topic: str, old: int, new: int) -> str:
    """Return the text that says that another topic has the name of a deleted one."""
    return f"topic {topic!r} of number {old} was deleted; the topic of this name has number {new}"


def to_json(progress: Progress) -> dict[str, Any]:
    """Return progress in the form that Spark stores, in order."""
    topics = {
        topic: {_NUMBER: number} for topic, number in sorted(progress.numbers.items()) if number
    }
    found: dict[str, Any] = {_TOPICS: topics, _VERSION: VERSION}
    for place in sorted(progress.offsets):
        found.setdefault(place.topic, {})[str(place.queue)] = progress.offsets[place]
    return found


def of_json(told: Mapping[str, Any]) -> Progress:
    """Parse progress that Spark stored.

    Raises:
        OptionError: It is not valid: the checkpoint belongs to another source, or was written by a
            later version.
    """
    try:
        queues, numbers = parted(told)
        return Progress(
            {
                TopicQueue(topic, int(queue)): int(offset)
                for topic, offsets in queues.items()
                for queue, offset in offsets.items()
            },
            numbers,
        )
    except VersionError as error:
        raise OptionError(
            f"option checkpointLocation: {error}; continue this query with the version of TernMQ "
            f"that wrote them, or a later one"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OptionError(
            f"option checkpointLocation: its offsets belong to another source: "
            f"{str(told)[:200]}; give this query a checkpoint of its own"
        ) from None


class VersionError(Exception):
    """Offsets are in the form of another version."""


def parted(told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the offsets of a stored form, by topic and not yet parsed, and the topics' numbers.

    Raises:
        VersionError: The form is that of a later version.
        AttributeError, KeyError, TypeError, ValueError: It is not valid.
    """
    if _VERSION not in told and _TOPICS not in told:
        return dict(told), {}
    version = told.get(_VERSION)
    if version != VERSION:
        raise VersionError(f"the offsets have version {version!r}, this program knows {VERSION}")
    queues = {name: one for name, one in told.items() if name not in (_VERSION, _TOPICS)}
    numbers = {topic: int(one[_NUMBER]) for topic, one in told.get(_TOPICS, {}).items()}
    return queues, numbers
