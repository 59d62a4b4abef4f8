"""Bodies that are laid out by hand: errors, send, pull, settle, extend, read, cancel, ping.

Rulers (little-endian; the same text is in ``docs/protocol/messages.md``). *names* are the bytes of
the names that a head counts, one after the other, zero padded to 8::

    error answer    0  u16 code, u8 flags (1 retriable, 2 refresh_routes), u8 0, u32 text_bytes
                    8  the text, UTF-8

    SEND            0  u32 queue (2**32-1: the broker chooses), u8 topic_bytes, 3 x u8 0
                    8  names: topic
                    .  the batch, to the end of the frame
      answer        0  u64 first_offset (2**64-1: none), u32 topic, u32 queue
                   16  u32 count, u32 flags (1 duplicate, 2 written, not synced yet)
                   24  u32 row_count, u32 0
                   32  row_count x (u64 offset (2**64-1: none), u32 row, u32 flags (1 conflict))

    PULL            0  u32 queue (2**32-1: any), u32 max_messages
                    8  u32 max_bytes (0: as many as the broker allows), u32 wait_ms
                   16  u8 topic_bytes, u8 group_bytes, 6 x u8 0
                   24  names: topic, group
      answer        0  u32 topic, u32 queue, u32 epoch, u32 run_count
                   16  u64 lease (0: nothing came), i64 lease_until_us, i64 now_us
                   40  u64 suspect_below
                   48  run_count x (u64 start, u32 rows, u16 attempt, u16 deliveries)
                    .  records of kind MESSAGES, one after the other, to the end of the frame

    SETTLE          0  u32 epoch, u32 queue, u64 lease
                   16  i64 delay_us (-1: as the retry policy says)
                   24  u32 span_count (0: all rows of the lease), u16 reason_bytes, u8 outcome,
                       u8 topic_bytes
                   32  u8 group_bytes, 7 x u8 0
                   40  span_count x (u64 start, u64 stop)
                    .  names: topic, group, reason (UTF-8)
      answer        0  u32 settled_rows, u32 refused_count
                    8  refused_count x (u64 start, u64 stop)

    EXTEND          0  u32 epoch, u32 queue, u64 lease
                   16  u64 extension_us, u8 topic_bytes, u8 group_bytes, 6 x u8 0
                   32  names: topic, group
      answer        0  i64 lease_until_us, i64 now_us

    READ            0  u32 queue, u32 max_messages, u32 max_bytes, u32 wait_ms
                   16  u64 offset, u8 topic_bytes, 7 x u8 0
                   32  names: topic
      answer        0  u32 topic, u32 queue, u64 start, u64 stop
                   24  u64 first, u64 next
                   40  records of kind MESSAGES

    CANCEL          0  u64 id of the PULL or READ, which is answered at once, empty or not
    PING answer     0  i64 now_us

Records are those of ``docs/format/records.md``: as stored in the journal, or made by the broker for
this answer out of one of them (then the batch in it is a slice). A run names offsets; rows of a
record that no run names are not for this consumer. A row of ``deliveries`` 1 in a record whose
position is below ``suspect_below`` may have been handed out before a power cut.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest

NO_QUEUE: Final = 2**32 - 1
NO_OFFSET: Final = 2**64 - 1
BY_POLICY: Final = -1
MAX_NAME_BYTES: Final = 127
MAX_REASON_BYTES: Final = 4096

ERROR: Final = struct.Struct("<HBBI")
SEND: Final = struct.Struct("<IB3x")
RECEIPT: Final = struct.Struct("<QIIIIII")
RECEIPT_ROW: Final = struct.Struct("<QII")
PULL: Final = struct.Struct("<IIIIBB6x")
DELIVERY: Final = struct.Struct("<IIIIQqqQ")
RUN: Final = struct.Struct("<QIHH")
SETTLE: Final = struct.Struct("<IIQqIHBBB7x")
SETTLED: Final = struct.Struct("<II")
SPAN: Final = struct.Struct("<QQ")
EXTEND: Final = struct.Struct("<IIQQBB6x")
EXTENDED: Final = struct.Struct("<qq")
READ: Final = struct.Struct("<IIIIQB7x")
ROWS: Final = struct.Struct("<IIQQQQ")
CANCEL: Final = struct.Struct("<Q")
PONG: Final = struct.Struct("<q")

RETRIABLE: Final = 1
REFRESH_ROUTES: Final = 2
DUPLICATE: Final = 1
WRITTEN: Final = 2
CONFLICT: Final = 1


class Send(NamedTuple):
    """A SEND request; ``queue`` None lets the broker choose."""

    topic: str
    queue: int | None
    batch: bytes


class ReceiptRow(NamedTuple):
    """A row of a batch that was not stored now; ``offset`` None: refused, or not known any more."""

    row: int
    offset: int | None
    conflict: bool


class Receipt(NamedTuple):
    """A SEND answer: ``stored`` rows from ``first_offset`` on (None: durability ``fast``)."""

    first_offset: int | None
    topic: int
    queue: int
    stored: int
    duplicate: bool
    written: bool
    others: tuple[ReceiptRow, ...]


class Pull(NamedTuple):
    """A PULL request; ``queue`` None: any."""

    topic: str
    group: str
    queue: int | None
    max_messages: int
    max_bytes: int
    wait_ms: int


class Run(NamedTuple):
    """Offsets ``[start, start + rows)`` handed out, all of one attempt."""

    start: int
    rows: int
    attempt: int
    deliveries: int


class Delivery(NamedTuple):
    """A PULL answer; ``lease`` 0: nothing came. ``records`` are the bytes as received."""

    topic: int
    queue: int
    epoch: int
    lease: int
    lease_until_us: int
    now_us: int
    suspect_below: int
    runs: tuple[Run, ...]
    records: bytes


class Settle(NamedTuple):
    """A SETTLE request; no spans: all rows of the lease; ``delay_us`` None: by the policy."""

    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    outcome: int
    spans: tuple[tuple[int, int], ...]
    delay_us: int | None
    reason: str


class Settled(NamedTuple):
    """A SETTLE answer: how many rows, and the offsets that were no longer held."""

    rows: int
    refused: tuple[tuple[int, int], ...]


class Extend(NamedTuple):
    """An EXTEND request: the lease shall last so long from now on."""

    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    extension_us: int


class Read(NamedTuple):
    """A READ request: rows of a queue from an offset on, without a group."""

    topic: str
    queue: int
    offset: int
    max_messages: int
    max_bytes: int
    wait_ms: int


class Rows(NamedTuple):
    """A READ answer: rows ``[start, stop)``; the queue keeps ``[first, next)``."""

    topic: int
    queue: int
    start: int
    stop: int
    first: int
    next: int
    records: bytes


# ------------------------------------------------------------------------------------------- names


def _padded(names: bytes) -> bytes:
    return names + bytes(-len(names) % 8)


def _name(name: str) -> bytes:
    data = name.encode()
    if not 1 <= len(data) <= MAX_NAME_BYTES:
        raise InvalidRequest(f"a name has 1 to {MAX_NAME_BYTES} bytes, {name[:40]!r} has not")
    return data


def _names(body: bytes, at: int, *lengths: int) -> tuple[list[str], int]:
    """Return the names at ``at`` and where their padding ends.

    Raises:
        InvalidRequest: They do not fit, or are no text.
    """
    end = at + sum(lengths)
    if end > len(body):
        raise InvalidRequest("the names do not fit the body")
    names: list[str] = []
    try:
        for length in lengths:
            names.append(body[at : at + length].decode())
            at += length
    except UnicodeDecodeError as error:
        raise InvalidRequest("a name is not UTF-8") from error
    return names, end + -end % 8


def _short(body: bytes, shape: struct.Struct) -> None:
    if len(body) < shape.size:
        raise InvalidRequest(f"a body of {len(body)} bytes, at least {shape.size} are needed")


def _whole(body: bytes, end: int) -> None:
    if len(body) != end:
        raise InvalidRequest(f"a body of {len(body)} bytes, {end} were described")


# ------------------------------------------------------------------------------------------ errors


def pack_error(code: int, text: str, *, retriable: bool, refresh_routes: bool) -> bytes:
    """Return the body of an answer that says no."""
    data = text.encode()
    flags = RETRIABLE * retriable | REFRESH_ROUTES * refresh_routes
    return ERROR.pack(code, flags, 0, len(data)) + data


def unpack_error(body: bytes) -> tuple[int, str]:
    """Return (code, text) of an error answer."""
    _short(body, ERROR)
    code, _, _, size = ERROR.unpack_from(body)
    _whole(body, ERROR.size + size)
    return code, body[ERROR.size :].decode(errors="replace")


# -------------------------------------------------------------------------------------------- send


def pack_send(topic: str, queue: int | None, batch: bytes) -> bytes:
    """Return the body of a SEND."""
    name = _name(topic)
    return SEND.pack(NO_QUEUE if queue is None else queue, len(name)) + _padded(name) + batch


def send_prefix(topic: str, queue: int | None) -> bytes:
    """Return what stands before the batch in every SEND to this topic and queue."""
    return pack_send(topic, queue, b"")


def unpack_send(body: bytes) -> Send:
    """Return what a SEND asks.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    if len(body) < 16:
        raise InvalidRequest(f"a body of {len(body)} bytes is no send")
    queue, size = SEND.unpack_from(body)
    (topic,), at = _names(body, 8, size)
    return Send(topic, None if queue == NO_QUEUE else queue, body[at:])


