"""Text ids: UUIDs of version 7 (RFC 9562), which a process makes without a broker.

::

     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +---------------------------------------------------------------+
    |                  milliseconds, the first 32 bits              |
    +-------------------------------+-------+-----------------------+
    |   milliseconds, the last 16   |   7   |        counter        |
    +---+---------------------------+-------+-----------------------+
    | 2 |                       random bits                         |
    +---+                                                           +
    |                                                               |
    +---------------------------------------------------------------+

Milliseconds and counter together are one number of 60 bits, the *tick*. In a process each id has a
larger tick than the one before. In a new millisecond the counter begins in its lower half, at
random. If the clock steps back, or 2,048 ids were made in a millisecond, the tick continues to
count and runs ahead of the clock.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

_COUNTER_BITS: Final = 12
_SEED_BITS: Final = _COUNTER_BITS - 1
_RANDOM_BITS: Final = 62
_VERSION: Final = 7 << 76
_VARIANT: Final = 0b10 << _RANDOM_BITS


class Ticks:
    """Ticks that increase. Not thread-safe.

    Args:
        last: The tick before the first one.
    """

    __slots__ = ("last",)

    def __init__(self, last: int = 0) -> None:
        self.last = last

    def next(self, now_ms: int, seed: int) -> int:
        """Return the next tick.

        Args:
            now_ms: Milliseconds since 1970.
            seed: Random: where the counter begins in a new millisecond, below 2,048.
        """
        begin = now_ms << _COUNTER_BITS
        # Compared without the seed: ids of one millisecond would otherwise jump to a larger seed.
        last = self.last
        self.last = tick = begin | seed if last < begin else last + 1
        return tick


def text_of(tick: int, noise: int) -> str:
    """Return the text of an id: 36 characters, lower case.

    Texts of larger ticks are larger as strings and as bytes.

    Args:
        tick: Milliseconds and counter, 60 bits.
        noise: Random, 62 bits.
    """
    ms, counter = tick >> _COUNTER_BITS, tick & ((1 << _COUNTER_BITS) - 1)
    digits = f"{ms << 80 | _VERSION | counter << 64 | _VARIANT | noise:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class TextIds:
    """Makes text ids. Callable from any thread; in a forked child it continues on its own.

    Args:
        now_ns: Returns nanoseconds since 1970.
        noise: Returns that many random bytes, which no other process gets.
    """

    def __init__(
        self,
        now_ns: Callable[[], int] = time.time_ns,
        noise: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._now_ns = now_ns
        self._noise = noise
        self._ticks = Ticks()
        # By process: at a fork another thread may hold the parent's, and not every host that forks
        # runs Python's hooks.
        self._locks: dict[int, threading.Lock] = {}

    def next(self) -> str:
        """Return an id; larger than all that this process made before."""
        # Not drawn ahead of use: parent and child of a fork would use the same bytes.
        drawn = int.from_bytes(self._noise(10), "big")
        seed, noise = drawn >> (80 - _SEED_BITS), drawn & ((1 << _RANDOM_BITS) - 1)
        pid = os.getpid()
        lock = self._locks.get(pid)
        if lock is None:
            lock = self._locks.setdefault(pid, threading.Lock())
        with lock:
            tick = self._ticks.next(self._now_ns() // 1_000_000, seed)
        return text_of(tick, noise)


_ids: Final = TextIds()


def text_id() -> str:
    """Return a text id that no other call returns, in this process or another: a UUIDv7.

    36 characters, as ``"01936b2f-8f6c-7a41-9c0b-2b1f0a5d8e77"``. In a process each id is larger
    than the one before, compared as strings; across processes they are ordered by their clocks, to
    the millisecond. It needs no broker. Callable from any thread, and in forked children.
    """
    return _ids.next()
