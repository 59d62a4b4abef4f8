"""Counts of the steps of orderly sessions."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class StepsStats:
    """What a ``Steps`` did in this process.

    Attributes:
        items: Messages of sessions that came; those that came again, too.
        rejected: Messages that were rejected: they are no items, or do not fit their session.
        done: Steps whose transaction was committed.
        undone: Steps that were undone, in a committed transaction.
        failures: Attempts, of steps and of undoing, that failed.
        stopped: Sessions that stopped: an operator decides.
        incomplete: Sessions whose missing items were given up.
        ended: Sessions that are done, undone or cancelled.
    """

    items: int = 0
    rejected: int = 0
    done: int = 0
    undone: int = 0
    failures: int = 0
    stopped: int = 0
    incomplete: int = 0
    ended: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, name: str) -> None:
        """Add one to a count. Callable from any thread."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)

    def after_fork(self) -> None:
        """Have a lock of its own in the child: another thread may hold the parent's."""
        self._lock = threading.Lock()
