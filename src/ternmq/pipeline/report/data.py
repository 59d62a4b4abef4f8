"""The content of a day's report: read from the tables, and reduced to the size of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.model.errors import TableError
from ternmq.pipeline.audit.schema import AUDIT
from ternmq.pipeline.deadletters.deadletters import DEAD_LETTERS
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import COUNTS, STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.spec import TableSpec
from ternmq.pipeline.tables.table import Table

_MINUTE_US: Final = 60_000_000
_DAY_US: Final = 86_400_000_000
_STEPS: Final = (1, 2, 5, 10, 15)
_POINTS: Final = 145


@dataclass(slots=True)
class Point:
    """What happened in a step of time, over everything or for one group.

    Attributes:
        counts: By name, as in the statistics.
        latency: ``p50``, ``p90``, ``p99``, ``max`` end to end in µs; empty if nothing was done.
        handling: The same from delivery to done.
        lag: Lag at its end.
    """

    counts: Mapping[str, int]
    latency: Mapping[str, int]
    handling: Mapping[str, int]
    lag: int | None = None


@dataclass(slots=True)
class Report:
    """The report's data.

    Attributes:
        day: The day.
        step_us: Length of a step.
        begins: Beginnings of steps, in µs since 1970.
        steps: All topics and groups together, one for each of ``begins``; None: nothing happened.
        lags: Lags of each (topic, group), one for each of ``begins``.
        whole: The whole day, all topics and groups together.
        rows: The day by (topic, group); group None: the senders' side.
        keys: Number of distinct keys, by topic.
        dead: Rows of ``dead_letters``.
        audit: Rows of ``audit``; None: it has not run.
    """

    day: str
    step_us: int
    begins: list[int]
    steps: list[Point | None]
    lags: dict[tuple[str, str], list[int | None]]
    whole: Point
    rows: dict[tuple[str, str | None], Point]
    keys: dict[str, int] = field(default_factory=dict)
    dead: Sequence[Mapping[str, Any]] = ()
    audit: Sequence[Mapping[str, Any]] | None = None


def gather(folder: Folder, day: str) -> Report:
    """Gather the report's data of a day (``2026-11-21``, in UTC).

    Raises:
        TableError: There are no statistics of that day.
    """
    minutes = _minutes(folder, day)
    if not len(minutes):
        empty = "" if folder.exists() else ", which does not exist or is empty"
        raise TableError(
            f"there are no statistics of {day} in {folder.uri}{empty}: ternmq pipeline run keeps "
            "them, by the jobs trace and stats"
        )
    low, high = (int(one) for one in _ends(minutes))
    span = (high - low) // _MINUTE_US + 1
    step = next((one for one in _STEPS if span <= one * _POINTS), _STEPS[-1]) * _MINUTE_US
    begins = list(range(low // step * step, high + 1, step))
    by_step = {row["begin"]: row for row in _merged(minutes, step, ()).to_pylist()}
    report = Report(
        day,
        step,
        begins,
        [_point(by_step[at]) if at in by_step else None for at in begins],
        _lags(minutes, begins, step),
        _point(_merged(minutes, _DAY_US, ()).to_pylist()[0]),
        {
            (row["topic"], row["group"]): _point(row)
            for row in _merged(minutes, _DAY_US, ("topic", "group")).to_pylist()
        },
    )
    for (topic, group), lags in report.lags.items():
        known = [one for one in lags if one is not None]
        if known and (topic, group) in report.rows:
            report.rows[topic, group].lag = known[-1]
    report.keys = _keys(folder, day)
    report.dead = _dead(folder, day)
    report.audit = _audit(folder, day)
    return report


def _open(folder: Folder, spec: TableSpec) -> Table | None:
    if not folder.inside(spec.name).exists():
        return None
    return Table.open(folder, spec, create=False)


def _minutes(folder: Folder, day: str) -> pa.Table:
    table = _open(folder, STATS_MINUTE)
    if table is None:
        return STATS_MINUTE.schema.empty_table()
    return table.read_files([one for one in table.files() if one.partition["hour"][:10] == day])


def _ends(minutes: pa.Table) -> tuple[int, int]:
    found = pc.min_max(minutes["begin"].cast(pa.int64())).as_py()
    return found["min"], found["max"]


def _merged(minutes: pa.Table, step: int, by: Sequence[str]) -> pa.Table:
    """Return statistics merged by some of their keys, with times as numbers."""
    for name in ("topic", "group", "app"):
        if name not in by:
            nothing = pa.nulls(len(minutes), pa.string())
            minutes = minutes.set_column(minutes.schema.get_field_index(name), name, nothing)
    merged = stats.merge(minutes, STATS_DAY if step == _DAY_US else STATS_MINUTE, step)
    at = merged.schema.get_field_index("begin")
    return merged.set_column(at, "begin", merged["begin"].cast(pa.int64()))


def _point(row: Mapping[str, Any]) -> Point:
    def latency(name: str) -> dict[str, int]:
        found = {one: row[f"{name}_{one}_us"] for one in ("p50", "p90", "p99", "max")}
        return {one: value for one, value in found.items() if value is not None}

    counts = {name: row[name] or 0 for name in COUNTS}
    return Point(counts, latency("end_to_end"), latency("handling"))


def _lags(
    minutes: pa.Table, begins: Sequence[int], step: int
) -> dict[tuple[str, str], list[int | None]]:
    """Return the lag of each group at the end of each step; it lasts until the next value."""
    told = minutes.filter(pc.is_valid(minutes["lag"])).sort_by("begin")
    names = ["topic", "group", "lag"]
    found: dict[tuple[str, str], list[int | None]] = {}
    times = told["begin"].cast(pa.int64()).to_pylist()
    for begin, row in zip(times, told.select(names).to_pylist(), strict=True):
        values = found.setdefault((row["topic"], row["group"]), [None] * len(begins))
        values[(begin - begins[0]) // step] = row["lag"]
    for values in found.values():
        last = None
        for at, value in enumerate(values):
            last = values[at] = last if value is None else value
    return found


def _keys(folder: Folder, day: str) -> dict[str, int]:
    table = _open(folder, STATS_HOUR)
    if table is None:
        return {}
    merged = stats.merge(table.read(day=day), STATS_DAY).to_pylist()
    found = {
        row["topic"]: row["distinct_keys"] for row in merged if row["distinct_keys"] is not None
    }
    days = _open(folder, STATS_DAY)
    if days is not None:
        # The sketches of tables of version 2 could not be converted, but the day was counted.
        for row in days.read(month=day[:7]).to_pylist():
            if row["begin"].date().isoformat() == day and row["distinct_keys"] is not None:
                found.setdefault(row["topic"], row["distinct_keys"])
    return found


def _dead(folder: Folder, day: str) -> list[dict[str, Any]]:
    table = _open(folder, DEAD_LETTERS)
    rows = [] if table is None else table.read(day=day).to_pylist()
    return sorted(rows, key=lambda row: (-row["count"], row["topic"], row["fingerprint"]))


def _audit(folder: Folder, day: str) -> list[dict[str, Any]] | None:
    table = _open(folder, AUDIT)
    if table is None:
        return None
    rows: list[dict[str, Any]] = table.read(day=day).sort_by("bucket").to_pylist()
    return rows


def day_of(text: str, now_us: int) -> str:
    """Return the day of a text: a date, ``today`` or ``yesterday``.

    Raises:
        ValueError: It is no date.
    """
    today = now_us // _DAY_US
    number = {"today": today, "yesterday": today - 1}.get(text.lower())
    if number is not None:
        return datetime.fromtimestamp(number * 86_400, UTC).date().isoformat()
    return date.fromisoformat(text).isoformat()
