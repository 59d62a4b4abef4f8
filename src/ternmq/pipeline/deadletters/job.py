"""The job ``deadletters``: counts new dead letters by day and cause.

Reads the trace, so any day can be counted again as long as the trace has it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from ternmq.model.errors import TableError
from ternmq.pipeline.deadletters.deadletters import DEAD_LETTERS, of_day, rows_since
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.tables.datafile import TableSpec
from ternmq.pipeline.tables.table import Table, deciding_anew
from ternmq.pipeline.trace.schema import TRACE

_APP: Final = "deadletters"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_DAYS: Final = 31


class DeadLettersJob:
    """Counts dead letters since the last run; implements ``job.Job``."""

    name: Final = "deadletters"
    tables: tuple[TableSpec, ...] = (DEAD_LETTERS,)
    settings: tuple[Setting, ...] = (
        Setting("days", 1, "Days before today that each run counts again."),
    )
    keeps_journal: Final = False

    def run(self, context: Context) -> Outcome:
        """Count the days since the last run."""
        try:
            trace = context.open(TRACE, create=False)
        except TableError:
            return Outcome(findings=["there is no trace yet: run the job trace"])
        table = context.open(DEAD_LETTERS)
        today = context.now_us // 86_400_000_000
        known = table.remembered(_APP)
        begin = today - _MOST_DAYS if known is None else min(known, today)
        begin = max(min(begin, today - context.integer("days")), 0)
        rows = 0
        for number in range(begin, today + 1):
            remember = {_APP: today} if number == today else {}
            rows += deciding_anew(table, partial(_count, table, trace, number, remember))
            context.check()
        return Outcome(rows=rows)


def _count(table: Table, trace: Table, number: int, remember: dict[str, int]) -> int:
    """Count a day; return the number of rows written."""
    day, before = _day(number), _day(number - 1)
    counted = {
        (row["topic"], row["group"], row["fingerprint"]): row["count"]
        for row in table.read(day=before).to_pylist()
    }
    rows = of_day(rows_since(trace, number * 86_400_000_000), day, counted)
    if table.read(day=day).equals(rows):
        if any(table.remembered(app) != known for app, known in remember.items()):
            table.commit(remember=remember)
        return 0
    table.replace(rows, remember, day=day)
    return len(rows)


def _day(number: int) -> str:
    return (_EPOCH + timedelta(days=number)).date().isoformat()