def pack_receipt(receipt: Receipt) -> bytes:
    """Return the body of the answer to a SEND."""
    head = RECEIPT.pack(
        NO_OFFSET if receipt.first_offset is None else receipt.first_offset,
        receipt.topic,
        receipt.queue,
        receipt.stored,
        DUPLICATE * receipt.duplicate | WRITTEN * receipt.written,
        len(receipt.others),
        0,
    )
    if not receipt.others:
        return head
    return head + b"".join(
        [
            RECEIPT_ROW.pack(NO_OFFSET if offset is None else offset, row, CONFLICT * conflict)
            for row, offset, conflict in receipt.others
        ]
    )


def unpack_receipt(body: bytes) -> Receipt:
    """Return what the answer to a SEND says."""
    _short(body, RECEIPT)
    first, topic, queue, count, flags, row_count, _ = RECEIPT.unpack_from(body)
    _whole(body, RECEIPT.size + row_count * RECEIPT_ROW.size)
    rows = tuple(
        [
            ReceiptRow(row, None if offset == NO_OFFSET else offset, bool(told & CONFLICT))
            for offset, row, told in RECEIPT_ROW.iter_unpack(body[RECEIPT.size :])
        ]
    )
    return Receipt(
        None if first == NO_OFFSET else first,
        topic,
        queue,
        count,
        bool(flags & DUPLICATE),
        bool(flags & WRITTEN),
        rows,
    )


