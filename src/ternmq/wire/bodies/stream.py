"""BYTES, MARKS, ACK: the stream between the primary of a broker group and a follower.

Ruler (all of them are sent without an answer)::

    BYTES           0  u64 position, u32 epoch, u32 inflated
                   16  records, one after the other, to the end of the frame
    MARKS           0  u32 epoch, u32 lease_ms
                    8  u64 end, u64 durable, u64 commit, u64 first
                   40  i64 broker_time_us, u64 sent_at
    ACK             0  u32 epoch, u32 promise_ms
                    8  u64 incarnation
                   16  u64 written, u64 synced, u64 applied
                   40  u64 echo

The records of BYTES are the journal's, whole, from ``position`` on; of a PAD only the header is
sent. They have at most 1 MiB together, unless it is one record that is larger. If ``inflated`` is
not 0, they are one zstd frame with so many bytes of records, which must have been agreed. In
version 1, it is 0. ``sent_at`` is a time of the primary's clock in µs, which nobody but the primary
understands; ``echo`` is the newest
one that the follower received. In version 1 of the stream, ``lease_ms`` and ``promise_ms`` are 0.

Both sides check lengths, reserved bytes and positions, which are below 2^63. What breaks a rule
raises ``ProtocolError``, and ends the connection.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ternmq.model.errors import ProtocolError
from ternmq.wire.bodies.checks import answer_at_least, answer_exactly

BYTES: Final = Struct("<QII")
MARKS: Final = Struct("<IIQQQQqQ")
ACK: Final = Struct("<IIQQQQQ")

PIECE_BYTES: Final = 1 << 20
"""Most bytes of records in a BYTES, unless it is one record that is larger."""
_POSITIONS: Final = 1 << 63


class Bytes(NamedTuple):
    """A BYTES: records of the journal from ``position`` on, in the reign of ``epoch``.

    ``inflated``: number of bytes that they have when they are inflated; 0: they are not compressed.
    """

    position: int
    epoch: int
    records: bytes
    inflated: int = 0


class Marks(NamedTuple):
    """A MARKS: how far the primary is.

    Its journal is ``[first, end)``, on its disk up to ``durable``, committed up to ``commit``. It
    asks for promises of ``lease_ms``.
    """

    epoch: int
    end: int
    durable: int
    commit: int
    first: int
    broker_time_us: int
    sent_at: int
    lease_ms: int


class Ack(NamedTuple):
    """An ACK: what the follower has in its file, on its disk, and in its views.

    It promises that this process does not stand for primary for ``promise_ms``.
    """

    epoch: int
    incarnation: int
    written: int
    synced: int
    applied: int
    echo: int
    promise_ms: int


def bytes_head(position: int, epoch: int, inflated: int = 0) -> bytes:
    """Return the body of a BYTES up to its records."""
    return BYTES.pack(position, epoch, inflated)


def unpack_bytes(body: bytes) -> Bytes:
    """Return the decoded body of a BYTES; its records are neither inflated nor parsed.

    Raises:
        ProtocolError: The body has another layout, or there are no records.
    """
    answer_at_least(body, BYTES)
    position, epoch, inflated = BYTES.unpack_from(body)
    if position >= _POSITIONS or len(body) == BYTES.size:
        raise ProtocolError("a BYTES without records, or without a position")
    return Bytes(position, epoch, body[BYTES.size :], inflated)


def pack_marks(marks: Marks) -> bytes:
    """Return the body of a MARKS."""
    epoch, end, durable, commit, first, broker_time_us, sent_at, lease_ms = marks
    return MARKS.pack(epoch, lease_ms, end, durable, commit, first, broker_time_us, sent_at)


def unpack_marks(body: bytes) -> Marks:
    """Return the decoded body of a MARKS.

    Raises:
        ProtocolError: The body has another layout, or the marks contradict each other.
    """
    answer_exactly(body, MARKS.size)
    epoch, lease_ms, end, durable, commit, first, broker_time_us, sent_at = MARKS.unpack(body)
    if end >= _POSITIONS or not max(first, durable, commit) <= end or commit > durable:
        raise ProtocolError("a MARKS whose marks contradict each other")
    return Marks(epoch, end, durable, commit, first, broker_time_us, sent_at, lease_ms)


def pack_ack(ack: Ack) -> bytes:
    """Return the body of an ACK."""
    epoch, incarnation, written, synced, applied, echo, promise_ms = ack
    return ACK.pack(epoch, promise_ms, incarnation, written, synced, applied, echo)


def unpack_ack(body: bytes) -> Ack:
    """Return the decoded body of an ACK. Whether it can be true is for the reign to judge.

    Raises:
        ProtocolError: The body has another layout, or the numbers contradict each other.
    """
    answer_exactly(body, ACK.size)
    epoch, promise_ms, incarnation, written, synced, applied, echo = ACK.unpack(body)
    if written >= _POSITIONS or max(synced, applied) > written:
        raise ProtocolError("an ACK whose positions contradict each other")
    return Ack(epoch, incarnation, written, synced, applied, echo, promise_ms)
