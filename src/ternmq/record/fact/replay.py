"""REPLAY: rows that a group had already received are delivered to it again.

Ruler of the body; one fact a record::

     0 u32 group
     4 u32 topic
     8 u32 queue
    12 u32 session      that requested it; 0: none
    16 u32 round        of the group queue from here on
    20 u8  cause        see ``Cause``
    21 u8  flags        bit 0: keyed; bit 1: given
    22 u16 given_count
    24 u32 run_count
    28 u32 ahead_count
    32     runs  x (u64 start, u32 count, u16 attempt, u16 deliveries)
     .     ahead x (u64 start, u64 stop)
     .     keyed: u64 ordering hash of every row of the runs
     .     given x (u64 start, u64 stop)

Rows of ``runs`` are below the cursor, or failed ahead of it. They leave the state they were in (a
lease, the retries, the dead letters) and are ready: their next delivery has the attempt
``attempt``, which is 1, and the delivery count ``deliveries + 1``. ``deliveries`` is 0 if the count
is not known any more, or if the group was never given the rows. ``given`` has those of these rows
that it was given: their next delivery has the count 2. Records of older brokers lack the flag
*given*: there, it may be all of them. Rows of ``ahead`` are at or above the cursor and had been
settled all the same; they are unread again.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from ternmq.record.fact.facts import LEASED_RUN, SPAN, LeasedRun, Span

HEAD: Final = struct.Struct("<IIIIIBBHII")
FLAG_KEYED: Final = 1
FLAG_GIVEN: Final = 2


class Cause(enum.IntEnum):
    """The command that delivers the rows again."""

    REPLAY = 1
    """Rows of a range, or of ids, in any state."""
    REDRIVE = 2
    """Dead letters."""


class Replayed(msgspec.Struct, frozen=True):
    """Rows that a group gets again, as a new round."""

    group: int
    topic: int
    queue: int
    session: int
    round: int
    cause: Cause
    runs: Sequence[LeasedRun]
    ahead: Sequence[Span] = ()
    hashes: Sequence[int] = ()
    """For an ordered group: ordering hash of every row of the runs."""
    given: Sequence[Span] | None = None
    """Rows with 0 deliveries that the group was given before; None: it is not known which."""


def pack(fact: Replayed) -> bytes:
    """Return the body of a REPLAY record."""
    given = fact.given or ()
    flags = (FLAG_KEYED if fact.hashes else 0) | (0 if fact.given is None else FLAG_GIVEN)
    return b"".join(
        [
            HEAD.pack(
                fact.group, fact.topic, fact.queue, fact.session, fact.round, fact.cause, flags,
                len(given), len(fact.runs), len(fact.ahead),
            ),
            *[LEASED_RUN.pack(a, b - a, n, d) for a, b, n, d in fact.runs],
            *[SPAN.pack(a, b) for a, b in fact.ahead],
            struct.pack(f"<{len(fact.hashes)}Q", *fact.hashes),
            *[SPAN.pack(a, b) for a, b in given],
        ]
    )  # fmt: skip


def unpack(body: bytes) -> Replayed:
    """Return the fact of a REPLAY body.

    Raises:
        struct.error, ValueError: The body is cut short, or a value is not valid.
    """
    group, topic, queue, session, round_, cause, flags, given_count, run_count, ahead_count = (
        HEAD.unpack_from(body)
    )
    at = HEAD.size
    runs: list[LeasedRun] = []
    for _ in range(run_count):
        start, rows, attempt, deliveries = LEASED_RUN.unpack_from(body, at)
        runs.append((start, start + rows, attempt, deliveries))
        at += LEASED_RUN.size
    ahead: list[Span] = []
    for _ in range(ahead_count):
        start, stop = SPAN.unpack_from(body, at)
        ahead.append((start, stop))
        at += SPAN.size
    hashes: tuple[int, ...] = ()
    if flags & FLAG_KEYED:
        rows = sum([stop - start for start, stop, _, _ in runs])
        if at + 8 * rows > len(body):
            raise ValueError("the hashes are cut short")
        hashes = struct.unpack_from(f"<{rows}Q", body, at)
        at += 8 * rows
    given: list[Span] | None = None
    if flags & FLAG_GIVEN:
        given = []
        for _ in range(given_count):
            start, stop = SPAN.unpack_from(body, at)
            given.append((start, stop))
            at += SPAN.size
    return Replayed(group, topic, queue, session, round_, Cause(cause), runs, ahead, hashes, given)
