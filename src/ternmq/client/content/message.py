"""Messages to send. Receipts and failures are in ``model.outcomes``, since errors use them too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.model.outcomes import Failure, Receipt, message_id

__all__ = [
    "Failure", "Message", "MessageId", "Queue", "Receipt", "Selector", "is_message_id",
    "message_id", "parse_id",
]  # fmt: skip

_ID: Final = re.compile(r"[0-9a-f]{1,16}:[0-9a-f]{1,16}")

_NO_HEADERS: Mapping[str, str] = {}


@dataclass(slots=True)
class Message:
    """A message for ``send_many``.

    Attributes:
        body: Bytes, str, or a value that a codec can encode (see ``codecs``).
        key: Text by which it can be looked up.
        ordering_key: On ordered topics: messages with the same ordering key are delivered one after
            the other.
        tag: Its kind within the topic, for filters.
        headers: Properties.
        content_type: Type of the body; by default derived from the body's type.
        id: An identifier of the application's own, of at most 128 bytes: a second message with it
            is not stored again. None: it has none; an empty text is refused.
        queue: Its queue, as ``queue=`` of ``send``.
        deliver_after: When it is delivered, as ``deliver_after=`` of ``send``.
        deliver_at: Likewise, as ``deliver_at=``.
        priority: Its priority, as ``priority=`` of ``send``; None: that of the call, or 0.
        expires_after: How long it may be delivered, as ``expires_after=`` of ``send``.
    """

    body: object
    key: str = ""
    ordering_key: str = ""
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    id: str | None = None
    queue: Queue | None = None
    deliver_after: float | timedelta | None = None
    deliver_at: datetime | None = None
    priority: int | None = None
    expires_after: float | timedelta | None = None


Selector = Callable[[Message, Sequence[int]], int]
"""Chooses the queue of a message, given the numbers of the topic's queues."""
Queue = int | Selector
"""The queue of a message: its number, or a function that returns it, given the ``Message`` and the
numbers of the topic's queues."""


@dataclass(slots=True, frozen=True)
class MessageId:
    """The parts of a message's id; ``parse_id`` returns it, ``str`` writes it.

    Attributes:
        producer: Number of the producer: 64 random bits, which its client chose.
        sequence: Number of the message among those of the producer.
    """

    producer: int
    sequence: int

    def __str__(self) -> str:
        return message_id(self.producer, self.sequence)


def is_message_id(text: str) -> bool:
    """Return whether a text looks like a message id of the broker."""
    return _ID.fullmatch(text) is not None


def parse_id(id: str) -> MessageId:  # noqa: A002
    """Return the parts of a message's id, such as ``Receipt.id`` or ``Delivery.id``.

    Raises:
        InvalidRequest: It is not an id of the broker.
    """
    if not is_message_id(str(id)):  # of any type: the caller may use no type checker
        raise InvalidRequest(f"{id!r:.100} is not a message id; an id looks like 9f3c...:1a")
    producer, _, sequence = str(id).partition(":")
    return MessageId(int(producer, 16), int(sequence, 16))
