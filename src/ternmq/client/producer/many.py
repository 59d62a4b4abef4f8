"""Calls of ``send_many``, and the loads that they are split into."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar, Final, cast

from ternmq.client.content.message import Failure, Message, Receipt
from ternmq.client.producer.load import Lane, Load, Unclaimed, encode_messages
from ternmq.client.producer.outgoing import Outgoing
from ternmq.client.producer.receipts import row_receipts
from ternmq.model.errors import PartialSendError, TernMQError
from ternmq.model.words import counted, verb
from ternmq.record.batch.batch import encode_bodies
from ternmq.wire import bodies

_LIFETIME: Final = attrgetter("lifetime")


class Many:
    """One call of ``send_many``: its messages, their outcome, and the future for all of them.

    Attributes:
        queue: Queue of bare bodies; None: the broker chooses. Other messages have their own choice.
    """

    __slots__ = ("failures", "future", "items", "messages", "open_parts", "queue", "receipts")

    def __init__(
        self,
        items: Sequence[object],
        messages: Sequence[Outgoing] | Sequence[bytes],
        future: asyncio.Future[None],
        queue: int | None = None,
    ) -> None:
        self.items = items
        self.queue = queue
        self.messages = messages
        self.future = future
        self.open_parts = 1
        """Unfinished loads; one more until the call has taken them all."""
        self.receipts: list[Receipt | None] = [None] * len(items)
        self.failures: list[Failure] = []

    def part_over(self) -> None:
        """Count a finished part; set the future after the last."""
        self.open_parts -= 1
        if not self.open_parts and not self.future.done():
            self.future.set_result(None)

    def among(
        self, items: Sequence[object], rows: Sequence[int], failures: Sequence[Failure]
    ) -> Many:
        """Return the outcome for all items: these at their ``rows``, and those never sent."""
        whole = Many(items, (), self.future)
        for row, receipt in zip(rows, self.receipts, strict=True):
            whole.receipts[row] = receipt
        whole.failures = [
            *failures, *(replace(one, row=rows[one.row]) for one in self.failures)
        ]  # fmt: skip
        return whole

    def of(self, items: Sequence[object]) -> Many:
        """Return the same, with failures that name these items in place of their copies."""
        self.items = items
        self.failures = [replace(one, message=items[one.row]) for one in self.failures]
        return self

    def outcome(self) -> list[Receipt]:
        """Return the receipts, one for each message.

        Raises:
            PartialSendError: Some messages have none.
        """
        if self.failures:
            self.failures.sort(key=attrgetter("row"))
            first = self.failures[0]
            raise PartialSendError(
                f"{len(self.failures)} of {counted(len(self.items), 'message')} "
                f"{verb(len(self.failures), 'was', 'were')} not stored; "
                f"message {first.row}: {first.error}",
                receipts=self.receipts,
                failures=self.failures,
            )
        return cast("list[Receipt]", self.receipts)

    def outcomes(self) -> list[Receipt | Exception]:
        """Return a receipt or an error for each message."""
        told = cast("list[Receipt | Exception]", list(self.receipts))
        for failure in self.failures:
            told[failure.row] = failure.error
        return told


class Part(Load):
    """Messages ``[start, stop)`` of a ``Many``, or those at ``rows`` of it."""

    __slots__ = ("many", "rows")
    patient: ClassVar[bool] = True

    def __init__(
        self, lane: Lane, deadline: float, timeout: float, many: Many, rows: Sequence[int]
    ) -> None:
        super().__init__(lane, deadline, timeout)
        self.many = many
        self.rows = rows
        self.count = len(rows)

    def note_expiring(self) -> None:
        """Note whether one of its messages may expire."""
        if not isinstance(self.many.messages[self.rows[0]], bytes):
            self.expiring = any(map(_LIFETIME, cast("Sequence[Outgoing]", self.contents())))

    def contents(self) -> Sequence[Outgoing] | Sequence[bytes]:
        """Return its messages; bare bytes for messages that have only a body."""
        messages, rows = self.many.messages, self.rows
        if isinstance(rows, range):
            return messages[rows.start : rows.stop]
        return cast("Sequence[Outgoing]", [messages[row] for row in rows])

    def encode(self, producer_id: int) -> bytes:
        """Return the batch."""
        messages = self.contents()
        if isinstance(messages[0], bytes):
            return encode_bodies(
                cast("Sequence[bytes]", messages),
                topic_seed=self.lane.seed,
                producer_id=producer_id,
                first_sequence=self.first_sequence,
                born_us=self.born_us,
            )
        outgoing = cast("Sequence[Outgoing]", messages)
        return encode_messages(self, outgoing, producer_id, plain=False)

    def stored(self, receipt: bodies.Receipt, producer_id: int) -> Sequence[Unclaimed]:
        """Store the receipts, and the failures of refused rows."""
        many = self.many
        rows, kept = self.rows, many.receipts
        topic = self.lane.topic
        told: Sequence[Receipt | TernMQError]
        if receipt.others or receipt.first_offset is None or not isinstance(rows, range):
            told = row_receipts(self, receipt, producer_id)
            for row, one in zip(rows, told, strict=True):
                if isinstance(one, Receipt):
                    kept[row] = one
                else:
                    many.failures.append(Failure(many.items[row], row, one, topic))
            many.part_over()
            return ()
        queue = receipt.queue
        durable, duplicate = not receipt.written, receipt.duplicate
        first, offset = self.first_sequence, receipt.first_offset
        if isinstance(many.messages[0], bytes):
            kept[rows.start : rows.stop] = [
                Receipt(topic, queue, offset + row, durable, duplicate, producer_id, first + row)
                for row in range(self.count)
            ]
        else:
            outgoing = cast("Sequence[Outgoing]", self.contents())
            kept[rows.start : rows.stop] = [
                Receipt(
                    topic, queue, offset + row, durable, duplicate, producer_id, first + row,
                    message.application_id,
                )
                for row, message in enumerate(outgoing)
            ]  # fmt: skip
        many.part_over()
        return ()

    def failed(self, error: TernMQError) -> Sequence[Unclaimed]:
        """Store the error as failure of every row."""
        many = self.many
        topic = self.lane.topic
        many.failures += [Failure(many.items[row], row, error, topic) for row in self.rows]
        many.part_over()
        return ()


_NO_HEADERS: Final[Mapping[str, str]] = {}


def ready_bodies(items: Sequence[object]) -> list[bytes] | None:
    """Return the bodies of messages that have only bytes as body; None if one has more.

    It makes no object per message, and takes 80 ns for each.
    """
    kinds = set(map(type, items))
    if kinds == {bytes}:
        return cast("list[bytes]", list(items))
    if kinds != {Message}:
        return None
    messages = cast("Sequence[Message]", items)
    for one in messages:
        # Compared, not tested for truth: None is not a valid key.
        if (
            one.key != ""
            or one.ordering_key != ""
            or one.tag != ""
            or one.content_type != ""
            or one.id is not None
            or one.queue is not None
            or one.deliver_after is not None
            or one.deliver_at is not None
            or (one.priority is not None and (one.priority != 0 or type(one.priority) is not int))
            or one.expires_after is not None
            or one.headers != _NO_HEADERS
        ):
            return None
    bodies_ = [one.body for one in messages]
    if set(map(type, bodies_)) != {bytes}:
        return None
    return cast("list[bytes]", bodies_)
