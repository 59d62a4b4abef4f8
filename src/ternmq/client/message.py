"""What is sent, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

_NO_HEADERS: Mapping[str, str] = {}


@dataclass(slots=True)
class Message:
    """A message for ``send_many``.

    Attributes:
        body: Bytes, str, or whatever a codec can encode (see ``codecs``).
        key: What it can be looked up by.
        ordering_key: What order is kept by, on ordered topics.
        tag: Second-level kind, for filters.
        headers: Properties.
        content_type: What the body is; by default as its type says.
        id: An identifier of the application's own, of at most 128 bytes: a second message with it
            is not stored again. None: it has none; an empty text is refused.
        queue: Where it goes, as ``queue=`` of ``send``.
    """

    body: object
    key: str = ""
    ordering_key: str = ""
    tag: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    id: str | None = None
    queue: Queue | None = None


Selector = Callable[[Message, Sequence[int]], int]
"""Chooses the queue of a message, given the numbers of those that the topic has."""
Queue = int | Selector


class Receipt(msgspec.Struct, frozen=True):
    """A message is stored.

    Attributes:
        topic: Its topic.
        queue: Number of its queue; of a duplicate whose ``offset`` is None it may be another.
        offset: Its place there; None on topics of durability ``fast``, and for a duplicate whose
            first place is no longer known.
        durable: It survives a power cut; False on topics of durability ``fast``, which are synced
            within 100 ms.
        duplicate: It had been stored before; ``offset`` is that of then.
        producer: Number of the client that stored it; 0 for a duplicate of an ``id=``, of whose
            first this is not known.
        sequence: Its number among the messages of that client; 0 likewise.
        broker_group: The broker group that stored it; empty for a single broker.
        application_id: What was given as ``id=``.
    """

    topic: str
    queue: int
    offset: int | None
    durable: bool
    duplicate: bool
    producer: int
    sequence: int
    application_id: str = ""
    broker_group: str = ""

    @property
    def id(self) -> str:
        """An id of the message, by which ``client.get`` finds it.

        It is ``producer:sequence``, hexadecimal; for a duplicate of an ``id=``, that id.
        """
        return message_id(self.producer, self.sequence) if self.producer else self.application_id


def message_id(producer: int, sequence: int) -> str:
    """Return a message's id as text."""
    return f"{producer:016x}:{sequence:x}"


@dataclass(slots=True, frozen=True)
class Failure:
    """A message that was not stored, or of which that is not known.

    Attributes:
        message: What was to be sent: the item of ``send_many``; else a ``Message``, its body
            encoded if it had come so far, which ``send_many`` takes as it is.
        row: Its place among the items of ``send_many``, else 0.
        error: Why.
        topic: Where it was to go.
    """

    message: object
    row: int
    error: Exception
    topic: str = ""
