"""The one thread that waits for the disk on the journal's behalf."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol


class Job(Protocol):
    """Something that blocks: ``SyncJob``, ``AllocateJob``, the jobs of the index."""

    def run(self) -> None:
        """Do it; raises what went wrong."""
        ...


class SyncThread:
    """Runs jobs one after another and reports each.

    Args:
        report: Called in the thread with the job and the error that ended it, or None. It hands
            both to the loop (``loop.call_soon_threadsafe``, a queue's ``put``) and does no more.
        name: Of the thread.
    """

    def __init__(
        self, report: Callable[[Job, Exception | None], object], *, name: str = "ternmq-sync"
    ) -> None:
        self._report = report
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job; any thread may call."""
        self._jobs.put(job)

    def close(self) -> None:
        """Run what is queued, then end the thread; blocks until it has."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: Exception | None = None
            try:
                job.run()
            except Exception as caught:  # noqa: BLE001 - the thread's boundary: whoever waits
                error = caught  # for the job must hear of it, or waits for ever
            self._report(job, error)
