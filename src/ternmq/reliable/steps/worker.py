"""Does the steps of a session, one transaction each, when a wake-up comes."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ternmq.client.consumer.concluding import Retry
from ternmq.client.consumer.telling import where
from ternmq.client.content.codecs import Codecs
from ternmq.client.handler.handlers import check_result
from ternmq.client.handler.unawaited import raise_found, watch_begins
from ternmq.model.errors import DatabaseNotPrepared, InvalidHandler
from ternmq.reliable.inbox.bound import bound_to
from ternmq.reliable.libraries.opening import Transactions
from ternmq.reliable.steps import course
from ternmq.reliable.steps.course import Attempt, Change, Fault, State
from ternmq.reliable.steps.functions import StepFunction
from ternmq.reliable.steps.item import Item, SequenceStep
from ternmq.reliable.steps.stats import StepsStats
from ternmq.reliable.steps.store import Store, beginning, shortened
from ternmq.reliable.steps.trial import Failure, Obstacle, judged

log: Final = logging.getLogger("ternmq.reliable")

IN_PROGRESS: Final = "in progress elsewhere"
"""Reason of the retry of a wake-up."""
_LONGEST_RETRY_S: Final = 60.0


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

    def run(self, session: str, turn: int, delivered: int) -> None:
        """Do the steps of a session until it ends, stops or waits.

        Args:
            session: Its name.
            turn: Turn of the wake-up.
            delivered: Which attempt of the wake-up's message this is.

        Raises:
            Retry: Another worker has the session.
            Exception: The database's own.
        """
        while (attempt := self._next(session, turn)) is not None:
            tries = 0
            while (obstacle := self._try(session, attempt, tries)) is not None:
                if obstacle is not Obstacle.AGAIN:
                    raise Retry(IN_PROGRESS, after=_pause(delivered))
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
        except Exception as error:  # noqa: BLE001 - of the application
            return self._ended(session, attempt, error, begun=begun, tries=tries)
        self._did(session, attempt)
        return None

    # -- functions that are awaited ---------------------------------------------------------------

    async def run_awaited(self, session: str, turn: int, delivered: int) -> None:
        """Do the steps of a session until it ends, stops or waits; see ``run``."""
        while (attempt := await asyncio.to_thread(self._next, session, turn)) is not None:
            tries = 0
            while (obstacle := await self._try_awaited(session, attempt, tries)) is not None:
                if obstacle is not Obstacle.AGAIN:
                    raise Retry(IN_PROGRESS, after=_pause(delivered))
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
        except Exception as error:  # noqa: BLE001 - of the application
            found = error
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

    def _next(self, session: str, turn: int) -> Attempt | None:
        """Return the step that is next; None: there is none, or it is not its time."""
        store = self._store
        look = store.look(session)
        found = course.woken(look.standing, turn, look.now_ms, store.rules)
        if isinstance(found, Change):
            if store.apply(session, found):
                self._tell_end(session, found)
            return None
        return found

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
        if isinstance(error, InvalidHandler):
            begun = True
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
        what = f"{'undoing ' if attempt.undo else ''}step {attempt.number} of {before.size}"
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
        shown = None if failure.fault is Fault.LATER else where(error)
        level = logging.INFO if failure.fault is Fault.LATER else logging.ERROR
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


def _pause(delivered: int) -> float:
    return min(_LONGEST_RETRY_S, 2.0 ** min(max(delivered, 1) - 1, 6))
