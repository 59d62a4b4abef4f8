"""Finds queues of groups with members in which messages wait and nobody takes them.

Two things need a person. The owner of a queue takes and settles nothing: its program hangs. Or a
queue belongs to nobody, although the group has members: they are switched off, or no assignment of
the group fits one of them. Both are said of a group once they have lasted for ``IDLE_US``.

Nothing is counted while messages pass. A look compares what a queue shows (its owner, the cursor,
what is owed) with what it showed before; a queue that shows the same although rows wait stands
still. Rows do not wait for the owner while the queue is closed: a failed row comes again later or
is held, a transaction has rows of it, the group is paused, or its failure store is full.

A look examines some queues; the round over all of them goes on with the next one, and its findings
count when it ends. So the groups found are those of the last round. All of it is volatile: after a
start of the broker, the times begin anew.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.catalog.owners import NOBODY, Owners
from ternmq.broker.delivery.allowance import switched_off
from ternmq.broker.group.progress import Progress
from ternmq.broker.ledger.ledger import Ledger
from ternmq.model.types import MINUTE_US
from ternmq.model.words import counted

IDLE_US: Final = 10 * MINUTE_US
"""How long a queue stands still, although rows wait, until that is said."""
LOOKS: Final = 200
"""Queues that one look examines; a group counts as one more."""
MOST_WATCHED: Final = 20_000
"""Most queues with waiting rows that are watched; the others of a round are left out."""
MOST_FOUND: Final = 1000
"""Most groups that a round finds, of each kind: as many alarms may be open."""


class _Shown(NamedTuple):
    """What a queue shows; it changes if its owner changes, takes rows or settles some."""

    owner: int
    cursor: int
    lease: int
    leased: int
    ready: int
    waiting: int
    dead: int


class _Seen(NamedTuple):
    shown: _Shown
    since_us: int


class OwnerWatch:
    """Looks at the queues of groups with members.

    Not thread-safe: call it from the broker's loop.

    Attributes:
        idle: Groups with a queue whose owner does nothing -> text of the alarm. Keys: topic/group.
        unowned: Likewise, groups with a queue that belongs to nobody.
    """

    __slots__ = (
        "_at", "_catalog", "_figures", "_found_idle", "_found_unowned", "_ledger", "_next", "_seen",
        "idle", "unowned",
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._catalog = ledger.views.catalog
        self._figures = ledger.views.figures
        self._at = (0, 0)
        """Group and queue with which the round goes on."""
        self._seen: dict[Progress, _Seen] = {}
        """Queues in which rows wait, as the round before saw them, and since when they do so."""
        self._next: dict[Progress, _Seen] = {}
        """Likewise, of this round."""
        self._found_idle: dict[str, str] = {}
        self._found_unowned: dict[str, str] = {}
        self.idle: dict[str, str] = {}
        self.unowned: dict[str, str] = {}

    def step(self, now_us: int) -> None:
        """Look at some queues. O(LOOKS)."""
        left = LOOKS
        while left > 0:
            group, queue = self._at
            number = next(self._catalog.joined.from_on(group), None)
            if number is None:
                self._end_round()
                return
            subscription = self._catalog.groups[number]
            begin = queue if number == group else 0
            stop = min(begin + left, len(subscription.queues))
            owners = subscription.owners
            if owners is not None and not subscription.spec.paused:
                self._look(now_us, subscription, owners, begin, stop)
                left -= stop - begin
            done = stop == len(subscription.queues) or subscription.spec.paused
            self._at = (number + 1, 0) if done else (number, stop)
            left -= 1

    def _end_round(self) -> None:
        self._at = (0, 0)
        self._seen, self._next = self._next, {}
        self.idle, self._found_idle = self._found_idle, {}
        self.unowned, self._found_unowned = self._found_unowned, {}

    def _look(
        self, now_us: int, subscription: Subscription, owners: Owners, begin: int, stop: int
    ) -> None:
        still: list[int] = []
        unowned: list[int] = []
        queues, views = subscription.topic.queues, subscription.queues
        for number in range(begin, stop):
            progress = views[number]
            if not self._waits(progress, queues[number].next):
                continue
            shown = _shown(owners.owner(number), progress)
            seen = self._seen.get(progress)
            if seen is None or seen.shown != shown:
                seen = _Seen(shown, now_us)
            elif now_us - seen.since_us >= IDLE_US:
                (still if shown.owner != NOBODY else unowned).append(number)
            if len(self._next) < MOST_WATCHED:
                self._next[progress] = seen
        subject = f"{subscription.topic.name}/{subscription.name}"
        if still and len(self._found_idle) < MOST_FOUND:
            text = _idle_text(owners, still)
            self._found_idle.setdefault(subject, text)
        if unowned and len(self._found_unowned) < MOST_FOUND:
            text = self._unowned_text(subscription, owners, unowned)
            self._found_unowned.setdefault(subject, text)

    def _waits(self, progress: Progress, next_offset: int) -> bool:
        """Return whether rows wait that the owner of the queue would get, or could settle."""
        failures = progress.failures
        failed = failures.waiting_rows
        if failures.due_found < failed:
            return False  # a row that failed is tried again later, or is held
        if progress.leases and self._figures.lends(progress):
            return False
        if progress.ready.runs or failed:
            return True
        full = failed + failures.dead_rows >= self._ledger.limits.failures
        return progress.cursor < next_offset and not full

    def _unowned_text(self, subscription: Subscription, owners: Owners, queues: list[int]) -> str:
        views = self._ledger.views
        off = [one for one in owners.members if switched_off(views, subscription, one)]
        if len(off) == len(owners.members):
            why = "all members of the group are switched off (`ternmq client online`)"
        else:
            why = "no assignment of the group fits one of its members"
            why += " that is not switched off" if off else ""
        return (
            f"messages wait in queue {queues[0]}{_others(queues)}, which belongs to nobody: {why}"
        )


def _shown(owner: int, progress: Progress) -> _Shown:
    return _Shown(
        owner,
        progress.cursor,
        next(iter(progress.leases), 0),
        progress.leased_rows,
        progress.ready.rows,
        progress.failures.waiting_rows,
        progress.failures.dead_rows,
    )


def _idle_text(owners: Owners, queues: list[int]) -> str:
    member = owners.members[owners.owner(queues[0])].label
    return (
        f"messages wait in queue {queues[0]}{_others(queues)}: its owner {member} has taken and "
        "settled none of it for 10 minutes"
    )


def _others(queues: list[int]) -> str:
    """Return how many more queues there are."""
    more = len(queues) - 1
    return f" and {counted(more, 'other queue')}" if more else ""
