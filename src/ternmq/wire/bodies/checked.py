"""TRANSACTION_PREPARE, TRANSACTION_SETTLE, TRANSACTION_READ: rows of a transaction with check-back.

Ruler::

    TRANSACTION_PREPARE
                    0  u32 queue (2**32-1: the broker chooses), u8 topic_bytes (0: no batch),
                       u8 group_bytes, u8 query_bytes, u8 0
                    8  u64 producer, u64 counter
                   24  u64 transaction (0: this opens it)
                   32  u64 check_after_us (0: as the producer group says)
                   40  names: topic, producer group, query id (UTF-8)
                    .  the batch, to the end of the frame
      answer        0  u64 transaction, u32 topic, u32 queue
                   16  u32 rows, u32 flags (1 duplicate)
    TRANSACTION_SETTLE
                    0  u64 transaction
                    8  a body as of SETTLE
      answer           nothing
    TRANSACTION_READ
                    0  u64 transaction, u64 after (0: from the first row on)
                   16  u32 max_bytes (0: as many as the broker allows), u32 0
      answer        0  u64 next (0: these are the last), u32 topic_count, u32 0
                   16  topic_count x (u32 topic, u32 name_bytes)
                    .  names: of these topics
                    .  records of kind MESSAGES, one after the other, to the end of the frame

The pair (producer, counter) names the transaction for the client: if the answer to the request that
opened it was lost, a repeat finds it by its name. The query id has 0 to 255 bytes of UTF-8 without
control characters.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.model.specs import MAX_QUERY_BYTES
from ternmq.wire.bodies.checks import (
    MAX_NAME_BYTES,
    NO_QUEUE,
    answer_at_least,
    answer_exactly,
    at_least,
    bytes_of,
    exactly,
    name_of,
    padded,
    padding,
    text_of,
    unfit,
)
from ternmq.wire.bodies.settle import Settle, pack_settle, unpack_settle

TRANSACTION_PREPARE: Final = Struct("<IBBBBQQQQ")
TRANSACTION_PREPARED: Final = Struct("<QIIII")
TRANSACTION_NUMBER: Final = Struct("<Q")
TRANSACTION_READ: Final = Struct("<QQII")
TRANSACTION_ROWS: Final = Struct("<QII")
TOPIC_NAME: Final = Struct("<II")
_DUPLICATE: Final = 1


class TransactionPrepare(NamedTuple):
    """A TRANSACTION_PREPARE request.

    Attributes:
        topic: Name of the topic; empty: there is no batch, and the transaction is only opened.
        queue: Number of the queue; None: the broker chooses.
        producer: First half of the transaction's name; made by the client.
        counter: Second half of its name.
        group: The producer group.
        query_id: The application's name for what the transaction is about.
        transaction: Number of the transaction; 0: this opens it.
        check_after_us: Time after opening at which the checker is asked first; 0: as the group
            says.
        batch: The batch.
    """

    topic: str
    queue: int | None
    producer: int
    counter: int
    group: str
    query_id: str
    transaction: int
    check_after_us: int
    batch: bytes


class TransactionPrepared(NamedTuple):
    """A TRANSACTION_PREPARE answer.

    Attributes:
        transaction: Number of the transaction.
        topic: Number of the topic; 0 without a batch.
        queue: Number of the queue.
        rows: Number of rows of the batch.
        duplicate: The batch was prepared before; without one: the transaction was opened before.
    """

    transaction: int
    topic: int
    queue: int
    rows: int
    duplicate: bool


class TransactionSettle(NamedTuple):
    """A TRANSACTION_SETTLE request: rows of a lease are settled when the transaction commits."""

    transaction: int
    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    outcome: int
    spans: tuple[tuple[int, int], ...]
    delay_us: int | None
    reason: str

    @property
    def settle(self) -> Settle:
        """What is settled."""
        return Settle(*self[1:])


class TransactionRead(NamedTuple):
    """A TRANSACTION_READ request; ``after`` is ``next`` of the page before, or 0."""

    transaction: int
    after: int
    max_bytes: int


class TransactionRows(NamedTuple):
    """A TRANSACTION_READ answer: a page of prepared rows.

    Attributes:
        next: ``after`` of the request for the next page; 0 on the last page.
        topics: Number and name of each topic in it.
        records: The records; their rows have no offsets yet.
    """

    next: int
    topics: tuple[tuple[int, str], ...]
    records: bytes


# -- TRANSACTION_PREPARE ---------------------------------------------------------------------------


def pack_transaction_prepare(asked: TransactionPrepare) -> bytes:
    """Return the body of a TRANSACTION_PREPARE.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    topic = bytes_of(asked.topic) if asked.topic else b""
    group, query = bytes_of(asked.group), asked.query_id.encode(errors="replace")
    text_of("query id", query, 0, MAX_QUERY_BYTES)
    try:
        head = TRANSACTION_PREPARE.pack(
            NO_QUEUE if asked.queue is None else asked.queue,
            len(topic),
            len(group),
            len(query),
            0,
            asked.producer,
            asked.counter,
            asked.transaction,
            asked.check_after_us,
        )
    except struct.error as error:
        raise unfit(error) from error
    return head + padded(topic + group + query) + asked.batch


