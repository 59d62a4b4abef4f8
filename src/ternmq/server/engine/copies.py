"""What the core asks of the copies of its journal at other brokers, if there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ternmq.journal.log.worker import Job


class Copies(Protocol):
    """The copies of the journal at other brokers. Called in the broker's loop."""

    def written(self) -> None:
        """Send what was written; called in each turn, before its sync begins."""
        ...

    def synced(self) -> None:
        """Note that the disk here has more of the journal."""
        ...

    def may_answer(self) -> bool:
        """Return whether anything may leave to clients now; reads the clock.

        When it is allowed again after it was not, the core gets a turn.
        """
        ...


class Errand:
    """A job of the read thread, and what the loop does when it has ended.

    Args:
        job: The job.
        then: Called in the loop with the error of the job, or None.
    """

    def __init__(self, job: Job, then: Callable[[Exception | None], None]) -> None:
        self._job = job
        self.then = then

    def run(self) -> None:
        """Do the job."""
        self._job.run()
