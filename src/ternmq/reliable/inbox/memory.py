"""A store in the memory of the process: for tests, and for effects that end with the process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from ternmq.reliable.inbox.claims import Answer
from ternmq.reliable.inbox.entry import Entry


class _Done(NamedTuple):
    until: float
    result: bytes | None


class MemoryClaims:
    """Claims in memory; see ``Claims``.

    Args:
        limit: Most messages that are remembered; the oldest go first.
        clock: Returns seconds.
    """

    name = "an inbox in memory"
    blocks = False

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._claimed: dict[Entry, str] = {}
        self._done: OrderedDict[Entry, _Done] = OrderedDict()
        """In the order in which they were done."""

    def __len__(self) -> int:
        return len(self._done)

    def claim(self, entry: Entry, token: str) -> Answer:
        """Claim a message; see ``Claims``."""
        with self._lock:
            done = self._done.get(entry)
            if done is not None:
                if self._clock() < done.until:
                    return Answer(result=done.result)
                del self._done[entry]
            if entry in self._claimed:
                return Answer(busy=True)
            self._claimed[entry] = token
            return Answer(claimed=True)

    def finish(self, entry: Entry, token: str, result: bytes | None, keep_ms: int) -> None:
        """Mark a message as done; see ``Claims``."""
        del token
        with self._lock:
            self._claimed.pop(entry, None)
            self._done[entry] = _Done(self._clock() + keep_ms / 1000, result)
            self._done.move_to_end(entry)
            while len(self._done) > self._limit:
                self._done.popitem(last=False)

    def give_up(self, entry: Entry, token: str) -> None:
        """End a claim; see ``Claims``."""
        with self._lock:
            if self._claimed.get(entry) == token:
                del self._claimed[entry]

    def forget(self, entry: Entry) -> bool:
        """Forget a message; see ``Claims``."""
        with self._lock:
            return self._done.pop(entry, None) is not None

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def leave(self) -> None:
        """Forget the claims of the parent's handlers, which do not run here."""
        self._lock = threading.Lock()
        self._claimed.clear()
