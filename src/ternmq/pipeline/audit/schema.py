"""The tables of the audit, and what their columns mean.

A change of a table's columns raises its version, here and in ``docs/reference/tables.md``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.archive.schema import INSTANT
from ternmq.pipeline.tables.datafile import TableSpec

BUCKET_US: Final = 600_000_000
"""A window: ten minutes of born time, as producers count."""

AUDIT: Final = TableSpec(
    name="audit",
    version=1,
    schema=pa.schema(
        [
            ("bucket", INSTANT),
            ("tier", pa.string()),
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("group", pa.string()),
            ("verdict", pa.string()),
            ("final", pa.bool_()),
            ("producers", pa.int64()),
            ("unverified", pa.int64()),
            ("sent", pa.int64()),
            ("stored", pa.int64()),
            ("left_out", pa.int64()),
            ("given_up", pa.int64()),
            ("lost", pa.int64()),
            ("doubled", pa.int64()),
            ("late", pa.int64()),
            ("delivered", pa.int64()),
            ("settled", pa.int64()),
            ("passed", pa.int64()),
            ("expired", pa.int64()),
            ("archived", pa.int64()),
            ("sent_sum", pa.int64()),
            ("stored_sum", pa.int64()),
            ("delivered_sum", pa.int64()),
            ("settled_sum", pa.int64()),
            ("archived_sum", pa.int64()),
            ("day", pa.date32()),
            ("schema_version", pa.int32()),
        ]
    ),
    partition_by=("day",),
    bounds=("bucket",),
)
"""One row for each window, topic and tier: ``stored`` (what producers sent and the broker stored),
``group`` (a row for each group), ``archive``. ``*_sum``: sums of ids, as ``spans.id_sums``."""

FINDINGS: Final = TableSpec(
    name="audit_findings",
    version=1,
    schema=pa.schema(
        [
            ("bucket", INSTANT),
            ("tier", pa.string()),
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("group", pa.string()),
            ("kind", pa.string()),
            ("message_id", pa.string()),
            ("producer_id", pa.int64()),
            ("sequence", pa.int64()),
            ("queue", pa.int32()),
            ("offset", pa.int64()),
            ("count", pa.int64()),
            ("detail", pa.string()),
            ("day", pa.date32()),
            ("schema_version", pa.int32()),
        ]
    ),
    partition_by=("day",),
    bounds=("bucket",),
)
"""One row for each message or producer that is a reason for a verdict other than ``ok``."""

RUNS: Final = TableSpec(
    name="audit_runs",
    version=1,
    schema=pa.schema(
        [
            ("bucket", INSTANT),
            ("kind", pa.string()),
            ("topic", pa.string()),
            ("topic_number", pa.int64()),
            ("group", pa.string()),
            ("queue", pa.int32()),
            ("start", pa.int64()),
            ("stop", pa.int64()),
            ("producer_id", pa.int64()),
            ("sequence", pa.int64()),
            ("until", pa.int64()),
            ("sent", pa.int64()),
            ("given_up", pa.int64()),
            ("left_out", pa.int64()),
            ("closed", pa.bool_()),
            ("late", pa.bool_()),
            ("position", pa.int64()),
            ("hour", pa.string()),
            ("schema_version", pa.int32()),
        ]
    ),
    partition_by=("hour",),
    bounds=("bucket",),
)
"""The audit's memory of the journal, as runs of offsets and sequences; private to the audit.
``hour`` is the hour of the bucket, in UTC: ``2026-11-21T12``."""
