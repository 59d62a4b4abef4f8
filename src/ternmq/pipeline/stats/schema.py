"""The tables of statistics: by minute, hour and day, with the same columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.stats.sketches import renewed_distinct, renewed_quantiles
from ternmq.pipeline.tables.spec import INSTANT, VERSION, Column, TableSpec

_COUNTS: Final = {
    "stored": "number of messages stored",
    "stored_bytes": "size of their batches; for messages of a committed transaction, size of the "
    "records that hold its prepared batches",
    "delivered": "number of deliveries",
    "redelivered": "number of deliveries that were not the first of their message",
    "done": "number of deliveries that ended as done",
    "released": "number of deliveries whose message was given back",
    "retried": "number of deliveries that failed, and are tried again",
    "dead": "number of deliveries that ended as dead letters; includes held messages and, in the "
    "rows of a broadcast instance, messages that failed",
    "expired": "number of messages that expired and were dropped, and of dead letters whose "
    "retention was over",
    "skipped": "number of messages that a filter excluded, or that an operator skipped",
}
COUNTS: Final = tuple(_COUNTS)
"""Columns with counts, which are summed."""
_LATENCIES: Final = {
    "end_to_end": "times from born to done, in µs, of messages that are done",
    "handling": "times from delivery to done, in µs, of messages that are done",
    "lateness": "times by which scheduled messages were delivered to their queue after they were "
    "due, in µs; in the row without a group",
}
LATENCIES: Final = tuple(_LATENCIES)
"""Columns with a sketch each, beside ``_p50_us``, ``_p90_us``, ``_p99_us``, ``_max_us``."""
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
KEY: Final = ("begin", "topic", "group", "app")
SCHEMA_VERSION: Final = 4
"""Version of the three tables. 2: columns described in the log, dates. 3: sketches are those of
Apache DataSketches. 4: the columns of ``lateness``. To change it: the golden tables of the version
before go to ``tests/golden``, and a column whose values have another meaning gets a ``renew``."""


def _spec(name: str, step: str, part: Column) -> TableSpec:
    columns = [
        Column("begin", INSTANT, f"start of the {step}"),
        Column("topic", pa.string(), "name of the topic"),
        Column(
            "group",
            pa.string(),
            "name of the group; null in the row that counts the messages that were stored",
            null=True,
        ),
        Column(
            "app",
            pa.string(),
            "app that received or settled the messages; null in the row of the group that has its "
            "`lag` (this row also counts messages that belong to no app)",
            null=True,
        ),
        *[Column(one, pa.int64(), about) for one, about in _COUNTS.items()],
        Column(
            "lag",
            pa.int64(),
            f"messages that were not yet delivered to the group at the end of the {step}; only in "
            "the row of the group without an app",
            null=True,
        ),
    ]
    for one, about in _LATENCIES.items():
        sketch = f"KLL sketch of the {about}"
        columns.append(Column(one, pa.binary(), sketch, null=True, renew=renewed_quantiles))
        columns += [
            Column(
                f"{one}_{share}_us",
                pa.int64(),
                f"{share[1:]} % of these times are not longer; the error is at most 1 % plus "
                "0.5 µs",
                null=True,
            )
            for share in SHARES
        ]
        columns.append(Column(f"{one}_max_us", pa.int64(), "the longest of them", null=True))
    columns += [
        Column(
            "keys",
            pa.binary(),
            "HLL sketch of the keys of stored messages, if there is an archive; only for hours and "
            "days",
            null=True,
            renew=renewed_distinct,
        ),
        Column(
            "distinct_keys",
            pa.int64(),
            "number of distinct keys, computed from the sketch; its standard error is 1.6 %",
            null=True,
        ),
        part,
        VERSION,
    ]
    return TableSpec(name, SCHEMA_VERSION, tuple(columns), (part.name,), ("begin",))


STATS_MINUTE: Final = _spec(
    "stats_minute", "minute", Column("hour", pa.string(), "hour of `begin`: `2026-11-21T12`")
)
STATS_HOUR: Final = _spec("stats_hour", "hour", Column("day", pa.date32(), "day of `begin`"))
STATS_DAY: Final = _spec(
    "stats_day", "day", Column("month", pa.string(), "month of `begin`: `2026-11`")
)
STEPS_US: Final = {
    "stats_minute": 60_000_000,
    "stats_hour": 3_600_000_000,
    "stats_day": 86_400_000_000,
}
"""Length of the step of each table."""
