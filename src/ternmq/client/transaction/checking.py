"""Checkers: what a client offers to the broker, and its answers to the broker's questions.

For each declared checker the client sends an offer over every new connection, since an offer ends
with its connection. A question is answered in a task of its own: the first messages are read, then
the function is called, and its decision is sent. A checker that raises, or returns something else,
does not know it; the broker asks again. The same is answered about transactions whose blocks still
run in this client: the block decides. One that the block rolled back, without an answer, is rolled
back by this client without its checker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

from ternmq.client.connection.link import Link
from ternmq.client.connection.raising import own
from ternmq.client.connection.session import Member, Session
from ternmq.client.consumer.running import Threads, failure_of
from ternmq.client.consumer.telling import where
from ternmq.client.content.codecs import Codecs
from ternmq.client.handler.blocking import Portal
from ternmq.client.handler.declarations import Checker, Declarations
from ternmq.client.transaction.blocking import BlockingPreparedTransaction
from ternmq.client.transaction.decision import Decision
from ternmq.client.transaction.prepared import (
    FETCHED_BYTES,
    PreparedMessage,
    PreparedTransaction,
    Rows,
)
from ternmq.client.transaction.start import PendingStart
from ternmq.client.transaction.unfinished import Unfinished
from ternmq.model.errors import (
    TernMQError,
    TransactionDecided,
    UnknownTransaction,
)
from ternmq.model.transaction_ids import transaction_id
from ternmq.model.words import article
from ternmq.wire import control
from ternmq.wire.commands import Command
from ternmq.wire.session import Push

log: Final = logging.getLogger("ternmq")

THREADS: Final = 16
"""Most ``def`` checkers that run at one time."""
_COMMITS: Final = {Decision.COMMIT: True, Decision.ROLLBACK: False, Decision.UNKNOWN: None}
_GONE: Final = (UnknownTransaction, TransactionDecided)


class _Question(NamedTuple):
    """A question, and the checker that answers it."""

    asked: control.TransactionCheck
    checker: Checker


class Checking(Member):
    """Offers the declared checkers, and calls them. Not thread-safe: for the client's loop.

    Args:
        session: The client's session.
        declarations: The checkers.
        codecs: How bodies are decoded.
        unfinished: The transactions that this client itself decides, or has rolled back.
        start: While it is pending, nothing is offered.
    """

    def __init__(
        self,
        session: Session,
        declarations: Declarations,
        codecs: Codecs,
        unfinished: Unfinished,
        start: PendingStart,
    ) -> None:
        self._session = session
        self._declarations = declarations
        self._codecs = codecs
        self._unfinished = unfinished
        self._start = start
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._threads: Threads | None = None
        self._portal: Portal | None = None
        self._waiting: set[str] = set()
        """Groups whose offers were not answered yet."""
        self._idle: list[asyncio.Future[None]] = []
        self._refused: dict[str, TernMQError] = {}
        self._again: dict[str, asyncio.TimerHandle] = {}
        """Timers of offers that were refused, by group: each is sent again."""
        self._failing: list[asyncio.Future[None]] = []
        self._failure: TernMQError | None = None
        """Why the broker refused this client; None since the last connection."""
        self._ended = False

    # -- offers -----------------------------------------------------------------------------------

    def opened(self, link: Link, *, resumed: bool) -> None:
        """Offer every checker over the new connection, unless a start is pending."""
        self._failure = None
        if self._start.pending:
            return
        for group in self._declarations.checkers:
            self._offer(link, group)

    def refused(self, error: TernMQError) -> None:
        """Pass on that no connection will come: nobody asks this client any more."""
        self._failure = error
        for failing in self._failing:
            if not failing.done():
                failing.set_exception(own(error))
        self._answered_all()

    def failed(self) -> asyncio.Future[None]:
        """Return a future that gets the error with which the broker refuses this client.

        Cancel it when nobody waits for it any more.
        """
        failing: asyncio.Future[None] = self._session.loop.create_future()
        if self._failure is not None:
            failing.set_exception(own(self._failure))
        self._failing = [one for one in self._failing if not one.done()]
        self._failing.append(failing)
        return failing

    def offer(self, group: str) -> None:
        """Offer a checker that was declared now, if there is a connection."""
        link = self._session.link
        if link is not None and not self._start.pending and not self._ended:
            self._offer(link, group)

    def hold(self) -> None:
        """Offer nothing until ``release``, if there was no connection yet; see ``PendingStart``."""
        if self._session.link is None:
            self._start.begin(self._session.loop)

    def release(self) -> None:
        """Offer every checker now, or over the next connection, if the offers are held."""
        if not self._start.pending:
            return
        self._start.end()
        self._waiting.update(self._declarations.checkers)
        for group in self._declarations.checkers:
            self.offer(group)

    def _offer(self, link: Link, group: str) -> None:
        self._waiting.add(group)
        if (again := self._again.pop(group, None)) is not None:
            again.cancel()
        asked = control.CheckerOffer(groups=[group])
        link.ask(Command.CHECKER_OFFER, control.encode(asked), _Offer(self, group))

    def offered(self, group: str, error: TernMQError | None) -> None:
        """Handle the answer to an offer; ``error``: why it was refused."""
        if error is None:
            if self._refused.pop(group, None) is not None:
                log.info("the checker of producer group %s is offered again", group)
        elif not self._ended:
            pause = self._session.options.longest_backoff
            self._again[group] = self._session.loop.call_later(pause, self.offer, group)
            if error.retriable:
                return
            raised = not self._refused and any(not idle.done() for idle in self._idle)
            known = group in self._refused
            self._refused[group] = error
            if not raised and not known:
                log.error("the checker of producer group %s cannot be offered: %s", group, error)
        self._waiting.discard(group)
        if not self._waiting:
            self._answered_all()

    def _answered_all(self) -> None:
        """Let go on whoever waits for the answers to the offers."""
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        self._idle.clear()

    def not_offered(self) -> str:
        """Return which checker the broker does not accept, and why; else ""."""
        for group, error in self._refused.items():
            return f"the checker of producer group {group} cannot be offered: {error.args[0]}"
        return ""

    async def ready(self, timeout: float) -> None:
        """Wait until the broker has answered the offers; the connection may be lost meanwhile.

        Raises:
            ProducerGroupTaken: A group belongs to another app.
            TernMQError: The broker refused an offer for another reason, or this client.
        """
        if self._waiting:
            idle: asyncio.Future[None] = self._session.loop.create_future()
            self._idle.append(idle)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await idle
        for error in filter(None, [self._failure, *self._refused.values()]):
            raise own(error)

    # -- questions --------------------------------------------------------------------------------

    def pushed(self, push: Push) -> None:
        """Begin to answer a question of the broker."""
        if push.command is not Command.TRANSACTION_CHECK or self._ended:
            return
        asked = control.decode_answer(push.body, control.TransactionCheck)
        number = asked.transaction
        if number in self._tasks:
            log.debug("%s is asked about again while its checker runs", transaction_id(number))
            return
        task = self._session.loop.create_task(self._answer(asked))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, asked: control.TransactionCheck) -> None:
        """Answer a question; raises nothing but a cancellation."""
        name = f"{transaction_id(asked.transaction)} of {asked.group}"
        checker = self._declarations.checkers.get(asked.group)
        decision = Decision.UNKNOWN
        await self._unfinished.opened(asked)
        if asked.transaction in self._unfinished.undone:
            decision = Decision.ROLLBACK
        elif checker is None:
            log.warning("%s: this client has no checker of that group", name)
        elif self._unfinished.runs(asked.transaction):
            log.debug("%s is asked about while its block runs", name)
        else:
            try:
                lost = await self._unfinished.roll_back_lost(asked, self._session.options.timeout)
            except TernMQError as error:
                log.warning("%s may have been rolled back by this client: %s", name, error)
            else:
                decision = (
                    Decision.ROLLBACK if lost
                    else await self._decision(name, _Question(asked, checker))
                )  # fmt: skip
        await self._decide(name, asked, decision)

    async def _decision(self, name: str, question: _Question) -> Decision:
        """Return what the checker says; ``UNKNOWN`` if it fails, which is logged."""
        attempt = question.asked.attempt
        try:
            decision = await self._ask(question)
        except _GONE as error:
            log.info("%s was decided before its checker was called: %s", name, error)
            return Decision.UNKNOWN
        except Exception as error:
            log.exception("the checker of %s failed (attempt %d): it counts as UNKNOWN", name,
                          attempt, exc_info=where(error))  # fmt: skip
            return Decision.UNKNOWN
        if isinstance(decision, Decision):
            if decision is Decision.UNKNOWN:
                log.info("the checker of %s does not know its outcome yet (attempt %d)", name,
                         attempt)  # fmt: skip
            return decision
        if isinstance(decision, Coroutine):
            decision.close()
        log.error("the checker of %s returned %s, no ternmq.Decision: it counts as UNKNOWN", name,
                  article(type(decision).__name__))  # fmt: skip
        return Decision.UNKNOWN

    async def _ask(self, question: _Question) -> object:
        """Call the checker; return what it returned."""
        asked, checker = question
        rows = Rows(self._session, self._codecs, asked.transaction)
        first: list[PreparedMessage] = []
        if asked.rows:
            async with aclosing(rows.pages(FETCHED_BYTES)) as pages:
                async for page in pages:
                    first = page
                    break
        prepared = PreparedTransaction(asked, first, rows.pages)
        if checker.is_async:
            try:
                result: object = await checker.function(prepared)
            except (Exception, asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as raised:  # SystemExit, for example, would end the loop
                raise failure_of(raised, "checker") from raised
            return result
        return await self._begin_in_thread(checker.function, prepared)

    def _begin_in_thread(
        self, function: Callable[..., object], prepared: PreparedTransaction
    ) -> asyncio.Future[object]:
        """Begin a call in a thread; return the future of its result."""
        loop = self._session.loop
        if self._threads is None:
            self._threads = Threads(THREADS, "ternmq-checker")
        if self._portal is None:
            self._portal = Portal(loop, self._session.options.timeout)
        given = BlockingPreparedTransaction(prepared, self._portal)
        told: asyncio.Future[object] = loop.create_future()
        threads = self._threads

        def end(told: asyncio.Future[object], result: object, error: BaseException | None) -> None:
            threads.done()
            if told.done():
                return
            if error is None:
                told.set_result(result)
            else:
                told.set_exception(error)

        def work(told: asyncio.Future[object]) -> None:
            result: object = None
            failure: BaseException | None = None
            try:
                result = function(given)
            except BaseException as raised:  # noqa: BLE001 - it is raised where it is awaited
                failure = failure_of(raised, "checker")
            try:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(end, told, result, failure)
            finally:
                del failure, told  # see ``raising``

        threads.run(partial(work, told))
        return told

    async def _decide(self, name: str, asked: control.TransactionCheck, decision: Decision) -> None:
        """Send an answer; raises nothing but a cancellation."""
        said = _COMMITS[decision]
        try:
            await self._session.control(
                Command.TRANSACTION_DECIDE,
                control.TransactionDecide(
                    transaction=asked.transaction, commit=said, attempt=asked.attempt
                ),
                control.TransactionDone,
            )
        except TernMQError as error:
            if isinstance(error, _GONE):
                self._unfinished.decided(asked.transaction)
            if decision is not Decision.UNKNOWN:
                log.warning("the checker of %s said %s, which did not count: %s", name,
                            decision.value, error)  # fmt: skip
        else:
            if decision is not Decision.UNKNOWN:
                self._unfinished.decided(asked.transaction)
                log.info("the checker of %s said %s (attempt %d)", name, decision.value,
                         asked.attempt)  # fmt: skip

    # -- the end ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Answer no more questions: running checkers are cancelled, those in threads left."""
        self._ended = True
        self._start.end()
        for again in self._again.values():
            again.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
        if self._threads is not None:
            self._threads.close()


class _Offer:
    """The asker of an offer."""

    __slots__ = ("_checking", "_group")

    def __init__(self, checking: Checking, group: str) -> None:
        self._checking = checking
        self._group = group

    def answered(self, body: bytes) -> None:
        """Note that the broker asks this client from now on."""
        self._checking.offered(self._group, None)

    def refused(self, error: TernMQError) -> None:
        """Note the refusal."""
        self._checking.offered(self._group, error)

    def lost(self) -> None:
        """Do nothing: the offer is sent again over the next connection."""
