"""What callers, and commands that only read, need of the core behind the loop.

``engine.Core`` is it in a broker that leads, ``reading.core.CopyCore`` in a follower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.query.held import Held
from ternmq.model.errors import JournalError, RefusedError, Unreadable
from ternmq.model.marks import Rests
from ternmq.server.engine.clocks import Clocks
from ternmq.server.engine.coldreads import ColdReads
from ternmq.server.engine.copies import Copies


class Outlet(Protocol):
    """The destination of an answer: a connection."""

    def put(self, frame: bytes, settled_bytes: int) -> None:
        """Take a frame that may leave; it answers requests of ``settled_bytes``."""
        ...


class Follows(Protocol):
    """Reports which queues have new rows, to reads that wait for them.

    Attributes:
        grown: Queues that were followed and have new rows. Whoever takes them removes them.
    """

    grown: list[Queue]

    def follow(self, queue: Queue) -> None:
        """List a queue in ``grown`` when its next rows are committed; once."""
        ...


class ReadBroker(Held, Protocol):
    """A journal and its views, as commands that only read need them."""

    @property
    def parking(self) -> Follows:
        """Follows queues for reads that wait."""
        ...

    def refusal_rests_on(self, error: RefusedError) -> int:
        """Return the position that a refusal depends on; 0 if it may leave at once."""
        ...


class ReadingCore(Protocol):
    """The turns of a broker, for callers. Broker's loop only.

    Attributes:
        on_turn: Called when the answers of a turn have been handed to their outlets.
        on_woken: Called in each turn, to answer parked pulls and reads that can be answered now.
        asked: Number of requests that were begun; callers that begin one increment it.
        in_turn: A turn is ended now: answers that are made now leave with it.
        pressed: Some app has more work than one turn does, and another app has little.
        copies: The copies of the journal at other brokers; None: answers depend on none.
    """

    on_turn: Callable[[], None]
    on_woken: Callable[[], None]
    asked: int
    in_turn: bool
    pressed: bool
    copies: Copies | None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that everything runs in."""
        ...

    @property
    def clocks(self) -> Clocks:
        """Timers of the loop."""
        ...

    @property
    def cold_reads(self) -> ColdReads:
        """Reads of the disk that commands wait for."""
        ...

    @property
    def broker(self) -> ReadBroker:
        """What is read."""
        ...

    def now_us(self) -> int:
        """Return broker time; the same within a turn."""
        ...

    def touch(self) -> None:
        """Schedule the end of the turn for the end of this pass of the loop."""
        ...

    def touch_later(self, delay_s: float) -> None:
        """Schedule a turn after a delay."""
        ...

    def hold(
        self, outlet: Outlet, frame: bytes, position: int, rests: Rests, settled_bytes: int
    ) -> None:
        """Hold an answer back until the record that it depends on is committed."""
        ...

    def release(self) -> None:
        """Hand the answers that may leave to their outlets."""
        ...

    def may_answer(self) -> bool:
        """Return whether anything may leave to clients now."""
        ...

    def expect_messages(self) -> None:
        """Import what only traffic of messages needs, at the first sign of it."""
        ...

    def unreadable(self, error: JournalError) -> Unreadable:
        """Count and log bytes that cannot be read; return the error to answer with."""
        ...

    def fail(self, error: JournalError) -> None:
        """Stop permanently: nothing is answered from here on."""
        ...
