"""The one thread that waits for the disk: it runs the journal's jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol


class Job(Protocol):
    """Work that blocks: ``SyncJob``, ``AllocateJob``, the jobs of the index."""

    def run(self) -> None:
        """Do the work; any exception is reported."""
        ...


class SyncThread:
    """Runs jobs one after another and reports each.

    Args:
        report: Called in the thread with the job and the error that ended it, or None. It only
            passes both to the loop (``loop.call_soon_threadsafe``, a queue's ``put``).
        name: Name of the thread.
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
        """Run the queued jobs, then end the thread; blocks until it has ended."""
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: Exception | None = None
            try:
                job.run()
            except Exception as caught:  # noqa: BLE001 - the thread's boundary: unreported, the
                error = caught  # caller would wait for the job for ever
            self._report(job, error)
