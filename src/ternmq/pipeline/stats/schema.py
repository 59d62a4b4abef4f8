"""The tables of statistics: by minute, hour and day, with the same columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.archive.schema import INSTANT
from ternmq.pipeline.tables.datafile import TableSpec

COUNTS: Final = (
    "stored", "stored_bytes", "delivered", "redelivered", "done", "released", "retried", "dead",
    "expired", "skipped",
)  # fmt: skip
"""Columns with counts, which are summed."""
LATENCIES: Final = ("end_to_end", "handling")
"""Columns with a sketch each, beside ``_p50_us``, ``_p90_us``, ``_p99_us``, ``_max_us``."""
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
KEY: Final = ("begin", "topic", "group", "app")


def _schema(part: str) -> pa.Schema:
    fields: list[tuple[str, pa.DataType]] = [
        ("begin", INSTANT),
        ("topic", pa.string()),
        ("group", pa.string()),
        ("app", pa.string()),
        *[(name, pa.int64()) for name in COUNTS],
        ("lag", pa.int64()),
    ]
    for name in LATENCIES:
        fields.append((name, pa.binary()))
        fields += [(f"{name}_{one}_us", pa.int64()) for one in (*SHARES, "max")]
    fields += [
        ("keys", pa.binary()),
        ("distinct_keys", pa.int64()),
        (part, pa.string()),
        ("schema_version", pa.int32()),
    ]
    return pa.schema(fields)


STATS_MINUTE: Final = TableSpec("stats_minute", 1, _schema("hour"), ("hour",), ("begin",))
"""Partitioned by hour (``2026-11-21T12``)."""
STATS_HOUR: Final = TableSpec("stats_hour", 1, _schema("day"), ("day",), ("begin",))
"""Partitioned by day (``2026-11-21``)."""
STATS_DAY: Final = TableSpec("stats_day", 1, _schema("month"), ("month",), ("begin",))
"""Partitioned by month (``2026-11``)."""
STEPS_US: Final = {
    "stats_minute": 60_000_000,
    "stats_hour": 3_600_000_000,
    "stats_day": 86_400_000_000,
}
"""Length of the step of each table."""
