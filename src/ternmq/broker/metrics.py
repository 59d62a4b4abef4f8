"""The core's numbers, flat: one gauge or counter a name. The shell exports them."""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.upkeep import Upkeep


class Metric(NamedTuple):
    """A number and what it means."""

    name: str
    value: int
    kind: str
    """``gauge``, or ``counter``: since the start."""
    text: str


def metrics(broker: Broker, upkeep: Upkeep) -> list[Metric]:
    """Return every number. O(groups x queues): for scrapes, not for each turn."""
    views, journal, writer = broker.views, broker.journal, broker.writer
    held = list(views.held.values())
    moving = upkeep.moving
    gauges = [
        ("topics", len(views.catalog.topics), "Topics; cap `topics`."),
        ("group_queues", len(held), "Views of a queue by a group; cap `groups` a topic."),
        ("apps", len(views.catalog.apps), "Apps; cap `apps`."),
        ("sessions", len(views.sessions.by_number), "Clients; cap `sessions`."),
        ("producers", len(views.dedup.producers), "Remembered; cap `producers`."),
        ("dedup_batches", len(views.dedup), "Batches and ids remembered; cap `dedup_batches`."),
        ("leased_rows", sum([one.leased_rows for one in held]), "In consumers' hands."),
        ("ready_rows", sum([one.ready.rows for one in held]), "Released, or parked by key."),
        ("waiting_rows", sum([one.waiting_rows for one in held]), "Wait for a retry."),
        ("dead_rows", sum([one.dead_rows for one in held]), "Dead letters."),
        (
            "most_intervals",
            max([one.open_runs() for one in held], default=0),
            "Open runs of the fullest group queue; cap `intervals`.",
        ),
        (
            "most_failures",
            max([one.waiting_rows + one.dead_rows for one in held], default=0),
            "Failed rows of the fullest group queue; cap `failures`.",
        ),
        (
            "most_parked",
            max([one.ready.rows for one in held if one.lines is not None], default=0),
            "Parked rows of the fullest ordered group queue; cap `parked`.",
        ),
        ("waiters", broker.parked_pulls, "Parked pulls; cap `waiters`."),
        ("timers", len(broker.timers), "Armed times."),
        ("journal_first", journal.first, "Oldest position kept."),
        ("journal_durable", journal.durable, "Position up to which all is on the disk."),
        ("journal_end", journal.end, "Position of the next record."),
        ("journal_room", journal.room(), "Bytes that sends may still take."),
        ("sends_blocked", int(broker.sending.blocked), "1: retention keeps unread messages."),
    ]
    counters = [
        ("records", journal.appended, "Records appended."),
        ("sends_refused_full", broker.sending.refused_full, "Sends refused for want of room."),
        ("state_sets", writer.sets_written, "STATE sets written."),
        ("state_bytes", writer.bytes_written, "Bytes of STATE written."),
        ("moved_rows", moving.moved_rows, "Owed rows copied forward."),
        ("removed_segments", moving.removed_segments, "Segments that retention removed."),
        ("expired_rows", moving.expired_rows, "Unread rows that went with a segment."),
        ("upkeep_stalls", upkeep.stalls, "STATE or MOVED found no room."),
    ]
    return [Metric(name, value, "gauge", text) for name, value, text in gauges] + [
        Metric(name, value, "counter", text) for name, value, text in counters
    ]
