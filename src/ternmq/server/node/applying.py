"""The views of the copy while this broker follows: when they are loaded, applied, thrown away.

Records below the commit mark are applied in slices of a millisecond, between turns of the loop: an
acknowledgement waits for one slice at most. What takes long, a load, runs in a thread. A broker
that falls behind with applying, and one that copies gigabytes, loads the newest state instead.

``broker.standby`` has the views and what they forget; here is only when.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ternmq.broker.standby import Standby
from ternmq.broker.start import Ready, collector_paused
from ternmq.journal.cache.cold import Job
from ternmq.journal.copy.copy import Copy
from ternmq.journal.disk.port import Disk
from ternmq.journal.log.segment import segment_bases
from ternmq.journal.recovery.ending import Ending, stated_sets
from ternmq.model.errors import JournalError
from ternmq.model.specs import Limits
from ternmq.model.types import Position

log = logging.getLogger("ternmq.cluster")

SLICE_S: Final = 0.001
"""Longest that applying holds the loop."""
NEAR_BYTES: Final = 16 << 20
"""A copy that is further behind the primary's end is copied first, and applied later."""
FAR_BYTES: Final = 256 << 20
"""Views that are further behind the commit mark are loaded again, if there is a newer state; and a
broker that begins to lead recovers its journal instead of applying so much."""
AGAIN_S: Final = 60.0
"""Shortest time between two loads because the views were too far behind."""


@dataclass(slots=True, frozen=True)
class Successor:
    """What a broker takes over from the follower that it was.

    Attributes:
        disk: The data root; its lock is held.
    """

    disk: Disk
    _standby: Standby
    _ending: Ending

    def ready(self) -> Ready:
        """Apply the rest of the copy; return the views for the broker that leads now. Blocks.

        Raises:
            JournalError: The copy cannot be read; it was not changed.
        """
        with collector_paused():
            self._standby.catch_up(self._ending.valid_end)
        return self._standby.ready(self._ending)

    def close(self) -> None:
        """Give up the data root: the journal is opened anew."""
        self._standby.close()
        self.disk.close()


class Shown(Protocol):
    """Those who read the views. Called in the loop."""

    @property
    def readers(self) -> int:
        """Number of connections that read."""
        ...

    def there(self, standby: Standby) -> None:
        """Note that there are views; they change only while this broker applies records."""
        ...

    def grew(self) -> None:
        """Note that records were applied."""
        ...

    def gone(self) -> None:
        """Read the views no more: they are thrown away, or taken over, at return."""
        ...


class _Nobody:
    """No readers."""

    readers: Final = 0

    def there(self, standby: Standby) -> None:
        """Do nothing."""

    def grew(self) -> None:
        """Do nothing."""

    def gone(self) -> None:
        """Do nothing."""


NOBODY: Final = _Nobody()


