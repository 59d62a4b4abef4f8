"""What must hold of every answer, refusal, time and removal while a broker runs.

These look at what the broker says beside what it wrote, and take nothing of its own reckoning for
granted: a reply must wait for the records that its command wrote, a refusal for the fact that it
follows from, time must go as the monotonic clock goes, and a segment may only go when two STATE
sets that are whole and durable stand behind it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.gate.replies import (
    CheckedPrepareReply,
    DecideReply,
    DoneReply,
    NumbersReply,
    PrepareReply,
    ResolveReply,
    SendReply,
    SettleReply,
)
from ternmq.journal.log.scan import RawRecord
from ternmq.journal.recovery.recovery import RecoveryReport
from ternmq.journal.state.sets import begin_of_end
from ternmq.model.errors import (
    GroupExists,
    GroupPaused,
    LeaseExpired,
    RefusedError,
    TopicExists,
    TransactionConflict,
    TransactionDecided,
    UnknownApp,
    UnknownGroup,
    UnknownSession,
    UnknownTopic,
)
from ternmq.record.fact.header import Kind
from ternmq.record.fact.stateset import HEAD
from tests.sim.tape import Tape, Violation

_SLACK_US: Final = 1000
_POSITION: Final = struct.Struct("<Q")
_RESTS_ON: Final[dict[type[RefusedError], frozenset[int]]] = {
    UnknownTopic: frozenset({Kind.CONFIG}),
    UnknownGroup: frozenset({Kind.CONFIG}),
    TopicExists: frozenset({Kind.CONFIG}),
    GroupExists: frozenset({Kind.CONFIG}),
    GroupPaused: frozenset({Kind.CONFIG}),
    UnknownSession: frozenset({Kind.LEFT}),
    UnknownApp: frozenset({Kind.CONFIG}),
    LeaseExpired: frozenset(
        {Kind.ENDED, Kind.SETTLED, Kind.CURSOR, Kind.REPLAY, Kind.PREPARED, Kind.RESOLVED}
    ),
    TransactionDecided: frozenset({Kind.RESOLVED}),
    TransactionConflict: frozenset({Kind.RESOLVED}),
}
"""Refusals, and the kinds of records that they may follow from."""


class _Set(NamedTuple):
    """A whole STATE set: where it begins, where its END ends, the oldest position it names."""

    begin: int
    end: int
    oldest: int


class Oracles:
    """Watches one broker; begun anew with every reign."""

    def __init__(self) -> None:
        self._last_us = 0
        self._start_us: int | None = None
        self._monotonic_us = 0
        self._flush_us = 0
        self._flush_before_us = 0
        self._ends: dict[int, int] = {}
        self._sets: list[_Set] = []

    def restart(self, tape: Tape) -> None:
        """A reign begins on what a crash left."""
        self._start_us = None
        self._ends = {}
        self._sets = []
        self._last_us = max((record.time_us for record in tape.records), default=0)
        for record in tape.records:
            self._note_set(record)

    def started(self, report: RecoveryReport, wall_us: int, jump_us: int) -> bool:
        """A start has chosen its time; return whether the wall clock was too far ahead for it.

        Raises:
            Violation: it was, and was believed.
        """
        far = bool(self._last_us) and wall_us > self._last_us + jump_us
        if far and report.time_us != self._last_us:
            raise Violation(f"a start leapt {report.time_us - self._last_us} us ahead")
        return far

    def serving(self, start_us: int, monotonic_us: int) -> None:
        """The broker answers from now on; broker time begins at ``start_us``."""
        self._start_us, self._monotonic_us = start_us, monotonic_us
        self._flush_us = self._flush_before_us = monotonic_us

    def record(self, record: RawRecord, monotonic_us: int) -> None:
        """A record was written: time never goes back, nor faster or slower than it may.

        Raises:
            Violation: it did.
        """
        self._ends[record.kind] = record.end
        self._note_set(record)
        if record.time_us < self._last_us:
            raise Violation(f"time goes back by {self._last_us - record.time_us} us")
        self._last_us = record.time_us
        if self._start_us is not None:
            passed = monotonic_us - self._monotonic_us
            off = record.time_us - self._start_us - passed
            if monotonic_us != self._flush_us:
                self._flush_before_us, self._flush_us = self._flush_us, monotonic_us
            waited = monotonic_us - self._flush_before_us  # it may have been decided so long ago
            if not -waited <= off + passed // 100 + _SLACK_US or off > passed // 100 + _SLACK_US:
                raise Violation(f"broker time is {off} us off after {passed} us")

    def _note_set(self, record: RawRecord) -> None:
        begin = begin_of_end(record)
        if begin is not None:
            count = HEAD.unpack_from(record.body)[4]
            (oldest,) = _POSITION.unpack_from(record.body, HEAD.size + 8 * count)
            self._sets.append(_Set(begin, record.end, oldest))

    def replied(self, broker: Broker, end_before: int, reply: object) -> None:
        """A command was answered: what it wrote must be waited for.

        Raises:
            Violation: the reply rests on less.
        """
        end = broker.journal.end
        waits = (
            SendReply | SettleReply | DoneReply | PrepareReply | ResolveReply
            | CheckedPrepareReply | DecideReply | NumbersReply
        )  # fmt: skip
        if end == end_before or not isinstance(reply, waits):
            return
        if reply.position < end:
            raise Violation(
                f"{type(reply).__name__} rests on {reply.position}, "
                f"its command wrote records up to {end}"
            )

    def refused(self, broker: Broker, error: RefusedError) -> None:
        """A command was refused: the fact that this follows from must be waited for.

        Raises:
            Violation: the refusal may go out before.
        """
        rests = broker.refusal_rests_on(error)
        for kind in _RESTS_ON.get(type(error), ()):
            fact = self._ends.get(kind, 0)
            if fact > broker.journal.committed and rests < fact:
                raise Violation(
                    f"{type(error).__name__} rests on {rests}; a {Kind(kind).name} that is not "
                    f"committed yet ends at {fact}"
                )

    def removed(self, broker: Broker) -> None:
        """Segments went: two sets, whole and committed, stand behind them with all that they name.

        Raises:
            Violation: there are fewer.
        """
        first, committed = broker.journal.first, broker.journal.committed
        left = [
            one
            for one in self._sets
            if one.end <= committed and one.begin >= first and one.oldest >= first
        ]
        if len(left) < 2:
            raise Violation(
                f"segments below {first} went; {len(left)} committed STATE sets begin behind them"
            )
