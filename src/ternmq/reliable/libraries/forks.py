"""Forks beside a SQLite file.

A process's locks on SQLite files are in a table of SQLite's library, which a child inherits: what
another thread held at the fork stays locked in the child for ever. So no statement of this package
is at work at a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PATIENCE_S: Final = 5.0


class Stillness:
    """Lets a fork wait until no thread is at work, for some seconds at most."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at_work = 0
        self._forking = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work; a fork waits for the end of the block, and the block for the end of a fork."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking, _PATIENCE_S)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def before(self) -> None:
        """Wait until nobody works."""
        with self._changed:
            self._forking = True
            self._changed.wait_for(lambda: not self._at_work, _PATIENCE_S)

    def after(self) -> None:
        """Let threads work again: in the parent."""
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def begin_anew(self) -> None:
        """Begin anew in the child: a thread of the parent may have held the lock."""
        self._changed = threading.Condition()
        self._at_work = 0
        self._forking = False


still: Final = Stillness()
os.register_at_fork(
    before=still.before, after_in_parent=still.after, after_in_child=still.begin_anew
)
