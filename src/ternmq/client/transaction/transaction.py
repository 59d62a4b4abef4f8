"""A transaction with check-back, as the application uses it: a block.

Theory of operation. The first request inside the block opens the transaction at the broker (its
name is made by the client, so that a repeated request finds it); a block that does nothing never
opens one. Leaving the block commits, an exception rolls back. A step whose outcome is not known
(its answer was lost, its caller was cancelled) may or may not be part of the transaction, which can
then only be rolled back: so what commits is always what the application was told. For the same
reason a block that ends with the error of a step is rolled back also with ``on_error="check"``: the
checker would not know that something is missing.

    NEW --enter--> OPEN --commit, rollback--> ENDED
                   OPEN --decision without an answer--> ENDED, outcome unknown
                   OPEN --the client is closed--> ENDED, rolled back
"""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, NamedTuple, Self

from ternmq.client.connection.session import Session
from ternmq.client.consumer.concluding import MAX_REASON, delay_us
from ternmq.client.consumer.deliveries import Deliveries, held_spans
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.consumer.lease import Lease, Span
from ternmq.client.content.message import Message, Queue, Receipt
from ternmq.client.content.reasons import reason_text
from ternmq.client.content.validation import (
    check_topic,
    priority_of,
    query_text,
    text,
    timeout_of,
    whole,
)
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.blocking import BlockingDelivery, engine_of
from ternmq.client.handler.middleware import Middlewares, Outbound
from ternmq.client.handler.unawaited import looked_after
from ternmq.client.process import pickling
from ternmq.client.sending import Sender, copied, copy_of
from ternmq.client.transaction.batches import Batches
from ternmq.client.transaction.start import PendingStart
from ternmq.client.transaction.steps import Opening, Steps, receipts_of
from ternmq.client.transaction.unfinished import Unfinished
from ternmq.model.errors import (
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    InvalidRequest,
    LeaseExpired,
    OutcomeUnknown,
    RefusedError,
    TernMQError,
    TransactionDecided,
    TransactionFailed,
    TransactionInUse,
    TransactionNotOpen,
    UnknownTransaction,
)
from ternmq.model.specs import check_name
from ternmq.model.transaction_ids import transaction_id
from ternmq.model.words import article
from ternmq.record.fact.facts import Outcome

log: Final = logging.getLogger("ternmq")

Settled = Delivery | Deliveries
"""What a transaction settles."""

ON_ERROR: Final = ("rollback", "check")
_LEAST_CHECK_S: Final = 1.0
_MOST_CHECK_S: Final = 3600.0
_NOT_PICKLED: Final = "a transaction cannot be pickled or copied: it belongs to its client"
_DECISIONS: Final = {"commit", "rollback"}
_UNANSWERED: Final = (CannotConnect, ConnectionLost)
"""A request may have been carried out: it was sent, or may have been, and there is no answer."""


class State(enum.Enum):
    """State of a transaction in the client."""

    NEW = "has not begun"
    OPEN = "is open"
    COMMITTED = "was committed"
    ROLLED_BACK = "was rolled back"
    CLOSED = "was rolled back, since its client was closed"
    LEFT = "was left to its checker"
    DECIDED = "was decided by its checker, a policy or an operator"
    UNKNOWN = "has ended, with an outcome that is not known yet"


class _Held(NamedTuple):
    """Rows that a transaction settles.

    Attributes:
        lease: Their lease.
        spans: The rows.
        outcome: What they are after the commit.
        later: Those on which a handler runs: their consumer waits for the decision.
        sure: The broker said that the transaction holds them.
    """

    lease: Lease
    spans: list[Span]
    outcome: Outcome
    later: list[Span]
    sure: bool


