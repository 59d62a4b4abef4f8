"""Runs handlers: functions that are called with messages.

Returning acks; an exception has the message tried again by the group's retry policy; ``Retry`` and
``Reject`` choose the outcome. A body that cannot be decoded as the handler's annotation requires is
rejected with reason ``decode``: another attempt would not change that. ``signature`` describes what
a handler may look like.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final

from ternmq.client.consumer.concluding import conclude
from ternmq.client.consumer.consumer import ConsumerEngine
from ternmq.client.consumer.delivery import Delivery, Identity, identity_of
from ternmq.client.consumer.puller import Puller
from ternmq.client.consumer.running import Running, Threads, failure_of
from ternmq.client.consumer.telling import dead_fate_of
from ternmq.client.content import tracing
from ternmq.client.content.codecs import Codecs
from ternmq.client.handler.composing import Composed, around
from ternmq.client.handler.counts import HandlerCounts, Tally
from ternmq.client.handler.unawaited import raise_found, watch_begins
from ternmq.model.errors import DecodeError, InvalidHandler
from ternmq.model.policies import write_retry_of
from ternmq.model.words import article
from ternmq.record.fact.facts import Outcome

log: Final = logging.getLogger("ternmq")

DECODE: Final = "decode"
"""Beginning of the reason if a body cannot be decoded."""


class Handler:
    """A declared function, and the tasks and threads that call it. Made without I/O.

    Attributes:
        name: Name of the function.
        source: Topic and group.
        concurrency: Number of calls at one time; never more than ``max_in_flight``.
        is_async: Whether it is awaited in the loop; else it runs in threads.
    """

    def __init__(
        self,
        composed: Composed,
        codecs: Codecs,
        threaded: Callable[[Delivery], object],
        *,
        counted: bool = False,
    ) -> None:
        declared = composed.declared
        self._outside = composed.outside
        self.name = declared.signature.name
        self.source = declared.source
        self.max_in_flight = most = declared.max_in_flight
        self.concurrency = declared.concurrency if most is None else min(declared.concurrency, most)
        self._limited = self.concurrency < declared.concurrency
        self._function = declared.function
        self._signature = declared.signature
        self._codecs = codecs
        self._threaded = threaded
        self.is_async = declared.signature.is_async
        self._threads: Threads | None = None
        self._consumer: ConsumerEngine | None = None
        self._workers: list[asyncio.Task[None]] = []
        self._running: dict[Identity, Running] = {}  # by message
        self._tally = Tally() if counted else None

    def check(self) -> None:
        """Check that bodies can be decoded to its parameter; all modules are imported by now.

        Raises:
            InvalidHandler: They cannot.
        """
        signature = self._signature
        if signature.body:
            try:
                self._codecs.check(signature.kind)
            except TypeError as error:
                raise InvalidHandler(
                    f"handler {self.name} cannot receive a body: {error}; every message would "
                    f"{'fail' if self.source.broadcast else 'be a dead letter'}"
                ) from error

    # -- start and end

    async def start(self, puller: Puller) -> None:
        """Join the group and begin, unless it has begun; raises as ``ConsumerEngine.start``.

        Call it again after an error: nothing is begun then.
        """
        if self._consumer is not None:
            return
        joined = await puller.join(self.source)
        if not self.is_async and self._threads is None:
            self._threads = Threads(self.concurrency, f"ternmq-{self.name}")
        consumer = ConsumerEngine(
            puller, self.source, self._codecs, self.max_in_flight,
            workers=self.concurrency, at_once=self.concurrency,
        )  # fmt: skip
        await consumer.start()  # the join is cached by now
        log.info(
            "handler %s: topic=%s group=%s mode=%s concurrency=%d%s; retry: %s%s", self.name,
            self.source.topic, self.source.group, joined.spec.mode.value, self.concurrency,
            " (max_in_flight allows no more)" if self._limited else "",
            write_retry_of(joined.spec), "; the group is paused" if joined.spec.paused else "",
        )  # fmt: skip
        self._consumer = consumer
        self._workers = [
            asyncio.create_task(self._work(consumer), name=f"ternmq-{self.name}-{number}")
            for number in range(self.concurrency)
        ]

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Its workers; a worker that fails ends the run."""
        return self._workers

    @property
    def running(self) -> list[Running]:
        """The calls that run now."""
        return list(self._running.values())

    @property
    def counts(self) -> HandlerCounts:
        """What it did; only of handlers that are counted. Call it from the client's loop."""
        tally = self._tally or Tally()
        running = len(self._running)
        source = self.source
        return HandlerCounts(
            self.name, source.topic, source.group, tally.done(running), tally.failed, running
        )

    def calls_caller(self) -> bool:
        """Return whether the caller is a call of this handler. Callable from any thread."""
        threads = self._threads
        return _current() in self._workers or (threads is not None and threads.runs_caller())

    def take_no_more(self) -> None:
        """Take no more messages; running calls continue."""
        if self._consumer is not None:
            self._consumer.stop()

    async def close(self, *, hurried: bool = False) -> None:
        """Give back what is not settled, except the messages of running calls.

        Args:
            hurried: Do not wait for the broker's answers.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await (consumer.close(timeout=0.0) if hurried else consumer.close())
        if self._threads is not None:
            self._threads.close()
        self._workers = []

    # -- messages

    async def _work(self, consumer: ConsumerEngine) -> None:
        call = self._call_async if self.is_async else self._call_thread
        if self._outside:
            call = self._call_around
        codecs, kind, body = self._codecs, self._signature.kind, self._signature.body
        running = self._running
        worker = _current()
        function = self._function
        plain = self.is_async and not self._outside and not self._signature.delivery
        tally = self._tally
        async for delivery in consumer if tally is None else tally.each(consumer):
            lease, message = delivery.lease, identity_of(delivery)
            if message in running:
                self._came_again(running[message], delivery)
                continue
            value: object = None
            if body:
                try:
                    value = codecs.decode(delivery.body, delivery.content_type, kind)
                except DecodeError as error:
                    self._reject(delivery, error)
                    continue
            consumer.before(delivery)
            run = running[message] = Running(self, delivery, lease, consumer.handed_out)
            try:
                if plain and not (tracing.enabled and delivery.headers):
                    result = await function(value)
                else:
                    result = await call(value, delivery, run)
                if result is not None:
                    check_result(result)
            except asyncio.CancelledError as error:
                self._cancelled(run, error)
            except BaseException as error:
                if not self._failed(run, error, worker):
                    raise
            else:
                if run.again or run.left:
                    self._ended(run, None)
                    continue
                del running[message]
                offset = delivery.offset
                lease.running.discard(offset)
                if lease.lost or offset in lease.settled:
                    conclude(delivery, None)
                else:
                    lease.ack(offset)  # as ``conclude`` does

    def _came_again(self, run: Running, delivery: Delivery) -> None:
        run.came_again(delivery)
        if self._tally is not None:
            self._tally.begun -= 1  # it is the same message

    def _cancelled(self, run: Running, error: asyncio.CancelledError) -> None:
        """Re-raise it if the worker was cancelled; else the call has failed."""
        task = asyncio.current_task()
        if task is None or task.cancelling():
            if run.over or not run.threaded:
                self._ended(run, error)
            raise error  # else the thread continues, and reports its end itself
        # The worker was not cancelled: something that the handler awaited was.
        failure = RuntimeError("what the handler waited for was cancelled")
        failure.__cause__ = error
        self._ended(run, failure)

    def _failed(
        self, run: Running, error: BaseException, worker: asyncio.Task[object] | None
    ) -> bool:
        """Settle the message of a call that raised; return whether the worker continues."""
        # A closing loop closes its coroutines: this error is not the handler's.
        closed = isinstance(error, GeneratorExit) and _current() is not worker
        self._ended(run, error if closed else failure_of(error))
        return not closed

    def _ended(self, run: Running, error: BaseException | None) -> None:
        """Settle the message of a call that ended."""
        self._running.pop(identity_of(run.delivery), None)
        if self._tally is not None:
            self._tally.ended(error)
        if run.left:
            run.error = error
            run.ended()
        else:
            run.conclude(error)
            run.error = None  # see ``raising``

    def _reject(self, delivery: Delivery, error: DecodeError) -> None:
        fate = dead_fate_of(delivery.lease)
        log.error("%s is rejected, %s: %s", repr(delivery), fate, error)
        delivery.settle_soon(Outcome.DEAD, f"{DECODE}: {error.args[0]}")
        if self._tally is not None:
            self._tally.ended(error)

    def _call_async(self, value: object, delivery: Delivery, run: Running) -> Awaitable[object]:
        del run
        signature = self._signature
        if tracing.enabled and delivery.headers:
            return self._traced(value, delivery)
        result: Awaitable[object]
        if not signature.delivery:
            result = self._function(value)
        elif signature.body:
            result = self._function(value, delivery)
        else:
            result = self._function(delivery)
        return result

    async def _traced(self, value: object, delivery: Delivery) -> object:
        with tracing.received(delivery.headers):
            return await self._function(*self._arguments(value, delivery))

    async def _call_around(self, value: object, delivery: Delivery, run: Running) -> object:
        """Call a handler in a thread, inside the async middlewares.

        A middleware may give up before the thread ends (``asyncio.timeout``). Its error counts, but
        the call ends with the thread: no other consumer may get the message before.
        """
        call: asyncio.Task[object] | None = None

        async def begin() -> object:
            nonlocal call
            call = asyncio.create_task(self._call_thread(value, delivery, run))
            return await asyncio.shield(call)

        try:
            with tracing.received(delivery.headers):
                return await around(self._outside, delivery, begin)
        finally:
            if call is not None and not call.done():
                await _end_of(call)

    async def _call_thread(self, value: object, delivery: Delivery, run: Running) -> object:
        return await self._begin_in_thread(value, delivery, run)  # in no variable: see ``raising``

    def _begin_in_thread(
        self, value: object, delivery: Delivery, run: Running
    ) -> asyncio.Future[object]:
        """Begin a call in a thread; return the future of its result."""
        loop = asyncio.get_running_loop()
        threads = self._threads
        assert threads is not None
        arguments = self._arguments(value, delivery, threaded=True)
        with tracing.received(delivery.headers):
            context = contextvars.copy_context()
        told: asyncio.Future[object] = loop.create_future()
        function = self._function

        def work(told: asyncio.Future[object]) -> None:
            result: object = None
            error: BaseException | None = None
            try:
                watch_begins()
                result = context.run(function, *arguments)
                check_result(result)
                raise_found()
            except asyncio.CancelledError as raised:
                error = raised  # handled in ``_cancelled``
            except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited
                error = failure_of(raised)  # SystemExit, for example, would end the loop
            run.error, run.returned = error, True
            try:
                loop.call_soon_threadsafe(self._thread_ended, run, told, result, error)
            except RuntimeError:  # the loop is closed; so is the client
                run.ended()
            finally:
                del error, told  # see ``raising``

        threads.run(partial(work, told))
        run.threaded = True
        return told

    def _thread_ended(
        self,
        run: Running,
        told: asyncio.Future[object],
        result: object,
        error: BaseException | None,
    ) -> None:
        """Handle the end of a call in a thread."""
        run.threaded = False
        if self._threads is not None:
            self._threads.done()
        if told.done():  # no caller waits for it: the client has stopped
            self._ended(run, error)
        elif error is None:
            told.set_result(result)
        else:
            told.set_exception(error)

    def _arguments(
        self, value: object, delivery: Delivery, *, threaded: bool = False
    ) -> tuple[object, ...]:
        signature = self._signature
        given: object = self._threaded(delivery) if threaded and signature.delivery else delivery
        if not signature.delivery:
            return (value,)
        return (value, given) if signature.body else (given,)


def _current() -> asyncio.Task[object] | None:
    """Return the current task; None if no loop runs, as when a coroutine is closed."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def _end_of(call: asyncio.Task[object]) -> None:
    """Wait for the end of a call in a thread, unless the waiting worker is cancelled."""
    worker = asyncio.current_task()
    try:
        if worker is None or not worker.cancelling():
            await asyncio.wait([call])
    finally:
        call.cancel()  # no effect on a call that has ended


def check_result(result: object) -> None:
    """Refuse a returned coroutine or generator: its work was not done, so the message is not done.

    Raises:
        TypeError: The result is one.
    """
    if result is None:
        return
    if isinstance(result, Coroutine) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if isinstance(result, Coroutine):
            result.close()
        raise TypeError(
            f"the handler returned {article(type(result).__name__)}, which was not run: declare "
            f"the handler with `async def`, and await what it calls"
        )
