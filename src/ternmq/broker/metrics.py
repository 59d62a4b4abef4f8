"""The broker's own metrics as a flat list; the server exports them."""

from __future__ import annotations

from typing import NamedTuple

from ternmq.broker.broker import Broker
from ternmq.broker.upkeep.upkeep import Upkeep


class Metric(NamedTuple):
    """A metric, its value and its help text."""

    name: str
    value: int
    kind: str
    """``gauge``, or ``counter`` (counted since the start)."""
    text: str


def metrics(broker: Broker, upkeep: Upkeep) -> list[Metric]:
    """Return all metrics. Cheap even with many topics and groups: their sums are kept."""
    views, journal, writer = broker.views, broker.journal, broker.writer
    figures = views.figures
    figures.settle()
    moving = upkeep.moving
    gauges = [
        ("topics", len(views.catalog.topics), "Topics; limit `limits.topics`."),
        (
            "group_queues",
            len(views.progress),
            "Pairs of a group and a queue that it consumes; limit per topic `limits.group_queues`.",
        ),
        (
            "broadcast_instances",
            len(views.catalog.instances),
            "Broadcast instances of all topics; limit `limits.instances`.",
        ),
        (
            "broadcast_instances_connected",
            len(views.catalog.instances) - views.catalog.instances.left,
            "Broadcast instances whose client is connected, or within the grace of its session.",
        ),
        (
            "broadcast_instances_kept",
            views.catalog.instances.left,
            (
                "Broadcast instances whose client has left: their places are kept for"
                " `limits.instance_kept`."
            ),
        ),
        (
            "members",
            views.catalog.joined.members,
            (
                "Members of all groups of mode `owned` or `exclusive`; a client is a member of at"
                " most 1,000 groups."
            ),
        ),
        (
            "unowned_queues",
            views.catalog.joined.unowned,
            "Queues that belong to no member, although their group has members.",
        ),
        (
            "offline_clients",
            views.catalog.offline_entries,
            (
                "Names and patterns of clients that are switched off (`ternmq client offline`), of"
                " all groups; at most 256 of each group."
            ),
        ),
        (
            "expiring_topics",
            len(views.catalog.expiring),
            (
                "Topics that have or had messages that expire: the broker looks for expired ones"
                " in their groups. A topic counts until it is deleted."
            ),
        ),
        ("apps", len(views.catalog.apps), "Apps; limit `limits.apps`."),
        (
            "sessions",
            len(views.sessions.by_number),
            "Sessions of clients: connected, or within their grace; limit `limits.sessions`.",
        ),
        (
            "producers",
            len(views.dedup.producers),
            "Producers that deduplication remembers; limit `limits.producers`.",
        ),
        (
            "dedup_batches",
            len(views.dedup),
            "Batches and ids that deduplication remembers; limit `limits.dedup_batches`.",
        ),
        (
            "leased_rows",
            figures.leased,
            "Messages that consumers hold, of all groups.",
        ),
        (
            "ready_rows",
            figures.ready,
            "Messages that were returned or wait behind another message of their ordering key.",
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
            (
                "Largest number of separate ranges of offsets, of one group in a queue, that are"
                " leased, ready, or done before earlier messages; limit `limits.intervals`."
            ),
        ),
        (
            "most_failures",
            figures.most_failures(),
            "Largest number of failed rows of a group in a queue; limit `limits.failures`.",
        ),
        (
            "most_parked",
            figures.most_parked(),
            "Largest number of parked rows of an ordered group in a queue; limit `limits.parked`.",
        ),
        (
            "most_ready",
            figures.most_ready(),
            (
                "Largest number of ready rows of a group in a queue;"
                " limits `limits.replay_rows` and `limits.replay_keyed_rows`."
            ),
        ),
        (
            "transactions",
            len(views.undecided.by_number),
            "Undecided named transactions; limit `limits.transactions`.",
        ),
        (
            "transaction_batches",
            max([one.count for one in views.undecided.by_number.values()], default=0),
            (
                "Batches of the largest undecided named transaction;"
                " limit `limits.transaction_batches`."
            ),
        ),
        (
            "prepared_batches",
            views.undecided.batches,
            "Prepared batches of undecided named transactions; limit `limits.prepared_batches`.",
        ),
        (
            "prepared_bytes",
            views.undecided.bytes,
            "Bytes of prepared batches of undecided named transactions; limit `limits.prepared`.",
        ),
        (
            "pinned_segments",
            views.undecided.segments,
            "Files of the journal that undecided named transactions keep.",
        ),
        (
            "checked_transactions",
            len(views.checked.by_number),
            "Undecided transactions with check-back; limit `limits.open_transactions`.",
        ),
        (
            "parked_transactions",
            len(views.checked.parked),
            "Undecided transactions that the broker no longer asks about: an operator must decide.",
        ),
        (
            "checked_bytes",
            views.checked.bytes,
            "Bytes in the journal of the batches of undecided transactions with check-back.",
        ),
        (
            "checked_settles",
            views.checked.settles,
            (
                "Ranges of messages that undecided transactions with check-back are to settle, and "
                "cursors that they are to move. They are counted as for "
                "`limits.transaction_settles`. Limit: `limits.prepared_settles`."
            ),
        ),
        (
            "producer_groups",
            len(views.producer_groups.by_name),
            "Producer groups; limit `limits.producer_groups`.",
        ),
        (
            "writers",
            len(views.writers.by_number),
            "Writers of named transactions that the broker remembers; limit `limits.writers`.",
        ),
        (
            "most_decisions",
            max([len(one.decisions) for one in views.writers.by_number.values()], default=0),
            "Largest number of decided transactions of a writer; limit `limits.decisions`.",
        ),
        (
            "scheduled_rows",
            views.schedule.rows,
            "Scheduled messages that are not due yet; limit `limits.scheduled_rows`.",
        ),
        (
            "scheduled_segments",
            views.schedule.segments,
            "Files of the journal in which scheduled messages are stored.",
        ),
        ("waiters", broker.parked_pulls, "Pulls that wait for messages."),
        (
            "timers",
            len(broker.timers),
            "Timers: ends of leases and sessions, due retries and scheduled messages.",
        ),
        ("journal_first", journal.first, "Position of the oldest byte in the journal."),
        (
            "journal_durable",
            journal.durable,
            "Durable position: everything below it is synced to the disk.",
        ),
        ("journal_end", journal.end, "Position of the next record."),
        (
            "journal_room",
            broker.ledger.room.left,
            "Bytes that sends may still take; at 0 they are refused.",
        ),
        ("holds", len(views.holds), "Holds on the journal; limit `limits.holds`."),
        (
            "hold_lag_bytes",
            max([0, *[journal.committed - one.position for one in views.holds.values()]]),
            "Bytes of the journal from the lowest hold to the commit mark.",
        ),
        (
            "holds_blocking",
            int(moving.judging.blocked_by_hold and broker.ledger.room.blocked),
            (
                "1: sends are refused, because the disk is at its limit and a hold keeps the"
                " oldest file."
            ),
        ),
        (
            "gone_names",
            len(views.gone.entries),
            "Names kept of deleted topics, deleted groups and sessions; limit `limits.gone_names`.",
        ),
        (
            "sends_blocked",
            int(broker.ledger.room.blocked),
            (
                "1: sends are refused, because the disk is at its limit and the oldest file must"
                " be kept."
            ),
        ),
    ]
    counters = [
        ("records", journal.appended, "Records written to the journal."),
        (
            "sends_refused_full",
            broker.ledger.room.refused,
            "Sends refused because there was no room.",
        ),
        (
            "transactions_expired",
            broker.transactions.expired,
            "Transactions rolled back because they stayed undecided for too long.",
        ),
        (
            "state_sets",
            writer.sets_written,
            "How often the broker wrote its state into the journal.",
        ),
        ("state_bytes", writer.bytes_written, "Bytes of state written into the journal."),
        (
            "moved_rows",
            moving.owed_copies.copied_rows,
            "Retries and dead letters copied forward before their file was removed.",
        ),
        (
            "removed_segments",
            moving.removed_segments,
            "Files of the journal that retention removed.",
        ),
        (
            "expired_rows",
            views.expired_rows,
            "Unread messages removed with their file (topics with `keep_until_consumed=False`).",
        ),
        (
            "broadcast_missed_rows",
            views.missed_rows,
            "Messages removed with their file before a broadcast instance received them.",
        ),
        (
            "broadcast_instances_removed",
            broker.broadcasting.removed,
            "Broadcast instances removed because their client did not come back in time.",
        ),
        (
            "expired_dead_rows",
            broker.expiry.dead_rows,
            "Messages that expired before a delivery or a retry, and became dead letters.",
        ),
        (
            "expired_dropped_rows",
            broker.expiry.dropped_rows,
            "Messages that expired before a delivery or a retry, and were dropped.",
        ),
        (
            "fulfilled_rows",
            broker.fulfilling.fulfilled_rows,
            "Scheduled messages that came due and were stored in their queues.",
        ),
        (
            "unreadable_scheduled_rows",
            broker.fulfilling.unreadable_rows,
            (
                "Scheduled messages that the broker gave up when they were due, because it cannot"
                " read them."
            ),
        ),
        (
            "copied_scheduled_rows",
            moving.schedule_copies.copied_rows,
            "Scheduled messages copied forward before their file was removed.",
        ),
        (
            "alarms_forgotten",
            views.alarms.forgotten,
            "Open alarms that a newer one replaced, because 1,000 were open.",
        ),
        ("upkeep_stalls", upkeep.stalls, "How often the broker had no room for its own records."),
    ]
    return [Metric(name, value, "gauge", text) for name, value, text in gauges] + [
        Metric(name, value, "counter", text) for name, value, text in counters
    ]
