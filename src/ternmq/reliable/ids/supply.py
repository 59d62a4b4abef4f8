"""The numbers that a process has of a topic, and when it asks for more: a machine without I/O.

Theory of operation. The broker gives the numbers of a topic in blocks, each above the one before.
A block is used for a second at most, counted from the moment at which it was asked for: so it was
given less than a second before any use. Of two numbers that were taken more than a second apart, in
whichever processes, the block of the later one was given after the earlier number was taken, and is
above it.

The next block is asked for at half: half of the numbers of the block in use, or half of its time.
It is as large as what was used in the last second, times two.

If no block is left, the caller waits for the one that is asked for. If it waits too long, it
*falls back*: numbers come from the reserve, at once, until the broker answers again.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ternmq.client.numbers import Reserve
from ternmq.model.errors import ClientError, TernMQError

LEAST: Final = 100
"""Numbers of the smallest block."""
MOST: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
LIFETIME_NS: Final = SECOND_NS - SECOND_NS // 100
"""A hundredth less than a second: clocks of two machines do not run at the same speed."""
_NEVER_NS: Final = 1 << 63
_FIRST_PAUSE_NS: Final = SECOND_NS // 10
_LONGEST_PAUSE_NS: Final = 2 * SECOND_NS


class Ask:
    """A request for a block.

    Attributes:
        count: How many numbers.
        began_ns: When it began.
        done: Whether it is over.
        error: Why it failed, if it did.
    """

    __slots__ = ("began_ns", "count", "done", "error")

    def __init__(self, count: int, began_ns: int) -> None:
        self.count = count
        self.began_ns = began_ns
        self.done = False
        self.error: TernMQError | None = None


class _Block(NamedTuple):
    first: int
    stop: int
    began_ns: int
    """When it was asked for."""

    @property
    def until_ns(self) -> int:
        return self.began_ns + LIFETIME_NS


_NOTHING: Final = _Block(0, 0, -SECOND_NS)


class Supply:
    """Numbers of one topic in one process. Deterministic. Not thread-safe.

    Args:
        topic: Its name, for errors.
        reserve: The client's reserve.

    Attributes:
        wants: Whether a block is to be asked for.
        asking: The request that is under way, or the last one; None: there was none.
        away: The broker does not answer: numbers come from the reserve.
        fallbacks: Numbers that came from the reserve.
        blocks: Blocks that were used.
        stale: Blocks that came too late to be used.
    """

    __slots__ = (
        "_ask_at", "_ask_ns", "_at", "_block", "_highest", "_marks", "_next", "_pause_ns",
        "_reserve", "_retry_ns", "_stop", "_taken", "_topic", "_until_ns", "asking", "away",
        "blocks", "fallbacks", "stale", "wants",
    )  # fmt: skip

    def __init__(self, topic: str, reserve: Reserve) -> None:
        self.wants = True
        self.asking: Ask | None = None
        self.away = False
        self.fallbacks = self.blocks = self.stale = 0
        self._topic = topic
        self._reserve = reserve
        self._block = _NOTHING
        self._next: _Block | None = None
        self._at = self._stop = 0
        self._until_ns = self._ask_ns = -SECOND_NS
        self._ask_at = 0
        self._taken = 0
        """Numbers taken from the blocks before the one in use."""
        self._marks: deque[tuple[int, int]] = deque([(0, 0)])
        """(when, numbers taken until then), one for each request."""
        self._highest = 0
        """One above the highest number that was given."""
        self._pause_ns = _FIRST_PAUSE_NS
        self._retry_ns = -SECOND_NS
        """No request before: the last one failed."""

    # -- numbers ----------------------------------------------------------------------------------

    def take(self, now_ns: int) -> int | None:
        """Return the next number; None: there is none now."""
        at = self._at
        if at < self._stop and now_ns < self._until_ns:
            self._at = at + 1
            if at >= self._ask_at or now_ns >= self._ask_ns:
                self.wants = True
            return at
        return self._take_otherwise(now_ns)

    def _take_otherwise(self, now_ns: int) -> int | None:
        following, self._next = self._next, None
        if following is not None and now_ns < following.until_ns:
            self._use(following)
            return self.take(now_ns)
        self.wants = self.asking is None or self.asking.done
        return self.fall_back() if self.away else None

    def fall_back(self) -> int | None:
        """Take from the reserve, from now on until the broker answers; None: there is no reserve.

        For a caller that has waited long enough.
        """
        number = self._reserve.take()
        if number is not None:
            self.away = True
            self.fallbacks += 1
        return number

    @property
    def answers(self) -> bool:
        """Whether the broker has answered once."""
        return self._highest > 0

    @property
    def taken(self) -> int:
        """Numbers that were taken, those of the reserve included."""
        return self._of_blocks + self.fallbacks

    @property
    def _of_blocks(self) -> int:
        return self._taken + self._at - self._block.first

    def _use(self, block: _Block) -> None:
        self._taken = self._of_blocks
        self.blocks += 1
        self.wants = False
        self._block = block
        self._at, self._stop = block.first, block.stop
        self._until_ns = block.until_ns
        self._ask_at = (block.first + block.stop - 1) // 2
        self._ask_ns = block.began_ns + LIFETIME_NS // 2

    # -- requests ---------------------------------------------------------------------------------

    def due(self, now_ns: int) -> bool:
        """Return whether to call ``ask`` now."""
        return self.wants and now_ns >= self._retry_ns

    def ask(self, now_ns: int) -> Ask | None:
        """Begin a request, if one is to be made now; the caller sends it, and reports its end."""
        if self._next is not None and now_ns >= self._next.until_ns:
            self._next = None
        if not self.due(now_ns):
            return None
        self.wants = False
        self._ask_at, self._ask_ns = self._stop, _NEVER_NS  # once for each block in use
        if self._next is not None or (self.asking is not None and not self.asking.done):
            return None
        self.asking = Ask(self._size(now_ns), now_ns)
        return self.asking

    def _size(self, now_ns: int) -> int:
        """Return the size of the next block."""
        marks, taken = self._marks, self.taken
        while len(marks) > 1 and marks[1][0] <= now_ns - SECOND_NS:
            marks.popleft()
        used = taken - marks[0][1]
        marks.append((now_ns, taken))
        return min(max(2 * used, LEAST), MOST)

    def answered(self, ask: Ask, first: int, count: int, now_ns: int) -> None:
        """Take over the block that the broker gave.

        If it comes too late to be used, it is dropped, and another one is wanted at once.
        """
        if first < self._highest:
            lost = ClientError(
                f"topic {self._topic!r} gives numbers again that this process was given before: "
                f"{first} now, up to {self._highest - 1} before; the broker has lost data"
            )
            self.failed(ask, lost, now_ns)
            return
        ask.done = True
        self._pause_ns, self._retry_ns = _FIRST_PAUSE_NS, now_ns
        self._highest = first + count
        block = _Block(first, first + count, ask.began_ns)
        if now_ns >= block.until_ns:
            self.stale += 1
            self.wants = True
            return
        self.away = False
        self._next = block

    def failed(self, ask: Ask, error: TernMQError, now_ns: int) -> None:
        """Note that a request failed. If time may mend it, the reserve is used meanwhile.

        The next request is made a while later if there is a reserve, at once if there is none: who
        has no number waits for the answer anyway.
        """
        ask.done, ask.error = True, error
        self.wants = True
        self.away = error.retriable and self._reserve.there
        if self.away:
            self._retry_ns = now_ns + self._pause_ns
            self._pause_ns = min(2 * self._pause_ns, _LONGEST_PAUSE_NS)
