"""PULL: rows for a group, under a lease.

Ruler::

    PULL            0  u32 queue (2**32-1: any), u32 max_messages
                    8  u32 max_bytes (0: as many as the broker allows), u32 wait_ms
                   16  u8 topic_bytes, u8 group_bytes, u16 at_once, u32 detached_ms
                   24  names: topic, group
      answer        0  u32 topic, u32 queue, u32 epoch, u32 run_count
                   16  u64 lease (0: no rows), i64 lease_until_us, i64 now_us
                   40  u64 suspect_below
                   48  u32 failure_bytes, u32 anew
                   56  run_count x (u64 start, u32 rows, u16 attempt, u16 deliveries)
                    .  failures, failure_bytes in all
                    .  records of kind MESSAGES, one after the other, to the end of the frame

``max_messages`` is 1 or more. ``at_once``: the number of messages of the group that the client
works on at one time; 0: not stated, as required if the broker's WELCOME lacks ``pull_at_once``.
``detached_ms``: 0: the lease belongs to the session, and lasts as long as the group says. Otherwise
it belongs to no session and lasts so many milliseconds: it ends by time or by its settles only, and
any session of an app that may consume in the group can settle it.

The runs list the offsets of the lease; other rows of the records are not for this consumer. A row
with ``deliveries`` 1 in a record whose position is below ``suspect_below`` may have been delivered
before a power cut. ``anew``: if bit i is set, ``deliveries`` of run i is 2, and the rows are
delivered for the first time since a reset or a replay; the run may be one of the first 32.

A failure describes the end of the previous attempt: u64 start, u32 rows, u16 reason_bytes, u8
cause, u8 0, the reason in UTF-8, zeros to 8. Failures ascend. Rows without one have not failed, or
their failure is no longer known.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import InvalidRequest, ProtocolError
from ternmq.model.types import DAY_US
from ternmq.wire.bodies.checks import (
    NO_QUEUE,
    answer_at_least,
    at_least,
    bytes_of,
    exactly,
    names,
    padded,
    unfit,
)
from ternmq.wire.bodies.refusal import cut

PULL: Final = Struct("<IIIIQ")
"""The last number: topic_bytes, group_bytes, at_once, detached_ms."""
MAX_AT_ONCE: Final = (1 << 16) - 1
MAX_DETACHED_MS: Final = DAY_US // 1000
DELIVERY: Final = Struct("<IIIIQqqQII")
RUN: Final = Struct("<QIHH")
FAILURE: Final = Struct("<QIHBB")
MAX_LAST_REASON_BYTES: Final = 1024
"""Longest reason in a delivery; FAILED_LIST has the whole reason."""


class Pull(NamedTuple):
    """A PULL request; ``queue`` None: any."""

    topic: str
    group: str
    queue: int | None
    max_messages: int
    max_bytes: int
    wait_ms: int
    at_once: int = 0
    """Messages of the group that the client works on at one time; 0: not stated."""
    detached_ms: int = 0
    """Milliseconds of a lease that belongs to no session; 0: it belongs to the session."""


class Run(NamedTuple):
    """Delivered offsets ``[start, start + rows)``, all with the same attempt."""

    start: int
    rows: int
    attempt: int
    deliveries: int


class LastFailure(NamedTuple):
    """The failure of the previous attempt at offsets ``[start, start + rows)``."""

    start: int
    rows: int
    cause: int
    """Number of the cause, as in SETTLED records: docs/format/records.md."""
    reason: str
    """The consumer's reason, cut to ``MAX_LAST_REASON_BYTES``."""


class Delivery(NamedTuple):
    """A PULL answer; ``lease`` 0: no rows. ``records`` are the bytes as received."""

    topic: int
    queue: int
    epoch: int
    lease: int
    lease_until_us: int
    now_us: int
    suspect_below: int
    runs: tuple[Run, ...]
    failures: tuple[LastFailure, ...]
    records: bytes
    anew: int = 0


def pack_pull(pull: Pull) -> bytes:
    """Return the body of a PULL.

    Raises:
        InvalidRequest: A name is not allowed, or a number does not fit.
    """
    topic, group = bytes_of(pull.topic), bytes_of(pull.group)
    try:
        return PULL.pack(
            NO_QUEUE if pull.queue is None else pull.queue,
            pull.max_messages,
            pull.max_bytes,
            pull.wait_ms,
            len(topic)
            | len(group) << 8
            | min(pull.at_once, MAX_AT_ONCE) << 16
            | pull.detached_ms << 32,
        ) + padded(topic + group)
    except struct.error as error:
        raise unfit(error) from error