class Parts:
    """The parts of the client that transactions use.

    Attributes:
        session: The client's session.
        sender: Makes messages ready.
        middlewares: Those of sends are called around each message.
        batches: Makes batches, and names of transactions.
        settler: The object by which leases are recognised as this client's.
        start: The start of ``run``, for which the opening of a transaction waits.
        steps: Sends the requests.
        unfinished: Transactions about which no checker is asked.
    """

    def __init__(
        self,
        session: Session,
        sender: Sender,
        middlewares: Middlewares,
        batches: Batches,
        settler: object,
    ) -> None:
        self.session = session
        self.sender = sender
        self.middlewares = middlewares
        self.batches = batches
        self.settler = settler
        self.start = PendingStart()
        self.steps = Steps(session, self.start)
        self.unfinished = Unfinished(self.steps)


@looked_after("transaction")
class Transaction(pickling.NotPickled):
    """A transaction, made by ``client.transaction``: an async context manager, used once.

    Its messages become visible together, at its commit, with what it settles. It is used by one
    task at a time.
    """

    _not_pickled = _NOT_PICKLED

    def __init__(
        self,
        parts: Parts,
        group: str,
        query_id: str,
        on_error: str,
        check_after: float | timedelta | None,
        timeout: float | timedelta | None,
    ) -> None:
        self._parts = parts
        self._session = parts.session
        self._group = check_name(group, "a producer group's name")
        self._query_id = query_text(query_id)
        if text("on_error", on_error) not in ON_ERROR:
            raise InvalidRequest(f"on_error is 'rollback' or 'check', not {on_error!r:.80}")
        self._checks = on_error == "check"
        self._check_after_us = _check_after_us(check_after)
        self._timeout = None if timeout is None else timeout_of("timeout", timeout)
        self._opening: Opening | None = None
        self._number = 0
        self._asked = False
        """A request was sent that may have opened it."""
        self._broken = ""
        """Why it cannot be committed; empty: it can."""
        self._errors: list[BaseException] = []
        """The errors of its steps: what they were to do is missing."""
        self._busy = False
        self._deciding = False
        """A call that decides it has not returned."""
        self._undoing = False
        """It is being rolled back."""
        self._state = State.NEW
        self._held: list[_Held] = []
        """Rows that it settles."""

    def __repr__(self) -> str:
        return f"<Transaction {self.id or 'without an id yet'} of {self._group}>"

    @property
    def id(self) -> str:
        """Its id at the broker, such as ``t-1f3``; empty until its first call was answered."""
        return transaction_id(self._number) if self._number else ""

    @property
    def group(self) -> str:
        """Its producer group."""
        return self._group

    @property
    def query_id(self) -> str:
        """The application's name for what it is about."""
        return self._query_id

    # -- the block --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._session.bind()
        if self._state is not State.NEW:
            raise TransactionNotOpen(f"this transaction {self._state.value}")
        if self._parts.unfinished.closed:
            raise ClientClosed("the client is closing: no transaction begins any more")
        self._parts.unfinished.begun(id(self), self._client_closes)
        batches = self._parts.batches
        self._opening = Opening(
            batches.ids.producer,
            batches.ids.name(),
            self._group,
            self._query_id,
            self._check_after_us,
        )
        self._state = State.OPEN
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._state is State.CLOSED and error is None:
                raise ClientClosed("the client was closed in the block of a transaction, which was "
                                   "rolled back")  # fmt: skip
            if self._state is not State.OPEN:
                return
            if error is None:
                try:
                    await self.commit()
                except BaseException as failure:
                    if self._state is State.OPEN:
                        await self._undo(failure)
                    raise
            else:
                await self._undo(error)
        finally:
            self._ended(State.LEFT if self._state is State.OPEN else self._state)

    async def _undo(self, error: BaseException) -> None:
        """Roll back because of an error, or leave it to the checker; raises nothing of its own."""
        if self._busy:
            # Another task uses it, or an interrupted call has not ended: its request may come after
            # the roll back, and finds it decided. It may also fail: so what it is to do is missing.
            log.warning("%s: its block ended while another task used it", repr(self))
            self._busy = False
            self._broken = self._broken or "its block ended while a step was under way"
        incomplete = bool(self._broken) or self._comes_of_a_step(error)
        if self._checks and self._asked and not incomplete:
            log.info("%s is left to its checker: %s was raised", repr(self), type(error).__name__)
            self._ended(State.LEFT)
            return
        try:
            await self.rollback()
        except TransactionDecided as decided:
            if not isinstance(error, TransactionDecided):
                log.warning("%s could not be rolled back: %s", repr(self), str(decided))
        except TernMQError as failure:
            asked = "its checker is asked later"
            if not self._number:
                asked = f"if the broker opened it, {asked}"
            log.warning("%s could not be rolled back; %s: %s", repr(self), asked, failure.args[0])

    async def _client_closes(self, timeout: float) -> None:
        """Roll back, since the client is closed: the block can decide nothing any more.

        One that is to be left to its checker if the block fails is left to it, unless a step is
        under way, which may fail. A decision that is under way goes on. Raises nothing but a
        cancellation.

        Args:
            timeout: Seconds to wait for the broker.
        """
        left = self._checks and not self._broken and not self._busy
        if self._state is not State.OPEN or self._deciding or not self._asked or left:
            return
        self._undoing = True
        try:
            await self._parts.steps.decide(self._name(), self._number, timeout, commit=False)
        except UnknownTransaction:
            pass  # the request that was to open it did not arrive
        except TransactionDecided:
            self._ended(State.DECIDED)
            return
        except TernMQError as failure:
            log.warning(
                "%s could not be rolled back when its client was closed, its checker is asked "
                "later: %s", repr(self), str(failure),
            )  # fmt: skip
            return
        log.info("%s was rolled back: its client was closed", repr(self))
        self._parts.unfinished.found(self._name())
        self._ended(State.CLOSED, undone=True)

    def _comes_of_a_step(self, error: BaseException | None) -> bool:
        """Return whether an error, or what led to it, was raised by a step of the transaction."""
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            if any(error is one for one in self._errors):
                return True
            seen.add(id(error))
            error = error.__cause__ or error.__context__
        return False

    # -- sending ----------------------------------------------------------------------------------

    async def open(self) -> str:
        """Open it now, without waiting for the first message; return its id.

        Raises:
            NoChecker: No client that checks this producer group is connected.
            ProducerGroupTaken: The producer group belongs to another app.
            TernMQError: It was not opened; or, if a ``ConnectionLost``, this is not known.
        """
        async with self._step("open"):
            await self._open()
        return self.id

    async def send(
        self,
        topic: str | Topic,
        body: object,
        *,
        key: str = "",
        ordering_key: str = "",
        tag: str = "",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
    ) -> Receipt:
        """Send a message with the transaction; returns when it is stored, invisible.

        The arguments are those of ``Client.send``, without ``id``: a transaction is stored once by
        itself. A delay counts from this call; a message whose time is over at the commit is
        delivered then. The receipt has no offset: the message gets it at the commit.

        Raises:
            NoChecker: No client that checks this producer group is connected; nothing was stored.
            ProducerGroupTaken: The producer group belongs to another app.
            TransactionDecided: It was decided meanwhile, by a checker or an operator.
            TransactionTooLarge: It has the maximum of batches, or of messages with due times.
            TransactionNotOpen, TransactionInUse: It is not in use, or used by another task.
            CannotConnect, ConnectionLost: It is not known whether it is stored: the transaction
                cannot be committed any more.
            TernMQError: The message was refused, as by ``Client.send``; it is not part of the
                transaction.
        """
        message = Message(
            body, key, ordering_key, tag, copied(headers), content_type, None, queue,
            deliver_after, deliver_at, priority, expires_after,
        )  # fmt: skip
        (receipt,) = await self._send("send", topic, [message], None, timeout)
        return receipt

    async def send_many(
        self,
        topic: str | Topic,
        messages: Iterable[object],
        *,
        queue: Queue | None = None,
        deliver_after: float | timedelta | None = None,
        deliver_at: datetime | None = None,
        priority: int = 0,
        expires_after: float | timedelta | None = None,
        timeout: float | timedelta | None = None,
    ) -> list[Receipt]:
        """Send many messages of one topic with the transaction; see ``send``.

        Either all are part of it, or the call raises. If the first error was found before anything
        was sent, the transaction can go on; else it can only be rolled back.

        Args:
            topic: The topic.
            messages: ``Message`` (without ``id``), or bare bodies.
            queue: Queue of messages that do not name one; see ``Client.send``.
            deliver_after: Delay of messages that state none themselves.
            deliver_at: Likewise.
            priority: Priority of messages that state none themselves.
            expires_after: ``expires_after`` of messages that state none themselves; see
                ``Client.send``.
            timeout: Seconds in all; None: the transaction's.
        """
        due = (deliver_after, deliver_at)
        return await self._send(
            "send_many", topic, messages, queue, timeout, due, priority, expires_after
        )

    async def _send(
        self,
        what: str,
        topic: str | Topic,
        messages: Iterable[object],
        queue: Queue | None,
        timeout: float | timedelta | None,
        due_arguments: tuple[object, object] = (None, None),
        priority: int = 0,
        expires_after: object = None,
    ) -> list[Receipt]:
        async with self._step(what):
            name = check_topic(name_of(topic))
            seconds = self._seconds(timeout)
            items = _listed(messages)
            if not items:
                return []
            level = priority_of(priority)
            prepare = self._around if self._parts.middlewares.sends else self._prepare
            return await prepare(name, items, queue, due_arguments, level, expires_after, seconds)

    async def _around(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due_arguments: tuple[object, object],
        priority: int,
        expires_after: object,
        seconds: float,
    ) -> list[Receipt]:
        """Prepare messages, each inside the middlewares of sends."""
        outbound = [Outbound(topic, copy_of(item)) for item in items]
        receipts: list[Receipt] = []
        failure: BaseException | None = None
        try:
            with ExitStack() as stack:
                for one in outbound:
                    stack.push(self._parts.middlewares.enter_sends(one))
                try:
                    messages = [one.message for one in outbound]
                    receipts = await self._prepare(
                        topic, messages, queue, due_arguments, priority, expires_after, seconds
                    )
                    for one, receipt in zip(outbound, receipts, strict=True):
                        one.receipt = receipt
                except BaseException as error:
                    failure = error
                    raise
            if failure is not None:  # a middleware caught it: nothing was sent all the same
                raise failure
        finally:
            del failure  # see ``raising``
        return receipts

    async def _prepare(
        self,
        topic: str,
        items: Sequence[object],
        queue: Queue | None,
        due_arguments: tuple[object, object],
        priority: int,
        expires_after: object,
        seconds: float,
    ) -> list[Receipt]:
        parts = self._parts
        until = self._session.loop.time() + seconds
        due = parts.sender.due(*due_arguments)
        lifetime = parts.sender.lifetime(expires_after)
        messages = parts.sender.all_encoded(topic, items, queue, due, priority, lifetime)
        batches = await parts.batches.made_of(topic, messages, seconds)
        left = until - self._session.loop.time()
        if left <= 0:
            raise CannotConnect(f"nothing was sent to {topic!r} within {seconds:g} s")
        async with self._sent(alone=len(batches) == 1):
            answers = await parts.steps.prepare(self._name(), self._number, topic, batches, left)
        producer = parts.batches.ids.producer
        by_message = {
            id(message): receipt
            for batch, answer in zip(batches, answers, strict=True)
            for message, receipt in zip(
                batch.messages, receipts_of(topic, producer, batch, answer), strict=True
            )
        }
        self._opened(answers[0].transaction)
        return [by_message[id(message)] for message in messages]

    # -- settling ---------------------------------------------------------------------------------

    async def ack(self, delivery: Settled) -> None:
        """Ack a delivery when the transaction commits; returns when this is stored.

        Until the transaction is decided, no consumer gets the message, however long that takes.
        After a roll back, the message is delivered again, and no attempt is counted. The delivery
        counts as settled in this client: a handler that returns does not settle it a second time.
        In a group that keeps an order, settle the later messages of its ordering key (in a mode
        that locks queues: of its queue) in the same transaction: after a roll back, those that are
        not settled are delivered again behind it.

        If an earlier message of its ordering key fails before the commit, or the group is reset or
        replays it, the message leaves the transaction: the commit applies to the rest, and the
        message is delivered again.

        Args:
            delivery: A delivery of this client; or deliveries, of which all that are left count.

        Raises:
            AlreadySettled: It was settled before, or is in another transaction.
            LeaseExpired: This consumer had lost it; it is delivered again. Nothing was changed.
            InvalidRequest: It is a delivery of another client, or was read without a group.
            TransactionTooLarge, Forbidden: It is not settled; settle it without the transaction.
            TransactionDecided, TransactionNotOpen, TransactionInUse, TernMQError: As ``send``.
        """
        await self._settle(delivery, Outcome.DONE)

    async def retry(
        self,
        delivery: Settled,
        delay: float | timedelta | None = None,
        *,
        reason: object = "",
    ) -> None:
        """Retry a delivery after the commit, as the retry policy says or after ``delay``.

        The delay begins at the commit. See ``ack``; the reason is kept as with ``Delivery.retry``.
        """
        await self._settle(delivery, Outcome.RETRY, reason, delay)

    async def reject(self, delivery: Settled, reason: object = "") -> None:
        """Make a delivery a dead letter when the transaction commits; see ``ack``."""
        await self._settle(delivery, Outcome.DEAD, reason)

    async def _settle(
        self,
        delivery: object,
        outcome: Outcome,
        reason: object = "",
        delay: float | timedelta | None = None,
    ) -> None:
        async with self._step("settle"):
            delayed, why = delay_us(delay), reason_text(reason)[:MAX_REASON]
            held = self._spans_of(delivery)
            await self._open()
            for lease, spans in held:
                lease.hand_over(spans)
                connections = self._session.traffic.opened
                try:
                    async with self._sent(alone=len(held) == 1):
                        await self._parts.steps.settle(
                            self._number, lease, spans, outcome, delayed, why, self._seconds()
                        )
                except BaseException as error:
                    if isinstance(error, LeaseExpired):
                        lease.lose_rows(spans, tell=True)
                        lease.decided(lease.handed_over(spans, Outcome.RETRY), Outcome.RETRY)
                    elif self._surely_refused(error, connections):
                        lease.keep(spans)
                    else:
                        self._hand_over(lease, spans, outcome, sure=False)
                    raise
                self._hand_over(lease, spans, outcome, sure=True)

    def _hand_over(self, lease: Lease, spans: list[Span], outcome: Outcome, *, sure: bool) -> None:
        """Note rows that the transaction holds, or may hold; its end decides what they are."""
        later = lease.handed_over(spans, outcome)
        self._held.append(_Held(lease, spans, outcome, later, sure))

    def _spans_of(self, delivery: object) -> list[tuple[Lease, list[Span]]]:
        """Return the rows of deliveries that are to be settled."""
        if isinstance(delivery, BlockingDelivery):
            delivery = engine_of(delivery)
        if isinstance(delivery, Delivery):
            lease, offset = delivery.lease, delivery.offset
            lease.check(offset)
            held = [(lease, [(offset, offset + 1)])]
        elif isinstance(delivery, Deliveries):
            held = held_spans(delivery)
        else:
            kind = article(type(delivery).__name__)
            raise InvalidRequest(f"a transaction settles deliveries, not {kind}")
        for lease, _ in held:
            if lease.settler is not self._parts.settler:
                raise InvalidRequest(
                    "this delivery belongs to another client: a transaction settles deliveries of "
                    "its own client"
                )
        return held

    async def commit_offset(self, topic: str | Topic, group: str, queue: int, offset: int) -> None:
        """Have a group continue from an offset of a queue when the transaction commits.

        For programs that read without leases and keep their own place. If the group is reset
        before the commit, the commit does not move it.

        Args:
            topic: The topic.
            group: The group.
            queue: Number of the queue.
            offset: Offset of the first message that is not processed.

        Raises:
            UnknownTopic, UnknownGroup, UnknownQueue, InvalidRequest: Nothing was changed.
            TransactionDecided, TransactionNotOpen, TransactionInUse, TernMQError: As ``send``.
        """
        async with self._step("commit_offset"):
            name = check_topic(name_of(topic))
            check_name(group, "a group's name")
            queue, offset = whole("queue", queue), whole("offset", offset)
            await self._open()
            async with self._sent(alone=True):
                await self._parts.steps.move(
                    self._number, name, group, queue, offset, self._seconds()
                )

    # -- the decision -----------------------------------------------------------------------------

    async def commit(self) -> int:
        """Commit: all of it happens at one moment; returns the number of its messages.

        Leaving the block does this.

        Raises:
            OutcomeUnknown: There was no answer in time: it is not known whether it is committed;
                ``client.transaction_outcome(error.transaction_id)`` returns it.
            TransactionFailed: A step failed, or its outcome is not known: it can only be rolled
                back.
            TransactionDecided: It was rolled back meanwhile, by a checker or an operator.
            TransactionNotOpen, TransactionInUse: It is not in use, or used by another task.
            TernMQError: The broker refused it, or nothing was sent: it is not decided, and may be
                rolled back.
        """
        return await self._decide(commit=True)

    async def rollback(self) -> None:
        """Roll back: no message becomes visible; deliveries that it settles are delivered again.

        The rest of the block may go on, without the transaction.

        Raises:
            OutcomeUnknown: There was no answer in time.
            TransactionDecided: It was committed meanwhile, by a checker or an operator.
            TransactionNotOpen, TransactionInUse: It is not in use, or used by another task.
        """
        await self._decide(commit=False)

    async def _decide(self, *, commit: bool) -> int:
        async with self._step("commit" if commit else "rollback"):
            decided = State.COMMITTED if commit else State.ROLLED_BACK
            self._undoing = not commit
            if commit and self._broken:
                raise TransactionFailed(f"{self!r} cannot be committed: {self._broken}")
            if not self._asked:
                self._ended(decided)
                return 0
            try:
                done = await self._parts.steps.decide(
                    self._name(), self._number, self._seconds(), commit=commit
                )
            except _UNANSWERED as error:
                self._ended(State.UNKNOWN)
                what = "commit" if commit else "roll back"
                raise OutcomeUnknown(
                    f"there was no answer to the {what} of {self!r} in time: {error.args[0]}",
                    transaction_id=self.id,
                ) from error
            except UnknownTransaction:
                never = not (commit or self._number)  # the request that was to open it was lost
                self._ended(State.ROLLED_BACK if never else State.DECIDED)
                if never:
                    return 0
                raise
            except TransactionDecided:  # the other way
                self._ended(State.DECIDED, undone=commit)
                raise
            except RefusedError:  # nothing was decided: it may be tried again
                raise
            except BaseException:  # its caller was cancelled: the broker may decide
                self._ended(State.UNKNOWN)
                raise
            self._parts.unfinished.found(self._name())
            self._ended(decided)
            return done.rows

    # -- its state --------------------------------------------------------------------------------

    def _name(self) -> Opening:
        assert self._opening is not None
        return self._opening

    def _seconds(self, timeout: float | timedelta | None = None) -> float:
        if timeout is not None:
            return timeout_of("timeout", timeout)
        return self._session.options.timeout if self._timeout is None else self._timeout

    async def _open(self) -> None:
        """Open it at the broker, unless that was done."""
        if self._number:
            return
        async with self._sent(alone=True):
            number = await self._parts.steps.open(self._name(), self._seconds())
        self._opened(number)

    def _opened(self, number: int) -> None:
        self._number = number
        unfinished = self._parts.unfinished
        unfinished.found(self._name())
        if self._state is State.OPEN:
            unfinished.open.add(number)
        elif self._undoing:  # its block ended while another task used it
            unfinished.undo(number)

    @asynccontextmanager
    async def _step(self, what: str) -> AsyncIterator[None]:
        """Use the transaction: one task at a time, while it is open."""
        self._session.bind()
        if self._state is not State.OPEN:
            raise TransactionNotOpen(f"{what}: this transaction {self._state.value}")
        if self._busy:
            raise TransactionInUse(f"{what}: another call of this transaction has not returned")
        self._busy = True
        self._deciding = what in _DECISIONS
        try:
            yield
        except BaseException as error:
            if what not in _DECISIONS:
                self._errors.append(error)
            raise
        finally:
            self._busy = self._deciding = False

    @asynccontextmanager
    async def _sent(self, *, alone: bool) -> AsyncIterator[None]:
        """Send a request that changes the transaction; if it is not known whether, that is noted.

        Args:
            alone: A refusal means that nothing was changed; else parts may have been.
        """
        self._asked = True
        connections = self._session.traffic.opened
        opens = not self._number
        try:
            with self._parts.unfinished.opening(self._name()) if opens else nullcontext():
                yield
        except BaseException as error:
            if not (alone and self._surely_refused(error, connections)):
                self._broken = f"the outcome of a step is not known ({type(error).__name__})"
                if not self._number:
                    self._parts.unfinished.lose(self._name())
            elif not self._number and not self._broken:
                self._asked = False  # the request that was to open it was refused
            raise

    def _surely_refused(self, error: BaseException, connections: int) -> bool:
        """Return whether a request that failed was not carried out.

        After a reconnect it was sent twice: the first may have been carried out.

        Args:
            error: Why it failed.
            connections: Number of connections that had been opened before it.
        """
        return isinstance(error, RefusedError) and self._session.traffic.opened == connections

    def _ended(self, state: State, *, undone: bool = False) -> None:
        """Note the end of the transaction; ``undone``: it was rolled back, whoever did that."""
        unfinished = self._parts.unfinished
        if state in (State.UNKNOWN, State.LEFT) and self._undoing and self._number:
            unfinished.undo(self._number)
        undone = undone or state is State.ROLLED_BACK
        held, self._held = self._held, []
        for lease, spans, outcome, later, sure in held:
            if undone:
                lease.lose_rows(spans, "its transaction was rolled back", tell=not sure)
            committed = state is State.COMMITTED
            lease.decided(later, outcome if committed else Outcome.RETRY)
        self._errors.clear()  # they refer to frames that refer to this
        self._state = state
        unfinished.open.discard(self._number)
        unfinished.ended(id(self))


def _listed(messages: Iterable[object]) -> list[object]:
    """Return the messages of a call.

    Raises:
        InvalidRequest: They are no list of messages, or one has an id of the application.
    """
    if isinstance(messages, str | bytes | bytearray | Mapping):
        kind = type(messages).__name__
        raise InvalidRequest(f"send_many takes a list of messages; one {kind} goes to send")
    if not isinstance(messages, Iterable):
        raise InvalidRequest(f"messages are a list, not {type(messages).__name__}")
    items = [*messages]
    if any(isinstance(item, Message) and item.id is not None for item in items):
        raise InvalidRequest(
            "a message of a transaction has no id= of the application: the transaction is stored "
            "once by itself"
        )
    return items


def _check_after_us(after: float | timedelta | None) -> int:
    """Return the time until the first question in µs; 0: as the producer group says.

    Raises:
        InvalidRequest: It is less than a second or more than an hour.
    """
    if after is None:
        return 0
    seconds = timeout_of("check_after", after)
    if not _LEAST_CHECK_S <= seconds <= _MOST_CHECK_S:
        raise InvalidRequest(f"check_after must be 1 s to 1 h, not {seconds:g} s")
    return round(seconds * 1e6)
