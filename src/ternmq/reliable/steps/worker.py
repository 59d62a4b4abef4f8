"""Does the steps of a session, one transaction each, when a wake-up comes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from ternmq.client.consumer.concluding import Reject, Retry
from ternmq.client.consumer.running import failure_of
from ternmq.client.consumer.telling import where
from ternmq.client.content.codecs import Codecs
from ternmq.client.content.reasons import error_text
from ternmq.client.handler.handlers import check_result
from ternmq.client.handler.unawaited import raise_found, watch_begins
from ternmq.model.errors import DatabaseNotPrepared, InvalidHandler
from ternmq.reliable.inbox.bound import bound_to
from ternmq.reliable.libraries.opening import Transactions
from ternmq.reliable.libraries.refusals import waited_in_vain
from ternmq.reliable.libraries.standing import NotCommitted
from ternmq.reliable.steps import course
from ternmq.reliable.steps.course import Attempt, Change, Fault, Standing, State
from ternmq.reliable.steps.functions import StepFunction
from ternmq.reliable.steps.item import Item, SequenceStep
from ternmq.reliable.steps.stats import StepsStats
from ternmq.reliable.steps.store import Store, beginning, shortened
from ternmq.reliable.steps.trial import Failure, Obstacle, judged

log: Final = logging.getLogger("ternmq.reliable")

IN_PROGRESS: Final = "in progress elsewhere"
"""Reason of the retry of a wake-up."""
_LONGEST_RETRY_S: Final = 60.0
_WHAT: Final = "function of the step"


@dataclass(slots=True, frozen=True)
class WakeUp:
    """A message of the consumer to itself, as it came.

    Attributes:
        session: Session to go on with.
        turn: Its turn.
        delivered: Which attempt of the message this is, from 1.
        cut_off: Why the attempt before this one was not settled by its worker; "" if it was, or if
            there was none.
    """

    session: str
    turn: int
    delivered: int
    cut_off: str = ""

    @property
    def pause_s(self) -> float:
        """When it is tried again, if another worker has the session: later with each attempt."""
        return min(_LONGEST_RETRY_S, 2.0 ** min(max(self.delivered, 1) - 1, 6))


class Worker:
    """Goes on with sessions. Callable from any thread.

    Args:
        store: The sessions.
        transactions: Opens those in which functions work.
        codecs: Decode the bodies of steps.
        wait_s: How long to wait for another worker that has the session.
    """

    def __init__(
        self, store: Store, transactions: Transactions, codecs: Codecs, wait_s: float
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._codecs = codecs
        self._wait_s = wait_s
        self.stats = StepsStats()
        self.step: StepFunction | None = None
        self.undo: StepFunction | None = None

    # -- functions in threads ---------------------------------------------------------------------

    def run(self, wake_up: WakeUp) -> None:
        """Do the steps of a session until it ends, stops or waits.

        Raises:
            Retry: Another worker has the session.
            Exception: The database's own.
        """
        session, before = wake_up.session, None
        while (attempt := self._next(wake_up, before)) is not None:
            before = attempt.change.before
            tries = 0
            while (obstacle := self._try(session, attempt, tries)) is not None:
                if obstacle is not Obstacle.AGAIN:
                    raise Retry(IN_PROGRESS, after=wake_up.pause_s)
                tries += 1

    def _try(self, session: str, attempt: Attempt, tries: int) -> Obstacle | None:
        """Make an attempt; return why it must be made again, None if it need not."""
        begun = False
        try:
            function = self._function(attempt)
            enter = beginning(self._store, session, attempt, self._wait_s)
            with self._transactions.opened(function.wanted, enter, self._wait_s) as opened:
                begun = True
                if opened.entered is None:
                    opened.undo = True
                    return None
                step = self._step(session, attempt, opened.entered)
                with bound_to(opened.within, self._store.database):
                    result = function.function(step, **opened.given)
                # The client looks at these after the commit: what fails there would be done then.
                check_result(result)
                raise_found()
                watch_begins()
        except BaseException as error:  # noqa: BLE001 - of the application: SystemExit, say
            failure = failure_of(error, _WHAT)
            return self._ended(session, attempt, failure, begun=begun, tries=tries)
        self._did(session, attempt)
        return None

    # -- functions that are awaited ---------------------------------------------------------------

    async def run_awaited(self, wake_up: WakeUp) -> None:
        """Do the steps of a session until it ends, stops or waits; see ``run``."""
        session, before = wake_up.session, None
        while (attempt := await asyncio.to_thread(self._next, wake_up, before)) is not None:
            before = attempt.change.before
            tries = 0
            while (obstacle := await self._try_awaited(session, attempt, tries)) is not None:
                if obstacle is not Obstacle.AGAIN:
                    raise Retry(IN_PROGRESS, after=wake_up.pause_s)
                tries += 1

    async def _try_awaited(self, session: str, attempt: Attempt, tries: int) -> Obstacle | None:
        begun = False
        try:
            function = self._function(attempt)
            enter = beginning(self._store, session, attempt, self._wait_s)
            async with self._transactions.opened_awaited(
                function.wanted, enter, self._wait_s
            ) as opened:
                begun = True
                if opened.entered is None:
                    opened.undo = True
                    return None
                step = self._step(session, attempt, opened.entered)
                with bound_to(opened.within, self._store.database):
                    result = await function.function(step, **opened.given)
                check_result(result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            found = _cancelled(error)  # what the function waited for was
        except GeneratorExit:  # a closing loop closes its coroutines
            raise
        except BaseException as error:  # noqa: BLE001 - of the application: SystemExit, say
            found = failure_of(error, _WHAT)
        else:
            self._did(session, attempt)
            return None
        try:
            return await asyncio.to_thread(
                self._ended, session, attempt, found, begun=begun, tries=tries
            )
        finally:
            del found

    # -- both -------------------------------------------------------------------------------------

    def _next(self, wake_up: WakeUp, before: Standing | None) -> Attempt | None:
        """Return the step that is next; None: there is none, or it is not its time.

        Args:
            wake_up: What came.
            before: The session as the last attempt found it; None: there was none.

        Raises:
            Retry: Another worker has the session.
            Exception: The database's own.
        """
        found = self._look(wake_up)
        if found is None:
            return None
        if before is None and wake_up.cut_off and self._count_cut_off(wake_up, found):
            return self._look(wake_up)
        if before is not None and found.change.before == before:
            # Its transaction was committed, as the database said, and has changed nothing.
            lost = NotCommitted(
                "the database has no trace of the transaction of this step, which it has committed"
            )
            self._failed(wake_up.session, found, lost, Failure(Fault.FAILED, error_text(lost)))
            return self._look(wake_up)
        return found

    def _look(self, wake_up: WakeUp) -> Attempt | None:
        """Return the step that a session has next; what is no step is done at once."""
        store, session = self._store, wake_up.session
        look = store.look(session)
        found = course.woken(look.standing, wake_up.turn, look.now_ms, store.rules)
        if isinstance(found, Change):
            if store.apply(session, found):
                self._tell_end(session, found)
            return None
        return found

    def _count_cut_off(self, wake_up: WakeUp, attempt: Attempt) -> bool:
        """Count the attempt in which the last worker ended; return whether that changed something.

        A step that ends its process would do so for ever otherwise.

        Raises:
            Retry: Another worker has the session.
            Exception: The database's own.
        """
        store, before = self._store, attempt.change.before
        assert before is not None
        why = f"its process ended, or was cut off from the broker: {wake_up.cut_off}"
        change = course.failed(
            before, Fault.CUT_OFF, why, store.look(wake_up.session).now_ms, store.rules
        )
        try:
            if not store.apply_if_free(wake_up.session, change):
                return False  # another worker has it, or went on
        except store.database.errors as error:
            if waited_in_vain(error):
                raise Retry(IN_PROGRESS, after=wake_up.pause_s) from error
            raise
        self.stats.count("failures")
        log.warning(
            "session %s of %s: %s was not ended: %s; attempt %d of %d", wake_up.session,
            store.consumer.name, _name(attempt, before), why, before.tries + 1,
            store.rules.attempts,
        )  # fmt: skip
        self._tell_end(wake_up.session, change)
        return True

    def _function(self, attempt: Attempt) -> StepFunction:
        function = self.undo if attempt.undo else self.step
        if function is None:
            raise InvalidHandler(
                "the session is to be undone, and this consumer has no function for that "
                "(Steps.undo)"
            )
        return function

    def _step(self, session: str, attempt: Attempt, item: Item) -> SequenceStep:
        before = attempt.change.before
        assert before is not None
        return SequenceStep(
            session, item.number, before.size, before.tries + 1, item.id, item.key, item.tag,
            item.content_type, item.headers, item.body, self._codecs,
        )  # fmt: skip

    def _ended(
        self, session: str, attempt: Attempt, error: Exception, *, begun: bool, tries: int
    ) -> Obstacle | None:
        """Note how an attempt failed, and return why it must be made again; None if not now.

        Raises:
            Exception: The database's own.
        """
        store = self._store
        found = judged(error, store.database, begun=begun, tries=tries)
        if isinstance(found, Obstacle):
            if found is not Obstacle.DATABASE:
                return found
            if store.database.is_unprepared(error):
                raise DatabaseNotPrepared(
                    f"{store.database.name} lacks the tables of sequences"
                ) from error
            raise error
        self._failed(session, attempt, error, found)
        return None

    def _failed(self, session: str, attempt: Attempt, error: Exception, failure: Failure) -> None:
        store, before = self._store, attempt.change.before
        assert before is not None
        change = course.failed(
            before, failure.fault, failure.error, store.look(session).now_ms, store.rules,
            failure.after_ms,
        )  # fmt: skip
        what = _name(attempt, before)
        if not store.apply(session, change):
            log.warning(
                "session %s of %s: %s raised an error, but was committed, or another worker went "
                "on with the session: %s", session, store.consumer.name, what, failure.error,
            )  # fmt: skip
            return
        self.stats.count("failures")
        then = course.NAMES[change.after.state]
        if change.wake_ms is not None:
            then = f"attempt {change.after.tries + 1} in {change.wake_ms / 1000:g} s"
        # What the function has asked for, or rejected, is no error of the program.
        told = isinstance(error, Retry | Reject)
        shown = None if told else where(error)
        level = logging.ERROR
        if told:
            level = logging.INFO if failure.fault is Fault.LATER else logging.WARNING
        log.log(
            level, "session %s of %s: %s failed: %s; %s", session, store.consumer.name, what,
            failure.error, then, exc_info=shown,
        )  # fmt: skip
        self._tell_end(session, change)

    def _did(self, session: str, attempt: Attempt) -> None:
        """Count a step whose transaction was committed."""
        self.stats.count("undone" if attempt.undo else "done")
        self._tell_end(session, attempt.change)

    def _tell_end(self, session: str, change: Change) -> None:
        """Count and log that a session ended, stopped, or needs an operator."""
        store, after = self._store, change.after
        name, state = store.consumer.name, course.NAMES[after.state]
        if after.state is State.INCOMPLETE:
            self.stats.count("incomplete")
            missing = shortened(store.missing(session, after.size))
            log.error(
                "session %s of %s is %s: of %d steps, these have not come: %s", session, name,
                state, after.size, missing,
            )  # fmt: skip
        elif after.state in {State.STOPPED, State.UNDO_STOPPED}:
            self.stats.count("stopped")
            log.error(
                "session %s of %s is %s after step %d of %d; `ternmq sequence resume`, `skip` or "
                "`cancel` decides", session, name, state, after.step, after.size,
            )  # fmt: skip
        elif after.state in course.ENDED:
            self.stats.count("ended")
            log.info("session %s of %s is %s", session, name, state)


def _name(attempt: Attempt, before: Standing) -> str:
    """Return what an attempt does, for people."""
    return f"{'undoing ' if attempt.undo else ''}step {attempt.number} of {before.size}"


def _cancelled(error: BaseException) -> Exception:
    failure = RuntimeError("what the function of the step waited for was cancelled")
    failure.__cause__ = error
    return failure