def unpack_pull(body: bytes) -> Pull:
    """Return the decoded body of a PULL.

    Raises:
        InvalidRequest: The body has another layout.
    """
    at_least(body, PULL)
    queue, most, size, wait, sizes = PULL.unpack_from(body)
    detached_ms = sizes >> 32
    if detached_ms > MAX_DETACHED_MS:
        raise InvalidRequest("a detached lease of more than a day")
    if not most:
        raise InvalidRequest("a pull of no messages")
    (topic, group), end = names(body, PULL.size, sizes & 255, sizes >> 8 & 255)
    exactly(body, end)
    return Pull(
        topic, group, None if queue == NO_QUEUE else queue, most, size, wait,
        sizes >> 16 & MAX_AT_ONCE, detached_ms,
    )  # fmt: skip


def delivery_head(
    topic: int,
    queue: int,
    epoch: int,
    lease: int,
    lease_until_us: int,
    now_us: int,
    suspect_below: int,
    runs: Sequence[tuple[int, int, int, int]],
    failures: bytes = b"",
    anew: int = 0,
) -> bytes:
    """Return the part of an answer to a PULL before its records.

    Args:
        topic: Number of the topic.
        queue: Number of the queue.
        epoch: Epoch of the lease.
        lease: Number of the lease; 0: no rows.
        lease_until_us: Broker time at which the lease ends.
        now_us: Broker time.
        suspect_below: Position: rows below it may have been delivered before a power cut.
        runs: (start, stop, attempt, deliveries) each.
        failures: Result of ``pack_failures``.
        anew: Bit i: run i is delivered for the first time since a reset or a replay.
    """
    head = DELIVERY.pack(
        topic, queue, epoch, len(runs), lease, lease_until_us, now_us, suspect_below,
        len(failures), anew,
    )  # fmt: skip
    if len(runs) == 1:
        start, stop, attempt, deliveries = runs[0]
        return head + RUN.pack(start, stop - start, attempt, deliveries) + failures
    parts = [
        RUN.pack(start, stop - start, attempt, deliveries)
        for start, stop, attempt, deliveries in runs
    ]
    return b"".join([head, *parts, failures])


def pack_failures(failures: Sequence[LastFailure]) -> bytes:
    """Return the bytes of failures, for ``delivery_head``; they must be in order of offsets."""
    parts: list[bytes] = []
    for start, rows, cause, reason in failures:
        text = cut(reason, MAX_LAST_REASON_BYTES)
        parts += (FAILURE.pack(start, rows, len(text), cause, 0), padded(text))
    return b"".join(parts)


def unpack_delivery(body: bytes) -> Delivery:
    """Return the decoded answer to a PULL; its records are not parsed.

    Raises:
        ProtocolError: The body has another layout.
    """
    answer_at_least(body, DELIVERY)
    topic, queue, epoch, run_count, lease, until, now, suspect, size, anew = DELIVERY.unpack_from(
        body
    )
    at = DELIVERY.size + RUN.size * run_count
    if at + size > len(body):
        raise ProtocolError(
            f"{run_count} runs and {size} bytes of failures do not fit an answer of "
            f"{len(body)} bytes"
        )
    runs = tuple([Run(*run) for run in RUN.iter_unpack(body[DELIVERY.size : at])])
    failures = _failures(body[at : at + size]) if size else ()
    return Delivery(
        topic, queue, epoch, lease, until, now, suspect, runs, failures, body[at + size :], anew
    )


def _failures(data: bytes) -> tuple[LastFailure, ...]:
    found: list[LastFailure] = []
    at = 0
    while at < len(data):
        text = at + FAILURE.size
        if text > len(data):
            raise ProtocolError("the failures of an answer are cut short")
        start, rows, size, cause, _ = FAILURE.unpack_from(data, at)
        end = text + size
        at = end + -end % 8
        if at > len(data):
            raise ProtocolError("the failures of an answer are cut short")
        try:
            reason = data[text:end].decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("the reason of a failure is not UTF-8") from error
        found.append(LastFailure(start, rows, cause, reason))
    return tuple(found)
