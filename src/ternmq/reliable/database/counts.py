"""Counts that several threads add to."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Counts:
    """Base of counts: whole numbers, fields of the class that is made of it."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, name: str) -> None:
        """Add one to a count. Callable from any thread."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)

    def after_fork(self) -> None:
        """Have a lock of its own in the child: another thread may hold the parent's."""
        self._lock = threading.Lock()
