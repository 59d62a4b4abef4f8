"""Loads of single messages: those of ``send``, ``send_soon`` and ``send_oneway`` in one turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from ternmq.client.connection.raising import own
from ternmq.client.content.message import Receipt
from ternmq.client.producer.heard import who_holds, will_be_heard
from ternmq.client.producer.load import Lane, Load, Unclaimed, encode_messages
from ternmq.client.producer.outgoing import MESSAGE_BYTES, Outgoing
from ternmq.client.producer.receipts import row_receipts
from ternmq.model.errors import TernMQError
from ternmq.wire import bodies

_APART: Final = 0.05
"""A message joins an earlier load if that shortens its timeout by at most this fraction."""


class Singles(Load):
    """Messages of ``send`` and ``send_soon`` of one turn of the loop."""

    __slots__ = ("ids", "messages", "plain")

    def __init__(self, lane: Lane, deadline: float, timeout: float) -> None:
        super().__init__(lane, deadline, timeout)
        self.messages: list[Outgoing] = []
        self.ids: set[str] | None = None
        self.plain = True
        """Whether all messages have only a body."""

    def join(
        self, message: Outgoing, deadline: float, timeout: float, *, one_way: bool = False
    ) -> bool:
        """Add a message if it can leave with this batch; return whether it was added."""
        limits = self.lane.limits
        if (
            self.count >= limits.batch_rows
            or self.size_bytes + message.size_bytes + MESSAGE_BYTES > limits.batch_bytes
            or self.timeout != timeout
            or deadline - self.deadline > timeout * _APART
            or self.one_way is not one_way
            or self.lane.alone
            # The broker refuses a batch that contains an id twice.
            or (message.application_id and self.ids and message.application_id in self.ids)
        ):
            return False
        self.add(message)
        return True

    def add(self, message: Outgoing) -> None:
        """Add a message."""
        self.messages.append(message)
        self.count += 1
        self.size_bytes += message.size_bytes + MESSAGE_BYTES
        if message.lifetime is not None:
            self.expiring = True
        if (
            message.key
            or message.ordering_key
            or message.tag
            or message.headers
            or message.content_type
            or message.application_id
        ):
            self.plain = False
            if message.application_id:
                if self.ids is None:
                    self.ids = set()
                self.ids.add(message.application_id)

    def contents(self) -> Sequence[Outgoing]:
        """Return its messages."""
        return self.messages

    def encode(self, producer_id: int) -> bytes:
        """Return the batch."""
        return encode_messages(self, self.messages, producer_id, plain=self.plain)

    def stored(self, receipt: bodies.Receipt, producer_id: int) -> Sequence[Unclaimed]:
        """Set the receipts, and the errors of refused messages; return those nobody waits for."""
        if receipt.others or receipt.scheduled:
            unclaimed: list[Unclaimed] = []
            for message, told in zip(
                self.messages, row_receipts(self, receipt, producer_id), strict=True
            ):
                future = message.future
                if future is None or future.done():
                    continue
                if isinstance(told, Receipt):
                    future.set_result(told)
                else:
                    if not will_be_heard(future):
                        unclaimed.append(Unclaimed(message, who_holds(future), told))
                    future.set_exception(told)
            return unclaimed
        topic, queue, offset = self.lane.topic, receipt.queue, receipt.first_offset
        durable, duplicate = not receipt.written, receipt.duplicate
        sequence = self.first_sequence
        for message in self.messages:
            future = message.future
            if future is not None and not future.done():
                future.set_result(
                    Receipt(
                        topic, queue, offset, durable, duplicate, producer_id, sequence,
                        message.application_id,
                    )
                )  # fmt: skip
            sequence += 1
            if offset is not None:
                offset += 1
        return ()

    def failed(self, error: TernMQError) -> Sequence[Unclaimed]:
        """Set the error in every waiting future; return the messages that nobody waits for."""
        unclaimed: list[Unclaimed] = []
        for message in self.messages:
            future = message.future
            if future is None:
                unclaimed.append(Unclaimed(message, None, error))
            elif not future.done():
                if not will_be_heard(future):
                    unclaimed.append(Unclaimed(message, who_holds(future), error))
                # A copy each: the code that awaits it adds its traceback.
                future.set_exception(own(error))
            message.future = None  # the load may stay for long: see ``raising``
        return unclaimed


class OneWay(Singles):
    """Messages without an answer."""

    __slots__ = ()
    one_way: ClassVar[bool] = True


def begin(
    lane: Lane, message: Outgoing, deadline: float, timeout: float, *, one_way: bool = False
) -> Load:
    """Return a new last load of a lane; it has one message, and others may join it."""
    load = (OneWay if one_way else Singles)(lane, deadline, timeout)
    lane.open = load
    lane.loads.append(load)
    load.add(message)
    return load
