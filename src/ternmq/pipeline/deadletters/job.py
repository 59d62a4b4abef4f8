"""The job ``deadletters``: counts new dead letters by day and cause.

Reads the trace, so any day can be counted again as long as the trace has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa

from ternmq.model import words
from ternmq.model.errors import TableError
from ternmq.pipeline.deadletters.deadletters import (
    COLUMNS,
    DEAD_LETTERS,
    DEATHS,
    deaths,
    files_since,
    of_day,
)
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.job.packets import packed, unpacked
from ternmq.pipeline.job.spread import SPARK_FROM_MB, spread
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table, deciding_anew, read_files
from ternmq.pipeline.trace.schema import TRACE

_APP: Final = "deadletters"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DAYS: Final = 31
_DAY_US: Final = 86_400_000_000


class DeadLettersJob:
    """Counts dead letters since the last run; implements ``job.Job``."""

    name: Final = "deadletters"
    tables: tuple[TableSpec, ...] = (DEAD_LETTERS,)
    settings: tuple[Setting, ...] = (
        Setting("days", 1, "Number of days before today that each run counts again."),
        SPARK_FROM_MB,
    )
    keeps_journal: Final = False

    def run(self, context: Context) -> Outcome:
        """Count the days since the last run."""
        try:
            trace = context.open(TRACE, create=False)
        except TableError:
            return Outcome(findings=["there is no trace yet: run the job trace"])
        table = context.open(DEAD_LETTERS)
        today = context.now_us // _DAY_US
        known = table.remembered(_APP)
        begin = today - _MOST_DAYS if known is None else min(known, today)
        begin = max(min(begin, today - context.integer("days")), 0)
        counted = _counted(context, trace, begin, today + 1)
        rows = 0
        for number in range(begin, today + 1):
            remember = {_APP: today} if number == today else {}
            rows += deciding_anew(table, partial(_put, table, counted, number, remember))
            context.check()
        return Outcome(rows=rows)


@dataclass(slots=True, frozen=True)
class Counting:
    """Counts the dead letters of a file of the trace; may be called by any process.

    Attributes:
        folder: Folder of the trace.
        begin: The first day, in days since 1970.
        stop: One above the last day.
    """

    folder: Folder
    begin: int
    stop: int

    def __call__(self, file: DataFile) -> bytes:
        """Return rows of ``DEATHS``, packed."""
        rows = read_files(self.folder, TRACE, [file], COLUMNS)
        return packed(deaths(rows, self.begin, self.stop))


def _counted(context: Context, trace: Table, begin: int, stop: int) -> pa.Table:
    files = files_since(trace, begin * _DAY_US)
    size = sum(one.size for one in files)
    what = f"deadletters: {words.counted(len(files), 'file')}"
    parts = spread(context, what, Counting(trace.folder, begin, stop), files, size)
    return pa.concat_tables([DEATHS.empty_table(), *map(unpacked, parts)])


def _put(table: Table, counted: pa.Table, number: int, remember: dict[str, int]) -> int:
    """Replace the rows of a day; return the number written: 0 if nothing changed."""
    day, before = _day(number), _day(number - 1)
    known = {
        (row["topic"], row["group"], row["fingerprint"]): row["count"]
        for row in table.read(day=before).to_pylist()
    }
    rows = of_day(counted, day, known)
    if table.read(day=day).equals(rows):
        if any(table.remembered(app) != last for app, last in remember.items()):
            table.commit(remember=remember)
        return 0
    table.replace(rows, remember, day=day)
    return len(rows)


def _day(number: int) -> str:
    return (_EPOCH + timedelta(days=number)).date().isoformat()
