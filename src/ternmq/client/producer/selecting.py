"""``queue=``: a number, or a function that chooses one."""

from __future__ import annotations

from functools import partial
from operator import index
from typing import Final, SupportsIndex, cast

from ternmq.client.content.message import Message, Selector
from ternmq.client.producer.outgoing import Choice
from ternmq.model.errors import InvalidRequest

_PAST_NUMBER: Final = 1 << 64


def chosen_by(select: Selector, message: Message) -> Choice:
    """Return a function that calls a selector for the queue of a message."""
    return partial(select, message)


def number_of(queue: object) -> int:
    """Return the number of a queue.

    Raises:
        InvalidRequest: It is not a number.
    """
    if hasattr(type(queue), "__index__") and not isinstance(queue, bool):
        number = index(cast("SupportsIndex", queue))
        if -_PAST_NUMBER < number < _PAST_NUMBER:
            return number
        raise InvalidRequest("queue is a number of at most 64 bits; this one has more")
    raise InvalidRequest(
        f"queue is a number, or a function of a message and the queues; not {type(queue).__name__}"
    )
