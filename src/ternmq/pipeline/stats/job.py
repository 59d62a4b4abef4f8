"""The job ``stats``: rolls up the minutes of statistics, which ``trace`` writes, to hours and days.

An hour is counted again as long as minutes may still be added to it: hours before the newest hour
of the last run are final, because the journal is folded in order. The hours are computed again and
replaced, so repeating a run changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.errors import TableError
from ternmq.pipeline.archive.schema import ARCHIVE
from ternmq.pipeline.job.job import Context, Outcome, Setting
from ternmq.pipeline.job.packets import packed, unpacked
from ternmq.pipeline.job.spread import SPARK_FROM_MB, spread
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import KEY, STATS_DAY, STATS_HOUR, STATS_MINUTE, STEPS_US
from ternmq.pipeline.tables.datafile import DataFile
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table, deciding_anew, read_files

_APP: Final = "stats"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StatsJob:
    """Rolls up statistics to hours and days; implements ``job.Job``."""

    name: Final = "stats"
    tables: tuple[TableSpec, ...] = (STATS_HOUR, STATS_DAY)
    settings: tuple[Setting, ...] = (
        Setting("keys", True, "Count distinct keys; this reads the archive, if there is one."),
        SPARK_FROM_MB,
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
            parts = _parts(minutes, archive, day, [one for one in there if one[:10] == day])
            counted = _of_day(context, Summing(context.tables), day, parts)
            remember = {_APP: newest} if day == changed[-1] else {}
            rows += deciding_anew(
                hours,
                partial(_put, hours, counted, {"day": day}, remember),
            )
            context.check()
        for month in sorted({day[:7] for day in changed}):
            counted = _days(hours, days, month)
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


@dataclass(slots=True, frozen=True)
class Part:
    """Files that are summed on their own.

    Attributes:
        files: Files with the minutes of an hour; or a file of the archive.
        archived: They are of the archive.
        begin: Start of the day, µs since 1970.
    """

    files: tuple[DataFile, ...]
    archived: bool
    begin: int


@dataclass(slots=True, frozen=True)
class Summing:
    """Sums a part of a day; may be called by any process.

    Attributes:
        tables: The folder of all tables.
    """

    tables: Folder

    def __call__(self, part: Part) -> bytes:
        """Return rows of statistics by hour, packed."""
        return packed(self._keys(part) if part.archived else self._minutes(part))

    def _minutes(self, part: Part) -> pa.Table:
        folder = self.tables.inside(STATS_MINUTE.name)
        return stats.merge(read_files(folder, STATS_MINUTE, part.files), STATS_HOUR)

    def _keys(self, part: Part) -> pa.Table:
        folder = self.tables.inside(ARCHIVE.name)
        rows = read_files(folder, ARCHIVE, part.files, ["topic", "stored_time", "key"])
        time = rows["stored_time"].cast(pa.int64())
        end = part.begin + STEPS_US[STATS_DAY.name]
        inside = pc.and_(pc.greater_equal(time, part.begin), pc.less(time, end))
        return stats.distinct_keys(rows.filter(inside), STATS_HOUR)


def _parts(minutes: Table, archive: Table | None, day: str, hours: Iterable[str]) -> list[Part]:
    begin = (datetime.fromisoformat(day).replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    end = begin + STEPS_US[STATS_DAY.name]
    found = [Part(tuple(minutes.files(hour=hour)), False, begin) for hour in hours]
    for file in [] if archive is None else archive.files():
        low, high = file.low.get("stored_time"), file.high.get("stored_time")
        if isinstance(low, int) and isinstance(high, int) and low < end and high >= begin:
            found.append(Part((file,), True, begin))
    return found


def _of_day(context: Context, summing: Summing, day: str, parts: Sequence[Part]) -> pa.Table:
    size = sum(file.size for part in parts for file in part.files)
    sums = spread(context, f"stats: {day}", summing, parts, size)
    return stats.merge(_together([unpacked(one) for one in sums]), STATS_HOUR)


def _days(hours: Table, days: Table, month: str) -> pa.Table:
    some = [one for one in hours.files() if one.partition["day"][:7] == month]
    rows = hours.read_files(some)
    counted = stats.merge(_together([rows]), STATS_DAY)
    # Hours that were converted from version 2 have numbers of keys, and no sketches to be merged:
    # what was counted of their days stays.
    unmerged = pc.and_(pc.is_null(rows["keys"]), pc.is_valid(rows["distinct_keys"]))
    begins = pc.floor_temporal(rows.filter(unmerged)["begin"], unit="day").combine_chunks()
    before = days.read(month=month)
    before = before.filter(pc.is_in(before["begin"], begins))
    if not len(before):
        return counted
    again = pc.is_in(counted["begin"], before["begin"].combine_chunks())
    whole = pa.concat_tables([counted.filter(pc.invert(again)), before])
    return whole.sort_by([(name, "ascending") for name in KEY])


def _together(rows: list[pa.Table]) -> pa.Table:
    return pa.concat_tables([stats.complete(one) for one in rows])


def _archive(context: Context) -> Table | None:
    if not context.settings.get("keys", True):
        return None
    try:
        return context.open(ARCHIVE, create=False)
    except TableError:
        return None


def _hour_number(hour: str) -> int:
    return (datetime.fromisoformat(hour).replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
