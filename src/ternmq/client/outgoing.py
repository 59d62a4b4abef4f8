"""Messages on their way, and the loads they travel in: one load becomes one batch."""

from __future__ import annotations

import asyncio
import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final, cast

from ternmq.client.message import Failure, Message, Receipt, message_id
from ternmq.model.errors import IdConflict, PartialSendError, TernMQError
from ternmq.record.batch import Row, encode, encode_bodies, encode_one
from ternmq.wire import bodies

if TYPE_CHECKING:
    from ternmq.client.lanes import Lane

log: Final = logging.getLogger("ternmq")

MESSAGE_BYTES: Final = 64
"""What a message counts for besides its body."""


class Outgoing:
    """A message with its body encoded; ``future`` is told of its receipt, if anybody wants it."""

    __slots__ = (
        "application_id", "body", "content_type", "future", "headers", "key", "ordering_key", "tag",
    )  # fmt: skip

    # With these it can be encoded as a ``Row``.
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
    ) -> None:
        self.body = body
        self.key = key
        self.ordering_key = ordering_key
        self.tag = tag
        self.headers = headers
        self.content_type = content_type
        self.application_id = application_id
        self.future = future


class Load(ABC):
    """Messages that become one batch, and what is known of it. Loop only.

    Attributes:
        lane: Where it goes.
        count: Messages.
        size_bytes: Of their bodies, and what they count for besides.
        frame: Body of the SEND, once it was made: sent again as it is.
        deadline: Loop time at which it is given up.
        asked: The current connection owes an answer.
        resting: It was refused for now, and a timer will ask again.
        uncertain: It may be stored: a connection was lost before its answer.
        over: Everybody was told.
    """

    __slots__ = (
        "asked", "born_us", "count", "deadline", "first_sequence", "frame", "lane", "last_error",
        "over", "resting", "size_bytes", "tries", "uncertain",
    )  # fmt: skip
    one_way: ClassVar[bool] = False

    def __init__(self, lane: Lane, deadline: float) -> None:
        self.lane = lane
        self.deadline = deadline
        self.count = 0
        self.size_bytes = 0
        self.first_sequence = 0
        self.born_us = 0
        self.frame = b""
        self.tries = 0
        self.last_error: TernMQError | None = None
        self.asked = self.resting = self.uncertain = self.over = False

    @abstractmethod
    def contents(self) -> Sequence[Outgoing] | Sequence[bytes]:
        """Return its messages; bare bytes for those that have nothing else."""

    @abstractmethod
    def encode(self, producer_id: int) -> bytes:
        """Return the batch; ``first_sequence`` and ``born_us`` are set."""

    @abstractmethod
    def stored(self, receipt: bodies.Receipt, producer_id: int) -> None:
        """Tell everybody that it is stored."""

    @abstractmethod
    def failed(self, error: TernMQError) -> list[Outgoing]:
        """Tell everybody; return the messages that nobody was told of who waits."""

    # -- Asker

    def answered(self, body: bytes) -> None:
        """See ``link.Asker``."""
        self.lane.producer.answered(self, body)

    def refused(self, error: TernMQError) -> None:
        """See ``link.Asker``."""
        self.lane.producer.refused_load(self, error)

    def lost(self) -> None:
        """See ``link.Asker``."""
        self.asked = False
        self.uncertain = True


