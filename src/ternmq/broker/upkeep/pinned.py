"""What keeps the oldest segment, by names that operators know: for STATUS and for the log."""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.upkeep.retention import Moving
from ternmq.journal.log.retention import Pin, QueueShare


class Pinned(NamedTuple):
    """What keeps the oldest segment; if there are several reasons, one of them."""

    by: Pin
    since_us: int
    """Broker time; 0 before the first look, or if the reason is newer than the last look."""
    topic: str = ""
    """The topic whose messages are kept; empty for other reasons."""
    group: str = ""
    """A group that has not finished them."""
    name: str = ""
    """Name of the hold, of the transaction's writer, or of the follower."""
    lacks_room: bool = False
    """The state must be written again behind the segment, but the reserve is too small for it."""


def pinned(ledger: Ledger, moving: Moving) -> Pinned:
    """Return what keeps the oldest segment.

    O(holds + transactions); O(queues) if what the last look found no longer holds.

    The reason found by the last look, up to a second ago; if that is gone, the reason now.
    """
    found = moving.judging.present()
    since_us = moving.judging.pinned_since_us if found.pin is moving.judging.pinned.pin else 0
    end = ledger.journal.first + ledger.journal.segment_size
    if found.pin is Pin.HOLD:
        holds = ledger.views.holds.values()
        lowest = min(holds, key=lambda one: (one.position, one.name), default=None)
        return Pinned(found.pin, since_us, name="" if lowest is None else lowest.name)
    if found.pin is Pin.FOLLOWER:
        unsent = ledger.copies.unsent
        return Pinned(found.pin, since_us, name="" if unsent is None else unsent[1])
    if found.pin is Pin.TRANSACTION:
        return Pinned(found.pin, since_us, name=_writer(ledger, end))
    if found.share is not None:
        topic = ledger.views.catalog.topics.get(found.share.topic)
        if topic is not None:
            group = _unread_by(ledger, found.share) if found.pin is Pin.GROUP else ""
            return Pinned(found.pin, since_us, topic.spec.name, group)
    return Pinned(found.pin, since_us, lacks_room=moving.refreshing.lacks_room)


def _writer(ledger: Ledger, end: int) -> str:
    """Return a writer of an undecided transaction that began in the oldest segment."""
    writers = ledger.views.writers.by_number
    for transaction in ledger.views.undecided.by_number.values():
        first = next(transaction.batches(), None)
        if first is not None and first.position < end and transaction.writer in writers:
            return writers[transaction.writer].name
    return ""


def _unread_by(ledger: Ledger, share: QueueShare) -> str:
    """Return the name of a group that must not miss the share and has not finished it."""
    topic = ledger.views.catalog.topics[share.topic]
    for number, subscription in topic.subscriptions.items():
        progress = ledger.views.progress.get((number, share.topic, share.queue))
        if progress is not None and not progress.finished(share.stop):
            return subscription.name
    return ""


def sentence(one: Pinned) -> str:
    """Return what keeps the oldest file, as a part of a sentence."""
    match one.by:
        case Pin.GROUP:
            return f"group {one.group} has not finished its messages of topic {one.topic}"
        case Pin.HOLD:
            return f"hold {one.name} keeps it"
        case Pin.TRANSACTION:
            return f"an undecided transaction of writer {one.name} has messages in it"
        case Pin.FOLLOWER:
            return f"it is still to be sent to follower {one.name}"
        case Pin.SCHEDULE:
            return "scheduled messages that are not due yet are in it; they are copied after a day"
        case Pin.CHECK_BACK:
            return "messages of undecided transactions are in it; they are copied after a day"
        case Pin.RETENTION:
            return f"topic {one.topic} keeps its messages for longer"
        case Pin.STATE if one.lacks_room:
            return (
                "the broker's state must be written after it, but the reserve has no room for this"
            )
        case Pin.STATE:
            return "the broker's state is being written after it"
        case Pin.ACTIVE:
            return "it is the only one"
        case Pin.NOTHING:
            return "nothing keeps it: it is about to be removed"
