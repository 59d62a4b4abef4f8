"""The level of a batch, and the queue of a batch on a topic with levels.

All messages of a batch have one priority: the batch is stored in a queue of that level.
"""

from __future__ import annotations

from ternmq.broker.catalog.catalog import Queue, Topic
from ternmq.model.errors import InvalidBatch, InvalidRequest
from ternmq.record.batch.layout import priorities_of


def level_of(topic: Topic, batch: bytes) -> int:
    """Return the priority of all messages of a batch.

    Raises:
        InvalidBatch: They have several priorities.
        InvalidRequest: The topic has no such level.
    """
    found = priorities_of(batch)
    level, levels = found[0], topic.spec.levels
    if found.count(level) != len(found):
        raise InvalidBatch("the messages of this batch have several priorities; split it")
    if level >= levels:
        if levels == 1:
            raise InvalidRequest(
                f"topic {topic.name!r} has no levels, so leave the priority out; levels are set "
                "when a topic is created"
            )
        raise InvalidRequest(
            f"topic {topic.name!r} has {levels} levels: priority 0 to {levels - 1}, not {level}"
        )
    return level


def check_level(topic: Topic, batch: bytes, number: int) -> None:
    """Refuse a queue of another level than that of the batch.

    Raises:
        InvalidBatch: The queue is of another level.
    """
    level, levels = level_of(topic, batch), topic.spec.levels
    if number % levels != level:
        raise InvalidBatch(
            f"queue {number} is of level {number % levels}, and the messages have priority {level}"
        )


def queue_of_level(topic: Topic, batch: bytes, number: int | None) -> Queue:
    """Return the queue for a batch: as requested, or the next in turn of its level.

    Raises:
        InvalidBatch: The queue is of another level.
    """
    if number is not None:
        check_level(topic, batch, number)
        return topic.queues[number]
    level, levels = level_of(topic, batch), topic.spec.levels
    turns = topic.level_turns
    turns[level] = (turns[level] + 1) % (len(topic.queues) // levels)
    return topic.queues[turns[level] * levels + level]
