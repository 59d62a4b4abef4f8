"""SETTLE: the outcome of rows that were pulled.

Ruler::

    SETTLE          0  u32 epoch, u32 queue, u64 lease
                   16  i64 delay_us (-1: as the retry policy says)
                   24  u32 span_count (0: all rows of the lease), u16 reason_bytes, u8 outcome,
                       u8 topic_bytes
                   32  u8 group_bytes, 7 x u8 0
                   40  span_count x (u64 start, u64 stop)
                    .  names: topic, group, reason (UTF-8)
      answer        0  u32 settled_rows, u32 refused_count
                    8  refused_count x (u64 start, u64 stop)

A span is the offsets ``[start, stop)``, at least one; spans ascend and do not overlap. Outcomes: 0
done, 1 retry, 2 reject (a dead letter), 3 release (comes again, not counted as an attempt).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest
from ternmq.wire.bodies.checks import (
    answer_at_least,
    answer_exactly,
    at_least,
    bytes_of,
    exactly,
    name_of,
    padded,
    padding,
    unfit,
)
from ternmq.wire.bodies.refusal import cut

SETTLE: Final = Struct("<IIQqIHBBQ")
"""The last number: group_bytes and the zeros behind it."""
SETTLED: Final = Struct("<II")
SPAN: Final = Struct("<QQ")
BY_POLICY: Final = -1
MAX_REASON_BYTES: Final = 4096
MAX_SPANS: Final = 65_536
"""More spans than a lease can have rows."""
OUTCOMES: Final = (0, 1, 2, 3)


class Settle(NamedTuple):
    """A SETTLE request; no spans: all rows of the lease; ``delay_us`` None: the policy's delay."""

    topic: str
    group: str
    queue: int
    epoch: int
    lease: int
    outcome: int
    spans: tuple[tuple[int, int], ...] = ()
    delay_us: int | None = None
    reason: str = ""


class Settled(NamedTuple):
    """A SETTLE answer: the number of settled rows, and spans that were no longer held."""

    rows: int
    refused: tuple[tuple[int, int], ...]


def pack_settle(settle: Settle) -> bytes:
    """Return the body of a SETTLE; spans are put in order, a longer reason is cut.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    topic, group = bytes_of(settle.topic), bytes_of(settle.group)
    reason = cut(settle.reason, MAX_REASON_BYTES) if settle.reason else b""
    try:
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
                *[SPAN.pack(*span) for span in sorted(settle.spans)],
                padded(topic + group + reason),
            )
        )
    except struct.error as error:
        raise unfit(error) from error


def unpack_settle(body: bytes) -> Settle:
    """Return the decoded body of a SETTLE.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, SETTLE)
    epoch, queue, lease, delay, count, reason_size, outcome, topic_size, group_size = (
        SETTLE.unpack_from(body)
    )
    if group_size > 255:
        raise InvalidRequest("bytes 33 to 40 are not 0")
    if outcome not in OUTCOMES:
        raise InvalidRequest(f"outcome {outcome} is not one of {OUTCOMES}")
    if delay < BY_POLICY:
        raise InvalidRequest("a delay is not negative")
    if reason_size > MAX_REASON_BYTES:
        raise InvalidRequest(f"a reason of {reason_size} bytes, at most {MAX_REASON_BYTES} are")
    spans, at = _spans(body, count)
    middle, end = at + topic_size, at + topic_size + group_size
    topic, group = name_of(body[at:middle]), name_of(body[middle:end])
    reason = ""
    if reason_size:
        reason = _reason(body[end : end + reason_size])
        end += reason_size
    exactly(body, padding(body, end))
    delayed = None if delay == BY_POLICY else delay
    return Settle(topic, group, queue, epoch, lease, outcome, spans, delayed, reason)


def _spans(body: bytes, count: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return (spans, index of their end)."""
    if not count:
        return (), SETTLE.size
    at = SETTLE.size + SPAN.size * count
    if count > MAX_SPANS or at > len(body):
        raise InvalidRequest(f"{count} spans do not fit the body, or are above {MAX_SPANS}")
    spans = tuple(SPAN.iter_unpack(body[SETTLE.size : at]))
    before = 0
    for start, stop in spans:
        if start >= stop or start < before:
            raise InvalidRequest(f"the span {start} to {stop} is empty, or not in order")
        before = stop
    return spans, at


def _reason(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("the reason is not UTF-8") from error


def pack_settled(rows: int, refused: Sequence[tuple[int, int]]) -> bytes:
    """Return the body of the answer to a SETTLE."""
    head = SETTLED.pack(rows, len(refused))
    return head if not refused else head + b"".join([SPAN.pack(*span) for span in refused])


def unpack_settled(body: bytes) -> Settled:
    """Return the decoded answer to a SETTLE.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, SETTLED)
    rows, count = SETTLED.unpack_from(body)
    answer_exactly(body, SETTLED.size + SPAN.size * count)
    return Settled(rows, tuple(SPAN.iter_unpack(body[SETTLED.size :])))