class Applying:
    """See the module. Loop only.

    Args:
        disk: The data root.
        limits: Of the broker.
        enabled: Whether there are views at all: a backup never leads, and has none.
        in_place: Load in the loop; for a disk in memory, where a load takes no time.
        shown: Those who read the views.
    """

    def __init__(
        self,
        disk: Disk,
        limits: Limits,
        *,
        enabled: bool,
        in_place: bool,
        shown: Shown = NOBODY,
    ) -> None:
        self._disk = disk
        self._limits = limits
        self._shown = shown
        self._enabled = enabled
        self._in_place = in_place
        self._standby: Standby | None = None
        self._loading: asyncio.Task[None] | None = None
        self._loads_from = Position(0)
        """Commit mark of the load that runs."""
        self._load = 0
        """Number of the newest load; an older one is not wanted any more."""
        self._reloaded_s = -AGAIN_S
        self._copy: Copy | None = None
        self._slice: asyncio.Handle | None = None

    @property
    def applied(self) -> Position:
        """Position up to which records are applied; 0: there are no views."""
        return Position(0) if self._standby is None else self._standby.applied

    @property
    def applied_us(self) -> int:
        """Broker time of the newest record that is applied; 0: there are no views."""
        return 0 if self._standby is None else self._standby.time_us

    @property
    def holds_files(self) -> bool:
        """Whether the files of the index are those of the views, or are being read for them."""
        return self._standby is not None or self._loading is not None

    # -- while it follows -------------------------------------------------------------------------

    def look(self, copy: Copy, behind_bytes: int) -> None:
        """Go on with what is due; called when something came, and some times a second.

        Args:
            copy: The copy; all of it is known to be the primary's.
            behind_bytes: How far it is behind the primary's end.
        """
        if not self._enabled or behind_bytes > NEAR_BYTES:
            return
        self._copy = copy
        commit = _bound(copy)
        standby = self._standby
        if standby is None:
            if self._loading is None and commit > copy.first:
                self._begin_load(copy, commit)
        elif self._is_far_behind(standby, copy, commit):
            log.info("the copy is applied up to %d of %d: its newest state is loaded",
                     standby.applied, commit)  # fmt: skip
            self._throw_away()
            self._begin_load(copy, commit)
        elif standby.applied < commit and self._slice is None:
            self._slice = asyncio.get_running_loop().call_soon(self._apply)

    def _is_far_behind(self, standby: Standby, copy: Copy, commit: Position) -> bool:
        if commit - standby.applied <= FAR_BYTES or standby.at_work:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s - self._reloaded_s < AGAIN_S:
            return False
        self._reloaded_s = now_s
        bases = [base for base in segment_bases(self._disk) if copy.first <= base < commit]
        return next(stated_sets(self._disk, bases), 0) > standby.applied

    def _apply(self) -> None:
        """Apply a slice."""
        self._slice = None
        standby, copy = self._standby, self._copy
        if standby is None or copy is None:
            return
        until_s = time.perf_counter() + SLICE_S
        try:
            left = standby.apply(_bound(copy), lambda: time.perf_counter() < until_s)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, copying goes on
            self._give_up(error)
            return
        if left:
            self._slice = asyncio.get_running_loop().call_soon(self._apply)
        self._shown.grew()

    # -- loading ----------------------------------------------------------------------------------

    def _begin_load(self, copy: Copy, commit: Position) -> None:
        self._load += 1
        number, self._loads_from = self._load, commit
        standby = Standby(
            self._disk, self._limits, segment_size=copy.segment_size, first=copy.first
        )
        if self._in_place:
            self._loaded(number, standby, _load(standby, commit, lambda: True))
            return
        self._loading = asyncio.create_task(self._load_in_thread(number, standby, commit))

    async def _load_in_thread(self, number: int, standby: Standby, commit: Position) -> None:
        began_s = time.monotonic()
        error = await asyncio.to_thread(_load, standby, commit, lambda: number == self._load)
        self._loading = None
        if error is None and number == self._load:
            log.info("the state of the copy is loaded up to %d in %.1f s",
                     commit, time.monotonic() - began_s)  # fmt: skip
        self._loaded(number, standby, error)

    def _loaded(self, number: int, standby: Standby, error: Exception | None) -> None:
        """Use what was loaded, if it is still wanted."""
        if number != self._load:
            return
        if error is None:
            self._standby = standby
            self._shown.there(standby)
        else:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Go on without views: a promotion recovers the journal then, and says what is wrong."""
        known = isinstance(error, JournalError)
        log.warning(
            "the copy cannot be applied, so a promotion will take longer: %s",
            str(error) or type(error).__name__,
            exc_info=None if known else error,
        )
        self._enabled = False
        self._throw_away()

    def _throw_away(self) -> None:
        self._load += 1
        if self._slice is not None:
            self._slice.cancel()
            self._slice = None
        standby, self._standby = self._standby, None
        if standby is not None:
            self._shown.gone()
            standby.close()

    # -- what becomes of the copy -----------------------------------------------------------------

    def cut(self, at: Position) -> bool:
        """Note that the copy was cut at a position, while no job was at work.

        Returns:
            Whether the views are still those of the copy, or there were none.
        """
        used = self._loads_from if self._standby is None else self.applied
        if self.holds_files and used > at:
            self._throw_away()
            return False
        return True

    def discard(self) -> None:
        """Throw everything away: the copy is made anew."""
        self._copy = None
        self._throw_away()

    def may_remove(self, first: Position, needs: Position, behind_bytes: int) -> bool:
        """Return whether segments may be removed: the views have what took their place.

        Views that wait until everything is copied are thrown away, rather than that the disk fills.

        Args:
            first: Base of the oldest segment that is to be left.
            needs: How far the primary's journal was durable when it had removed them.
            behind_bytes: How far the copy is behind the primary's end.
        """
        if self._loading is not None:
            return False
        standby = self._standby
        if standby is None:
            return True
        if standby.applied >= max(first, needs):
            return True
        if behind_bytes > NEAR_BYTES and not standby.at_work:
            self._throw_away()
            return True
        return False

    def removed(self, first: Position) -> None:
        """Note that segments were removed, as ``may_remove`` allowed."""
        if self._standby is not None:
            self._standby.removed(first)

    # -- jobs -------------------------------------------------------------------------------------

    def next_job(self) -> Job | None:
        """Return a job of the index for a thread, None if none is due."""
        return None if self._standby is None else self._standby.next_job()

    def finished(self, job: Job, error: Exception | None) -> None:
        """Note that a job of the index has ended."""
        if self._standby is not None:
            self._standby.finished(job, error)

    # -- the end ----------------------------------------------------------------------------------

    def successor(self, copy: Copy) -> Successor | None:
        """Return what a broker that will lead takes over; None: it has to recover the journal.

        All of the copy is on the disk, and nothing works on it. This object is closed.
        """
        standby, self._standby = self._standby, None
        self.discard()
        if standby is None:
            log.info("the state of the copy is not loaded: a promotion recovers the journal")
            return None
        self._shown.gone()
        if copy.last is None or copy.end - standby.applied > FAR_BYTES:
            log.info("the copy is applied up to %d of %d: a promotion recovers the journal",
                     standby.applied, copy.end)  # fmt: skip
            standby.close()
            return None
        return Successor(self._disk, standby, copy.ending())


def _bound(copy: Copy) -> Position:
    """Return up to which position the copy may be applied: it is committed, and it is there."""
    return min(copy.committed, copy.end)


def _load(standby: Standby, commit: Position, wanted: Callable[[], bool]) -> Exception | None:
    """Load the views; return what was in the way. Blocks, in any thread."""
    try:
        with collector_paused():
            standby.load(commit, wanted)
    except Exception as error:  # noqa: BLE001 - the thread's boundary: the loop deals with it
        return error
    return None
