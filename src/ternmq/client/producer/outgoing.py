"""A message to be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from ternmq.client.content.message import Message, Receipt

if TYPE_CHECKING:
    import asyncio

    from ternmq.client.content.broker_time import BrokerTime
    from ternmq.client.content.delays import Due
    from ternmq.client.content.lifetimes import Lifetime
    from ternmq.client.content.message import Queue

MESSAGE_BYTES: Final = 64
"""Bytes that a message counts for besides its own."""


Choice = int | Callable[[Sequence[int]], object] | None
"""The queue of a message: its number, a function that chooses it, or None."""


class Outgoing:
    """A message with its body encoded; ``future`` gets its receipt; None: no caller wants it.

    Attributes:
        size_bytes: Size of its body and properties.
        due: When it is delivered; None: at once.
        due_us: The same in broker time, set before it is encoded; 0: at once.
        priority: The level of the topic that it belongs to; 0 is the lowest.
        lifetime: How long it may be delivered; None: for ever.
        expiry_us: When it expires, in broker time, set before it is encoded; 0: never.
    """

    __slots__ = (
        "application_id", "body", "content_type", "due", "due_us", "expiry_us", "future", "headers",
        "key", "lifetime", "ordering_key", "priority", "queue", "size_bytes", "tag",
    )  # fmt: skip

    def __init__(
        self,
        body: bytes,
        key: str,
        ordering_key: str,
        tag: str,
        headers: Mapping[str, str],
        content_type: str,
        application_id: str,
        future: asyncio.Future[Receipt] | None,
        queue: Choice = None,
    ) -> None:
        self.body = body
        self.size_bytes = len(body)
        self.key = key
        self.ordering_key = ordering_key
        self.tag = tag
        self.headers = headers
        self.content_type = content_type
        self.application_id = application_id
        self.future = future
        self.queue = queue
        self.due: Due | None = None
        self.due_us = 0
        self.priority = 0
        self.lifetime: Lifetime | None = None
        self.expiry_us = 0

    def set_times(self, broker_time: BrokerTime) -> None:
        """Set when it is due and when it expires, in broker time."""
        if self.due is not None:
            self.due_us = self.due.settle(broker_time)
        if self.lifetime is not None:
            self.expiry_us = self.lifetime.end_us(self.due_us, broker_time)

    def as_message(self) -> Message:
        """Return it as a message that an application may send again."""
        queue = self.queue.func if isinstance(self.queue, partial) else self.queue
        after: timedelta | None = None
        at: datetime | None = None
        if self.due is not None:
            after, at = self.due.arguments()
        return Message(
            self.body, self.key, self.ordering_key, self.tag, self.headers, self.content_type,
            self.application_id or None, cast("Queue | None", queue), after, at,
            self.priority or None,
            None if self.lifetime is None else self.lifetime.argument(),
        )  # fmt: skip
