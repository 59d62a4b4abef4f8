"""The outcome of a send: the message is stored, or not, or this is not known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec


class Receipt(msgspec.Struct, frozen=True):
    """The result of a send: the place of a stored message.

    Attributes:
        topic: Name of the topic.
        queue: Number of the queue; of a duplicate whose ``offset`` is None it may be another queue,
            and of a scheduled message it is not known yet; -1 if ``pending``.
        offset: Offset in the queue; None on topics of durability ``fast``, for a scheduled message,
            and for a duplicate if the offset of the first message is not known.
        durable: The message survives a power cut; False on topics of durability ``fast``, which are
            synced within 100 ms.
        duplicate: The message was stored before; ``offset`` is that of the first message.
        producer: Number of the client that stored it; 0 for a duplicate of an ``id=``, because the
            client of the first message is not known.
        sequence: Number of the message among those of that client; 0 if ``producer`` is 0.
        broker_group: The broker group that stored it; empty for a single broker.
        application_id: The ``id=`` that was given.
        due_at: When it is delivered; None: it is not scheduled, or it is a duplicate of an ``id=``.
        pending: The message is a row of the application's database, written within its transaction;
            it is sent after the commit. Its queue is -1, its offset None, ``durable`` False, and
            its id is its ``application_id``.
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
    due_at: datetime | None = None
    pending: bool = False

    @property
    def id(self) -> str:
        """An id with which ``client.get`` finds the message.

        It is ``producer:sequence`` in hexadecimal; for a duplicate of an ``id=``, that id.
        """
        return message_id(self.producer, self.sequence) if self.producer else self.application_id


def message_id(producer: int, sequence: int) -> str:
    """Return a message's id as text."""
    return f"{producer:016x}:{sequence:x}"


@dataclass(slots=True, frozen=True)
class Failure:
    """A message that was not stored, or may not have been.

    Attributes:
        message: The item of ``send_many``; else a ``Message``, which ``send_many`` takes as it is.
            Its body is encoded, unless the failure came before.
        row: Index among the items of ``send_many``, else 0.
        error: The error.
        topic: Name of the topic.
    """

    message: object
    row: int
    error: Exception
    topic: str = ""
