"""Figures of all group queues together, updated as these change, so that nothing walks over them.

Theory of operation: a group queue that a fact changes puts itself on ``changed``, once. ``settle``
adds the differences between its present numbers and those that were added before. The broker
settles once a second, and at the end of a turn when some hundred changed: so a fact costs one
append, and neither reading the figures nor a turn takes long. The group queues of which a session
has leases are counted at once, since the end of a session needs them.

The figures are exact after ``settle``; ``tests/unit/broker/kit.py`` compares them with a walk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ternmq.broker.group.lease import Lease
from ternmq.broker.group.mode import GroupMode


class Share(NamedTuple):
    """The numbers that one group queue contributes."""

    leased: int
    ready: int
    waiting: int
    dead: int
    open_runs: int
    held: int
    """Of the waiting rows, those that wait for an operator."""


class Counted(Protocol):
    """What is counted: a group queue."""

    share: Share | None
    """The numbers already added; None: it is not counted (yet, or any more)."""
    noted: bool
    """Whether it is in ``Figures.changed``."""
    leases: dict[int, Lease]

    mode: GroupMode

    def share_now(self) -> Share:
        """Return its present contribution."""
        ...


Q = TypeVar("Q", bound=Counted)

NOTHING: Final = Share(0, 0, 0, 0, 0, 0)


class Greatest:
    """The maximum of many numbers that change; zeros do not count."""

    __slots__ = ("_counts", "_most")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._most: int | None = 0
        """None: not known, ``value`` computes it."""

    def change(self, before: int, now: int) -> None:
        """Replace one of the numbers."""
        if before == now:
            return
        counts = self._counts
        if now:
            counts[now] = counts.get(now, 0) + 1
            if self._most is not None and now > self._most:
                self._most = now
        if before:
            left = counts[before] - 1
            if left:
                counts[before] = left
            else:
                del counts[before]
                if before == self._most:
                    self._most = None

    def value(self) -> int:
        """Return the maximum; 0 without numbers. O(different numbers) once the maximum is gone."""
        if self._most is None:
            self._most = max(self._counts, default=0)
        return self._most


class Figures(Generic[Q]):
    """Sums and maxima over all group queues. Deterministic.

    Not thread-safe: call it from the broker's loop.

    Args:
        most_dead: Dead letters that a group queue may have.
    """

    __slots__ = (
        "_many_dead",
        "_most_failures",
        "_most_open_runs",
        "_most_parked",
        "_most_ready",
        "by_session",
        "changed",
        "dead",
        "leased",
        "many_dead",
        "ready",
        "waiting",
        "with_dead",
        "with_held",
    )

    def __init__(self, most_dead: int = 1 << 62) -> None:
        self._many_dead = most_dead * 4 // 5
        self.leased = 0
        self.ready = 0
        self.waiting = 0
        self.dead = 0
        self.changed: list[Q] = []
        """Group queues that changed since ``settle``, each once."""
        self.with_dead: dict[Q, None] = {}
        """Group queues with dead letters."""
        self.many_dead: dict[Q, None] = {}
        """Group queues with more than four fifths of the dead letters that they may have."""
        self.with_held: dict[Q, None] = {}
        """Group queues with held rows."""
        self.by_session: dict[int, dict[Q, int]] = {}
        """Session -> group queue -> number of leases that the session has of it."""
        self._most_open_runs = Greatest()
        self._most_failures = Greatest()
        self._most_ready = Greatest()
        self._most_parked = Greatest()

    # -- changes ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Bring the figures up to date. O(group queues that changed)."""
        if not self.changed:
            return
        for progress in self.changed:
            progress.noted = False
            if progress.share is not None:
                self._take_over(progress, progress.share, progress.share_now())
        self.changed.clear()

    def forget(self, progress: Q) -> None:
        """Subtract a group queue that is gone."""
        if progress.share is not None:
            if progress.share is not NOTHING:
                self._take_over(progress, progress.share, NOTHING)
            progress.share = None
        if progress.leases:
            self.leases_ended(progress, {lease.session for lease in progress.leases.values()})

    def mode_changes(self, progress: Q, mode: GroupMode) -> None:
        """Count the ready rows of a group queue that is about to get another mode as that does."""
        share, parked = progress.share, progress.mode.parks
        if share is not None and parked is not mode.parks:
            before, now = (share.ready, 0) if parked else (0, share.ready)
            self._most_parked.change(before, now)

    def rebuild(self, all_: Iterable[Q]) -> None:
        """Count everything again, once a journal was replayed."""
        self.leased = self.ready = self.waiting = self.dead = 0
        self.changed.clear()
        self.with_dead.clear()
        self.many_dead.clear()
        self.with_held.clear()
        self.by_session.clear()
        self._most_open_runs, self._most_failures = Greatest(), Greatest()
        self._most_ready, self._most_parked = Greatest(), Greatest()
        for progress in all_:
            progress.noted = False
            self._take_over(progress, NOTHING, progress.share_now())
            for lease in progress.leases.values():
                self.lease_begun(progress, lease.session)

    def _take_over(self, progress: Q, before: Share, now: Share) -> None:
        if before == now:
            progress.share = before  # empty group queues share one object
            return
        progress.share = now
        self.leased += now.leased - before.leased
        self.ready += now.ready - before.ready
        self.waiting += now.waiting - before.waiting
        self.dead += now.dead - before.dead
        self._most_open_runs.change(before.open_runs, now.open_runs)
        self._most_failures.change(before.waiting + before.dead, now.waiting + now.dead)
        self._most_ready.change(before.ready, now.ready)
        if progress.mode.parks:
            self._most_parked.change(before.ready, now.ready)
        if now.dead != before.dead:
            if now.dead:
                self.with_dead[progress] = None
            else:
                self.with_dead.pop(progress, None)
            if now.dead > self._many_dead:
                self.many_dead[progress] = None
            else:
                self.many_dead.pop(progress, None)
        if now.held:
            self.with_held[progress] = None
        elif before.held:
            del self.with_held[progress]

    def lease_begun(self, progress: Q, session: int) -> None:
        """Count one more lease of a group queue for a session."""
        held_by = self.by_session.get(session)
        if held_by is None:
            self.by_session[session] = {progress: 1}
        else:
            held_by[progress] = held_by.get(progress, 0) + 1

    def lease_ended(self, progress: Q, session: int) -> None:
        """Count one lease of a group queue less for a session."""
        held_by = self.by_session.get(session)
        if held_by is None or progress not in held_by:
            return
        held_by[progress] -= 1
        if not held_by[progress]:
            del held_by[progress]
            if not held_by:
                del self.by_session[session]

    def leases_ended(self, progress: Q, sessions: Iterable[int]) -> None:
        """Forget all leases of a group queue; ``sessions`` had them."""
        for session in sessions:
            held_by = self.by_session.get(session)
            if held_by is not None:
                held_by.pop(progress, None)
                if not held_by:
                    del self.by_session[session]

    # -- what is known ----------------------------------------------------------------------------

    def leased_to(self, session: int) -> list[Q]:
        """Return the group queues of which a session has leases."""
        return list(self.by_session.get(session, ()))

    def lends(self, progress: Q) -> bool:
        """Return whether rows of a group queue are leased to transactions (as session 0). O(1)."""
        lent = self.by_session.get(0)
        return lent is not None and progress in lent

    def most_open_runs(self) -> int:
        """Return the open runs of the group queue with most of them."""
        return self._most_open_runs.value()

    def most_failures(self) -> int:
        """Return the failed rows of the group queue with most of them."""
        return self._most_failures.value()

    def most_ready(self) -> int:
        """Return the ready rows of the group queue with most of them."""
        return self._most_ready.value()

    def most_parked(self) -> int:
        """Return the ready rows of the ordered group queue with most of them."""
        return self._most_parked.value()
