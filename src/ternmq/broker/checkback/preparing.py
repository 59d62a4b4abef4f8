"""Decides what goes into a transaction with check-back: rows, settles, cursor moves."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

from ternmq.broker.catalog.catalog import Topic
from ternmq.broker.checkback.asking import Asking
from ternmq.broker.checkback.found import Found
from ternmq.broker.checkback.questions import Name
from ternmq.broker.dedup.dedup import Entry
from ternmq.broker.delivery.settles import Settling, held_of, stated, stored_reason
from ternmq.broker.gate.replies import CheckedPrepareReply, DoneReply
from ternmq.broker.group.lease import LEASE_BITS
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.runs import union
from ternmq.broker.intake.prepared import (
    check_batch,
    check_due_rows,
    check_room,
    queue_of,
    shown,
    stored,
)
from ternmq.broker.intake.scheduling import check_due_times, check_scheduled
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.factkinds import PREPARED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.transaction.checked import CheckedTransaction, weight
from ternmq.broker.transaction.shares import refuses
from ternmq.model.errors import (
    Busy,
    IdConflict,
    InvalidBatch,
    InvalidRequest,
    LeaseExpired,
    NoChecker,
    TransactionTooLarge,
    UnknownQueue,
)
from ternmq.model.specs import (
    LEAST_CHECK_US,
    MAX_CHECK_US,
    MAX_QUERY_BYTES,
    ProducerGroupSpec,
    check_name,
    check_query_id,
)
from ternmq.record.batch.batch import Column
from ternmq.record.batch.layout import due_times_of
from ternmq.record.fact import facts, transactions
from ternmq.record.fact.facts import Cause, CursorMoved, LeasedRun, Move, Outcome, Settled, Span
from ternmq.record.fact.header import HEADER_BYTES
from ternmq.record.fact.transactions import POLICY_DELAY, Prepared
from ternmq.wire import bodies

_WITH_DUE: Final = 1 << Column.DUE_US
_NAMES_BYTES: Final = 127 + MAX_QUERY_BYTES + 128 + 8
_RECORD_OVERHEAD: Final = (
    HEADER_BYTES + transactions.PREPARED.size + transactions.CHECKED_PREPARED.size + _NAMES_BYTES
)
_MAX_U64: Final = 2**64 - 1


class CheckedPreparing:
    """Decides prepares, settles and cursor moves in transactions with check-back.

    Not thread-safe: call it from the broker's loop.
    """

    __slots__ = ("_asking", "_found", "_ledger", "_sending", "_settling", "_views")

    def __init__(
        self,
        ledger: Ledger,
        sending: Sending,
        settling: Settling,
        found: Found,
        asking: Asking,
    ) -> None:
        self._ledger = ledger
        self._views = ledger.views
        self._sending = sending
        self._settling = settling
        self._found = found
        self._asking = asking

    # -- rows -------------------------------------------------------------------------------------

    def prepare(
        self, now_us: int, app: str, session: int, asked: bodies.TransactionPrepare
    ) -> CheckedPrepareReply:
        """See ``Checking.prepare``."""
        _check(asked)
        name, group, batch = _name(asked), asked.group, asked.batch
        groups = self._views.producer_groups
        groups.check_owner(group, app)
        opened = self._opened(app, name, group, asked.transaction)
        if not asked.topic:
            if batch:
                raise InvalidRequest("rows need a topic")
            if opened is not None:
                return CheckedPrepareReply(opened.number, 0, 0, self._ledger.end, 0, duplicate=True)
            spec = self._check_opening(app, group)
            fact = self._opening(app, session, asked, spec)
            return CheckedPrepareReply(fact.transaction, 0, 0, self._record(now_us, fact), 0)
        found = self._views.catalog.topic(asked.topic)
        checked = check_batch(self._ledger, self._sending, now_us, found, batch, _RECORD_OVERHEAD)
        if checked.entry is not None:
            return self._duplicate(found, checked.entry, app, name)
        flags, count = checked.flags, checked.rows
        self._ledger.copies.check(found.spec)
        self._sending.check_new(now_us, found, batch, flags)
        due = due_times_of(batch) if flags & _WITH_DUE else array("q")
        if flags & _WITH_DUE:
            check_due_times(now_us, due)
        spec = self._check_opening(app, group) if opened is None else groups.spec(group)
        self._check_caps(opened, len(batch), len(due))
        if self._views.dedup.full(now_us):
            raise Busy("the deduplication window is full")
        size = len(batch) + _RECORD_OVERHEAD
        if self._ledger.room.lacks(size, frees=opened is not None):
            raise self._ledger.room.full(size)
        wish = queue_of(self._sending, found, batch, asked.queue, due=bool(due))
        if opened is None:
            fact = self._opening(app, session, asked, spec)
        else:
            fact = _next(opened, session)
        fact.topic, fact.queue, fact.count, fact.batch = found.number, wish, count, batch
        end = self._record(now_us, fact)
        return CheckedPrepareReply(fact.transaction, found.number, shown(wish), end, count)

    def check(self, app: str, asked: bodies.TransactionPrepare) -> None:
        """See ``Checking.check``."""
        _check(asked)
        self._views.producer_groups.check_owner(asked.group, app)
        if self._opened(app, _name(asked), asked.group, asked.transaction) is None:
            self._check_opening(app, asked.group)

    def _opened(self, app: str, name: Name, group: str, number: int) -> CheckedTransaction | None:
        """Return the transaction, if it is open: by number, or by name if its answer was lost."""
        if number:
            opened = self._found.undecided(app, number)
            if opened.name != name:
                raise InvalidRequest(f"transaction {opened.public_id} has another name")
        else:
            known = self._views.checked.by_name.get((app, *name))
            if known is None:
                return None
            opened = known
        if opened.group != group:
            raise InvalidRequest(
                f"transaction {opened.public_id} belongs to producer group {opened.group!r}"
            )
        return opened

    def _check_opening(self, app: str, group: str) -> ProducerGroupSpec:
        """Refuse a new transaction that nobody could be asked about, or that is one too many."""
        views = self._views
        spec = views.producer_groups.spec(group)
        if not spec.without_checker and not self._asking.offers(group, app):
            raise NoChecker(f"no client offers a checker for producer group {group!r}")
        limits = views.limits
        checked, groups = views.checked, views.producer_groups
        undecided = len(checked.by_number)
        if refuses(limits.open_transactions, checked.of_app, undecided, app):
            raise Busy(
                f"{undecided:,} transactions are undecided, {checked.of_app[app]:,} of them of "
                f"this app; the limit open_transactions is {limits.open_transactions:,}"
            )
        if group not in groups.by_name:
            groups.check_room(limits.producer_groups, app)
        return spec

    def _opening(
        self, app: str, session: int, asked: bodies.TransactionPrepare, spec: ProducerGroupSpec
    ) -> _Prepare:
        return _Prepare(
            self._views.undecided.next_number,
            0,
            _name(asked),
            asked.group,
            asked.query_id,
            app,
            session,
            asked.check_after_us or spec.first_us,
        )

    def _record(self, now_us: int, fact: _Prepare) -> int:
        """Record a PREPARED; return its end."""
        ledger, groups = self._ledger, self._views.producer_groups
        if fact.group not in groups.by_name:
            self._asking.claim(now_us, fact.group, fact.app)
        ledger.admit(now_us, PREPARED, fact.made())
        if not fact.ordinal:
            self._asking.opened(fact.transaction)
        return ledger.end

    def _check_caps(self, opened: CheckedTransaction | None, size: int, due: int) -> None:
        views, limits = self._views, self._views.limits
        if opened is not None and len(opened.batches) >= limits.transaction_batches:
            raise TransactionTooLarge(
                f"transaction {opened.public_id} has {len(opened.batches):,} prepared batches; the "
                f"limit transaction_batches is {limits.transaction_batches:,}: send more messages "
                "in each"
            )
        if due and opened is not None:
            check_due_rows(limits, opened.due_rows + due, f"transaction {opened.public_id}")
        elif due:
            check_due_rows(limits, due)
        self._check_resolved(opened, batches=1, due=due)
        if due:
            check_scheduled(views, due)
        check_room(views, size + _RECORD_OVERHEAD)

    def _check_resolved(
        self,
        opened: CheckedTransaction | None,
        *,
        batches: int = 0,
        due: int = 0,
        settles: int = 0,
        moves: int = 0,
    ) -> None:
        """Refuse what would make the record of the commit too large.

        Raises:
            TransactionTooLarge: It would.
        """
        size = HEADER_BYTES + transactions.RESOLVED.size + transactions.CHECKED_RESOLVED.size
        size += _NAMES_BYTES + settles + 64
        if opened is not None:
            batches += len(opened.batches)
            due += opened.due_rows
            moves += opened.move_count
            # A row in an ordered group may have others behind it, which are released with it.
            size += 2 * opened.settle_bytes
        size += batches * transactions.PART.size + 8 * due + moves * facts.CURSOR.size
        if size > self._ledger.journal.max_body:
            raise TransactionTooLarge("the record of its commit would be too large")

    def _duplicate(self, topic: Topic, known: Entry, app: str, name: Name) -> CheckedPrepareReply:
        """Return the first answer to a batch that is stored."""
        fact, end = stored(self._ledger, known)
        if (fact.app, fact.producer, fact.batch_id) != (app, *name) or not fact.group:
            raise IdConflict("the batch was prepared in another transaction")
        if fact.topic != topic.number:
            raise InvalidBatch("the batch was prepared for another topic of this name")
        return CheckedPrepareReply(
            fact.transaction,
            topic.number,
            shown(fact.queue),
            end,
            fact.count,
            duplicate=True,
        )

    # -- settles and moves ------------------------------------------------------------------------

    def settle(
        self, now_us: int, app: str, session: int, number: int, asked: bodies.Settle
    ) -> DoneReply:
        """See ``Checking.settle``."""
        opened = self._found.undecided(app, number)
        subscription = self._views.catalog.subscription(asked.topic, asked.group)
        if not 0 <= asked.queue < len(subscription.queues):
            raise UnknownQueue(f"topic {asked.topic!r} has no queue {asked.queue}")
        outcome = stated(asked)
        if outcome is Outcome.RELEASED:
            raise InvalidRequest(f"outcome {asked.outcome} is not one that a transaction may state")
        epoch, lease, spans = asked.epoch, asked.lease, asked.spans
        progress = subscription.queues[asked.queue]
        held = progress.leases.get(epoch << LEASE_BITS | lease) if epoch else None
        taken: list[LeasedRun] = []
        refused: list[Span] = []
        if held is not None:
            taken, refused = held_of(held, spans) if spans else (held.runs, [])
        if refused or not taken:
            if _settled_before(opened, progress, asked):
                return DoneReply(self._ledger.end)
            what = f"lease {epoch}.{lease} of {asked.group}"
            if held is None:
                raise LeaseExpired(f"{what} has ended")
            raise LeaseExpired(f"{what} does not hold all of these rows")
        if progress.mode.blocks:
            taken, refused = self._settling.open_rows(
                subscription, progress, outcome, taken, [], opened.number
            )
            if refused:
                raise LeaseExpired(
                    f"an earlier message of a key is in another transaction: offset {refused[0][0]}"
                )
        runs = list(taken)
        fact = Settled(
            progress.group,
            progress.topic,
            progress.queue,
            session,
            lease,
            epoch,
            progress.round,
            outcome,
            Cause.CONSUMER,
            POLICY_DELAY if asked.delay_us is None else asked.delay_us,
            runs,
            [0] * len(runs) if facts.failing(outcome) else [],
            stored_reason(asked.reason),
        )
        count, size = weight([fact])
        self._check_settles(opened, count)
        self._check_resolved(opened, settles=2 * size)
        prepare = _next(opened, session)
        prepare.settles = [fact]
        reply = DoneReply(self._record(now_us, prepare))
        if subscription.limited:
            self._ledger.wakes.wake(subscription)  # the session has fewer rows now
        return reply

    def _check_settles(self, opened: CheckedTransaction, count: int) -> None:
        """Refuse more settles and moves than may be undecided; all of them are in memory."""
        limits = self._views.limits
        limit = limits.transaction_settles
        if opened.settle_runs + count > limit:
            raise TransactionTooLarge(
                f"transaction {opened.public_id} settles {opened.settle_runs:,} ranges of "
                f"messages, its moves of cursors included; the limit transaction_settles is "
                f"{limit:,}"
            )
        if self._views.checked.settles + count > limits.prepared_settles:
            raise Busy(
                f"undecided transactions settle {self._views.checked.settles:,} ranges of "
                f"messages; the limit prepared_settles is {limits.prepared_settles:,}"
            )

    def move(
        self, now_us: int, app: str, number: int, topic: str, group: str, queue: int, offset: int
    ) -> DoneReply:
        """See ``Checking.move``."""
        opened = self._found.undecided(app, number)
        subscription = self._views.catalog.subscription(topic, group)
        if not 0 <= queue < len(subscription.queues):
            raise UnknownQueue(f"topic {topic!r} has no queue {queue}")
        end = subscription.topic.queues[queue].next
        if not 0 <= offset <= end:
            raise InvalidRequest(f"offset {offset} of queue {queue} is above its end, {end}")
        self._check_settles(opened, 1)
        self._check_resolved(opened, moves=1)
        progress = subscription.queues[queue]
        prepare = _next(opened, 0)
        prepare.moves = (
            CursorMoved(
                progress.group, progress.topic, progress.queue, Move.COMMIT, offset, progress.round
            ),
        )
        return DoneReply(self._record(now_us, prepare))


class _Prepare:
    """A PREPARED in the making."""

    def __init__(
        self,
        transaction: int,
        ordinal: int,
        name: tuple[int, int],
        group: str,
        query_id: str,
        app: str,
        session: int,
        check_after_us: int,
    ) -> None:
        self.transaction = transaction
        self.ordinal = ordinal
        self.name = name
        self.group = group
        self.query_id = query_id
        self.app = app
        self.session = session
        self.check_after_us = check_after_us
        self.topic = self.queue = self.count = 0
        self.batch = b""
        self.settles: Sequence[Settled] = ()
        self.moves: Sequence[CursorMoved] = ()

    def made(self) -> Prepared:
        """Return the fact."""
        producer, counter = self.name
        return Prepared(
            self.topic, self.queue, self.transaction, counter, 0, self.ordinal, self.count,
            "", "", self.app, self.batch, producer, self.group, self.query_id, self.session,
            self.check_after_us, None, self.settles, self.moves,
        )  # fmt: skip


def _next(opened: CheckedTransaction, session: int) -> _Prepare:
    """Return the next PREPARED of a transaction that is open."""
    return _Prepare(
        opened.number,
        opened.count,
        opened.name,
        opened.group,
        opened.query_id,
        opened.app,
        session,
        0,
    )


def _settled_before(opened: CheckedTransaction, progress: Progress, asked: bodies.Settle) -> bool:
    """Return whether a settle was made before: its answer was lost, and it is asked for again.

    Only if the transaction still holds all of its rows.
    """
    own = progress.leases.get(opened.number)
    if own is None:
        return False
    wanted = union(asked.spans) if asked.spans else None
    for settles in opened.settles.values():
        for one in settles:
            same = (one.group, one.topic, one.queue, one.lease_epoch, one.lease, one.outcome)
            if same == (
                progress.group, progress.topic, progress.queue, asked.epoch, asked.lease,
                asked.outcome,
            ):  # fmt: skip
                rows = union([run[:2] for run in one.runs])
                if wanted in (None, rows) and not held_of(own, rows)[1]:
                    return True
    return False


def _name(asked: bodies.TransactionPrepare) -> Name:
    """Return the client's name for the transaction."""
    return Name(asked.producer, asked.counter)


def _check(asked: bodies.TransactionPrepare) -> None:
    """Check what opens a transaction."""
    if not (0 <= asked.producer <= _MAX_U64 and 0 <= asked.counter <= _MAX_U64):
        raise InvalidRequest("the name of a transaction is two numbers of 64 bits")
    check_name(asked.group, "a producer group's name")
    check_query_id(asked.query_id)
    after_us = asked.check_after_us
    if after_us and not LEAST_CHECK_US <= after_us <= MAX_CHECK_US:
        raise InvalidRequest(f"check_after must be 1 s to 1 h, not {after_us / 1e6:g} s")