class Singles(Load):
    """Messages of ``send`` and ``send_soon`` of one turn of the loop."""

    __slots__ = ("ids", "messages", "plain")

    def __init__(self, lane: Lane, deadline: float) -> None:
        super().__init__(lane, deadline)
        self.messages: list[Outgoing] = []
        self.ids: set[str] | None = None
        self.plain = True
        """No message has anything besides its body."""

    def takes(self, message: Outgoing) -> bool:
        """Return whether the message can come along in this batch."""
        limits = self.lane.limits
        if (
            self.count >= limits.batch_rows
            or self.size_bytes + len(message.body) + MESSAGE_BYTES > limits.batch_bytes
        ):
            return False
        # The broker refuses a batch in which an id stands twice.
        return not (
            message.application_id and self.ids is not None and message.application_id in self.ids
        )

    def add(self, message: Outgoing) -> None:
        """Take a message."""
        self.messages.append(message)
        self.count += 1
        self.size_bytes += len(message.body) + MESSAGE_BYTES
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
        """See ``Load``."""
        return self.messages

    def encode(self, producer_id: int) -> bytes:
        """See ``Load``."""
        return encode_messages(self, self.messages, producer_id, plain=self.plain)

    def stored(self, receipt: bodies.Receipt, producer_id: int) -> None:
        """See ``Load``."""
        if receipt.others:
            for message, told in zip(
                self.messages, row_receipts(self, receipt, producer_id), strict=True
            ):
                future = message.future
                if future is None or future.done():
                    continue
                if isinstance(told, Receipt):
                    future.set_result(told)
                else:
                    future.set_exception(told)
            return
        topic, queue, offset = self.lane.topic.name, receipt.queue, receipt.first_offset
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

    def failed(self, error: TernMQError) -> list[Outgoing]:
        """See ``Load``."""
        unheard: list[Outgoing] = []
        for message in self.messages:
            future = message.future
            if future is None:
                unheard.append(message)
            elif not future.done():
                # Each its own: what awaits it adds its traceback.
                future.set_exception(copy.copy(error))
                if not _is_awaited(future):
                    unheard.append(message)
        return unheard


def _is_awaited(future: asyncio.Future[Receipt]) -> bool:
    """Return whether somebody will be told of the future's outcome."""
    # Callbacks have no public list. Where the attribute is missing, everything counts as awaited.
    return bool(getattr(future, "_callbacks", True))


class OneWay(Singles):
    """Messages that nobody wants an answer to."""

    __slots__ = ()
    one_way: ClassVar[bool] = True


