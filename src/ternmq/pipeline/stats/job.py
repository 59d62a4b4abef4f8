"""The job ``stats``: rolls up the minutes of statistics, which ``trace`` writes, to hours and days.

An hour is counted again as long as minutes may still be added to it: hours before the newest hour
of the last run are final, because the journal is folded in order. The hours are computed again and
replaced, so repeating a run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.errors import TableError
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE, STEPS_US
from ternmq.pipeline.tables.datafile import DataFile, TableSpec
from ternmq.pipeline.tables.table import Table, deciding_anew

_APP: Final = "stats"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StatsJob:
    """Rolls up statistics to hours and days; implements ``job.Job``."""

    name: Final = "stats"
    tables: tuple[TableSpec, ...] = (STATS_HOUR, STATS_DAY)
    settings: tuple[Setting, ...] = (
        Setting("keys", True, "Count distinct keys; this reads the archive, if there is one."),
    )
    keeps_journal: Final = False

    def run(self, context: Context) -> Outcome:
        """Roll up what is new."""
        minutes = context.open(STATS_MINUTE)
        hours, days = context.open(STATS_HOUR), context.open(STATS_DAY)
        archive = _archive(context)
        there = sorted({one.partition["hour"] for one in minutes.files()})
        if not there:
            return Outcome()
        newest = _hour_number(there[-1])
        rows = 0
        final = hours.remembered(_APP)
        changed = sorted({one[:10] for one in there if final is None or _hour_number(one) >= final})
        for day in changed:
            counted = _of_day(minutes, archive, day, [one for one in there if one[:10] == day])
            remember = {_APP: newest} if day == changed[-1] else {}
            rows += deciding_anew(
                hours,
                partial(_put, hours, counted, {"day": day}, remember),
            )
            context.check()
        for month in sorted({day[:7] for day in changed}):
            some = [one for one in hours.files() if one.partition["day"][:7] == month]
            counted = _days(hours, some)
            rows += deciding_anew(
                days,
                partial(_put, days, counted, {"month": month}, {}),
            )
            context.check()
        return Outcome(rows=rows)


def _put(table: Table, rows: pa.Table, partition: dict[str, str], remember: dict[str, int]) -> int:
    """Replace the rows of a partition; return the number written: 0 if nothing changed."""
    if table.read(**partition).equals(rows):
        if any(table.remembered(app) != number for app, number in remember.items()):
            table.commit(remember=remember)
        return 0
    table.replace(rows, remember, **partition)
    return len(rows)


def _of_day(minutes: Table, archive: Table | None, day: str, hours: Iterable[str]) -> pa.Table:
    files = [one for hour in hours for one in minutes.files(hour=hour)]
    rows = [minutes.read_files(files)]
    begin = (datetime.fromisoformat(day).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    rows += _keys(archive, begin, begin + STEPS_US["stats_day"], STATS_HOUR)
    return stats.merge(_together(rows), STATS_HOUR)


def _days(hours: Table, files: Sequence[DataFile]) -> pa.Table:
    return stats.merge(_together([hours.read_files(files)]), STATS_DAY)


def _together(rows: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([stats.complete(one) for one in rows])


def _archive(context: Context) -> Table | None:
    if not context.settings.get("keys", True):
        return None
    try:
        return context.open(ARCHIVE, create=False)
    except TableError:
        return None


def _keys(archive: Table | None, begin: int, end: int, spec: TableSpec) -> list[pa.Table]:
    """Return rows with the number of distinct keys in a span of time, file by file."""
    found = []
    for file in [] if archive is None else archive.files():
        low, high = file.low.get("stored_time"), file.high.get("stored_time")
        if not isinstance(low, int) or not isinstance(high, int) or high < begin or low >= end:
            continue
        assert archive is not None
        rows = archive.read_files([file], ["topic", "stored_time", "key"])
        time = rows["stored_time"].cast(pa.int64())
        inside = pc.and_(pc.greater_equal(time, begin), pc.less(time, end))
        some = rows.filter(inside)
        if len(some):
            found.append(stats.distinct_keys(some, spec))
    return found


def _hour_number(hour: str) -> int:
    return (datetime.fromisoformat(hour).replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
