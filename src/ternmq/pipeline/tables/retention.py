"""Retention of tables: whole old partitions leave, without reading a file.

The archive still stores how far it is: rows that have left are not archived again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ternmq.model.errors import InvalidRequest
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.table import Table, deciding_anew

_DAY_US: Final = 86_400_000_000
DATED: Final = ("day", "hour")


def oldest_kept(now_us: int, keep_days: int) -> str:
    """Return the oldest day that is kept, as ``2026-11-21``."""
    oldest_us = now_us - keep_days * _DAY_US
    return datetime.fromtimestamp(oldest_us // 1_000_000, UTC).date().isoformat()


def expire(table: Table, now_us: int, keep_days: int) -> list[DataFile]:
    """Remove what is older than ``keep_days`` from a table; return the files that left it.

    They stay in the folder until they are cleaned up.

    Args:
        table: A table that is partitioned by ``day`` or ``hour``.
        now_us: Now, µs since 1970.
        keep_days: Days to keep besides today.

    Raises:
        InvalidRequest: The table is not partitioned by time, or ``keep_days`` is negative.
    """
    column = next((one for one in DATED if one in table.spec.partition_by), None)
    if column is None or keep_days < 0:
        raise InvalidRequest(
            f"the table {table.spec.name} cannot be cut to the last {keep_days} days: "
            + ("keep 0 or more" if column else "it is not divided by time")
        )
    oldest = oldest_kept(now_us, keep_days)

    def attempt() -> list[DataFile]:
        # ISO dates, with or without an hour, sort in the order of time.
        old = [one for one in table.files() if one.partition[column] < oldest]
        table.commit(remove=old)
        return old

    table.refresh()
    return deciding_anew(table, attempt)
