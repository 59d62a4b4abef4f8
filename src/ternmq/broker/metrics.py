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
    """Return every number. However many topics and groups there are: they are kept as sums."""
    views, journal, writer = broker.views, broker.journal, broker.writer
    figures = views.figures
    figures.settle()
    moving = upkeep.moving
    gauges = [
        ("topics", len(views.catalog.topics), "Topics; cap `topics`."),
        (
            "group_queues",
            len(views.held),
            "Queues that groups consume, each pair counted; cap `group_queues` a topic.",
        ),
        ("apps", len(views.catalog.apps), "Apps; cap `apps`."),
        (
            "sessions",
            len(views.sessions.by_number),
            "Clients that are here or within their grace; cap `sessions`.",
        ),
        (
            "producers",
            len(views.dedup.producers),
            "Senders that deduplication remembers; cap `producers`.",
        ),
        (
            "dedup_batches",
            len(views.dedup),
            "Batches and given ids that deduplication remembers; cap `dedup_batches`.",
        ),
        (
            "leased_rows",
            figures.leased,
            "Messages in consumers' hands, of all groups.",
        ),
        (
            "ready_rows",
            figures.ready,
            "Messages given back, or waiting behind a busy key, of all groups.",
        ),
        (
            "waiting_rows",
            figures.waiting,
            "Messages that wait for a retry, of all groups.",
        ),
        ("dead_rows", figures.dead, "Dead letters of all groups."),
        (
            "most_intervals",
            figures.most_open_runs(),
            "Open runs of the fullest group queue; cap `intervals`.",
        ),
        (
            "most_failures",
            figures.most_failures(),
            "Failed rows of the fullest group queue; cap `failures`.",
        ),
        (
            "most_parked",
            figures.most_parked(),
            "Parked rows of the fullest ordered group queue; cap `parked`.",
        ),
        (
            "most_ready",
            figures.most_ready(),
            "Messages that come again, of the fullest group queue; caps `replay_[keyed_]rows`.",
        ),
        (
            "transactions",
            len(views.undecided.by_number),
            "Transactions that are undecided; cap `transactions`.",
        ),
        (
            "transaction_batches",
            max([one.count for one in views.undecided.by_number.values()], default=0),
            "Prepared batches of the largest undecided transaction; cap `transaction_batches`.",
        ),
        (
            "prepared_batches",
            views.undecided.batches,
            "Prepared batches that are undecided; cap `prepared_batches`.",
        ),
        (
            "prepared_bytes",
            views.undecided.bytes,
            "Bytes of the journal that they take; cap `prepared`.",
        ),
        (
            "pinned_segments",
            views.undecided.segments,
            "Files of the journal that stay because of them.",
        ),
        (
            "writers",
            len(views.writers.by_number),
            "Writers of transactions that are remembered; cap `writers`.",
        ),
        (
            "most_decisions",
            max([len(one.decisions) for one in views.writers.by_number.values()], default=0),
            "Decided transactions of the writer with most of them; cap `decisions`.",
        ),
        ("waiters", broker.parked_pulls, "Pulls that wait for messages; cap `waiters`."),
        (
            "timers",
            len(broker.timers),
            "Times at which something is due: lease ends, retries, session ends.",
        ),
        ("journal_first", journal.first, "Position of the oldest byte that is kept."),
        ("journal_durable", journal.durable, "Position up to which everything is on the disk."),
        ("journal_end", journal.end, "Position of the next record."),
        ("journal_room", journal.room(), "Bytes that sends may still take; at 0 they are refused."),
        ("holds", len(views.holds), "Holds on the journal; cap `holds`."),
        (
            "hold_lag_bytes",
            max([journal.durable - one.position for one in views.holds.values()], default=0),
            "Bytes of the journal that the hold furthest behind keeps.",
        ),
        (
            "holds_blocking",
            int(moving.blocked_by_hold and broker.sending.blocked),
            "1: sends are refused, for a hold keeps the oldest file and the disk is at its limit.",
        ),
        (
            "gone_names",
            len(views.gone.entries),
            "Names kept of what is gone and the journal may mention; cap `gone_names`.",
        ),
        (
            "sends_blocked",
            int(broker.sending.blocked),
            "1: above the disk limit, and the oldest messages are unread: sends are refused.",
        ),
    ]
    counters = [
        ("records", journal.appended, "Records written to the journal."),
        ("sends_refused_full", broker.sending.refused_full, "Sends refused for want of room."),
        (
            "transactions_expired",
            broker.transactions.expired,
            "Transactions rolled back because they were undecided for too long.",
        ),
        ("state_sets", writer.sets_written, "How often the state was written into the journal."),
        ("state_bytes", writer.bytes_written, "Bytes of state written."),
        (
            "moved_rows",
            moving.moved_rows,
            "Retries and dead letters copied forward out of files that go.",
        ),
        (
            "removed_segments",
            moving.removed_segments,
            "Files of the journal that retention removed.",
        ),
        (
            "expired_rows",
            moving.removal.expired_rows,
            "Unread messages that went with a file (`keep_until_consumed` is off).",
        ),
        ("upkeep_stalls", upkeep.stalls, "How often the broker found no room for its own records."),
    ]
    return [Metric(name, value, "gauge", text) for name, value, text in gauges] + [
        Metric(name, value, "counter", text) for name, value, text in counters
    ]
