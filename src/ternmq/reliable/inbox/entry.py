"""What identifies a message in an inbox."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from ternmq.client.consumer.delivery import Delivery
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.model.errors import InvalidRequest

MAX_ID_BYTES: Final = 128
"""Longest id, in UTF-8."""


@dataclass(slots=True, frozen=True)
class Entry:
    """A message of one consumer.

    Attributes:
        consumer: Topic and group, as ``consumer_of`` returns them.
        id: Its id.
    """

    consumer: str
    id: bytes


def consumer_of(topic: str, group: str) -> str:
    """Return the text for a group of a topic; names have no ``/``, so each has its own."""
    return f"{topic}/{group}"


def entry_of(delivery: Delivery | BlockingDelivery, by: object = None) -> Entry:
    """Return the entry of a delivery.

    Args:
        delivery: Of a group.
        by: An id of the business: a text, a whole number or a UUID; None: the message's own, which
            is the one that its sender gave it (``id=``), else the one of the library.

    Raises:
        InvalidRequest: It was read without a group, or ``by`` is no id.
    """
    group = delivery.group
    if not group:
        raise InvalidRequest("an inbox knows messages of a group; this one was read without")
    id_ = delivery.application_id or delivery.id if by is None else _text_of(by)
    return Entry(consumer_of(delivery.topic, group), id_bytes(id_))


def id_bytes(id_: str) -> bytes:
    """Return an id as it is stored.

    Raises:
        InvalidRequest: It is empty, too long, or cannot be written as UTF-8.
    """
    try:
        encoded = id_.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"an id of an inbox cannot be written as UTF-8: {error}") from error
    if not 1 <= len(encoded) <= MAX_ID_BYTES:
        raise InvalidRequest(
            f"an id of an inbox has 1 to {MAX_ID_BYTES} bytes, and this one {len(encoded)}"
        )
    return encoded


def _text_of(by: object) -> str:
    if isinstance(by, str):
        return by
    if isinstance(by, uuid.UUID) or (isinstance(by, int) and not isinstance(by, bool)):
        return str(by)
    raise InvalidRequest(f"by= returns a text, a whole number or a UUID, not {type(by).__name__}")
