"""The tables of the trace: the state of every message in every group.

A change of a table's columns raises its version, here and in ``docs/reference/tables.md``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.archive.schema import INSTANT
from ternmq.pipeline.tables.datafile import TableSpec

STORED: Final = 0
LEASED: Final = 1
WAITING: Final = 2
RELEASED: Final = 3
HELD: Final = 4
DONE: Final = 5
DEAD: Final = 6
SKIPPED: Final = 7
EXPIRED: Final = 8
STATES: Final = (
    "stored", "leased", "waiting", "released", "held", "done", "dead", "skipped", "expired",
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
    version=1,
    schema=pa.schema(
        [
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("queue", pa.int32()),
            ("offset", pa.int64()),
            ("group", pa.string()),
            ("group_number", pa.int64()),
            ("message_id", pa.string()),
            ("producer_id", pa.int64()),
            ("sequence", pa.int64()),
            ("born_time", INSTANT),
            ("stored_time", INSTANT),
            ("position", pa.int64()),
            ("first_delivered", INSTANT),
            ("last_delivered", INSTANT),
            ("deliveries", pa.int32()),
            ("attempts", pa.int32()),
            ("first_client", pa.string()),
            ("last_client", pa.string()),
            ("last_app", pa.string()),
            ("state", pa.string()),
            ("state_time", INSTANT),
            ("end_to_end_us", pa.int64()),
            ("handling_us", pa.int64()),
            ("last_cause", pa.string()),
            ("last_reason", pa.string()),
            ("failures", pa.list_(FAILURE)),
            ("round", pa.int32()),
            ("open", pa.int32()),
            ("hour", pa.string()),
            ("schema_version", pa.int32()),
        ]
    ),
    partition_by=("hour",),
    bounds=("topic_number", "queue", "offset", "position", "state_time", "open"),
)
"""One row for each message and group; for a message that no group receives, one without a group.
``hour`` is that of the stored time, in UTC (``2026-11-21T12``). Each file has rows of one queue and
of one block of offsets (``blocks``)."""

KNOWN: Final = TableSpec(
    name="trace_known",
    version=1,
    schema=pa.schema(
        [
            ("kind", pa.string()),
            ("position", pa.int64()),
            ("gone", pa.int64()),
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("queue", pa.int32()),
            ("group", pa.string()),
            ("group_number", pa.int64()),
            ("cursors", pa.list_(pa.int64())),
            ("number", pa.int64()),
            ("producer_id", pa.int64()),
            ("sequence", pa.int64()),
            ("born_time", INSTANT),
            ("schema_version", pa.int32()),
        ]
    ),
)
"""State that a fold needs besides its events: ``group`` (its topic, when and where it began),
``prepared`` (rows that a transaction may still make visible), ``cursor`` and ``end`` (cursors of
groups and ends of queues)."""

EVENTS: Final = (
    "position", "part", "time", "kind", "topic_number", "topic", "queue", "group_number", "group",
    "start", "stop", "rows", "producer_id", "sequence", "born_time", "bytes", "app", "client",
    "attempt", "deliveries", "round", "outcome", "cause", "reason", "cursor", "decision",
    "name", "detail", "refers_to",
)  # fmt: skip
"""The columns of the journal source that a fold reads."""
