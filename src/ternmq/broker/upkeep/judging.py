"""Judges whether the oldest segment may be removed, and says what keeps it if not.

The rules are in `journal.log.retention`; here is what the broker knows that they ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.upkeep.oldestsegment import OldestSegment
from ternmq.journal.log.retention import (
    Decision,
    Judgement,
    Pin,
    QueueShare,
    RetentionSpec,
    judge,
    under_pressure,
)
from ternmq.journal.state.sets import StateWriter
from ternmq.model.types import DAY_US

SHARES_A_LOOK: Final = 64
"""Weight of the queues judged together: usually one of the first already keeps the segment."""
GROUPS_A_SHARE: Final = 8
"""Groups of one queue that take as long to check as another queue."""
JUDGED_A_STEP: Final = 64
COPIED_AFTER_US: Final = DAY_US
"""How long a segment is kept only because rows are in it that are no messages yet, if there is no
pressure."""


class Judging:
    """Judges the oldest segment, some queues in each turn. It changes nothing else.

    Not thread-safe: call it from the broker's loop.

    Args:
        ledger: The journal and what is computed from it.
        oldest: The segment that is judged.
        writer: Writes the STATE sets that must exist before a segment is removed.
        spec: Limits of the journal.

    Attributes:
        spec: Limits of the journal; may be replaced.
        pinned: The last judgement.
        pinned_since_us: Since when its reason keeps this segment (broker time); 0 before the first
            look.
        pressure: Whether there was pressure at the last look.
        rewinds: ``Ledger.rewinds`` when the judgement began.
    """

    def __init__(
        self, ledger: Ledger, oldest: OldestSegment, writer: StateWriter, spec: RetentionSpec
    ) -> None:
        self._ledger = ledger
        self._oldest = oldest
        self._writer = writer
        self.spec = spec
        self.pinned = Judgement(Decision.KEEP, Pin.ACTIVE)
        self.pinned_since_us = 0
        self.pressure = False
        self.rewinds = 0
        self._pinned_end = 0
        self._looked_us = 0
        """Broker time of the last look."""
        self._queues: Iterator[int] | None = None
        """The queues that are still to be judged; None between looks."""
        self._free_of_others: tuple[int, int, bool] | None = None
        """If only STATE keeps the oldest segment: its end, and the rewinds and pressure then."""

    @property
    def under_way(self) -> bool:
        """Whether a look has begun and not ended."""
        return self._queues is not None

    @property
    def blocked_by_hold(self) -> bool:
        """Whether sends are refused because of a hold."""
        return self.pinned.verdict is Decision.REFUSE and self.pinned.pin is Pin.HOLD

    def look(
        self, now_us: int, free: int, total: int, may_go_on: Callable[[], bool]
    ) -> Judgement | None:
        """Judge the oldest segment; None: call again in the next turn.

        A turn judges some thousand queues, until one keeps the segment. A finding stays true until
        a group is reset or starts again (``Ledger.rewinds`` counts these): otherwise groups only
        move forward.

        Args:
            now_us: Broker time.
            free: Free bytes of the disk.
            total: Bytes of the disk.
            may_go_on: Whether the turn has time left.
        """
        found = self._judge(now_us, free, total, may_go_on)
        if found is not None:
            end = self._oldest.end
            if found.pin is not self.pinned.pin or end != self._pinned_end:
                self.pinned_since_us, self._pinned_end = now_us, end
            self.pinned = found
        return found

    def present(self) -> Judgement:
        """Return what keeps the oldest segment now: what the last look found, if that still holds.

        If the reason found is gone, for example because a group has finished since, the queues are
        judged again, as many as a look judges in a turn. Changes nothing: the next look acts on it.
        """
        found = self.pinned
        if self._still(found):
            return found
        number = self._oldest.number
        if self._ledger.views.undecided.pins(number):
            return found._replace(pin=Pin.TRANSACTION, share=None)
        kept = None if self.pressure else self._kept_for_now(self._looked_us)
        if kept is not None:
            return found._replace(pin=kept, share=None)
        left = iter(list(self._ledger.index.coverage.queues))
        for _ in range(JUDGED_A_STEP):
            keys = self._next_queues(left)
            now = self._asked(keys, self._looked_us, pressure=self.pressure)
            if now.verdict is not Decision.REMOVE:
                return now
            if not keys:
                break
        if self._oldest.end <= self._writer.removable_below():
            return Judgement(Decision.REMOVE, Pin.NOTHING)
        return Judgement(Decision.KEEP, Pin.STATE)

    def _still(self, found: Judgement) -> bool:
        """Return whether the reason that a look found to keep the oldest segment still holds."""
        views = self._ledger.views
        share = found.share
        match found.pin:
            case Pin.TRANSACTION:
                return views.undecided.pins(self._oldest.number)
            case Pin.SCHEDULE | Pin.CHECK_BACK | Pin.FOLLOWER:
                return self._kept_for_now(self._looked_us) is found.pin
            case Pin.HOLD:
                return views.lowest_hold is not None and views.lowest_hold < self._oldest.end
            case Pin.GROUP:
                return share is not None and self.unread_below(share)
            case Pin.RETENTION:
                return share is not None and share.topic in views.catalog.topics
            case Pin.NOTHING | Pin.ACTIVE | Pin.STATE:
                return True

    def _judge(
        self, now_us: int, free: int, total: int, may_go_on: Callable[[], bool]
    ) -> Judgement | None:
        journal = self._ledger.journal
        end = self._oldest.end
        if end > journal.committed or end >= journal.end:
            return Judgement(Decision.KEEP, Pin.ACTIVE)
        pressure = self._ledger.room.used_up or under_pressure(
            self.spec, journal.end - journal.first, free, total
        )
        self._looked_us, self.pressure = now_us, pressure
        number = self._oldest.number
        keep = Decision.REFUSE if pressure else Decision.KEEP
        if self._ledger.views.undecided.pins(number):
            self._queues = None
            return Judgement(keep, Pin.TRANSACTION)
        kept = None if pressure else self._kept_for_now(now_us)
        if kept is not None:
            self._queues = None
            return Judgement(keep, kept)
        removable = end <= self._writer.removable_below()
        if self._queues is None:
            self.rewinds = self._ledger.rewinds
            if not removable and self._free_of_others == (end, self.rewinds, pressure):
                return Judgement(Decision.KEEP, Pin.STATE)
            self._queues = iter(list(self._ledger.index.coverage.queues))
        for piece in range(JUDGED_A_STEP):
            if piece and not may_go_on():
                return None
            keys = self._next_queues(self._queues)
            found = self._asked(keys, now_us, pressure=pressure)
            if found.verdict is not Decision.REMOVE:
                self._queues = None
                return found
            if not keys:
                self._queues = None
                if removable:
                    return found
                self._free_of_others = end, self.rewinds, pressure
                return Judgement(Decision.KEEP, Pin.STATE)
        return None

    def _kept_for_now(self, now_us: int) -> Pin | None:
        """Return what keeps the oldest segment as long as there is no pressure, if anything does.

        A follower that has to be sent a removed segment begins anew with what is left.
        """
        unsent = self._ledger.copies.unsent
        if unsent is not None and unsent[0] < self._oldest.end:
            return Pin.FOLLOWER
        return self._kept_ahead(now_us)

    def _kept_ahead(self, now_us: int) -> Pin | None:
        """Return which rows that are no messages yet keep the oldest segment for now, if any do.

        They are copied before it is removed. Without this time, rows that become messages much
        later would be copied again and again on a broker that has nothing else to store.
        """
        views = self._ledger.views
        number = self._oldest.number
        if views.schedule.pins(number):
            pin = Pin.SCHEDULE
        elif views.checked.pins(number):
            pin = Pin.CHECK_BACK
        else:
            return None
        return pin if now_us - self._oldest.last_us() < COPIED_AFTER_US else None

    def _asked(self, keys: list[int], now_us: int, *, pressure: bool) -> Judgement:
        """Return the judgement that follows from some queues and from the holds."""
        return judge(
            self,
            self._oldest.shares_of(keys),
            end=self._oldest.end,
            last_us=self._oldest.last_us(),
            held_from=self._ledger.views.lowest_hold,
            now_us=now_us,
            pressure=pressure,
        )

    def _next_queues(self, left: Iterator[int]) -> list[int]:
        """Return the queues that are judged next; empty at the end."""
        topics = self._ledger.views.catalog.topics
        keys: list[int] = []
        weight = 0
        for key in left:
            topic = topics.get(key >> 32)
            keys.append(key)
            weight += 1 + (len(topic.subscriptions) // GROUPS_A_SHARE if topic is not None else 0)
            if weight >= SHARES_A_LOOK:
                break
        return keys

    # -- questions of the rules --------------------------------------------------------------------

    def retention_us(self, topic: int) -> int:
        """Return how long a topic keeps messages; 0 for a deleted topic."""
        known = self._ledger.views.catalog.topics.get(topic)
        return known.spec.retention_us if known is not None else 0

    def unread_below(self, share: QueueShare) -> bool:
        """Return whether a group that must not miss the share has not finished it."""
        topic = self._ledger.views.catalog.topics.get(share.topic)
        if topic is None or not topic.spec.keep_until_consumed:
            return False
        progress = self._ledger.views.progress
        return any(
            one.mode.keeps_journal
            and not progress[group, share.topic, share.queue].finished(share.stop)
            for group, one in topic.subscriptions.items()
        )
