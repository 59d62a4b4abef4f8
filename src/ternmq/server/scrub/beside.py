"""The thread that the scrub of a broker that leads, or is alone, works in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ternmq.journal.log.worker import Job, SyncThread

Run = Callable[[Job], Awaitable[None]]
"""Runs a job in a thread; returns when it has ended, and raises its error."""


class Beside:
    """Runs jobs one after another in a thread of its own, which the first one starts. Loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: SyncThread | None = None
        self._waiting: dict[Job, asyncio.Future[None]] = {}

    async def run(self, job: Job) -> None:
        """Run a job; raises its error. A caller that is cancelled does not end the job."""
        if self._thread is None:
            self._thread = SyncThread(self._report, name="ternmq-scrub")
        ended = self._waiting[job] = self._loop.create_future()
        self._thread.submit(job)
        await ended

    def close(self) -> None:
        """End the thread; blocks until the job that it runs has ended."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    def _report(self, job: Job, error: Exception | None) -> None:
        """Pass a finished job to the loop. Called in the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, job, error)

    def _ended(self, job: Job, error: Exception | None) -> None:
        settle(self._waiting.pop(job, None), error)


def settle(ended: asyncio.Future[None] | None, error: Exception | None) -> None:
    """Give a job's outcome to the one who waits for it, if somebody still does."""
    if ended is None or ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