class Many:
    """One call of ``send_many``: its messages, and who waits for all of them."""

    __slots__ = ("failures", "future", "items", "messages", "open_parts", "receipts")

    def __init__(
        self,
        items: Sequence[object],
        messages: Sequence[Outgoing] | Sequence[bytes],
        future: asyncio.Future[None],
    ) -> None:
        self.items = items
        self.messages = messages
        self.future = future
        self.open_parts = 0
        self.receipts: list[Receipt | None] = [None] * len(items)
        self.failures: list[Failure] = []

    def part_over(self) -> None:
        """One part fewer is on its way."""
        self.open_parts -= 1
        if not self.open_parts and not self.future.done():
            self.future.set_result(None)

    def among(
        self, items: Sequence[object], rows: Sequence[int], failures: Sequence[Failure]
    ) -> Many:
        """Return the same, of all items: these at their ``rows``, and those never sent."""
        whole = Many(items, (), self.future)
        for row, receipt in zip(rows, self.receipts, strict=True):
            whole.receipts[row] = receipt
        whole.failures = [
            *failures, *(Failure(one.message, rows[one.row], one.error) for one in self.failures)
        ]  # fmt: skip
        return whole

    def outcome(self) -> list[Receipt]:
        """Return the receipts, one for each message.

        Raises:
            PartialSendError: There are not as many.
        """
        if self.failures:
            self.failures.sort(key=attrgetter("row"))
            first = self.failures[0]
            raise PartialSendError(
                f"{len(self.failures)} of {len(self.items)} messages were not stored; "
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

    def __init__(self, lane: Lane, deadline: float, many: Many, rows: Sequence[int]) -> None:
        super().__init__(lane, deadline)
        self.many = many
        self.rows = rows
        self.count = len(rows)

    def contents(self) -> Sequence[Outgoing] | Sequence[bytes]:
        """See ``Load``."""
        messages, rows = self.many.messages, self.rows
        if isinstance(rows, range):
            return messages[rows.start : rows.stop]
        return cast("Sequence[Outgoing]", [messages[row] for row in rows])

    def encode(self, producer_id: int) -> bytes:
        """See ``Load``."""
        messages = self.contents()
        if isinstance(messages[0], bytes):
            return encode_bodies(
                cast("Sequence[bytes]", messages),
                topic_seed=self.lane.topic.seed,
                producer_id=producer_id,
                first_sequence=self.first_sequence,
                born_us=self.born_us,
            )
        outgoing = cast("Sequence[Outgoing]", messages)
        return encode_messages(self, outgoing, producer_id, plain=False)

    def stored(self, receipt: bodies.Receipt, producer_id: int) -> None:
        """See ``Load``."""
        many = self.many
        rows, kept = self.rows, many.receipts
        told: Sequence[Receipt | TernMQError]
        if receipt.others or receipt.first_offset is None or not isinstance(rows, range):
            told = row_receipts(self, receipt, producer_id)
            for row, one in zip(rows, told, strict=True):
                if isinstance(one, Receipt):
                    kept[row] = one
                else:
                    many.failures.append(Failure(many.items[row], row, one))
            many.part_over()
            return
        topic, queue = self.lane.topic.name, receipt.queue
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

    def failed(self, error: TernMQError) -> list[Outgoing]:
        """See ``Load``."""
        many = self.many
        many.failures += [Failure(many.items[row], row, error) for row in self.rows]
        many.part_over()
        return []


def encode_messages(
    load: Load, messages: Sequence[Outgoing], producer_id: int, *, plain: bool
) -> bytes:
    """Return the batch of these messages; ``plain``: they have nothing but bodies."""
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


def row_receipts(
    load: Load, receipt: bodies.Receipt, producer_id: int
) -> list[Receipt | TernMQError]:
    """Return what became of each row of a batch of which some were stored before, or refused."""
    topic = load.lane.topic.name
    others = {other.row: other for other in receipt.others}
    ids = _application_ids(load)
    offset = receipt.first_offset
    told: list[Receipt | TernMQError] = []
    for row in range(load.count):
        other = others.get(row)
        sequence = load.first_sequence + row
        durable = not receipt.written
        if other is None:
            told.append(
                Receipt(topic, receipt.queue, offset, durable, receipt.duplicate, producer_id,
                        sequence, ids[row])
            )  # fmt: skip
            offset = None if offset is None else offset + 1
        elif other.conflict:
            conflict = IdConflict(f"id {ids[row]!r} was used in {topic!r} with another body")
            _log_unsent(load, row, load.contents()[row], producer_id, conflict)
            told.append(conflict)
        else:
            told.append(
                Receipt(topic, receipt.queue, other.offset, durable, True, producer_id,
                        sequence, ids[row])
            )  # fmt: skip
    return told


def log_unsent(load: Load, producer_id: int, error: TernMQError) -> None:
    """Log each message of a load that could not be sent, without its body."""
    for row, one in enumerate(load.contents()):
        _log_unsent(load, row, one, producer_id, error)


def _log_unsent(load: Load, row: int, one: object, producer_id: int, error: TernMQError) -> None:
    log.warning(
        "not sent: %s: %s: %s", _description(load, row, one, producer_id),
        type(error).__name__, error,
    )  # fmt: skip


def log_sent(load: Load, producer_id: int) -> None:
    """Log each message of a load that is stored, without its body."""
    for row, one in enumerate(load.contents()):
        log.debug("sent: %s", _description(load, row, one, producer_id))


def _description(load: Load, row: int, one: object, producer_id: int) -> str:
    # It has no id before its batch was made.
    id_ = message_id(producer_id, load.first_sequence + row) if load.frame else "none yet"
    key, application_id = (one.key, one.application_id) if isinstance(one, Outgoing) else ("", "")
    return f"topic={load.lane.topic.name} key={key} id={id_} application_id={application_id}"


def _application_ids(load: Load) -> list[str]:
    if isinstance(load, Singles):
        return [message.application_id for message in load.messages]
    assert isinstance(load, Part)
    messages = [load.many.messages[row] for row in load.rows]
    return ["" if isinstance(one, bytes) else one.application_id for one in messages]


def ready_bodies(items: Sequence[object]) -> list[bytes] | None:
    """Return the bodies of messages that have nothing but bytes as body; None if one has more.

    30 ns a message and attribute: nothing is made for them one by one.
    """
    kinds = set(map(type, items))
    if kinds == {bytes}:
        return cast("list[bytes]", list(items))
    if kinds != {Message}:
        return None
    bodies_ = list(map(attrgetter("body"), items))
    if set(map(type, bodies_)) != {bytes}:
        return None
    for name in ("key", "ordering_key", "tag", "headers", "content_type", "id"):
        if any(map(attrgetter(name), items)):
            return None
    return bodies_
