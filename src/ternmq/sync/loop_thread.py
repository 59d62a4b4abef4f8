"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Generic, TypeVar

from ternmq.client.handler.blocking import Portal
from ternmq.model.errors import ClientClosed, ClientError, ClientForked

log: Final = logging.getLogger("ternmq")

T = TypeVar("T")

_END_TIMEOUT: Final = 4.0
"""Seconds that the end of the loop may take: cancelled tasks may need time."""


class LoopThread(Portal):
    """A portal into a loop that it runs; the thread does not keep the process alive.

    Args:
        patience: As in ``Portal``.
    """

    def __init__(self, patience: float = 10.0) -> None:
        super().__init__(asyncio.new_event_loop(), patience)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ternmq-loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the interpreter ends, or there are too many threads
            self.loop.close()
            raise ClientError(f"the client's thread cannot be started: {error}") from error

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            while self._runs_on(loop):
                pass
        finally:
            loop.run_until_complete(_cancel_all())
            # Threads of its executor are not waited for: a look-up of a name may take minutes.
            loop.close()
            self.break_promises()

    def _runs_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Run the loop until it is stopped; return whether to run it again.

        An error that user code raises here (a codec, a send middleware, a task of a handler) is
        stored in its task for the caller; it must not end this thread.
        """
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit) as error:
            log.warning(
                "%s was raised in the client's thread, which continues", type(error).__name__
            )
            return not self._stopped
        return False

    def _stop(self) -> None:
        self._stopped = True
        self.loop.stop()

    def _see_it_runs(self) -> None:
        super()._see_it_runs()
        if not self._thread.is_alive():
            raise ClientClosed("the client's thread has ended")

    def stop(self) -> None:
        """End the loop and its thread; waits for it for a few seconds."""
        self.check()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            self.loop.call_soon_threadsafe(self._stop)
        self._thread.join(_END_TIMEOUT)
        if self._thread.is_alive():
            log.warning("the client's thread did not end within %g s: something blocks its loop",
                        _END_TIMEOUT)  # fmt: skip

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an asynchronous iterator; leaving closes it."""
        steps = _Steps(source)
        try:
            while True:
                found = self.call(steps.next())
                if found is _END:
                    return
                yield found
        finally:
            # In the child of a fork it belongs to the parent; after the end it is closed as well.
            with contextlib.suppress(ClientClosed, ClientForked):
                self.call(steps.close())


async def _cancel_all() -> None:
    """Cancel the tasks that other threads still wait for."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _END_TIMEOUT / 2
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=until - loop.time())
        for task in done:
            if not task.cancelled():
                task.exception()  # it was raised in the waiting caller
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await loop.shutdown_asyncgens()


_END: Any = object()


class _Steps(Generic[T]):
    """An asynchronous iterator, step by step. For the loop only."""

    __slots__ = ("_source", "_step")

    def __init__(self, source: AsyncIterator[T]) -> None:
        self._source = source
        self._step: asyncio.Task[Any] | None = None

    async def next(self) -> T:
        """Return the next item, or ``_END``: a future cannot hold a StopIteration."""
        self._step = asyncio.current_task()
        try:
            return await anext(self._source)
        except StopAsyncIteration:
            end: T = _END
            return end
        finally:
            self._step = None  # the task has the error: see ``raising``

    async def close(self) -> None:
        """Close it; a step that its caller gave up (Ctrl-C) is ended first."""
        step = self._step
        if step is not None and not step.done():
            if not step.cancelling():  # a second cancellation would interrupt its clean-up
                step.cancel()
            await asyncio.wait([step])
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()
