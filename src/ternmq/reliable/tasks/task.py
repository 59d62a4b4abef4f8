"""A function that runs once every so many seconds, in one process of all that have it."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ternmq.client.content.validation import length_of, text
from ternmq.client.handler.unawaited import makes_coroutines
from ternmq.client.process.forking import watch
from ternmq.model.errors import InvalidHandler, InvalidRequest
from ternmq.reliable.database.lease import LEASE_S, steady_s
from ternmq.reliable.database.trouble import Trouble
from ternmq.reliable.libraries.alchemy import AlchemyDatabase
from ternmq.reliable.libraries.attached import ApplicationDatabase
from ternmq.reliable.tasks.ticks import Ticks

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine

log: Final = logging.getLogger("ternmq.reliable")

MAX_NAME: Final = 200
"""Longest name of a task, in bytes."""
LEAST_LEASE_S: Final = 2.0
"""A holder stops to rely on a lease a second before its end."""
JOIN_S: Final = 5.0
"""How long ``close`` waits for a run that is under way."""


class Task:
    """A function that runs once every so many seconds, in one process of all that started it.

    Time is divided into ticks of ``seconds``, by the database's clock. In each tick, one of the
    processes runs the function, in a thread of its own. If it is still running when the next tick
    begins, that tick is left out. If its process dies, another one runs the next tick, at the
    latest ``lease`` seconds later; a tick that was begun is not run again. So let a job that has
    much to do note in the database how far it is, and go on from there.

    Made by ``every``; nothing runs before ``start``, or ``with task:``. A forked child does not
    run it, unless it calls ``start`` itself. Calling the task calls the function.
    """

    def __init__(
        self,
        function: Callable[[], object],
        database: ApplicationDatabase,
        name: str,
        *,
        seconds: float,
        schema: str = "",
        lease: float = LEASE_S,
    ) -> None:
        self.name = name
        self._function = function
        self._database = database
        self._ticks = Ticks(database.dialect, f"task:{name}", round(seconds * 1000), schema, lease)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        watch(self)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} at {self._database.name}>"

    def __call__(self) -> object:
        """Run the function here and now, whatever the ticks say."""
        return self._function()

    def start(self) -> Self:
        """Begin to look for ticks; may be repeated. No I/O here."""
        if self._thread is not None:
            return self
        with self._starting:
            if self._thread is None:
                self._ended = threading.Event()
                thread = threading.Thread(
                    target=self._loop, args=(self._ended,), name=f"ternmq-{self.name}", daemon=True
                )
                thread.start()
                self._thread = thread
        return self

    def close(self, timeout: float | timedelta = JOIN_S) -> None:
        """Run it no more in this process; wait so long for a run that is under way."""
        seconds = length_of("timeout", timeout)
        thread, self._thread = self._thread, None
        self._ended.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
            if thread.is_alive():
                log.warning("task %r did not end within %g s: it goes on", self.name, seconds)

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
        """Run nothing in the child."""
        self._thread = None
        self._starting = threading.Lock()  # another thread may hold the parent's
        self._database.leave()

    # -- the thread -------------------------------------------------------------------------------

    def _loop(self, ended: threading.Event) -> None:
        trouble = Trouble(self._database, f"task {self.name!r}")
        while not ended.is_set():
            try:
                with self._database.reading() as work:
                    look = self._ticks.look(work)
                trouble.over()
            except self._database.errors as error:
                self._ticks.lease.forget()
                ended.wait(trouble.at(error))
                continue
            if look.run:
                self._run()
            else:
                ended.wait(look.pause_s)
        self._database.close_here()
        self._database.close()

    def _run(self) -> None:
        """Run the function; keep the job's lease meanwhile."""
        done = threading.Event()
        keeper = threading.Thread(
            target=self._keep, args=(done,), name=f"ternmq-{self.name}-lease", daemon=True
        )
        keeper.start()
        began = steady_s()
        try:
            _check_returned(self.name, self._function())
        except (Exception, SystemExit):  # the thread goes on, for the next tick
            log.exception("task %r failed; it runs again at the next tick", self.name)
        else:
            log.debug("task %r took %.3f s", self.name, steady_s() - began)
        finally:
            done.set()
            keeper.join()
        with contextlib.suppress(*self._database.errors), self._database.reading() as work:
            self._ticks.lease.give_back(work)  # else it ends by itself

    def _keep(self, done: threading.Event) -> None:
        lease = self._ticks.lease
        while not done.wait(lease.seconds / 3):
            try:
                with self._database.reading() as work:
                    lease.take(work)
            except self._database.errors as error:
                log.debug("the lease of task %r was not renewed: %s", self.name, error)
        self._database.close_here()