def unpack_transaction_prepare(body: bytes) -> TransactionPrepare:
    """Return the decoded body of a TRANSACTION_PREPARE; the batch is not parsed.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, TRANSACTION_PREPARE)
    queue, topic_bytes, group_bytes, query_bytes, zero, producer, counter, number, after_us = (
        TRANSACTION_PREPARE.unpack_from(body)
    )
    if zero or topic_bytes > MAX_NAME_BYTES or group_bytes > MAX_NAME_BYTES:
        raise InvalidRequest("a name is too long, or byte 7 is not 0")
    at = TRANSACTION_PREPARE.size
    topic = name_of(body[at : at + topic_bytes]) if topic_bytes else ""
    at += topic_bytes
    group = name_of(body[at : at + group_bytes])
    at += group_bytes
    query_id = text_of("query id", body[at : at + query_bytes], 0, MAX_QUERY_BYTES)
    at = padding(body, at + query_bytes)
    if not topic:
        exactly(body, at)
    return TransactionPrepare(
        topic,
        None if queue == NO_QUEUE else queue,
        producer,
        counter,
        group,
        query_id,
        number,
        after_us,
        body[at:],
    )


def pack_transaction_prepared(
    transaction: int, topic: int, queue: int, rows: int, *, duplicate: bool
) -> bytes:
    """Return the body of the answer to a TRANSACTION_PREPARE."""
    return TRANSACTION_PREPARED.pack(transaction, topic, queue, rows, _DUPLICATE * duplicate)


def unpack_transaction_prepared(body: bytes) -> TransactionPrepared:
    """Return the decoded answer to a TRANSACTION_PREPARE.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_exactly(body, TRANSACTION_PREPARED.size)
    transaction, topic, queue, rows, flags = TRANSACTION_PREPARED.unpack_from(body)
    return TransactionPrepared(transaction, topic, queue, rows, bool(flags & _DUPLICATE))


# -- TRANSACTION_SETTLE ----------------------------------------------------------------------------


def pack_transaction_settle(asked: TransactionSettle) -> bytes:
    """Return the body of a TRANSACTION_SETTLE; its answer has no body.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    try:
        head = TRANSACTION_NUMBER.pack(asked.transaction)
    except struct.error as error:
        raise unfit(error) from error
    return head + pack_settle(asked.settle)


def unpack_transaction_settle(body: bytes) -> TransactionSettle:
    """Return the decoded body of a TRANSACTION_SETTLE.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, TRANSACTION_NUMBER)
    (transaction,) = TRANSACTION_NUMBER.unpack_from(body)
    return TransactionSettle(transaction, *unpack_settle(body[TRANSACTION_NUMBER.size :]))


# -- TRANSACTION_READ ------------------------------------------------------------------------------


def pack_transaction_read(asked: TransactionRead) -> bytes:
    """Return the body of a TRANSACTION_READ.

    Raises:
        InvalidRequest: A number does not fit.
    """
    try:
        return TRANSACTION_READ.pack(asked.transaction, asked.after, asked.max_bytes, 0)
    except struct.error as error:
        raise unfit(error) from error


def unpack_transaction_read(body: bytes) -> TransactionRead:
    """Return the decoded body of a TRANSACTION_READ.

    Raises:
        InvalidRequest: The body has another layout.
    """
    exactly(body, TRANSACTION_READ.size)
    transaction, after, most_bytes, zero = TRANSACTION_READ.unpack_from(body)
    if zero:
        raise InvalidRequest("bytes 20 to 24 are not 0")
    return TransactionRead(transaction, after, most_bytes)


def transaction_rows_head(next_: int, topics: Sequence[tuple[int, str]]) -> bytes:
    """Return the part of an answer to a TRANSACTION_READ before its records."""
    names = [name.encode() for _, name in topics]
    lengths = [
        TOPIC_NAME.pack(number, len(name)) for (number, _), name in zip(topics, names, strict=True)
    ]
    head = TRANSACTION_ROWS.pack(next_, len(topics), 0)
    return b"".join([head, *lengths, padded(b"".join(names))])


def unpack_transaction_rows(body: bytes) -> TransactionRows:
    """Return the decoded answer to a TRANSACTION_READ; its records are not parsed.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, TRANSACTION_ROWS)
    next_, count, _ = TRANSACTION_ROWS.unpack_from(body)
    at = TRANSACTION_ROWS.size
    names_at = at + TOPIC_NAME.size * count
    if names_at > len(body):
        raise ProtocolError(f"an answer of {len(body)} bytes, with {count} topics")
    topics: list[tuple[int, str]] = []
    end = names_at
    for number, length in TOPIC_NAME.iter_unpack(body[at:names_at]):
        topics.append((number, body[end : end + length].decode(errors="replace")))
        end += length
    end += -end % 8
    if end > len(body):
        raise ProtocolError(f"an answer of {len(body)} bytes, at least {end} are needed")
    return TransactionRows(next_, tuple(topics), body[end:])
