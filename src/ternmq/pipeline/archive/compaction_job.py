"""Care for the files of all tables, as a job of the pipeline: fewer files, and none too old."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ternmq.model.errors import TableConflict
from ternmq.model.words import counted, verb
from ternmq.pipeline.archive.compaction import Join, compact, size_of
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.job.spread import SPARK_FROM_MB, spread
from ternmq.pipeline.tables.cleaning import clean
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.retention import DATED, expire
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table

_HOUR_US: Final = 3_600_000_000
_CLEANED: Final = "compaction/cleaned"


class Compacting:
    """Joins small files of the archive, applies retention to tables, removes unused files.

    Args:
        looked_after: Every table of the pipeline.
    """

    name: Final = "compaction"
    tables: Final[tuple[TableSpec, ...]] = ()
    keeps_journal: Final = False

    def __init__(self, looked_after: Sequence[TableSpec]) -> None:
        self._looked_after = looked_after

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings; ``keep_<table>_days`` for each table that is partitioned by time."""
        return (
            Setting(
                "clean_hours", 6, "Hours between two searches for files that belong to no table."
            ),
            Setting(
                "clean_after_hours",
                24,
                "Hours after which a file that belongs to no table is removed.",
                1,
            ),
            SPARK_FROM_MB,
            *(
                Setting(f"keep_{one.name}_days", 0, f"Days of {one.name} to keep; 0: all.")
                for one in self._looked_after
                if set(DATED) & set(one.partition_by)
            ),
        )

    def run(self, context: Context) -> Outcome:
        """Do all three, in this order, table by table.

        Raises:
            TableError: A file is damaged.
            Stopped: A stop was requested; raised between tables.
        """
        rows = removed = 0
        for spec in self._looked_after:
            if not context.tables.inside(spec.name).exists():
                continue
            table = context.open(spec, create=False)
            if spec.name == ARCHIVE.name:
                done = compact(table, context.now_us, joining=partial(_joined, context))
                rows += done.rows
                if done.before:
                    context.progress(
                        f"{spec.name}: {counted(done.before, 'file')} became {done.after}"
                    )
            days = context.settings.get(f"keep_{spec.name}_days", 0)
            if isinstance(days, int) and days > 0:
                gone = expire(table, context.removing_us, days)
                if gone:
                    context.progress(
                        f"{spec.name}: {counted(len(gone), 'file')} "
                        f"{verb(len(gone), 'is', 'are')} too old"
                    )
            removed += self._cleaned(context, table)
            context.check()
        return Outcome(rows=rows, bytes=removed)

    def _cleaned(self, context: Context, table: Table) -> int:
        """Remove files that belong to no table; at intervals, because it lists all names."""
        hour = context.removing_us // _HOUR_US
        known = table.remembered(_CLEANED)
        if known is not None and hour < known + context.integer("clean_hours"):
            return 0
        done = clean(
            table,
            context.removing_us,
            older_than_us=context.integer("clean_after_hours") * _HOUR_US,
        )
        with suppress(TableConflict):  # another process did the same
            table.commit(remember={_CLEANED: hour})
        return done.bytes


def _joined(context: Context, join: Join, chosen: Sequence[Sequence[DataFile]]) -> Iterator[bytes]:
    size = sum(size_of(group) for group in chosen)
    return spread(context, f"compaction: {counted(len(chosen), 'group')}", join, chosen, size)