def every(
    database: object,
    name: str,
    *,
    seconds: float | timedelta,
    schema: str = "",
    lease: float | timedelta = LEASE_S,
    relay: Engine | None = None,
) -> Callable[[Callable[[], object]], Task]:
    """Return a decorator: it makes a ``Task`` of a function without parameters.

    ::

        @reliable.every(engine, "report", seconds=60)
        def report() -> None: ...

        report.start()                                  # in each process that may run it

    Args:
        database: An ``Engine`` or ``AsyncEngine`` of SQLAlchemy, or a URL. Its tables are made by
            ``ternmq outbox prepare``. The task has connections of its own.
        name: Of the task: two tasks of one name count as one.
        seconds: How long a tick is.
        schema: Schema (or database) of the tables, if it is not that of the connections.
        lease: How long another process waits for one that died while it ran the function.
        relay: An engine for the task's own connections, as of ``Outbox``.

    Raises:
        InvalidRequest: A value is not valid, or the database is in memory.
        InvalidHandler: By the decorator: the function is an ``async def`` or a generator, which a
            thread cannot run, or has a parameter without a default.
    """
    if not 1 <= len(text("name", name).encode()) <= MAX_NAME:
        raise InvalidRequest(f"the name of a task has 1 to {MAX_NAME} bytes")
    period = length_of("seconds", seconds)
    if period < 0.001:
        raise InvalidRequest(f"seconds must be 0.001 or more, not {period:g}")
    lease_s = length_of("lease", lease)
    if lease_s < LEAST_LEASE_S:
        raise InvalidRequest(f"lease must be {LEAST_LEASE_S:g} s or more, not {lease_s:g}")

    def decorate(function: Callable[[], object]) -> Task:
        if not callable(function):
            raise InvalidRequest(f"a task is a function, not {type(function).__name__}")
        _check(name, function)
        where = AlchemyDatabase(database, relay)
        return Task(function, where, name, seconds=period, schema=schema, lease=lease_s)

    return decorate


def _check(name: str, function: Callable[..., object]) -> None:
    """Check that a thread can call a function.

    Raises:
        InvalidHandler: It cannot.
    """
    called = getattr(function, "__call__", function)  # noqa: B004 - of an instance
    both = (function, called)
    if any(makes_coroutines(one) for one in both):
        raise InvalidHandler(
            f"task {name!r} is an `async def`, and runs in a thread, without a loop: make it a "
            "`def`, which may call asyncio.run(...)"
        )
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in both):
        raise InvalidHandler(f"task {name!r} is a generator (it has a `yield`): nothing would run")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InvalidHandler(
            f"task {name!r} is called without arguments: {error}; give its parameters defaults"
        ) from error
    except ValueError:  # of some functions in C, Python does not know the parameters
        return


def _check_returned(name: str, returned: object) -> None:
    """Check that a function has run.

    Raises:
        InvalidHandler: It has returned a coroutine, which nobody awaits.
    """
    if inspect.iscoroutine(returned):
        returned.close()
        raise InvalidHandler(
            f"task {name!r} has returned a coroutine, which did not run: let the function call "
            "asyncio.run(...)"
        )
