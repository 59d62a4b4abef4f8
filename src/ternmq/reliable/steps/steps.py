"""``Steps``: a consumer that does the steps of orderly sessions."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

import ternmq
import ternmq.sync
from ternmq.client.consumer.concluding import Reject
from ternmq.client.consumer.delivery import Delivery
from ternmq.client.content.causes import UNSAID_BY_NAME
from ternmq.client.content.validation import check_positive, check_topic, length_of
from ternmq.client.declaration.policy import RetryPolicy
from ternmq.client.declaration.topic import Topic, name_of
from ternmq.client.handler.blocking import BlockingDelivery
from ternmq.client.process.forking import watch, watched
from ternmq.model.errors import (
    ClientClosed,
    DatabaseNotPrepared,
    InvalidHandler,
    InvalidRequest,
)
from ternmq.model.specs import Mode, check_name
from ternmq.reliable.database.prepare import prepare, verify
from ternmq.reliable.database.trouble import Trouble
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.libraries.choice import database_of, django_database, transactions_of
from ternmq.reliable.modes.numbering import TURN, numbered_of, session_of, whole_of
from ternmq.reliable.modes.options import check_client, check_ordered, session_behind
from ternmq.reliable.outbox.outbox import Outbox
from ternmq.reliable.steps.course import Change, Refused, Rules, State
from ternmq.reliable.steps.functions import Function, StepFunction, step_function
from ternmq.reliable.steps.item import Item
from ternmq.reliable.steps.stats import StepsStats
from ternmq.reliable.steps.store import Store
from ternmq.reliable.steps.table import Consumer, SequenceTable
from ternmq.reliable.steps.worker import WakeUp, Worker

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

log: Final = logging.getLogger("ternmq.reliable")
F = TypeVar("F", bound=Function)

EVERY: Final = 60.0
"""How often lost wake-ups are looked for, in seconds."""
KEEP: Final = timedelta(days=7)
WAIT_S: Final = 5.0
"""How long a worker waits for another one that has the same session at work."""
JOIN_S: Final = 5.0
"""How long ``close`` waits for the thread."""
_ON_FAILURE: Final = ("retry", "stop", "compensate")
_FOR_EVER: Final = RetryPolicy(first=0.5, cap=60.0, attempts=65_000)
"""A database that is away must not make dead letters of items."""
_CUT_OFF: Final = (UNSAID_BY_NAME["time"], UNSAID_BY_NAME["session"])
"""Reasons of messages that their consumer did not settle."""


class Steps:
    """A consumer that does the steps of orderly sessions, as ``sequence`` sends them.

    ::

        transfers = Steps(client, "transfers", group="bank", database=engine)

        @transfers.step
        async def move(step: SequenceStep, session: AsyncSession) -> None:
            ...

    Each item is stored in the database, and no function is called before all items of its session
    are there. Then the steps are done in order, whatever the order in which their items came. Each
    is one transaction: first the step is counted, then the function works in it, and what it sends
    goes through the outbox of the database. So the effect of a step, in that database, happens
    once, whoever is killed. Sessions are done side by side.

    The consumer is a group in mode ``exclusive`` on an ordered topic: one process at a time stores
    items, and all processes do steps. What makes it go on are messages that it sends to itself, on
    the topic ``<topic>.<group>.steps``, through an outbox: the client's own on this database, or
    one that is made here.

    A function may raise ``ternmq.Retry`` to be called again, also at a time of its own (this counts
    as an attempt), and
    ``ternmq.Reject`` if another attempt would be of no use.

    Making it does no I/O; ``run`` of the client begins, and ends with ``DatabaseNotPrepared`` if
    the database has no tables. They are made by ``prepare``, or by ``ternmq outbox prepare``.
    Callable from any thread.

    Args:
        client: The client, of either kind.
        topic: Where ``sequence`` sends the items. A name declares an ordered topic; give a
            ``Topic`` for other settings.
        group: The group. Each group does the steps of all sessions.
        database: An ``Engine`` of SQLAlchemy, for functions that are a ``def``; an ``AsyncEngine``,
            for an ``async def``; or a URL, for both.
        wait: When a session is looked at, after its first item, if not all of them have come; then
            the pause is doubled, up to 60 s.
        give_up: How long missing items are waited for. Then the session is *incomplete*: an error
            is logged, and `ternmq sequence list` shows it. It goes on when they come.
        on_failure: What happens when a step fails. "retry": it is tried again after 1 s, 2 s and
            so on up to 60 s; after ``attempts`` the session has *stopped*. "stop": it has stopped
            at once. "compensate": the steps that are done are undone, the last one first; an
            undoing that fails is tried again, and the session stops after ``attempts``. An operator
            decides about sessions that stopped: `ternmq sequence resume`, `skip` or `cancel`.
        attempts: Most attempts of a step, and of its undoing. Those in which the process ended
            count, and those that ended with ``Retry``.
        concurrency: Number of sessions that this process does at one time.
        every: How often sessions are looked for whose message was lost, in seconds.
        keep: How long sessions are kept after they ended: an item that comes again meanwhile is
            known.
        schema: Schema (or database) of the tables, if it is not that of the connections.
        relay: An engine for connections of this package's own, where the URL of an ``AsyncEngine``
            says too little.

    Raises:
        InvalidRequest, InvalidName: A value is not valid, or the database is in memory.
        OutsideTransaction: The engine is in autocommit.
    """

    def __init__(
        self,
        client: ternmq.Client | ternmq.sync.Client,
        topic: str | Topic,
        *,
        group: str,
        database: object,
        wait: float | timedelta = 1.0,
        give_up: float | timedelta = 600.0,
        on_failure: Literal["retry", "stop", "compensate"] = "retry",
        attempts: int = 16,
        concurrency: int = 16,
        every: float | timedelta = EVERY,
        keep: float | timedelta = KEEP,
        schema: str = "",
        relay: Engine | None = None,
    ) -> None:
        check_client(client)
        if on_failure not in _ON_FAILURE:
            raise InvalidRequest(f"on_failure is one of {', '.join(_ON_FAILURE)}")
        check_positive("attempts", attempts)
        check_ordered(topic)
        self._client = client
        self._topic = topic if isinstance(topic, Topic) else Topic(topic, ordered=True)
        self._consumer = Consumer(name_of(topic), check_name(group, "a group's name"))
        check_topic(self._consumer.steps_topic)
        wait_s, give_up_s = length_of("wait", wait), length_of("give_up", give_up)
        rules = Rules(_ms("wait", wait_s), _ms("give_up", give_up_s), on_failure, attempts)
        self._concurrency = concurrency
        self._every_s = length_of("every", every)
        self._keep_ms = _ms("keep", length_of("keep", keep))
        _ms("every", self._every_s)
        self._schema = schema
        self._given, self._relay = database, relay
        self._database = database_of(database, relay)
        self._transactions = transactions_of(database)
        table = SequenceTable(self._database.dialect, schema)
        self._store = Store(self._database, table, self._consumer, rules, self._broker_us)
        self._worker = Worker(self._store, self._transactions, client.codecs, WAIT_S)
        self._own: Outbox | None = None
        self._starting = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        watch(self)

    @classmethod
    def django(
        cls,
        client: ternmq.sync.Client,
        topic: str | Topic,
        *,
        group: str,
        using: str = "default",
        **options: Any,  # noqa: ANN401
    ) -> Self:
        """Return steps on a database of Django's settings.

        The functions are a ``def`` and take the step only: models, and code that uses
        ``connections[using]``, work in the transaction of the step, a ``transaction.atomic``.

        Args:
            client: A client of ``ternmq.sync``.
            topic: As for ``Steps``.
            group: Likewise.
            using: Alias of the database.
            options: As for ``Steps``, but ``database`` and ``relay``.

        Raises:
            InvalidRequest, InvalidName: A value is not valid, there is no such alias, or Django is
                not configured.
        """
        if not isinstance(client, ternmq.sync.Client):
            raise InvalidRequest("Django's transactions block: give a client of ternmq.sync")
        return cls(client, topic, group=group, database=django_database(using), **options)

    def __repr__(self) -> str:
        return f"<Steps of {self._consumer.name} at {self._database.name}>"

    @property
    def consumer(self) -> Consumer:
        """Whose sessions these are."""
        return self._consumer

    @property
    def database(self) -> ApplicationDatabase:
        """Where the sessions are, with connections of this object's own."""
        return self._database

    def stats(self) -> StepsStats:
        """Return what was done in this process: the counts themselves, which go on."""
        return self._worker.stats

    def count(self) -> dict[State, int]:
        """Return how many sessions each state has, except those that have ended. Blocks.

        Raises:
            Exception: The database's own.
        """
        return self._store.count()

    # -- declarations -----------------------------------------------------------------------------

    def step(self, function: F) -> F:
        """Declare the function that does a step; a decorator.

        It takes a ``SequenceStep``, and the transaction by annotation: a ``Session``,
        ``AsyncSession``, ``Connection`` or ``AsyncConnection`` of SQLAlchemy, or the driver's
        connection. It must not commit or roll back. A ``def`` runs in a thread.

        Raises:
            InvalidHandler: It cannot be called so, or there is one already.
        """
        if self._worker.step is not None:
            raise InvalidHandler("these steps have a function already: it does all of them")
        found = self._checked(function)
        self._declare(found)
        self._worker.step = found
        return function

    def undo(self, function: F) -> F:
        """Declare the function that undoes a step that was done; a decorator, as ``step``.

        Raises:
            InvalidHandler: It cannot be called so, or there is one already; or one of the two
                functions is an ``async def``, and the other is not.
        """
        if self._worker.undo is not None:
            raise InvalidHandler("these steps have a function that undoes them already")
        self._worker.undo = self._checked(function)
        return function

    def _checked(self, function: Function) -> StepFunction:
        found = step_function(function)
        for other in (self._worker.step, self._worker.undo):
            if other is not None and other.is_async != found.is_async:
                raise InvalidHandler(
                    f"functions {other.name} and {found.name}: both are `async def`, or none is"
                )
        self._transactions.check(found.name, found.wanted, awaited=found.is_async)
        return found

    def _declare(self, function: StepFunction) -> None:
        """Declare the handlers of the client: one stores items, the other does steps."""
        client, consumer = self._client, self._consumer
        client.handler(self._topic, group=consumer.group, mode=Mode.EXCLUSIVE, retry=_FOR_EVER)(
            self._item_handler()
        )
        client.handler(
            Topic(consumer.steps_topic), group=consumer.group, mode=Mode.SHARED, retry=_FOR_EVER,
            concurrency=self._concurrency,
        )(self._wake_up_handler(awaited=function.is_async))  # fmt: skip
        client.lifespan(self._lifespan())

    def _item_handler(self) -> Callable[[BlockingDelivery], None]:
        def store_item(delivery: BlockingDelivery) -> None:
            try:
                self._arrived(delivery)
            finally:
                self._database.close_old()

        return store_item

    def _wake_up_handler(self, *, awaited: bool) -> Function:
        async def go_on_awaited(delivery: Delivery) -> None:
            wake_up = _wake_up_of(delivery)
            self.start()
            await self._worker.run_awaited(wake_up)

        def go_on(delivery: BlockingDelivery) -> None:
            wake_up = _wake_up_of(delivery)
            self.start()
            try:
                self._worker.run(wake_up)
            finally:
                self._database.close_old()

        return go_on_awaited if awaited else go_on

    def _lifespan(self) -> Function:
        async def awaited() -> AsyncIterator[None]:
            import asyncio

            self.start()
            try:
                await asyncio.to_thread(self._verify)
                yield
            finally:
                await asyncio.to_thread(self.close)
                await self._transactions.close_awaited()

        def blocking() -> Iterator[None]:
            self.start()
            try:
                self._verify()
                yield
            finally:
                self.close()

        # The loop of a blocking client is another thread's, and async engines belong to a loop.
        step = self._worker.step
        is_async = isinstance(self._client, ternmq.Client) or (step is not None and step.is_async)
        return awaited if is_async else blocking

    # -- items ------------------------------------------------------------------------------------

    def _arrived(self, delivery: BlockingDelivery) -> None:
        """Store an item, or reject it."""
        self.start()
        self.stats().count("items")
        try:
            self._take(delivery)
        except Reject:
            self.stats().count("rejected")
            raise

    def _take(self, delivery: BlockingDelivery) -> None:
        try:
            place = numbered_of(delivery.headers)
        except InvalidRequest as error:
            raise Reject(error.args[0]) from error
        item = Item(
            place.number, delivery.application_id or delivery.id, delivery.key, delivery.tag,
            delivery.content_type, delivery.headers, delivery.body,
        )  # fmt: skip
        try:
            found = self._store.arrive(place, item)
        except InvalidRequest as error:  # the database cannot store one of its texts
            raise Reject(error.args[0]) from error
        except Exception as error:
            if self._database.is_unprepared(error):
                raise DatabaseNotPrepared(
                    f"{self._database.name} lacks the tables of sequences"
                ) from error
            raise
        if isinstance(found, Refused):
            raise Reject(f"session {place.session}: {found.reason}")
        if isinstance(found, Change) and found.wake_ms is not None:
            self._look()

    # -- start and end ----------------------------------------------------------------------------

    def prepare(self) -> list[str]:
        """Make or upgrade the tables, and check them; return what was done. Blocks.

        Raises:
            DatabaseNotPrepared: They cannot be used; the text says why.
            Exception: The database's own.
        """
        return prepare(self._database, self._schema).lines()

    def start(self) -> Self:
        """Begin to look for lost messages, and to send own ones; ``run`` of the client does that.

        May be repeated. No I/O here.

        Raises:
            InvalidHandler: There is no function for steps, or none that undoes them where
                ``on_failure`` is "compensate".
        """
        if self._thread is not None:
            return self
        with self._starting:
            if self._thread is None:
                self._check()
                self._outbox().start()
                self._ended = threading.Event()
                thread = threading.Thread(
                    target=self._loop, args=(self._ended,), daemon=True,
                    name=f"ternmq-steps-{self._consumer.name}",
                )  # fmt: skip
                thread.start()
                self._thread = thread
        return self

    def _verify(self) -> None:
        """Refuse to run on a database without the tables; one that is away is waited for.

        Raises:
            DatabaseNotPrepared: The tables are missing, or of another version.
            Exception: The database's own.
        """
        try:
            verify(self._database, self._schema, "sequences")
        except self._database.errors as error:
            if not self._database.is_away(error):
                raise
            log.warning(
                "%s cannot be reached: %s", self._database.name, self._database.reason(error)
            )
        finally:
            self._database.close_here()

    def _check(self) -> None:
        if self._worker.step is None:
            raise InvalidHandler("these steps have no function: decorate one with `.step`")
        if self._store.rules.on_failure == "compensate" and self._worker.undo is None:
            raise InvalidHandler(
                'on_failure="compensate" needs a function that undoes steps: decorate one with '
                "`.undo`"
            )

    def close(self) -> None:
        """End the thread, and close the connections and the outbox that were made here.

        The client, its outboxes and the engine stay open. May be repeated.
        """
        with self._starting:
            thread, self._thread = self._thread, None
            own, self._own = self._own, None
            self._ended.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_S)
        if own is not None:
            own.close()
        self._transactions.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def after_fork(self) -> None:
        """Start over in the child, at the first message."""
        self._thread = None
        self._own = None
        self._starting = threading.Lock()  # another thread may hold the parent's
        self._worker.stats.after_fork()
        self._transactions.leave()
        self._database.leave()

    # -- the outbox -------------------------------------------------------------------------------

    def _outbox(self) -> Outbox:
        """Return the outbox that sends the wake-ups; it is made if the client has none."""
        if self._own is not None:
            return self._own
        for one in watched(Outbox):
            same = self._database.is_same(one.database)
            if same and one.client is self._client and not one.closed:
                return one
        self._own = _OwnOutbox(self._client, self._given, schema=self._schema, relay=self._relay)
        return self._own

    def _look(self) -> None:
        """Have wake-ups sent that were committed; without this the compensator finds them."""
        with contextlib.suppress(ClientClosed):
            self._outbox().committed()

    def _broker_us(self) -> int:
        """Return the broker's time."""
        broker_time = session_behind(self._client).broker_time
        return broker_time.at(broker_time.moment_us())

    # -- lost messages ----------------------------------------------------------------------------

    def _loop(self, ended: threading.Event) -> None:
        trouble = Trouble(self._database, f"the search of {self._consumer.name} for lost messages")
        while not ended.wait(self._every_s):
            try:
                self._compensate()
                trouble.over()
            except self._database.errors as error:
                ended.wait(trouble.at(error))
        self._database.close_here()
        self._database.close()

    def _compensate(self) -> None:
        """Write the wake-ups that are missing, and delete sessions that ended long ago."""
        renewed = self._store.renew(round(self._every_s * 1000))
        if renewed:
            log.warning(
                "the messages of %d sessions of %s to themselves were late, and are sent again: %s",
                len(renewed), self._consumer.name, " ".join(renewed[:10]),
            )  # fmt: skip
            self._look()
        self._store.clean(self._keep_ms)


def _wake_up_of(delivery: Delivery | BlockingDelivery) -> WakeUp:
    """Return a wake-up as it came.

    Raises:
        Reject: The message is none.
    """
    reason = delivery.last_reason
    try:
        return WakeUp(
            session_of(delivery.headers), whole_of(delivery.headers, TURN), delivery.attempt,
            reason if reason in _CUT_OFF else "",
        )  # fmt: skip
    except InvalidRequest as error:
        raise Reject(error.args[0]) from error


class _OwnOutbox(Outbox):
    """The outbox of ``Steps``, where the client has none on the database."""

    is_of_steps = True


def _ms(what: str, seconds: float) -> int:
    """Return seconds as ms.

    Raises:
        InvalidRequest: It is less than one.
    """
    ms = round(seconds * 1000)
    if ms < 1:
        raise InvalidRequest(f"{what} must be 0.001 s or more, not {seconds:g}")
    return ms
