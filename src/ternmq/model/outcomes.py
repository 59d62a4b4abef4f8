"""What became of a message that was sent: it is stored, or it is not, or nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


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
