"""What is sent; what is told of it is in ``model.outcomes``, where errors know it as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ternmq.model.outcomes import Failure, Receipt, message_id

__all__ = ["Failure", "Message", "Queue", "Receipt", "Selector", "message_id"]

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
