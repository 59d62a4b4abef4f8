"""Rows of the outbox: messages that are written down, and sent from there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from ternmq.client.content.items import ITEMS, unpack
from ternmq.client.content.message import Message, Receipt
from ternmq.client.producer.outgoing import Outgoing
from ternmq.model.errors import DecodeError
from ternmq.reliable.database.dialect import Dialect

COLUMNS: Final = (
    "seq", "state", "by_writer", "tries", "written_ms", "next_ms", "id", "topic", "queue",
    "message_key", "ordering_key", "tag", "content_type", "headers", "priority", "due_ms",
    "expires_ms", "items", "error",
)  # fmt: skip
"""Columns of a row but the body, in the order in which ``row_of`` takes them."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST: Final = timedelta(microseconds=1)


@dataclass(slots=True, frozen=True)
class Ref:
    """Names a row: SQLite gives a number again after a rollback, so the id belongs to it."""

    seq: int
    id: str


@dataclass(slots=True)
class Row:
    """A row of the outbox. Times are ms since 1970, those of the row by the database's clock.

    Attributes:
        seq: Its number: in the order of the INSERTs.
        state: 0: it is to be sent; 1: held behind a row that was refused; 2: failed; 3: sent.
        by_writer: The process that wrote it sends it first.
        tries: How often it was sent in vain, refusals and lost answers.
        written_ms: When it was written.
        next_ms: It is not sent before.
        id: Application id of the message.
        due_ms: When the message is due, by the broker's clock; None: at once.
        expires_ms: When it expires; None: never.
        items: How many messages of the application it contains.
        error: Why it was not sent; None: it was not refused.
        body: None: it is large, and was not read with the others.
    """

    seq: int
    state: int
    by_writer: bool
    tries: int
    written_ms: int
    next_ms: int
    id: str
    topic: str
    queue: int | None
    key: str
    ordering_key: str
    tag: str
    content_type: str
    headers: Mapping[str, str]
    priority: int
    due_ms: int | None
    expires_ms: int | None
    items: int
    error: str | None
    body: bytes | None

    @property
    def ref(self) -> Ref:
        """What names it."""
        return Ref(self.seq, self.id)

    def message(self, now_ms: int) -> Message:
        """Return the message to send.

        Args:
            now_ms: The present time, by the clock that ``expires_ms`` is compared with. What
                expired already is sent with the shortest life: the broker counts it.
        """
        assert self.body is not None
        lifetime = None
        if self.expires_ms is not None:
            begin = max(now_ms, self.due_ms or 0)
            lifetime = max(_LEAST, timedelta(milliseconds=self.expires_ms - begin))
        return Message(
            self.body,
            self.key,
            self.ordering_key,
            self.tag,
            self.headers,
            self.content_type,
            self.id,
            self.queue,
            deliver_at=None if self.due_ms is None else at(self.due_ms),
            priority=self.priority,
            expires_after=lifetime,
        )


def at(ms: int) -> datetime:
    """Return a time in ms since 1970 as a datetime."""
    return _EPOCH + timedelta(milliseconds=ms)


def row_of(dialect: Dialect, columns: Sequence[Any], body: object) -> Row:
    """Return the row that the database returned as ``COLUMNS``; ``body``: its body, or None."""
    text = dialect.text_of
    (
        seq, state, by_writer, tries, written_ms, next_ms, id_, topic, queue, key, ordering_key,
        tag, content_type, headers, priority, due_ms, expires_ms, items, error,
    ) = columns  # fmt: skip
    return Row(
        int(seq), int(state), bool(by_writer), int(tries), int(written_ms), int(next_ms),
        bytes(id_).decode(), text(topic), queue, text(key), text(ordering_key), text(tag),
        text(content_type), {} if headers is None else msgspec.msgpack.decode(bytes(headers)),
        int(priority), due_ms, expires_ms, int(items), error,
        None if body is None else bytes(body),  # type: ignore[call-overload]
    )  # fmt: skip


def values_of(
    dialect: Dialect, topic: str, message: Outgoing, id_: str, *, by_writer: bool
) -> dict[str, object]:
    """Return the values of a message's row.

    Raises:
        InvalidRequest: The database cannot store one of its texts.
    """
    due_ms = expires_ms = None
    if message.due_us:
        due_ms = -(-message.due_us // 1000)  # never early
    if message.expiry_us:
        expires_ms = -(-message.expiry_us // 1000)
    return {
        "by_writer": int(by_writer), "id": id_.encode(), "topic": dialect.text(topic),
        "queue": message.queue, "message_key": dialect.text(message.key),
        "ordering_key": dialect.text(message.ordering_key), "tag": dialect.text(message.tag),
        "content_type": dialect.text(message.content_type),
        "headers": msgspec.msgpack.encode(dict(message.headers)) if message.headers else None,
        "priority": message.priority, "due_ms": due_ms, "expires_ms": expires_ms,
        "items": items_in(message.content_type, message.body),
        "body": message.body,
    }  # fmt: skip


def items_in(content_type: str, body: bytes) -> int:
    """Return how many messages of the application a body contains: those of a batch session."""
    if content_type != ITEMS:
        return 1
    try:
        return unpack(body).size
    except DecodeError:  # of another program's making: its consumers are told
        return 1


def receipt_of(topic: str, id_: str, due_ms: object) -> Receipt:
    """Return the receipt of a message that was written down."""
    due_at = at(due_ms) if isinstance(due_ms, int) else None
    return Receipt(topic, -1, None, False, False, 0, 0, id_, due_at=due_at, pending=True)


def wall_ms() -> int:
    """Return this machine's clock."""
    return time.time_ns() // 1_000_000
