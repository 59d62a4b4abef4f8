"""Threads that make blocking calls for an event loop, each with a time limit.

A driver of a database blocks its thread, and may do so for ever: a server that was stopped keeps
its connections. So each session has a thread of its own. A call that takes too long is given up:
its session is aborted, its thread ends when the driver returns, and the next call gets a new thread
and a new session. A thread that still hangs counts towards the most that there may be.

The executors of the standard library do not fit: they wait for their threads when the process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class Session(Protocol):
    """What a thread works with: a connection."""

    def close(self) -> None:
        """End the session. In its own thread; raises nothing."""
        ...

    def abort(self) -> None:
        """Have a call that hangs in the session's thread return soon. From the loop; no wait."""
        ...


S = TypeVar("S", bound=Session)


class OutOfTime(Exception):
    """A call took too long, or no thread was free in time. It may be done later, or never."""


class Threads(Generic[S]):
    """Sessions with a thread each. Loop only.

    Args:
        name: Of the threads.
        start: Makes a session, in its thread.
        most: Most threads, those that hang included.
    """

    def __init__(self, name: str, start: Callable[[], S], most: int) -> None:
        self._name = name
        self._start = start
        self._places = asyncio.Semaphore(most)
        self._idle: list[_Thread[S]] = []
        self._closed = False

    async def run(self, work: Callable[[S], T], limit_s: float) -> T:
        """Return what a function returns that is called with a session in a thread.

        An error of the function ends the session; the next call gets a new one.

        Raises:
            OutOfTime: It took longer than the limit.
            Exception: What the function or the start of the session raised.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        thread: _Thread[S] | None = None
        try:
            async with asyncio.timeout(limit_s):
                await self._places.acquire()
                thread = self._idle.pop() if self._idle else _Thread(self._name, self._start)
                thread.put(work, future, self._ended)
                return await future
        except TimeoutError as error:
            raise OutOfTime(f"no answer within {limit_s:g} s") from error
        finally:
            if thread is not None and not thread.idle:
                thread.given_up = True
                thread.abort()

    def close(self) -> None:
        """End the sessions: idle ones at once, others when their calls return. Waits for none."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()

    def _ended(self, thread: _Thread[S]) -> None:
        """Take a thread back whose call returned."""
        if thread.given_up or self._closed:
            thread.end()
        else:
            self._idle.append(thread)
        self._places.release()


class _Thread(Generic[S]):
    """A thread and its session.

    Attributes:
        idle: Its last call has returned. Set in the loop.
        given_up: Nobody waits for its call any more.
    """

    def __init__(self, name: str, start: Callable[[], S]) -> None:
        self.idle = True
        self.given_up = False
        self._start = start
        self._session: S | None = None
        self._jobs: SimpleQueue[Callable[[], bool] | None] = SimpleQueue()
        # A daemon: one that hangs must not keep the process from ending.
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(
        self,
        work: Callable[[S], T],
        future: asyncio.Future[T],
        ended: Callable[[_Thread[S]], None],
    ) -> None:
        """Have a function called; its result goes to the future, then ``ended`` is called."""
        loop = asyncio.get_running_loop()
        self.idle = False

        def returned(result: T | None, error: BaseException | None) -> None:
            self.idle = True
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)  # type: ignore[arg-type]  # no error: it is a T
            ended(self)

        def job() -> bool:
            result, error = self._call(work)
            try:
                loop.call_soon_threadsafe(returned, result, error)
            except RuntimeError:  # the loop is closed: nobody waits
                return False
            return True

        self._jobs.put(job)

    def abort(self) -> None:
        """Have the call that hangs return soon, if the driver can do that."""
        session = self._session
        if session is not None:
            session.abort()

    def end(self) -> None:
        """End the session and the thread."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and job():
            pass
        self._drop()

    def _call(self, work: Callable[[S], T]) -> tuple[T | None, BaseException | None]:
        try:
            if self._session is None:
                self._session = self._start()
            return work(self._session), None
        except BaseException as error:  # noqa: BLE001  # raised in the loop
            self._drop()
            return None, error

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