# -------------------------------------------------------------------------------------------- pull


def pack_pull(pull: Pull) -> bytes:
    """Return the body of a PULL."""
    topic, group = _name(pull.topic), _name(pull.group)
    return PULL.pack(
        NO_QUEUE if pull.queue is None else pull.queue,
        pull.max_messages,
        pull.max_bytes,
        pull.wait_ms,
        len(topic),
        len(group),
    ) + _padded(topic + group)


def unpack_pull(body: bytes) -> Pull:
    """Return what a PULL asks.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    _short(body, PULL)
    queue, most, size, wait, topic_size, group_size = PULL.unpack_from(body)
    (topic, group), end = _names(body, PULL.size, topic_size, group_size)
    _whole(body, end)
    return Pull(topic, group, None if queue == NO_QUEUE else queue, most, size, wait)


def delivery_head(
    topic: int,
    queue: int,
    epoch: int,
    lease: int,
    lease_until_us: int,
    now_us: int,
    suspect_below: int,
    runs: Sequence[tuple[int, int, int, int]],
) -> bytes:
    """Return what stands before the records in the answer to a PULL.

    Args:
        topic: Number.
        queue: Number.
        epoch: Of the lease.
        lease: Number; 0 when nothing came.
        lease_until_us: Broker time at which the lease ends.
        now_us: Broker time.
        suspect_below: Position; see the module.
        runs: (start, stop, attempt, deliveries) each.
    """
    head = DELIVERY.pack(
        topic, queue, epoch, len(runs), lease, lease_until_us, now_us, suspect_below
    )
    if len(runs) == 1:
        start, stop, attempt, deliveries = runs[0]
        return head + RUN.pack(start, stop - start, attempt, deliveries)
    return head + b"".join(
        [
            RUN.pack(start, stop - start, attempt, deliveries)
            for start, stop, attempt, deliveries in runs
        ]
    )


def unpack_delivery(body: bytes) -> Delivery:
    """Return what the answer to a PULL says; its records are not looked into.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    _short(body, DELIVERY)
    topic, queue, epoch, run_count, lease, until, now, suspect = DELIVERY.unpack_from(body)
    at = DELIVERY.size + RUN.size * run_count
    if at > len(body):
        raise InvalidRequest("the runs do not fit the body")
    runs = tuple([Run(*run) for run in RUN.iter_unpack(body[DELIVERY.size : at])])
    return Delivery(topic, queue, epoch, lease, until, now, suspect, runs, body[at:])


# ------------------------------------------------------------------------------------------ settle


