"""Rows of runs: their columns, and how a table of them is made."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ternmq.pipeline.audit.schema import BUCKET_US, RUNS
from ternmq.pipeline.audit.spans import Ints
from ternmq.pipeline.tables.numbers import ints

KEPT: Final = pa.schema([one for one in RUNS.schema if one.name not in {"hour", "schema_version"}])
"""The columns of runs in memory."""
OF_GROUPS: Final = (
    "delivered", "settled", "passed", "dropped", "expired", "expired_dead", "expired_dropped",
    "parked", "reached", "watched",
)  # fmt: skip
"""Kinds about rows of groups."""
IN_QUEUES: Final = ("stored", "fulfilled")
"""Kinds of rows that are messages of a queue."""
OF_SCHEDULE: Final = ("owed", "fulfilled", "cancelled")
"""Kinds about scheduled rows in the windows in which they are due."""
WHEN_DUE: Final = (*OF_SCHEDULE, "entries")
"""Kinds whose window is that in which rows are due."""


def table(count: int, **columns: object) -> pa.Table:
    """Return rows of ``KEPT``; missing columns are null, a bare text is repeated for all rows."""
    arrays = []
    for one in KEPT:
        given = columns.get(one.name)
        if given is None:
            arrays.append(pa.nulls(count, one.type))
        elif isinstance(given, str):
            arrays.append(pa.repeat(pa.scalar(given, one.type), count))
        elif isinstance(given, pa.Array | pa.ChunkedArray):
            arrays.append(given.cast(one.type))
        else:
            arrays.append(pa.array(given).cast(one.type))
    return pa.table(arrays, schema=KEPT)


def buckets(events: pa.Table) -> Ints:
    """Return the windows in which messages were born."""
    born = ints(events["born_time"])
    return born - born % BUCKET_US


def due_buckets(events: pa.Table) -> Ints:
    """Return the windows in which messages are due."""
    due = ints(events["due"])
    return due - due % BUCKET_US


def columns(events: pa.Table, *names: str) -> dict[str, pa.ChunkedArray]:
    """Return columns by name."""
    return {name: events[name] for name in names}
