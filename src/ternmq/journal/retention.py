"""Which segment may go, and why.

Pure decisions; `broker.moving` carries what is still owed forward.

A segment goes only from the front, and only when all of this holds:

* two complete, durable STATE sets, with all that they name, begin after its end;
* it is *aged* (every topic that has messages in it keeps them for less long), or there is
  *pressure*: the journal is above its size limit, or the disk above its watermark;
* every hold has passed it;
* every group of a topic that keeps messages until they are consumed has its floor beyond it. Rows
  that wait for a retry or are dead do not hold a segment: they are moved;
* no transaction that is undecided has rows in it.

When there is pressure and the oldest segment may not go, sends are refused; nothing unread is lost.
What keeps the segment is a `Pin`. When that is STATE alone, `broker.refreshing` has sets written.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple, Protocol

import msgspec

DEFAULT_WATERMARK: Final = 0.8


class RetentionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the journal as a whole; how long is a setting of each topic."""

    max_bytes: int = 0
    """Most bytes that the journal takes; 0: as many as the watermark allows."""
    watermark: float = DEFAULT_WATERMARK
    """Share of the disk in use above which old segments go before their time."""


class Verdict(enum.Enum):
    """What is to be done with the oldest segment."""

    KEEP = "keep"
    REMOVE = "remove"
    REFUSE = "refuse sends"


class Pin(enum.Enum):
    """What keeps the oldest segment. The values are those of STATUS and of a metric's label."""

    NOTHING = "nothing"
    """It goes as soon as what is owed out of it is written again."""
    ACTIVE = "active"
    """It is the only one: records go to it."""
    RETENTION = "retention"
    """A topic keeps its messages for longer, and there is room."""
    HOLD = "hold"
    GROUP = "group"
    """A group that must not miss its messages has not finished them."""
    TRANSACTION = "transaction"
    STATE = "state"
    """The newest STATE sets need it, and nothing else does."""


class QueueShare(NamedTuple):
    """A queue's messages in the oldest segment."""

    topic: int
    queue: int
    stop: int
    """First offset that is kept once the segment is gone."""


class Judgement(NamedTuple):
    """What is decided of the oldest segment, and why."""

    verdict: Verdict
    pin: Pin
    share: QueueShare | None = None
    """Of the topic whose time is not over, or that the group has not finished."""


class RetentionView(Protocol):
    """What the decision needs of the broker."""

    def retention_us(self, topic: int) -> int:
        """Return how long a topic keeps messages; 0 for one that is gone."""
        ...

    def unread_below(self, share: QueueShare) -> bool:
        """Return whether a group that must not miss it has not finished the share."""
        ...


def under_pressure(spec: RetentionSpec, journal_bytes: int, free: int, total: int) -> bool:
    """Return whether segments are to go before their time."""
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
    """Decide on the oldest segment, but for what transactions and STATE say: the caller asks them.

    Args:
        view: The broker's view of topics and groups.
        shares: The queues that have messages in it.
        end: Its end.
        last_us: Broker time of its newest message.
        held_from: The smallest position that is held; None without holds.
        now_us: Broker time.
        pressure: See ``under_pressure``.
    """
    if not pressure:
        for one in shares:
            if now_us - last_us < view.retention_us(one.topic):
                return Judgement(Verdict.KEEP, Pin.RETENTION, one)
    keep = Verdict.REFUSE if pressure else Verdict.KEEP
    if held_from is not None and held_from < end:
        return Judgement(keep, Pin.HOLD)
    for one in shares:
        if view.unread_below(one):
            return Judgement(keep, Pin.GROUP, one)
    return Judgement(Verdict.REMOVE, Pin.NOTHING)
