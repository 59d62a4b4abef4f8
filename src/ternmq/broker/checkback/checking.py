"""The commands for transactions with check-back.

A client opens a transaction under a name of its own, prepares rows, settles and cursor moves in it,
and decides. All of it takes effect at one position of the journal, or none of it. If the client
does not decide, the broker asks the checkers of its producer group (`asking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ternmq.broker.checkback.asking import Asking
from ternmq.broker.checkback.deciding import Deciding
from ternmq.broker.checkback.found import Found
from ternmq.broker.checkback.preparing import CheckedPreparing
from ternmq.broker.checkback.questions import Askers, Name, RowsPage, TransactionState
from ternmq.broker.delivery.parking import Parking
from ternmq.broker.delivery.settles import Settling
from ternmq.broker.gate.replies import CheckedPrepareReply, DecideReply, DoneReply
from ternmq.broker.intake.sends import Sending
from ternmq.broker.ledger.factkinds import CONFIG
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.errors import InvalidRequest, UnknownProducerGroup
from ternmq.model.printing import quoted
from ternmq.model.specs import MAX_ATTEMPTS, ProducerGroupSpec
from ternmq.record.fact import control
from ternmq.wire import bodies


class Checking:
    """Takes the commands for transactions with check-back.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        asking: Asks the checkers.
    """

    __slots__ = ("_deciding", "_ledger", "_preparing", "asking")

    def __init__(
        self, ledger: Ledger, sending: Sending, settling: Settling, parking: Parking
    ) -> None:
        self._ledger = ledger
        found = Found(ledger)
        self._deciding = Deciding(ledger, sending, settling, parking, found)
        self.asking = Asking(ledger, found, self._deciding)
        self._preparing = CheckedPreparing(ledger, sending, settling, found, self.asking)

    @property
    def askers(self) -> Askers | None:
        """Brings questions to clients; None: no question can leave, so nobody is asked."""
        return self.asking.askers

    @askers.setter
    def askers(self, askers: Askers) -> None:
        self.asking.askers = askers

    @property
    def decisions(self) -> Mapping[tuple[str, bool], int]:
        """Number of decisions since the start, by who decided and whether to commit."""
        return self._deciding.decisions

    # -- what a client prepares -------------------------------------------------------------------

    def prepare(
        self, now_us: int, app: str, session: int, asked: bodies.TransactionPrepare
    ) -> CheckedPrepareReply:
        """Open a transaction, or prepare rows in it; the same call again gets the same answer.

        Args:
            now_us: Broker time.
            app: The app of the client.
            session: The client's session, which is asked first.
            asked: What to prepare. All rows of the batch have due times, or none. ``transaction``
                is 0 in the first call, which opens the transaction; in all later ones it is what
                that returned, so that a decided transaction is never opened again.
                ``check_after_us``, 1 s to 1 h, has an effect in the first call only.

        Raises:
            NoChecker: nothing was opened: no client offers a checker for the group.
            ProducerGroupTaken: the group belongs to another app.
            TransactionDecided, UnknownTransaction: ``transaction`` is not undecided.
            TransactionTooLarge: a limit of one transaction is reached.
            InvalidRequest, InvalidName, InvalidBatch, OrderingKeyRequired, TopicNotOrdered,
            UnknownTopic, UnknownQueue, MessageTooLarge, DueTooFar, StrictNeedsReplica, IdConflict,
            ResendTooOld: nothing was stored.
            DiskFull, Busy: nothing was stored; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        return self._preparing.prepare(now_us, app, session, asked)

    def check(self, app: str, asked: bodies.TransactionPrepare) -> None:
        """Refuse what ``prepare`` refuses whatever its rows are, before a topic is made for them.

        Raises:
            NoChecker, ProducerGroupTaken, TransactionDecided, UnknownTransaction, InvalidRequest,
            InvalidName, Busy, WouldBlock: As from ``prepare``.
        """
        self._preparing.check(app, asked)

    def settle(
        self, now_us: int, app: str, session: int, number: int, asked: bodies.Settle
    ) -> DoneReply:
        """Settle rows of a lease in a transaction: ack, retry or reject them.

        The rows leave the lease and belong to the transaction: they end neither by time nor with
        the session. The commit gives them the outcome; after a roll back they come again, and no
        attempt is counted. Rows that a reset, a replay or the end of the group takes away
        meanwhile are left out of the commit.

        The same call again, with the same spans, changes nothing.

        Raises:
            LeaseExpired: the lease does not hold all of the rows, for example because they are in a
                transaction already. Nothing was changed.
            TransactionDecided, UnknownTransaction, ProducerGroupTaken, TransactionTooLarge.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest, DiskFull, Busy.
        """
        return self._preparing.settle(now_us, app, session, number, asked)

    def move(
        self, now_us: int, app: str, number: int, topic: str, group: str, queue: int, offset: int
    ) -> DoneReply:
        """Move a group's cursor in a transaction: forward, and only when it is committed.

        A reset of the group takes the moves from before it out of the transaction.

        Raises:
            TransactionDecided, UnknownTransaction, ProducerGroupTaken, TransactionTooLarge.
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest, DiskFull, Busy.
        """
        return self._preparing.move(now_us, app, number, topic, group, queue, offset)

    def rows(
        self,
        app: str,
        number: int,
        after: int = 0,
        max_bytes: int = 0,
        *,
        operator: bool = False,
    ) -> RowsPage:
        """Return prepared rows of an undecided transaction, in the order of the prepares.

        Args:
            app: The app that asks.
            number: Number of the transaction.
            after: 0, or ``RowsPage.next`` of the page before.
            max_bytes: Most bytes of the records; at least one record is returned if there is one.
            operator: The app may see transactions of other apps.

        Raises:
            TransactionDecided, UnknownTransaction, ProducerGroupTaken.
            WouldBlock: bytes must be read first.
        """
        return self._deciding.rows(app, number, after, max_bytes, operator=operator)

    # -- decisions --------------------------------------------------------------------------------

    def decide(
        self,
        now_us: int,
        app: str,
        which: int | Name,
        *,
        commit: bool,
        attempt: int = 0,
        operator: bool = False,
    ) -> DecideReply:
        """Commit or roll back; the first decision holds, the same again is answered as repeated.

        Args:
            now_us: Broker time.
            app: The app that decides.
            which: Number of the transaction; or its name, if the answer to its opening was lost:
                then it is known only while it is undecided.
            commit: Whether to commit.
            attempt: The question that is answered; 0: the client decides by itself.
            operator: The app may decide transactions of other apps; this is recorded.

        Raises:
            TransactionDecided: the other decision was made before.
            UnknownTransaction: it was never opened, or the journal no longer holds its decision.
            ProducerGroupTaken: it belongs to another app.
            InvalidRequest: no question has this number.
            DiskFull, Busy: nothing was changed; a later attempt may succeed.
            WouldBlock: bytes must be read first; nothing was changed.
        """
        if not 0 <= attempt <= MAX_ATTEMPTS:
            raise InvalidRequest(f"an attempt is a number from 0 to {MAX_ATTEMPTS}")
        reply = self._deciding.decide(
            now_us, app, which, commit=commit, attempt=attempt, operator=operator
        )
        self.asking.decided(reply.transaction)
        return reply

    def unknown(self, session: int, number: int) -> None:
        """Note that a checker does not know the outcome: the next question comes in its time."""
        self.asking.unknown(session, number)

    def show(self, app: str, which: int | Name, *, operator: bool = False) -> TransactionState:
        """Return what is known of a transaction.

        Raises:
            UnknownTransaction, ProducerGroupTaken: as from ``decide``.
            WouldBlock: bytes must be read first.
        """
        return self._deciding.show(app, which, operator=operator)

    def take_up(self, now_us: int, app: str, number: int, *, operator: bool = False) -> DoneReply:
        """Begin the questions about an undecided or parked transaction anew, at once.

        Raises:
            TransactionDecided, UnknownTransaction, ProducerGroupTaken, DiskFull, Busy.
        """
        return self.asking.take_up(now_us, app, number, operator=operator)

    # -- checkers ---------------------------------------------------------------------------------

    def offered(self, now_us: int, app: str, session: int, groups: Sequence[str]) -> DoneReply:
        """Set the producer groups for which a session offers a checker; it replaces earlier ones.

        Transactions that waited for a checker are asked about at once. New groups belong to the app
        from now on.

        Raises:
            UnknownSession, InvalidName: nothing was changed.
            ProducerGroupTaken: a group belongs to another app; nothing was changed.
            Busy: there would be too many producer groups; nothing was changed. Or the next segment
                is being made.
            DiskFull: there is no room in the journal. As when a segment is being made, some new
                groups may belong to the app already, but the session offers what it offered before;
                the same call later goes on.
        """
        return self.asking.offered(now_us, app, session, groups)

    def withdrawn(self, session: int) -> None:
        """Note that a session offers no checkers any more: its last connection ended."""
        self.asking.withdrawn(session)

    def committed(self) -> None:
        """Send the questions whose records are durable."""
        self.asking.committed()

    # -- producer groups --------------------------------------------------------------------------

    def put_group(
        self, now_us: int, app: str, spec: ProducerGroupSpec, *, operator: bool = False
    ) -> DoneReply:
        """Create a producer group, or change its settings; they hold for open transactions, too.

        Raises:
            InvalidRequest, InvalidName.
            ProducerGroupTaken: it belongs to another app, and the app is no operator.
            Busy, DiskFull.
        """
        spec.check()
        groups = self._ledger.views.producer_groups
        known = groups.by_name.get(spec.name)
        if known is None:
            groups.check_room(self._ledger.limits.producer_groups, app)
        elif not operator:
            groups.check_owner(spec.name, app)
        owner = app if known is None else known.app
        self._ledger.admit(now_us, CONFIG, control.ProducerGroupPut(spec, owner))
        self.asking.changed(now_us, spec.name)
        return DoneReply(self._ledger.end)

    def delete_group(
        self, now_us: int, app: str, name: str, *, operator: bool = False
    ) -> DoneReply:
        """Delete a producer group; its name may be used anew.

        Raises:
            InvalidRequest: it has undecided transactions.
            UnknownProducerGroup, ProducerGroupTaken, Busy, DiskFull.
        """
        groups = self._ledger.views.producer_groups
        if name not in groups.by_name:
            raise UnknownProducerGroup(f"no producer group {quoted(name)}")
        if not operator:
            groups.check_owner(name, app)
        if name in self._ledger.views.checked.of_group:
            raise InvalidRequest(
                f"producer group {name!r} has undecided transactions: decide them first"
            )
        self._ledger.admit(now_us, CONFIG, control.ProducerGroupDeleted(name))
        self.asking.deleted(name)
        return DoneReply(self._ledger.end)
