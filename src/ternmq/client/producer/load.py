"""Messages to be sent, and the loads that carry them: one load becomes one batch."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

from ternmq.client.content.message import Message, Receipt
from ternmq.model.errors import TernMQError
from ternmq.record.batch.batch import Row, encode, encode_bodies, encode_one
from ternmq.wire import bodies

if TYPE_CHECKING:
    from ternmq.client.content.message import Queue
    from ternmq.client.producer.lanes import Lane

MESSAGE_BYTES: Final = 64
"""Bytes that a message counts for besides its own."""


Choice = int | Callable[[Sequence[int]], object] | None
"""The queue of a message: its number, a function that chooses it, or None."""


class Outgoing:
    """A message with its body encoded; ``future`` gets its receipt; None: no caller wants it.

    Attributes:
        size_bytes: Size of its body and properties.
    """

    __slots__ = (
        "application_id", "body", "content_type", "future", "headers", "key", "ordering_key",
        "queue", "size_bytes", "tag",
    )  # fmt: skip

    # These let it be encoded as a ``Row``.
    due_us: ClassVar[int] = 0
    expiry_us: ClassVar[int] = 0
    priority: ClassVar[int] = 0

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

    def as_message(self) -> Message:
        """Return it as a message that an application may send again."""
        queue = self.queue.func if isinstance(self.queue, partial) else self.queue
        return Message(
            self.body, self.key, self.ordering_key, self.tag, self.headers, self.content_type,
            self.application_id or None, cast("Queue | None", queue),
        )  # fmt: skip


class Load(ABC):
    """Messages that become one batch, and its state. Only for the client's loop.

    Attributes:
        lane: The lane that it waits in.
        count: Number of messages.
        size_bytes: Size of their bodies and properties, plus ``MESSAGE_BYTES`` for each.
        frame: Body of the SEND, once it was made: sent again unchanged.
        deadline: Loop time at which it is given up.
        timeout: Seconds that it has in all.
        patient: Until it is sent, its timeout starts again whenever its lane has a load stored.
        asked: Whether an answer is due on the current connection.
        resting: Whether it was refused for now, and waits for a timer.
        uncertain: Whether it may be stored: a connection was lost before its answer.
        in_window: Whether the window counts its bytes.
        left: Loop time at which it was sent first.
        ahead_bytes: Bytes of unanswered sends at that time, its own included.
        over: Whether all its messages have their outcome.
    """

    __slots__ = (
        "ahead_bytes", "asked", "born_us", "count", "deadline", "first_sequence", "frame",
        "in_window", "lane", "last_error", "left", "over", "resting", "size_bytes", "timeout",
        "tries", "uncertain",
    )  # fmt: skip
    one_way: ClassVar[bool] = False
    patient: ClassVar[bool] = False

    def __init__(self, lane: Lane, deadline: float, timeout: float) -> None:
        self.lane = lane
        self.deadline = deadline
        self.timeout = timeout
        self.count = 0
        self.size_bytes = 0
        self.first_sequence = 0
        self.born_us = 0
        self.frame = b""
        self.tries = 0
        self.last_error: TernMQError | None = None
        self.left = 0.0
        self.ahead_bytes = 0
        self.asked = self.resting = self.uncertain = self.over = self.in_window = False

    @abstractmethod
    def contents(self) -> Sequence[Outgoing] | Sequence[bytes]:
        """Return its messages; bare bytes for messages that have only a body."""

    @abstractmethod
    def encode(self, producer_id: int) -> bytes:
        """Return the batch; ``first_sequence`` and ``born_us`` are set."""

    @abstractmethod
    def stored(self, receipt: bodies.Receipt, producer_id: int) -> None:
        """Report to all senders that it is stored."""

    @abstractmethod
    def failed(self, error: TernMQError) -> None:
        """Report to all senders; the producer gets the messages that no caller waits for."""

    # -- Asker

    def answered(self, body: bytes) -> None:
        """Pass the answer on to the producer."""
        self.lane.producer.answered(self, body)

    def refused(self, error: TernMQError) -> None:
        """Have it sent again later, or given up."""
        self.lane.producer.resending.refused(self, error)

    def lost(self) -> None:
        """Note that it may be stored."""
        self.asked = False
        self.uncertain = True
        if self.over:
            self.lane.producer.forget(self)


def encode_messages(
    load: Load, messages: Sequence[Outgoing], producer_id: int, *, plain: bool
) -> bytes:
    """Return the batch of these messages; ``plain``: they have only bodies."""
    lane = load.lane
    if len(messages) == 1:
        (one,) = messages
        if not (one.headers or one.content_type or one.application_id):
            return encode_one(
                one.body,
                topic_seed=lane.topic.seed,
                producer_id=producer_id,
                first_sequence=load.first_sequence,
                born_us=load.born_us,
                key=one.key.encode(),
                ordering_key=one.ordering_key.encode(),
                tag=one.tag.encode(),
                keyed=lane.keyed,
            )
    if plain:
        return encode_bodies(
            [message.body for message in messages],
            topic_seed=lane.topic.seed,
            producer_id=producer_id,
            first_sequence=load.first_sequence,
            born_us=load.born_us,
            keyed=lane.keyed,
        )
    return encode(
        cast("Sequence[Row]", messages),
        topic_seed=lane.topic.seed,
        producer_id=producer_id,
        first_sequence=load.first_sequence,
        born_us=load.born_us,
        keyed=lane.keyed,
    )
