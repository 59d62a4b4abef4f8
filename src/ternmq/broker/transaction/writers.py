"""Writers that name their transactions, and what was decided of these.

A writer's decisions are kept for ``decision_us`` before its newest one, at most ``decisions`` of
them. The committed one with the highest batch id is always kept: so a stream that continues after a
week still learns that its last batch is committed. Of batch ids up to the highest committed one
that was forgotten, nothing else is known. Decisions are forgotten when a fact is applied, by its
time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from ternmq.broker.containers.sortedkeys import SortedKeys
from ternmq.model.errors import (
    InvalidRequest,
    TransactionDecided,
    TransactionTooOld,
    WriterTaken,
)
from ternmq.model.specs import Limits
from ternmq.record.fact.transactions import (
    MAX_PART_BYTES,
    MAX_WRITER_BYTES,
    Prepared,
    Resolution,
    Resolved,
)

MAX_U64: Final = 2**64 - 1
_COMMITTED: Final = Resolution.COMMITTED


class Decision(NamedTuple):
    """The decision on a transaction."""

    batch_id: int
    outcome: int
    """A value of ``Resolution``."""
    digest: int
    rows: int
    time_us: int
    end: int
    """Where its RESOLVED ends: a repeated answer depends on that position."""

    @property
    def committed(self) -> bool:
        """Whether its rows are messages."""
        return self.outcome == _COMMITTED


class _WriterState(msgspec.Struct, frozen=True):
    name: str
    app: str
    last_us: int
    forgotten: int
    decisions: list[Decision]


_decode: Final = msgspec.msgpack.Decoder(_WriterState)


class Writer:
    """A writer; it belongs to the app that used its name first."""

    __slots__ = ("app", "changed", "decisions", "forgotten", "last_us", "name", "number")

    def __init__(self, number: int, name: str, app: str) -> None:
        self.number = number
        self.name = name
        self.app = app
        self.last_us = 0
        self.forgotten = 0
        """One above the highest committed batch id that was forgotten."""
        self.decisions: dict[int, Decision] = {}
        """By batch id, in the order in which they were made."""
        self.changed = 0

    @property
    def highest(self) -> int | None:
        """The highest committed batch id, None if there is none."""
        return max([one.batch_id for one in self.decisions.values() if one.committed], default=None)

    def check_open(self, batch_id: int) -> None:
        """Refuse a batch that is committed, or may have been.

        Raises:
            TransactionDecided: It is committed.
            TransactionTooOld: It may have been committed; that is no longer known.
        """
        decision = self.decisions.get(batch_id)
        if decision is None:
            self.check_age(batch_id)
        elif decision.committed:
            raise TransactionDecided(f"batch {batch_id} of writer {self.name!r} is committed")

    def check_age(self, batch_id: int) -> None:
        """Refuse a batch without a decision if its decision may have been forgotten.

        Raises:
            TransactionTooOld: It may have been committed; that is no longer known.
        """
        if batch_id < self.forgotten:
            raise TransactionTooOld(
                f"the decisions about batches up to {self.forgotten - 1} of writer {self.name!r} "
                f"may be forgotten; batch {batch_id} is one of them"
            )

    def decide(self, decision: Decision, limits: Limits) -> None:
        """Store a decision; older ones may be forgotten."""
        self.decisions.pop(decision.batch_id, None)
        self.decisions[decision.batch_id] = decision
        spare = len(self.decisions) - limits.decisions
        oldest_us = decision.time_us - limits.decision_us
        first = next(iter(self.decisions.values()))
        if spare <= 0 and first.time_us >= oldest_us:
            return
        highest = self.highest
        for one in list(self.decisions.values()):
            if one.batch_id == highest or one is decision:
                continue
            if spare <= 0 and one.time_us >= oldest_us:
                break
            del self.decisions[one.batch_id]
            spare -= 1
            if one.committed:
                self.forgotten = max(self.forgotten, one.batch_id + 1)


class Writers:
    """All writers. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        limits: Limits of the broker.
        busy: Returns the numbers of the writers that have undecided transactions. They are not
            forgotten: the name of a transaction must not be opened a second time.
    """

    __slots__ = ("_busy", "_limits", "by_app", "by_name", "by_number", "names", "next_number")

    def __init__(self, limits: Limits, busy: Callable[[], Collection[int]]) -> None:
        self._limits = limits
        self._busy = busy
        self.by_number: dict[int, Writer] = {}
        self.by_name: dict[str, Writer] = {}
        self.names: SortedKeys[str] = SortedKeys()
        """The keys of ``by_name``, sorted."""
        self.by_app: dict[str, SortedKeys[str]] = {}
        """The names of each app's writers, sorted."""
        self.next_number = 1

    def find(self, name: str, now_us: int) -> Writer | None:
        """Return the writer of that name, None if it is new or was idle for too long."""
        writer = self.by_name.get(name)
        if writer is None:
            return None
        idle = writer.last_us < now_us - self._limits.writer_idle_us
        return None if idle and writer.number not in self._busy() else writer

    def of_app(self, name: str, app: str, now_us: int) -> Writer | None:
        """Return the writer of that name, None as for ``find``.

        Raises:
            WriterTaken: It belongs to another app.
        """
        writer = self.find(name, now_us)
        if writer is not None and writer.app != app:
            raise WriterTaken(f"writer {name!r} belongs to app {writer.app!r}, not {app!r}")
        return writer

    def apply_prepared(self, position: int, time_us: int, fact: Prepared) -> None:
        """Apply a PREPARED record to its writer."""
        writer = self._writer(fact.writer, fact.writer_name, fact.app)
        writer.last_us = max(writer.last_us, time_us)
        writer.changed = position

    def apply_resolved(self, position: int, end: int, time_us: int, fact: Resolved) -> None:
        """Apply a RESOLVED record to its writer."""
        writer = self._writer(fact.writer, fact.writer_name, fact.app)
        writer.last_us = max(writer.last_us, time_us)
        writer.changed = position
        writer.decide(
            Decision(fact.batch_id, int(fact.outcome), fact.digest, fact.rows, time_us, end),
            self._limits,
        )

    def _writer(self, number: int, name: str, app: str) -> Writer:
        writer = self.by_number.get(number)
        if writer is None:
            writer = Writer(number, name, app)
            self._put(writer)
        return writer

    def _put(self, writer: Writer) -> None:
        self.by_number[writer.number] = writer
        self.next_number = max(self.next_number, writer.number + 1)
        known = self.by_name.get(writer.name)
        if known is None or known.number < writer.number:
            if known is not None:
                self._take_out(known)
            self.by_name[writer.name] = writer
            self.names.add(writer.name)
            self.by_app.setdefault(writer.app, SortedKeys()).add(writer.name)

    def _take_out(self, writer: Writer) -> None:
        """Remove a writer's name from the lists."""
        del self.by_name[writer.name]
        self.names.discard(writer.name)
        names = self.by_app[writer.app]
        names.discard(writer.name)
        if not names:
            del self.by_app[writer.app]

    def sweep(self, now_us: int) -> None:
        """Drop writers idle for too long, except busy ones. Call it at any interval."""
        busy = self._busy()
        idle = now_us - self._limits.writer_idle_us
        for writer in [one for one in self.by_number.values() if one.last_us < idle]:
            if writer.number in busy:
                continue
            del self.by_number[writer.number]
            if self.by_name.get(writer.name) is writer:
                self._take_out(writer)

    # -- STATE ------------------------------------------------------------------------------------

    def encode(self, number: int) -> bytes:
        """Return a writer for STATE; empty if it is gone."""
        writer = self.by_number.get(number)
        if writer is None:
            return b""
        return msgspec.msgpack.encode(
            _WriterState(
                writer.name,
                writer.app,
                writer.last_us,
                writer.forgotten,
                list(writer.decisions.values()),
            )
        )

    def load(self, number: int, payload: bytes, stamp: int) -> None:
        """Load a writer as it was at ``stamp``."""
        if not payload:
            return
        state = _decode.decode(payload)
        writer = Writer(number, state.name, state.app)
        writer.last_us = state.last_us
        writer.forgotten = state.forgotten
        writer.decisions = {one.batch_id: one for one in state.decisions}
        writer.changed = stamp
        self._put(writer)


def check_names(writer: str, batch_id: int, part: str) -> None:
    """Refuse names that no transaction can have.

    Raises:
        InvalidRequest: A name or the batch id is not allowed.
    """
    if not writer or len(writer.encode()) > MAX_WRITER_BYTES:
        raise InvalidRequest(f"a writer's name has 1 to {MAX_WRITER_BYTES} bytes")
    if len(part.encode()) > MAX_PART_BYTES:
        raise InvalidRequest(f"the name of a part has at most {MAX_PART_BYTES} bytes")
    if not 0 <= batch_id <= MAX_U64:
        raise InvalidRequest("a batch id is a number of 64 bits")
