"""Counts of an inbox."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class InboxStats:
    """What an inbox did in this process.

    Attributes:
        handled: Messages whose handler ran, and whose transaction was committed.
        suppressed: Messages that were known: their handler did not run.
        waited: Messages that another handler had at work for too long: they come again later.
        retried: Transactions that were run again at once, after a deadlock or a conflict.
    """

    handled: int = 0
    suppressed: int = 0
    waited: int = 0
    retried: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, name: str) -> None:
        """Add one to a count. Callable from any thread."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)

    def after_fork(self) -> None:
        """Have a lock of its own in the child: another thread may hold the parent's."""
        self._lock = threading.Lock()
