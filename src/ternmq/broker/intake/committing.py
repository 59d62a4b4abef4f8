"""What the commits of both kinds of transactions do alike.

Rows get their offsets, and rows with due times their entries, at one RESOLVED record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ternmq.broker.catalog.catalog import Queue
from ternmq.broker.intake.scheduling import Scheduling
from ternmq.broker.ledger.factkinds import RESOLVED
from ternmq.broker.ledger.ledger import Ledger
from ternmq.broker.ledger.views import Views
from ternmq.broker.transaction.checked import CheckedBatch
from ternmq.record.fact.transactions import DuePart, Part, Resolved


class Places(NamedTuple):
    """What becomes of prepared batches.

    Attributes:
        parts: Those whose rows become messages, with their offsets.
        due: Those whose rows become scheduled, with their entries.
        gone: Positions of those whose topic was deleted.
    """

    parts: Sequence[Part]
    due: Sequence[DuePart]
    gone: Sequence[int]


def places_of(views: Views, now_us: int, batches: Iterable[CheckedBatch]) -> Places:
    """Return what becomes of batches that are committed now, in their order.

    Rows that were due before are due now: no row is due before the record that schedules it.
    """
    topics = views.catalog.topics
    following: dict[tuple[int, int], int] = {}
    entry = views.schedule.next_entry
    parts: list[Part] = []
    due: list[DuePart] = []
    gone: list[int] = []
    for position, tag_mask, number, queue, rows, length, due_us in batches:
        topic = topics.get(number)
        if topic is None:
            gone.append(position)
        elif due_us:
            times = [max(one, now_us) for one in due_us]
            due.append(DuePart(position, entry, number, queue, times, length))
            entry += rows
        else:
            place = number, queue
            first = following.get(place)
            if first is None:
                first = topic.queues[queue].next
            following[place] = first + rows
            parts.append(Part(position, first, tag_mask, number, queue, rows, length))
    return Places(parts, due, gone)


def rows_of(places: Places) -> int:
    """Return the number of rows that become messages or scheduled messages."""
    rows = sum([part.rows for part in places.parts])
    return rows + sum([len(part.due_us) for part in places.due])


def record(ledger: Ledger, scheduling: Scheduling, now_us: int, fact: Resolved) -> list[Queue]:
    """Record a decision, look up first offsets, and set timers; return the queues that grew.

    Raises:
        DiskFull, Busy: Nothing was changed; a later attempt may succeed.
    """
    catalog = ledger.views.catalog
    grown = dict.fromkeys([(part.topic, part.queue) for part in fact.parts])
    touched = [catalog.topics[topic].queues[queue] for topic, queue in grown]
    empty = [queue for queue in touched if queue.first == queue.next]
    ledger.admit(now_us, RESOLVED, fact)
    kept_from = ledger.journal.first + ledger.journal.segment_size
    stored = [part.position for part in fact.parts] + [part.position for part in fact.due]
    if min(stored, default=kept_from) < kept_from:
        ledger.judge_again()  # the oldest segment, which may be about to go, holds these rows
    for queue in empty:
        catalog.firsts.look_up(queue)
    for part in fact.due:
        scheduling.arm(part.topic, min(part.due_us))
    return touched
