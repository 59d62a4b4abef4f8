"""Answers of the core, and the gate that holds them until what they rest on is committed.

Every reply names the **position** that it depends on: a write's own record, or for duplicates,
refusals and reads the newest record that changed what they say. 0 means "nothing": it may go at
once.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ternmq.journal.tail import Places
from ternmq.record.facts import LeasedRun, Span

T = TypeVar("T")


class Rests(enum.IntEnum):
    """Up to which mark the position must be covered."""

    DURABLE = 0
    WRITTEN = 1
    """Sends to a topic of durability ``fast``."""


class RowOutcome(NamedTuple):
    """Of a batch with application ids: a row that was not stored now."""

    row: int
    offset: int | None
    """The first receipt's offset; None when the row is refused."""
    conflict: bool
    """The id was used with another body: IdConflict for this row."""


class SendReply:
    """What became of a batch. ``first_offset`` is None for topics of durability ``fast``."""

    __slots__ = (
        "count",
        "duplicate",
        "first_offset",
        "position",
        "queue",
        "rests",
        "rows",
        "topic",
    )

    def __init__(
        self,
        topic: int,
        queue: int,
        first_offset: int | None,
        count: int,
        position: int,
        rests: Rests,
        *,
        duplicate: bool = False,
        rows: Sequence[RowOutcome] = (),
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.first_offset = first_offset
        self.count = count
        self.position = position
        self.rests = rests
        self.duplicate = duplicate
        self.rows = rows


class PullReply:
    """Rows handed out under one lease, with the places of the stored batches that hold them."""

    __slots__ = (
        "epoch",
        "lease",
        "places",
        "position",
        "queue",
        "rests",
        "runs",
        "suspect_below",
        "topic",
        "until_us",
    )

    def __init__(
        self,
        topic: int,
        queue: int,
        epoch: int,
        lease: int,
        until_us: int,
        runs: Sequence[LeasedRun],
        places: Sequence[Places],
        position: int,
        suspect_below: int,
    ) -> None:
        self.topic = topic
        self.queue = queue
        self.epoch = epoch
        self.lease = lease
        self.until_us = until_us
        self.runs = runs
        self.places = places
        self.position = position
        self.rests = Rests.DURABLE
        self.suspect_below = suspect_below
        """Rows handed out for the first time and stored below this position may have been handed
        out before a power cut: they carry ``maybe_redelivered``."""


class SettleReply:
    """Rows that were settled now; ``refused`` were no longer held under the lease."""

    __slots__ = ("position", "refused", "rests", "settled")

    def __init__(
        self, settled: Sequence[LeasedRun], refused: Sequence[Span], position: int
    ) -> None:
        self.settled = settled
        self.refused = refused
        self.position = position
        self.rests = Rests.DURABLE


class DoneReply:
    """Something was changed, or read, as of a position."""

    __slots__ = ("position", "rests", "value")

    def __init__(self, position: int, value: object = None) -> None:
        self.position = position
        self.rests = Rests.DURABLE
        self.value = value


Reply = SendReply | PullReply | SettleReply | DoneReply


class Gate(Generic[T]):
    """Holds answers until their position is committed. Order among equals is kept."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: tuple[deque[tuple[int, T]], deque[tuple[int, T]]] = (deque(), deque())

    def __len__(self) -> int:
        return len(self._waiting[0]) + len(self._waiting[1])

    def hold(self, position: int, rests: Rests, answer: T) -> None:
        """Keep an answer back; one with a lower position than the last waits with that one."""
        queue = self._waiting[rests]
        if queue and position < queue[-1][0]:
            position = queue[-1][0]
        queue.append((position, answer))

    def release(self, durable: int, written: int) -> list[T]:
        """Return the answers that may go now: those whose records end at or below the mark."""
        free: list[T] = []
        for queue, mark in zip(self._waiting, (durable, written), strict=True):
            while queue and queue[0][0] <= mark:
                free.append(queue.popleft()[1])
        return free
