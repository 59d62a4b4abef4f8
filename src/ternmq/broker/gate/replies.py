"""The broker's replies, and the gate that holds them until what they depend on is committed.

Every reply names the **position** that it depends on: the end of a write's own record, or for
duplicates, refusals and reads, of the newest record that changed what they contain. 0 means
"nothing": the reply may be sent at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from ternmq.journal.index.tail import Places
from ternmq.model.marks import Rests
from ternmq.record.fact.facts import LeasedRun, Span

T = TypeVar("T")
V = TypeVar("V")


class RowOutcome(NamedTuple):
    """A row of a batch with application ids that was not stored now."""

    row: int
    offset: int | None
    """The first receipt's offset; None if the row is refused, or that receipt is forgotten."""
    conflict: bool
    """The id was used for another message: IdConflict for this row."""
    queue: int | None = None
    """The queue of ``offset``; None if ``offset`` is None."""
    cancelled: bool = False
    """With ``conflict``: the message with the id was scheduled and cancelled."""


class SendReply(msgspec.Struct, eq=False):
    """The result of a send.

    ``first_offset`` is None for topics of durability ``fast``, if no row was stored, for a
    duplicate whose record is gone, and if the rows are scheduled: then they have no offset yet, and
    ``queue`` is only the one that was asked for.
    """

    topic: int
    queue: int
    first_offset: int | None
    count: int
    position: int
    rests: Rests
    duplicate: bool = False
    rows: Sequence[RowOutcome] = ()
    scheduled: bool = False


class PrepareReply(msgspec.Struct, eq=False):
    """A batch that was stored for a transaction; the commit refers to it by ``prepared``."""

    topic: int
    queue: int
    prepared: int
    count: int
    position: int
    duplicate: bool = False
    rests: Rests = Rests.DURABLE


class ResolveReply(msgspec.Struct, eq=False):
    """The result of a commit or abort; ``repeated``: it was decided before."""

    rows: int
    position: int
    repeated: bool = False
    rests: Rests = Rests.DURABLE


class CheckedPrepareReply(msgspec.Struct, eq=False):
    """The result of a prepare of a transaction with check-back."""

    transaction: int
    """Number of the transaction: its public id."""
    topic: int
    """Number of the topic; 0 without rows."""
    queue: int
    position: int
    rows: int
    duplicate: bool = False
    """The batch was prepared before; or, without rows, the transaction was opened before."""
    rests: Rests = Rests.DURABLE


class DecideReply(msgspec.Struct, eq=False):
    """The decision on a transaction with check-back; ``repeated``: it was decided before."""

    transaction: int
    rows: int
    """Rows that became messages or were scheduled."""
    position: int
    repeated: bool = False
    rests: Rests = Rests.DURABLE


ANEW_RUNS: Final = 32
"""Runs of a pull of which ``PullReply.anew`` tells something."""


class PullReply(msgspec.Struct, eq=False):
    """Rows delivered under one lease, with the places of the stored batches that hold them."""

    topic: int
    queue: int
    epoch: int
    lease: int
    until_us: int
    runs: Sequence[LeasedRun]
    places: Sequence[Places]
    position: int
    suspect_below: int
    """Rows delivered for the first time and stored below this position may have been delivered
    before a power cut: they carry ``maybe_redelivered``."""
    anew: int = 0
    """Bit i: the rows of run i are delivered for the first time since a reset or a replay.

    Only of the first ``ANEW_RUNS`` runs; others have no bit.
    """
    rests: Rests = Rests.DURABLE


class SettleReply(msgspec.Struct, eq=False):
    """Rows that were settled now; ``refused`` rows were no longer held under the lease."""

    settled: Sequence[LeasedRun]
    refused: Sequence[Span]
    position: int
    rests: Rests = Rests.DURABLE


class NumbersReply(msgspec.Struct, eq=False):
    """A block of a topic's numbers, ``count`` from ``first`` on."""

    first: int
    count: int
    reserve: int | None
    """Ordinal of the reserve that was given with it."""
    position: int
    rests: Rests = Rests.DURABLE


class DoneReply(msgspec.Struct, eq=False):
    """The result of a change, or of a read, as of a position."""

    position: int
    rests: Rests = Rests.DURABLE


class ValueReply(DoneReply, Generic[V], kw_only=True, eq=False):
    """A result with a value, such as the number of what was made."""

    value: V


Reply = (
    SendReply
    | PrepareReply
    | ResolveReply
    | CheckedPrepareReply
    | DecideReply
    | PullReply
    | SettleReply
    | NumbersReply
    | DoneReply
)


class Gate(Generic[T]):
    """Holds replies until their position is committed. Those with equal ``rests`` stay in order."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: tuple[deque[tuple[int, T]], ...] = (deque(), deque(), deque(), deque())

    def __len__(self) -> int:
        return sum([len(one) for one in self._waiting])

    def hold(self, position: int, rests: Rests, answer: T) -> None:
        """Hold a reply; one with a lower position than the one before it waits for that one."""
        queue = self._waiting[rests]
        if queue and position < queue[-1][0]:
            position = queue[-1][0]
        queue.append((position, answer))

    def release(self, committed: int, written: int, strict: int = 0, copies: int = 0) -> list[T]:
        """Return the replies that may be sent now: those with a position at or below the mark.

        Args:
            committed: The commit mark.
            written: The written mark.
            strict: The commit mark as it was when two copies were sure last.
            copies: The commit mark as it was when as many were sure last as are needed.
        """
        free: list[T] = []
        by_commit, by_write, by_strict, by_copies = self._waiting
        while by_commit and by_commit[0][0] <= committed:
            free.append(by_commit.popleft()[1])
        while by_write and by_write[0][0] <= written:
            free.append(by_write.popleft()[1])
        while by_strict and by_strict[0][0] <= strict:
            free.append(by_strict.popleft()[1])
        while by_copies and by_copies[0][0] <= copies:
            free.append(by_copies.popleft()[1])
        return free
