"""The kinds of records that the broker writes, each with the codec of its facts.

A fact is a struct of `record`; records of some kinds contain several. What a kind does to the views
is in the table of `views`, which is keyed by these kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ternmq.model.types import Position
from ternmq.record.fact import (
    checked,
    control,
    facts,
    messages,
    moved,
    numbers,
    replay,
    schedule,
    transactions,
)
from ternmq.record.fact.facts import CursorMoved, Extended, Pulled, Settled
from ternmq.record.fact.header import Kind
from ternmq.record.fact.messages import Messages

F = TypeVar("F")


@dataclass(slots=True, frozen=True)
class FactKind(Generic[F]):
    """A kind of record and the codec of its body: ``unpack(pack(fact)) == fact``."""

    kind: Kind
    pack: Callable[[F], bytes]
    unpack: Callable[[bytes], F]


class At(Protocol):
    """Where and when a fact was recorded; ``RawRecord`` and ``Written`` implement it."""

    @property
    def position(self) -> Position:
        """Position of the record."""
        ...

    @property
    def length(self) -> int:
        """Length of the record in bytes; the next one begins at ``position + length`` or later."""
        ...

    @property
    def time_us(self) -> int:
        """Broker time of the record."""
        ...

    @property
    def epoch(self) -> int:
        """Epoch in which the record was written."""
        ...


class Written:
    """Where and when the newest fact was recorded; the next record changes the object."""

    __slots__ = ("epoch", "length", "position", "time_us")

    def __init__(self) -> None:
        self.position = Position(0)
        self.length = 0
        self.time_us = 0
        self.epoch = 0


def _pack_messages(stored: Messages) -> bytes:
    if stored.fulfils is not None:
        return messages.pack_fulfilled(
            stored.topic,
            stored.queue,
            stored.first_offset,
            stored.count,
            stored.batch,
            stored.fulfils,
        )
    if stored.origin is not None:
        return messages.pack_copy(
            stored.topic,
            stored.queue,
            stored.first_offset,
            stored.count,
            stored.batch,
            stored.origin,
        )
    return messages.pack(
        stored.topic, stored.queue, stored.first_offset, stored.count, stored.batch, stored.runs
    )


MESSAGES: Final[FactKind[Messages]] = FactKind(
    Kind.MESSAGES, _pack_messages, messages.unpack_messages
)
PULLED: Final[FactKind[Sequence[Pulled]]] = FactKind(
    Kind.PULLED, facts.pack_pulled, facts.unpack_pulled
)
SETTLED: Final[FactKind[Sequence[Settled]]] = FactKind(
    Kind.SETTLED, facts.pack_settled, facts.unpack_settled
)
ENDED: Final[FactKind[Sequence[Settled]]] = FactKind(
    Kind.ENDED, facts.pack_settled, facts.unpack_settled
)
EXTENDED: Final[FactKind[Sequence[Extended]]] = FactKind(
    Kind.EXTENDED, facts.pack_extended, facts.unpack_extended
)
CURSOR: Final[FactKind[CursorMoved]] = FactKind(Kind.CURSOR, facts.pack_cursor, facts.unpack_cursor)
REPLAY: Final[FactKind[replay.Replayed]] = FactKind(Kind.REPLAY, replay.pack, replay.unpack)
CONFIG: Final[FactKind[control.Config]] = FactKind(Kind.CONFIG, control.pack, control.unpack_config)
JOINED: Final[FactKind[control.Joined]] = FactKind(Kind.JOINED, control.pack, control.unpack_joined)
LEFT: Final[FactKind[control.Left]] = FactKind(Kind.LEFT, control.pack, control.unpack_left)
COUNTS: Final[FactKind[control.Counts]] = FactKind(
    Kind.COUNTS, control.pack_counts, control.unpack_counts
)
ALARM: Final[FactKind[control.Alarm]] = FactKind(Kind.ALARM, control.pack, control.unpack_alarm)
MOVED: Final[FactKind[moved.Moved]] = FactKind(Kind.MOVED, moved.pack, moved.unpack)
PREPARED: Final[FactKind[transactions.Prepared]] = FactKind(
    Kind.PREPARED, transactions.pack_prepared, transactions.unpack_prepared
)
RESOLVED: Final[FactKind[transactions.Resolved]] = FactKind(
    Kind.RESOLVED, transactions.pack_resolved, transactions.unpack_resolved
)
CHECKED: Final[FactKind[checked.Checked]] = FactKind(
    Kind.CHECKED, checked.pack_checked, checked.unpack_checked
)
SCHEDULED: Final[FactKind[Messages]] = FactKind(
    Kind.SCHEDULED, _pack_messages, messages.unpack_scheduled
)
CANCELLED: Final[FactKind[schedule.Cancelled]] = FactKind(
    Kind.CANCELLED, schedule.pack_cancelled, schedule.unpack_cancelled
)
NUMBERS: Final[FactKind[numbers.Numbers]] = FactKind(Kind.NUMBERS, numbers.pack, numbers.unpack)
