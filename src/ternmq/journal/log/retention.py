"""Retention: whether the oldest segment may be removed, and if not, why.

Pure decisions; `broker.upkeep.retention` copies the rows that are still owed to newer records.

Only the oldest segment is ever removed, and only when all of this holds:

* two complete, durable STATE sets, with all that they name, begin after its end;
* it is *aged* (every topic that has messages in it keeps them for a shorter time than their age),
  or there is *pressure*: the journal is above its size limit, or the disk above its watermark;
* every hold has passed it;
* every group of a topic that keeps messages until they are consumed has its floor beyond it. Rows
  that wait for a retry or are dead do not keep a segment: they are moved;
* no undecided transaction has rows in it. Scheduled rows that are not due yet keep it for a day, if
  there is no pressure; then they are copied, too.

If there is pressure and the oldest segment may not be removed, sends are refused; nothing unread is
lost. The reason that keeps the segment is a `Pin`. If that is STATE alone,
`broker.upkeep.refreshing` has sets written.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Protocol

import msgspec

DEFAULT_WATERMARK: Final = 0.8


class RetentionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the journal as a whole; the retention time is a setting of each topic."""

    max_bytes: int = 0
    """Most bytes that the journal takes; 0: as many as the watermark allows."""
    watermark: float = DEFAULT_WATERMARK
    """Share of the disk in use above which old segments are removed before they are aged."""


class Decision(enum.Enum):
    """The decision on the oldest segment."""

    KEEP = "keep"
    REMOVE = "remove"
    REFUSE = "refuse sends"


class Pin(enum.Enum):
    """What keeps the oldest segment. The values appear in STATUS and as a metric's label."""

    NOTHING = "nothing"
    """It is removed as soon as the rows owed from it are copied."""
    ACTIVE = "active"
    """It is the only segment and takes new records."""
    RETENTION = "retention"
    """A topic keeps its messages for longer, and there is no pressure."""
    HOLD = "hold"
    GROUP = "group"
    """A group that must not miss its messages has not finished them."""
    TRANSACTION = "transaction"
    SCHEDULE = "schedule"
    """Scheduled messages that are not due yet are stored in it."""
    CHECK_BACK = "check-back"
    """Messages of undecided transactions with check-back are stored in it."""
    FOLLOWER = "follower"
    """It is still to be sent to a follower."""
    STATE = "state"
    """Only the newest STATE sets need it."""


class QueueShare(NamedTuple):
    """A queue's messages in the oldest segment."""

    topic: int
    queue: int
    stop: int
    """First offset that is kept once the segment is removed."""


class Judgement(NamedTuple):
    """The decision on the oldest segment, and the reason."""

    verdict: Decision
    pin: Pin
    share: QueueShare | None = None
    """The share that the pin is about: its retention time is not over, or a group needs it."""


class RetentionView(Protocol):
    """What the decision needs of the broker."""

    def retention_us(self, topic: int) -> int:
        """Return how long a topic keeps messages; 0 for a deleted topic."""
        ...

    def unread_below(self, share: QueueShare) -> bool:
        """Return whether a group that must not miss the share has not finished it."""
        ...


def under_pressure(spec: RetentionSpec, journal_bytes: int, free: int, total: int) -> bool:
    """Return whether segments are to be removed before they are aged."""
    if spec.max_bytes and journal_bytes > spec.max_bytes:
        return True
    return total > 0 and (total - free) / total > spec.watermark


def judge(
    view: RetentionView,
    shares: list[QueueShare],
    *,
    end: int,
    last_us: int,
    held_from: int | None,
    now_us: int,
    pressure: bool,
) -> Judgement:
    """Decide on the oldest segment.

    The caller checks transactions, scheduled rows, followers and STATE sets itself.

    Args:
        view: The broker's view of topics and groups.
        shares: The queues that have messages in it.
        end: End of the segment.
        last_us: Broker time of its newest message.
        held_from: The smallest position that is held; None without holds.
        now_us: Broker time.
        pressure: Result of ``under_pressure``.
    """
    if not pressure:
        for one in shares:
            if now_us - last_us < view.retention_us(one.topic):
                return Judgement(Decision.KEEP, Pin.RETENTION, one)
    keep = Decision.REFUSE if pressure else Decision.KEEP
    if held_from is not None and held_from < end:
        return Judgement(keep, Pin.HOLD)
    for one in shares:
        if view.unread_below(one):
            return Judgement(keep, Pin.GROUP, one)
    return Judgement(Decision.REMOVE, Pin.NOTHING)
