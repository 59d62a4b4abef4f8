"""Decides commits and roll backs of transactions with check-back, and shows what is known of them.

A commit is one RESOLVED record: rows get their offsets, rows with due times become scheduled,
settles and cursor moves count, all at one position. Rows that a reset, a replay or the end of a
group or topic took away meanwhile are left out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from ternmq.broker.checkback.found import Decided, Found, was_decided
from ternmq.broker.checkback.outcomes import Outcomes, Settles
from ternmq.broker.checkback.questions import Name, RowsPage, TransactionState
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.gate.replies import DecideReply
from ternmq.broker.group.progress import Progress
from ternmq.broker.intake.committing import Places, places_of, record, rows_of
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.factkinds import SETTLED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedTransaction
from ternmq.model.types import NO_POSITION
from ternmq.record.fact import messages, transactions
from ternmq.record.fact.facts import LEASED_RUN, CursorMoved, Outcome, Settled
from ternmq.record.fact.header import HEADER_BYTES, time_us_of
from ternmq.record.fact.transactions import Resolution, Resolved, Why

_WHY: Final = {
    Why.WRITER: "client",
    Why.OPERATOR: "operator",
    Why.CHECKER: "checker",
    Why.POLICY: "policy",
}


_NO_SETTLES: Final = Settles([], [])


class _Content(NamedTuple):
    """What a RESOLVED says."""

    places: Places
    """Its batches; with topics that were deleted, or after a roll back, nothing becomes of them."""
    settles: Settles = _NO_SETTLES
    moves: Sequence[CursorMoved] = ()


class Deciding:
    """Decides transactions.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        decisions: Number of decisions since the start, by who decided and what: (why, committed).
    """

    __slots__ = ("_found", "_ledger", "_outcomes", "_parking", "_sending", "decisions")

    def __init__(
        self,
        ledger: Ledger,
        sending: Sending,
        settling: Settling,
        parking: Parking,
        found: Found,
    ) -> None:
        self._ledger = ledger
        self._sending = sending
        self._outcomes = Outcomes(ledger, settling)
        self._parking = parking
        self._found = found
        self.decisions: dict[tuple[str, bool], int] = {}

    def decide(
        self,
        now_us: int,
        app: str,
        which: int | Name,
        *,
        commit: bool,
        attempt: int,
        operator: bool,
    ) -> DecideReply:
        """See ``Checking.decide``."""
        found = self._found.any(app, which, operator=operator)
        if isinstance(found, Decided):
            if found.committed is not commit:
                raise was_decided(found.fact.transaction, committed=found.committed)
            return DecideReply(found.fact.transaction, found.fact.rows, found.end, repeated=True)
        why = Why.CHECKER if attempt else Why.WRITER
        if found.app != app:
            why = Why.OPERATOR
        return self.resolve(now_us, found, why, commit=commit, attempt=attempt)

    def resolve(
        self,
        now_us: int,
        opened: CheckedTransaction,
        why: Why,
        *,
        commit: bool,
        attempt: int = 0,
    ) -> DecideReply:
        """Record the decision on an undecided transaction, and wake those who wait for it.

        Raises:
            DiskFull, Busy: Nothing was decided; a later attempt may succeed.
        """
        content = self._content(now_us, opened, commit=commit)
        fact = _fact(opened, why, content, commit=commit, attempt=attempt)
        others = content.settles.others
        if others and len(transactions.pack_resolved(fact)) > self._ledger.journal.max_body:
            # What the transaction holds fits: each step of it was checked. What others hold may be
            # released before the decision, since the keys stay closed until then.
            self._release(now_us, others)
            content = self._content(now_us, opened, commit=commit)
            fact = _fact(opened, why, content, commit=commit, attempt=attempt)
        self._record(now_us, fact)
        key = _WHY[why], commit
        self.decisions[key] = self.decisions.get(key, 0) + 1
        return DecideReply(opened.number, fact.rows, self._ledger.end)

    def _release(self, now_us: int, settles: Sequence[Settled]) -> None:
        """Record releases by themselves, in records that fit a segment."""
        ledger = self._ledger
        most = max(1, ledger.journal.max_body // (2 * LEASED_RUN.size))
        for one in settles:
            for at in range(0, len(one.runs), most):
                piece = replace(one, runs=one.runs[at : at + most])
                ledger.admit(now_us, SETTLED, [piece])

    def _content(self, now_us: int, opened: CheckedTransaction, *, commit: bool) -> _Content:
        return self._commit(now_us, opened) if commit else self._roll_back(opened)

    # -- the record -------------------------------------------------------------------------------

    def _commit(self, now_us: int, opened: CheckedTransaction) -> _Content:
        batches = [one for _, one in sorted(opened.batches.items())]
        places = places_of(self._ledger.views, now_us, batches)
        settles = self._outcomes.of_commit(now_us, opened)
        return _Content(places, settles, self._moves(opened))

    def _roll_back(self, opened: CheckedTransaction) -> _Content:
        dropped = [one.position for _, one in sorted(opened.batches.items())]
        return _Content(Places((), (), dropped), self._outcomes.of_roll_back(opened))

    def _moves(self, opened: CheckedTransaction) -> list[CursorMoved]:
        """Return the moves that lead a group forward; of several of a queue, the farthest."""
        farthest: dict[tuple[int, int, int], CursorMoved] = {}
        for _, moves in sorted(opened.moves.items()):
            for move in moves:
                key = move.group, move.topic, move.queue
                known = farthest.get(key)
                if known is None or move.cursor > known.cursor:
                    farthest[key] = move
        found: list[CursorMoved] = []
        for key, move in farthest.items():
            progress = self._ledger.views.progress.get(key)
            if progress is not None and move.cursor > progress.cursor:
                found.append(
                    CursorMoved(
                        move.group, move.topic, move.queue, move.move, move.cursor, progress.round
                    )
                )
        return found

    def _record(self, now_us: int, fact: Resolved) -> None:
        """Record a decision; look up first offsets, set timers, wake consumers."""
        ledger = self._ledger
        for queue in record(ledger, self._sending.scheduling, now_us, fact):
            if queue.watched:
                self._parking.grew(queue)
        settled: dict[Progress, None] = {}
        for one in fact.settles:
            progress = ledger.views.progress[one.group, one.topic, one.queue]
            settled[progress] = None
            if one.outcome is Outcome.RETRY and one.due_us < progress.due_armed_us:
                ledger.timers.arm_due(progress, one.due_us)
        for progress in settled:
            ledger.wakes.wake_for(progress)

    # -- what is known ----------------------------------------------------------------------------

    def show(self, app: str, which: int | Name, *, operator: bool) -> TransactionState:
        """See ``Checking.show``."""
        found = self._found.any(app, which, operator=operator)
        if isinstance(found, Decided):
            fact = found.fact
            return TransactionState(
                fact.transaction,
                "committed" if found.committed else "rolled-back",
                fact.app,
                fact.group,
                time_us=found.time_us,
                attempt=fact.attempt,
                rows=fact.rows,
                due_rows=sum([len(part.due_us) for part in fact.due]),
                settled_rows=sum(
                    [stop - start for one in fact.settles for start, stop, _, _ in one.runs]
                ),
                moves=len(fact.moves),
                why=_WHY.get(fact.why, ""),
                position=found.end,
            )
        return TransactionState(
            found.number,
            "parked" if found.parked else "undecided",
            found.app,
            found.group,
            found.query_id,
            found.opened_us,
            found.attempt,
            found.next_us,
            self._ledger.views.catalog.names_of(found.topics),
            found.rows,
            found.due_rows,
            found.bytes,
            found.settled_rows,
            found.move_count,
            position=self._ledger.end,
        )

    def rows(
        self, app: str, number: int, after: int, max_bytes: int, *, operator: bool
    ) -> RowsPage:
        """See ``Checking.rows``."""
        opened = self._found.undecided(app, number, operator=operator)
        topics = self._ledger.views.catalog.topics
        records: list[bytes] = []
        size = last = 0
        for ordinal, one in sorted(opened.batches.items()):
            if ordinal + 1 <= after or one.topic not in topics:
                continue
            if records and size + one.length > max_bytes:
                return RowsPage(records, last, self._ledger.end)
            stored = self._ledger.store.get(one.position)
            prepared = transactions.unpack_prepared(stored[HEADER_BYTES:])
            body = transactions.messages_body(prepared, NO_POSITION)
            made = messages.made(stored, body, one.position, time_us_of(stored))
            records.append(made)
            size += len(made)
            last = ordinal + 1
        return RowsPage(records, 0, self._ledger.end)


def _fact(
    opened: CheckedTransaction,
    why: Why,
    content: _Content,
    *,
    commit: bool,
    attempt: int,
) -> Resolved:
    """Return the RESOLVED of a decision."""
    places = content.places
    producer, counter = opened.name
    return Resolved(
        opened.number,
        counter,
        0,
        rows_of(places),
        0,
        Resolution.COMMITTED if commit else Resolution.ROLLED_BACK,
        why,
        "",
        opened.app,
        places.parts,
        places.gone,
        producer,
        opened.group,
        attempt,
        places.due,
        [*content.settles.own, *content.settles.others],
        content.moves,
    )
