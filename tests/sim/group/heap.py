"""One heap of events, one clock, one chance; and tasks, which are coroutines that it resumes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A value to come; a task may wait for it."""

    __slots__ = ("_calls", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: T
        self._calls: list[Callable[[], None]] = []

    def __await__(self) -> Generator[Future[Any], None, T]:
        """Wait for the value."""
        while not self.done:
            yield self
        return self.value

    def then(self, call: Callable[[], None]) -> None:
        """Have a function called once the value is there."""
        if self.done:
            call()
        else:
            self._calls.append(call)

    def set(self, value: T) -> None:
        """Give the value; the first one counts."""
        if self.done:
            return
        self.done = True
        self.value = value
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class Event:
    """Something that happens again and again."""

    __slots__ = ("_future", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._future: Future[None] = Future()

    def set(self) -> None:
        """Let it happen."""
        self.is_set = True
        self._future.set(None)

    def clear(self) -> None:
        """Let it not have happened."""
        if self.is_set:
            self.is_set = False
            self._future = Future()

    @property
    def future(self) -> Future[None]:
        """What to wait for."""
        return self._future


class Task:
    """A coroutine that goes on whenever what it waits for is there.

    Args:
        work: The coroutine.
        soon: Calls a function as an event of its own, unless the process is over by then.
    """

    def __init__(
        self, work: Coroutine[Any, Any, None], soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._work = work
        self._soon = soon
        self.over = self._running = False
        soon(self._step)

    def _step(self) -> None:
        if self.over:
            return
        self._running = True
        try:
            awaited: Future[Any] = self._work.send(None)
        except StopIteration:
            self.over = True
            return
        finally:
            self._running = False
        awaited.then(lambda: self._soon(self._step))

    def cancel(self) -> None:
        """End it where it waits; it has nothing to clean up."""
        self.over = True
        if not self._running:
            self._work.close()


class Lock:
    """One holder at a time, in the order in which they came, as ``asyncio.Lock``."""

    def __init__(self) -> None:
        self._held = False
        self._waits: list[Future[None]] = []

    async def acquire(self) -> None:
        """Wait for it."""
        if self._held:
            mine: Future[None] = Future()
            self._waits.append(mine)
            await mine
        self._held = True

    def release(self) -> None:
        """Pass it on."""
        if self._waits:
            self._waits.pop(0).set(None)
        else:
            self._held = False


class Heap:
    """Events in the order of their times. All that is drawn is drawn from ``chance``."""

    def __init__(self, seed: str) -> None:
        self.time_us = 0
        self.chance = random.Random(seed)
        self.paths: dict[str, int] = {}
        self.digest = hashlib.sha256()
        self.steps = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_us: int, what: Callable[[], None]) -> None:
        """Let something happen."""
        self._count += 1
        heappush(self._events, (self.time_us + max(0, delay_us), self._count, what))

    def run(self, until_us: int) -> None:
        """Let everything happen up to a time."""
        events = self._events
        while events and events[0][0] <= until_us:
            self.time_us, _, what = heappop(events)
            self.steps += 1
            what()
        self.time_us = until_us

    def tell(self, *what: object) -> None:
        """Write a line of the event log (only its hash is kept)."""
        self.digest.update(repr((self.time_us, what)).encode())

    def reached(self, path: str, count: int = 1) -> None:
        """Note that a path was reached."""
        self.paths[path] = self.paths.get(path, 0) + count