def pack_settle(settle: Settle) -> bytes:
    """Return the body of a SETTLE; a longer reason is cut."""
    topic, group = _name(settle.topic), _name(settle.group)
    reason = settle.reason.encode()[:MAX_REASON_BYTES] if settle.reason else b""
    return b"".join(
        (
            SETTLE.pack(
                settle.epoch,
                settle.queue,
                settle.lease,
                BY_POLICY if settle.delay_us is None else settle.delay_us,
                len(settle.spans),
                len(reason),
                settle.outcome,
                len(topic),
                len(group),
            ),
            *[SPAN.pack(*span) for span in settle.spans],
            _padded(topic + group + reason),
        )
    )


def unpack_settle(body: bytes) -> Settle:
    """Return what a SETTLE asks.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    _short(body, SETTLE)
    epoch, queue, lease, delay, count, reason_size, outcome, topic_size, group_size = (
        SETTLE.unpack_from(body)
    )
    at = SETTLE.size + SPAN.size * count
    if at > len(body):
        raise InvalidRequest("the spans do not fit the body")
    spans = tuple(SPAN.iter_unpack(body[SETTLE.size : at]))
    (topic, group), _ = _names(body, at, topic_size, group_size)
    at += topic_size + group_size
    end = at + reason_size
    _whole(body, end + -end % 8)
    reason = body[at:end].decode(errors="replace")
    delayed = None if delay == BY_POLICY else delay
    return Settle(topic, group, queue, epoch, lease, outcome, spans, delayed, reason)


def pack_settled(rows: int, refused: Sequence[tuple[int, int]]) -> bytes:
    """Return the body of the answer to a SETTLE."""
    head = SETTLED.pack(rows, len(refused))
    return head if not refused else head + b"".join([SPAN.pack(*span) for span in refused])


def unpack_settled(body: bytes) -> Settled:
    """Return what the answer to a SETTLE says."""
    _short(body, SETTLED)
    rows, count = SETTLED.unpack_from(body)
    _whole(body, SETTLED.size + SPAN.size * count)
    return Settled(rows, tuple(SPAN.iter_unpack(body[SETTLED.size :])))


# ---------------------------------------------------------------------------------- extend and read


def pack_extend(extend: Extend) -> bytes:
    """Return the body of an EXTEND."""
    topic, group = _name(extend.topic), _name(extend.group)
    return EXTEND.pack(
        extend.epoch,
        extend.queue,
        extend.lease,
        extend.extension_us,
        len(topic),
        len(group),
    ) + _padded(topic + group)


def unpack_extend(body: bytes) -> Extend:
    """Return what an EXTEND asks.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    _short(body, EXTEND)
    epoch, queue, lease, extension, topic_size, group_size = EXTEND.unpack_from(body)
    (topic, group), end = _names(body, EXTEND.size, topic_size, group_size)
    _whole(body, end)
    return Extend(topic, group, queue, epoch, lease, extension)


def pack_extended(lease_until_us: int, now_us: int) -> bytes:
    """Return the body of the answer to an EXTEND."""
    return EXTENDED.pack(lease_until_us, now_us)


def unpack_extended(body: bytes) -> tuple[int, int]:
    """Return (until when the lease lasts, broker time)."""
    _short(body, EXTENDED)
    until, now = EXTENDED.unpack_from(body)
    return until, now


def pack_read(read: Read) -> bytes:
    """Return the body of a READ."""
    topic = _name(read.topic)
    return READ.pack(
        read.queue, read.max_messages, read.max_bytes, read.wait_ms, read.offset, len(topic)
    ) + _padded(topic)


def unpack_read(body: bytes) -> Read:
    """Return what a READ asks.

    Raises:
        InvalidRequest: It is laid out otherwise.
    """
    _short(body, READ)
    queue, most, size, wait, offset, topic_size = READ.unpack_from(body)
    (topic,), end = _names(body, READ.size, topic_size)
    _whole(body, end)
    return Read(topic, queue, offset, most, size, wait)


def rows_head(topic: int, queue: int, start: int, stop: int, first: int, next_: int) -> bytes:
    """Return what stands before the records in the answer to a READ."""
    return ROWS.pack(topic, queue, start, stop, first, next_)


def unpack_rows(body: bytes) -> Rows:
    """Return what the answer to a READ says; its records are not looked into."""
    _short(body, ROWS)
    topic, queue, start, stop, first, next_ = ROWS.unpack_from(body)
    return Rows(topic, queue, start, stop, first, next_, body[ROWS.size :])
