"""What goes over a connection between two brokers, without its encoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ternmq.journal.log.checkpoint import Checkpoint
from ternmq.model.types import Epoch, Position
from ternmq.record.fact.header import HEADER, HEADER_BYTES, Kind
from tests.sim.disk import SimDisk

_PAD = int(Kind.PAD)


class Follow(NamedTuple):
    """See ``wire.control.Follow``."""

    broker: str
    incarnation: int
    told: Epoch
    end: int
    checkpoints: list[Checkpoint]


class Followed(NamedTuple):
    """See ``wire.control.Followed``."""

    broker: str
    epoch: Epoch
    first: Position
    matched: Position
    start: Position
    now_us: int
    lease_us: int


class Bytes(NamedTuple):
    """See ``wire.bodies.Bytes``."""

    position: Position
    epoch: Epoch
    data: bytes


class Marks(NamedTuple):
    """See ``wire.bodies.Marks``."""

    epoch: Epoch
    end: Position
    durable: Position
    commit: Position
    first: Position
    sent_us: int
    lease_us: int


class Ack(NamedTuple):
    """See ``wire.bodies.Ack``."""

    epoch: Epoch
    written: Position
    synced: Position
    sent_us: int
    promise_us: int


class Resign(NamedTuple):
    """See ``wire.control.Resign``."""

    epoch: Epoch


class Portion(NamedTuple):
    """Whole records as they are sent: of a PAD only its header.

    Attributes:
        data: The bytes.
        end: Where they end in the journal.
    """

    data: bytes
    end: Position


def portion(disk: SimDisk, start: int, stop: int, size: int, most: int) -> Portion:
    """Return the records of a journal from a position on, at least one."""
    parts: list[bytes] = []
    gathered = 0
    at = start
    for base, begin, length in _records(disk, start, stop, size):
        data = bytes(disk.files[f"journal/{base:020d}.seg"].data[begin : begin + length.sent])
        if parts and gathered + len(data) > most:
            break
        parts.append(data)
        gathered += len(data)
        at += length.whole
    return Portion(b"".join(parts), Position(at))


class Length(NamedTuple):
    """How long a record is in the journal, and in the stream."""

    whole: int
    sent: int


def _records(disk: SimDisk, start: int, stop: int, size: int) -> Iterator[tuple[int, int, Length]]:
    at = start
    while at < stop:
        base = at - at % size
        data = disk.files[f"journal/{base:020d}.seg"].data
        while at < min(stop, base + size):
            _, _, length, _, kind, *_ = HEADER.unpack_from(data, at - base)
            yield base, at - base, Length(length, HEADER_BYTES if kind == _PAD else length)
            at += length
