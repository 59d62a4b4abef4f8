"""Figures of all group queues together, kept as these change: nothing walks them to know.

Theory of operation: a group queue that a fact changes puts itself on ``changed``, once. ``settle``
takes over by how much its numbers differ from those that were taken over before. The broker settles
once a second, and at the end of a turn when some hundred changed: so a fact costs an append, and
neither a look at the figures nor a turn is long.
What a session has leases of is counted at once, since the end of a session asks for it.

Exact at any time after ``settle``; ``tests/unit/broker/kit.py`` compares them with a walk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ternmq.broker.groupqueue import GroupQueue


class Share(NamedTuple):
    """What one group queue contributes."""

    leased: int
    ready: int
    waiting: int
    dead: int
    open_runs: int


NOTHING: Final = Share(0, 0, 0, 0, 0)


class Greatest:
    """The greatest of many numbers that change; zeros do not count."""

    __slots__ = ("_counts", "_most")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._most: int | None = 0
        """None: to be found out."""

    def change(self, before: int, now: int) -> None:
        """One of the numbers is another one now."""
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
        """Return it; 0 where there is none. O(different numbers) after the greatest went."""
        if self._most is None:
            self._most = max(self._counts, default=0)
        return self._most


class Figures:
    """Sums and maxima over all group queues. Loop only; deterministic."""

    __slots__ = (
        "_most_failures",
        "_most_open_runs",
        "_most_parked",
        "_most_ready",
        "by_session",
        "changed",
        "dead",
        "leased",
        "ready",
        "waiting",
        "with_dead",
    )

    def __init__(self) -> None:
        self.leased = 0
        self.ready = 0
        self.waiting = 0
        self.dead = 0
        self.changed: list[GroupQueue] = []
        """Group queues that changed since ``settle``, each once."""
        self.with_dead: dict[GroupQueue, None] = {}
        """Those with dead letters."""
        self.by_session: dict[int, dict[GroupQueue, int]] = {}
        """Session -> group queues of which it has leases, and how many."""
        self._most_open_runs = Greatest()
        self._most_failures = Greatest()
        self._most_ready = Greatest()
        self._most_parked = Greatest()

    # -- changes ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take over what changed. O(group queues that changed)."""
        if not self.changed:
            return
        for held in self.changed:
            held.noted = False
            if held.share is not None:
                self._take_over(held, held.share, held.share_now())
        self.changed.clear()

    def forget(self, held: GroupQueue) -> None:
        """A group queue is gone, with all that it holds."""
        if held.share is not None:
            if held.share is not NOTHING:
                self._take_over(held, held.share, NOTHING)
            held.share = None
        if held.leases:
            self.leases_ended(held, {lease.session for lease in held.leases.values()})

    def rebuild(self, all_: Iterable[GroupQueue]) -> None:
        """Count everything anew, once a journal was replayed."""
        self.leased = self.ready = self.waiting = self.dead = 0
        self.changed.clear()
        self.with_dead.clear()
        self.by_session.clear()
        self._most_open_runs, self._most_failures = Greatest(), Greatest()
        self._most_ready, self._most_parked = Greatest(), Greatest()
        for held in all_:
            held.noted = False
            self._take_over(held, NOTHING, held.share_now())
            for lease in held.leases.values():
                self.lease_begun(held, lease.session)

    def _take_over(self, held: GroupQueue, before: Share, now: Share) -> None:
        if before == now:
            held.share = before  # the same object for all that hold nothing
            return
        held.share = now
        self.leased += now.leased - before.leased
        self.ready += now.ready - before.ready
        self.waiting += now.waiting - before.waiting
        self.dead += now.dead - before.dead
        self._most_open_runs.change(before.open_runs, now.open_runs)
        self._most_failures.change(before.waiting + before.dead, now.waiting + now.dead)
        self._most_ready.change(before.ready, now.ready)
        if held.lines is not None:
            self._most_parked.change(before.ready, now.ready)
        if now.dead:
            self.with_dead[held] = None
        else:
            self.with_dead.pop(held, None)

    def lease_begun(self, held: GroupQueue, session: int) -> None:
        """A session has one more lease of a group queue."""
        held_by = self.by_session.get(session)
        if held_by is None:
            self.by_session[session] = {held: 1}
        else:
            held_by[held] = held_by.get(held, 0) + 1

    def lease_ended(self, held: GroupQueue, session: int) -> None:
        """A lease is over."""
        held_by = self.by_session.get(session)
        if held_by is None or held not in held_by:
            return
        held_by[held] -= 1
        if not held_by[held]:
            del held_by[held]
            if not held_by:
                del self.by_session[session]

    def leases_ended(self, held: GroupQueue, sessions: Iterable[int]) -> None:
        """All leases of a group queue are over; these sessions had them."""
        for session in sessions:
            held_by = self.by_session.get(session)
            if held_by is not None:
                held_by.pop(held, None)
                if not held_by:
                    del self.by_session[session]

    # -- what is known ----------------------------------------------------------------------------

    def leased_to(self, session: int) -> list[GroupQueue]:
        """Return the group queues of which a session has leases."""
        return list(self.by_session.get(session, ()))

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
        """Return the same of the ordered ones."""
        return self._most_parked.value()
