"""The turns of a broker that follows, for those who read: cold reads, waits, answers.

Records are applied beside it (``node.applying``). A turn runs when a request came, when a read of
the disk ended, and when records were applied. Nothing that is answered depends on a record that is
not committed, so no answer is held back.

Not thread-safe: only ``_report`` may be called from another thread than the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Final

from ternmq.broker.copyview import CopyView
from ternmq.journal.log.worker import Job, SyncThread
from ternmq.model.errors import JournalError, Unreadable
from ternmq.model.marks import Rests
from ternmq.server.engine.clocks import Clocks
from ternmq.server.engine.coldreads import ColdReads
from ternmq.server.engine.copies import Copies
from ternmq.server.engine.reading_core import Outlet
from ternmq.server.telemetry.late_imports import Import, load_numpy

log = logging.getLogger("ternmq.server")

_TOLD_AGAIN_S: Final = 60.0
"""Shortest time between two log lines about bytes that cannot be read."""


class CopyCore:
    """What is read of a copy, and the turns of the loop around it; see ``ReadingCore``.

    Args:
        view: The copy.
        clocks: Timers of the loop.
        time_us: Returns broker time, as the primary has it.
        on_failure: Called when nothing can be answered any more.
    """

    copies: Copies | None = None

    def __init__(
        self,
        view: CopyView,
        clocks: Clocks,
        time_us: Callable[[], int],
        on_failure: Callable[[JournalError], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clocks = clocks
        self.broker = view
        self.on_turn: Callable[[], None] = lambda: None
        self.on_woken: Callable[[], None] = lambda: None
        self.asked = 0
        self.in_turn = self.pressed = False
        self.unreadable_reads = 0
        """Number of requests that failed because bytes cannot be read."""
        self._time_us = time_us
        self._on_failure = on_failure
        self._now_us = 0
        self._turn: asyncio.Handle | None = None
        self._closed = False
        self._told_at = -_TOLD_AGAIN_S
        self._numpy_asked = "numpy" in sys.modules
        self._read_thread = SyncThread(self._report, name="ternmq-read")
        self.cold_reads = ColdReads(
            self.loop, clocks, self._read_thread.submit, self.touch, self.fail
        )

    # -- time and turns ---------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return broker time; the same within a turn."""
        if self._turn is None and not self.in_turn:
            return self._time_us()
        if not self._now_us:
            self._now_us = self._time_us()
        return self._now_us

    def touch(self) -> None:
        """Schedule the end of the turn for the end of this pass of the loop."""
        if self._turn is None and not self._closed:
            self._now_us = 0
            self._turn = self.loop.call_soon(self._end_turn)

    def touch_later(self, delay_s: float) -> None:
        """Schedule a turn after a delay."""
        self.loop.call_later(delay_s, self.touch)

    def _end_turn(self) -> None:
        self._turn = None
        if self._closed:
            return
        self.in_turn = True
        try:
            self.broker.parking.look()
            self.on_woken()
        finally:
            self.in_turn = False
        self.on_turn()
        self._now_us = 0

    def hold(
        self, outlet: Outlet, frame: bytes, position: int, rests: Rests, settled_bytes: int
    ) -> None:
        """Let an answer leave: everything that it can depend on is committed."""
        del position, rests
        outlet.put(frame, settled_bytes)

    def release(self) -> None:
        """Do nothing: no answer is held back."""

    def may_answer(self) -> bool:
        """Return True: what was committed once stays so, whoever leads."""
        return True

    # -- the thread that reads --------------------------------------------------------------------

    def expect_messages(self) -> None:
        """Import what only traffic of messages needs, at the first sign of it."""
        if not self._numpy_asked:
            self._numpy_asked = True
            self._read_thread.submit(Import("numpy", load_numpy))

    def _report(self, job: Job, error: Exception | None) -> None:
        """Pass a finished job to the loop. Thread-safe."""
        try:
            self.loop.call_soon_threadsafe(self._take, job, error)
        except RuntimeError:
            log.debug("a job ended after the loop was closed")

    def _take(self, job: Job, error: Exception | None) -> None:
        if isinstance(job, Import):
            if error is not None:
                log.error("%s cannot be imported: %s", job.library, error)
        elif not self._closed:
            self.cold_reads.ended(job, error)

    # -- failures and the end ---------------------------------------------------------------------

    def unreadable(self, error: JournalError) -> Unreadable:
        """Count and log bytes that cannot be read; return the error to answer with."""
        self.unreadable_reads += 1
        if self.loop.time() - self._told_at >= _TOLD_AGAIN_S:
            self._told_at = self.loop.time()
            log.error("bytes of the copy cannot be read: %s", error.args[0])
        return Unreadable(str(error.args[0]))

    def fail(self, error: JournalError) -> None:
        """Answer nothing from here on."""
        log.error("readers are answered no more: %s", error)
        self._on_failure(error)

    def close(self) -> None:
        """Take no more turns. A read that runs goes on in its thread; nobody is told of its end."""
        self._closed = True
        self.cold_reads.close()
        self.loop.run_in_executor(None, self._read_thread.close)  # waits for the read
