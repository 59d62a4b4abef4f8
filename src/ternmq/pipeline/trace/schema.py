"""The tables of the trace: the state of every message in every group.

A change of a table's columns raises its version.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from ternmq.pipeline.archive.schema import ID, PLACE
from ternmq.pipeline.tables.spec import INSTANT, VERSION, Column, TableSpec, unsigned

STORED: Final = 0
LEASED: Final = 1
WAITING: Final = 2
RELEASED: Final = 3
HELD: Final = 4
DONE: Final = 5
DEAD: Final = 6
SKIPPED: Final = 7
EXPIRED: Final = 8
FAILED: Final = 9
STATES: Final = (
    "stored", "leased", "waiting", "released", "held", "done", "dead", "skipped", "expired",
    "failed",
)  # fmt: skip
"""Names, by number. States before ``done`` are open: they will still change."""

FAILURE: Final = pa.struct(
    [
        ("time", INSTANT),
        ("attempt", pa.int32()),
        ("client", pa.string()),
        ("outcome", pa.string()),
        ("cause", pa.string()),
        ("reason", pa.string()),
    ]
)
FAILURES_KEPT: Final = 50
"""Newest failures kept of a row; a message that always fails may do so for years."""

TRACE: Final = TableSpec(
    name="trace",
    # Raise it if columns or bounds change, or if a program of before would write the table wrongly;
    # ``migration`` then converts tables file by file. See "a column of a table" in ARCHITECTURE.md.
    # Version 3 has the same columns as 2: queues share files, which programs of version 2 would
    # take for files of one queue. Version 4 has `transaction` and `settled_by`. Version 5 has the
    # same columns as 4, and the state `failed`, which programs of version 4 would take for open.
    version=5,
    columns=(
        *PLACE,
        Column("group", pa.string(), "name of the group; null if no group receives it", null=True),
        Column(
            "group_number",
            pa.int64(),
            "number of the group; a group that is deleted and created again has another number",
            null=True,
        ),
        replace(ID, null=True),
        unsigned("producer_id", "first half of the id", null=True),
        unsigned("sequence", "second half of the id", null=True),
        Column(
            "born_time",
            INSTANT,
            "time at which the sender sent the message, by the sender's clock",
            null=True,
        ),
        Column(
            "stored_time",
            INSTANT,
            "time at which the broker stored the message. This and the ids are null if the part "
            "of the journal with the message was already removed",
            null=True,
        ),
        Column(
            "position", pa.int64(), "position of the message's record in the journal", null=True
        ),
        Column(
            "transaction",
            pa.int64(),
            "number of the transaction that sent the message; null: none, or it was scheduled",
            null=True,
        ),
        Column(
            "first_delivered",
            INSTANT,
            "time of the first delivery; null: never delivered",
            null=True,
        ),
        Column("last_delivered", INSTANT, "time of the last delivery", null=True),
        Column("deliveries", pa.int32(), "number of deliveries, in all rounds"),
        Column(
            "attempts", pa.int32(), "number of attempts in this round; the retry policy limits them"
        ),
        Column("first_client", pa.string(), "client of the first delivery", null=True),
        Column("last_client", pa.string(), "client of the last delivery", null=True),
        Column("last_app", pa.string(), "app of the last delivery", null=True),
        Column(
            "state",
            pa.string(),
            "`stored`: not delivered yet. `leased`. `waiting`: it waits for its next attempt, or "
            "for another message of its key. `released`: given back. `held`: it failed, and waits "
            "for an operator. `done`. `dead`. `skipped`: a filter, a reset, a skip or an operator "
            "excluded it, or its group was deleted. `expired`: it expired and its group drops such "
            "messages, retention removed it before it was delivered, or the retention of a dead "
            "letter was over. `failed`: it failed in a broadcast instance, which has no retries "
            "and no dead letters",
        ),
        Column("state_time", INSTANT, "time since which it has this state", null=True),
        Column(
            "settled_by",
            pa.int64(),
            "number of the transaction that settled the message or gave it back last; null: a "
            "consumer or the end of a lease did this last",
            null=True,
        ),
        Column(
            "end_to_end_us",
            pa.int64(),
            "of a message that is done: time from `born_time` to done",
            null=True,
        ),
        Column(
            "handling_us",
            pa.int64(),
            "of a message that is done: time from its last delivery to done",
            null=True,
        ),
        Column("last_cause", pa.string(), "cause of the last failure", null=True),
        Column("last_reason", pa.string(), "reason of the last failure", null=True),
        Column(
            "failures",
            pa.list_(FAILURE),
            "the newest 50, oldest first; `outcome` is `retry`, `dead` or `held`, in a broadcast "
            "instance `failed`",
            null=True,
        ),
        Column(
            "round",
            pa.int32(),
            "number of resets, replays and redrives of the group on this queue, before the last "
            "event of this message",
        ),
        Column(
            "open",
            pa.bool_(),
            "true: the state can still change (`stored`, `leased`, `waiting`, `released`, `held`)",
        ),
        Column(
            "hour",
            pa.string(),
            "hour of `stored_time`, in UTC: `2026-11-21T12`. If `stored_time` is null: hour of the "
            "first known event of the message",
        ),
        VERSION,
    ),
    partition_by=("hour",),
    bounds=("topic_number", "queue", "offset", "group_number", "position", "state_time", "open"),
)
"""One row for each message and group; for a message that no group receives, one without a group.
A file has rows of one queue and of one block of offsets (``blocks``), or small numbers of rows of
many queues (``sharing``). In version 1, ``open`` was 0 or 1; before version 3, no file was shared.
"""

KNOWN: Final = TableSpec(
    name="trace_known",
    version=2,
    columns=(
        Column(
            "kind",
            pa.string(),
            "`group`, `topic`, `prepared`, `end` (of a queue), `cursor` (of a group)",
        ),
        Column("position", pa.int64(), "position of the record that created it", null=True),
        Column("gone", pa.int64(), "position of the record that ended it", null=True),
        *[replace(one, null=True) for one in PLACE[:3]],
        Column("group", pa.string(), "name of the group", null=True),
        Column("group_number", pa.int64(), "number of the group", null=True),
        Column(
            "cursors", pa.list_(pa.int64()), "where the group started, for each queue", null=True
        ),
        Column(
            "number",
            pa.int64(),
            "end of the queue, cursor, or time at which a group ended",
            null=True,
        ),
        unsigned("producer_id", "first half of the id of the first prepared message", null=True),
        unsigned("sequence", "second half of this id", null=True),
        Column("born_time", INSTANT, "born time of the prepared messages", null=True),
        VERSION,
    ),
)
"""State that a fold needs besides its events: ``group`` (its topic, when and where it began),
``prepared`` (rows that a transaction may still make visible), ``cursor`` and ``end`` (cursors of
groups and ends of queues)."""

PENDING: Final = "pending"
SCHEDULED: Final = TableSpec(
    name="scheduled",
    # Version 2 has `transaction`.
    version=2,
    columns=(
        Column("topic", pa.string(), "name of the topic", null=True),
        Column("topic_number", pa.int64(), "number of the topic"),
        Column(
            "entry",
            pa.int64(),
            (
                "number that the broker gave to the scheduled message; no other scheduled message "
                "has it"
            ),
        ),
        Column(
            "message_id",
            pa.string(),
            "`producer:sequence`, as receipts show it. This and the other values from the sender "
            "are null if the part of the journal with the message was already removed",
            null=True,
        ),
        unsigned("producer_id", "first half of the id", null=True),
        unsigned("sequence", "second half of the id", null=True),
        Column("application_id", pa.string(), "the id that the sender gave the message", null=True),
        Column(
            "born_time",
            INSTANT,
            "time at which the sender sent the message, by the sender's clock",
            null=True,
        ),
        Column("scheduled_time", INSTANT, "time at which the broker stored it", null=True),
        Column(
            "position",
            pa.int64(),
            "position in the journal of the record that scheduled it; if a transaction scheduled "
            "it, position of the decision",
            null=True,
        ),
        Column(
            "transaction",
            pa.int64(),
            "number of the transaction that it was sent in; null: none",
            null=True,
        ),
        Column("due_time", INSTANT, "time at which it is due"),
        Column(
            "state",
            pa.string(),
            "`pending`: not due yet. `delivered`: it was put into its queue. `cancelled`. `gone`: "
            "its topic was deleted before it was due",
        ),
        Column("delivered_time", INSTANT, "time at which it was put into its queue", null=True),
        Column("queue", pa.int32(), "number of this queue", null=True),
        Column("offset", pa.int64(), "offset in the queue", null=True),
        Column("cancelled_time", INSTANT, "time at which it was cancelled", null=True),
        Column(
            "cancel_cause",
            pa.string(),
            "`client`, `operator`, `unreadable` (its record is damaged), `given_up` (in a repair)",
            null=True,
        ),
        Column("gone_time", INSTANT, "time at which its topic was deleted", null=True),
        Column("open", pa.bool_(), "true: it is pending"),
        Column("day", pa.date32(), "day of `due_time`, in UTC"),
        VERSION,
    ),
    partition_by=("day",),
    bounds=("topic_number", "entry", "due_time", "open"),
)
"""One row for each scheduled message. Rows that are pending, and others, are in different files."""

EVENTS: Final = (
    "position", "part", "time", "kind", "topic_number", "topic", "queue", "group_number", "group",
    "start", "stop", "rows", "producer_id", "sequence", "born_time", "bytes", "app", "client",
    "attempt", "deliveries", "round", "outcome", "cause", "reason", "cursor", "decision",
    "name", "detail", "refers_to", "due", "entry", "transaction",
)  # fmt: skip
"""The columns of the journal source that a fold reads."""
