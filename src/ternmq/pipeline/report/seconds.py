"""Plots in seconds for a day with only minutes of activity, computed from the trace.

Statistics have a row a minute, so a first trial of a quarter of an hour would be a few points. The
trace has each message's times.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.report.data import Point, Report
from ternmq.pipeline.stats.schema import COUNTS
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.schema import TRACE

Ints = npt.NDArray[np.int64]

_SECOND_US: Final = 1_000_000
_MOST_US: Final = 15 * 60 * _SECOND_US
"""Above this span, minutes are fine enough."""
_MOST_ROWS: Final = 2_000_000
_POINTS: Final = 145
_STEPS: Final = (1, 2, 5, 10)
_COLUMNS: Final = (
    "topic", "topic_number", "queue", "offset", "group", "stored_time", "first_delivered",
    "state", "state_time", "end_to_end_us", "failures",
)  # fmt: skip
_NEVER: Final = -1


def in_seconds(folder: Folder, report: Report) -> bool:
    """Change the plots of a short day to seconds; return whether that was done.

    If a message was delivered to a group more than once, the first delivery is shown.
    """
    if (len(report.begins) - 1) * report.step_us > _MOST_US:
        return False
    rows = _trace(folder, report.day)
    if rows is None or not len(rows):
        return False
    stored, handed = _times(rows, "stored_time"), _times(rows, "first_delivered")
    ended = _times(rows, "state_time")
    done = _is(rows, "done")
    failed, died = _failures(rows)
    known = np.concatenate([stored, handed, ended[done], failed, died])
    known = known[known != _NEVER]
    low, high = int(known.min()), int(known.max())
    span = (high - low) // _SECOND_US + 1
    step = next((one for one in _STEPS if span <= one * _POINTS), 0) * _SECOND_US
    if not step:
        return False
    begins = list(range(low // step * step, high + 1, step))

    def count(times: Ints) -> list[int]:
        at = (times[times != _NEVER] - begins[0]) // step
        return [int(one) for one in np.bincount(at, minlength=len(begins))]

    latencies = rows["end_to_end_us"].to_numpy()
    seen = done & ~np.isnan(latencies)
    by_step = _percentiles((ended[seen] - begins[0]) // step, latencies[seen], len(begins))
    told = {
        "stored": count(stored[_first_of_each(rows)]),
        "delivered": count(handed),
        "done": count(ended[done]),
        "retried": count(failed),
        "dead": count(died),
    }
    nothing = dict.fromkeys(COUNTS, 0)
    report.steps = [
        Point(nothing | {name: values[at] for name, values in told.items()}, by_step[at], {})
        for at in range(len(begins))
    ]
    passed = np.where(handed != _NEVER, handed, np.where(_is(rows, "skipped"), ended, _NEVER))
    report.lags = _lags(rows, stored, passed, begins, step)
    report.begins, report.step_us = begins, step
    return True


def _trace(folder: Folder, day: str) -> pa.Table | None:
    """Return the day's rows, if they exist and are not too many."""
    if not folder.inside(TRACE.name).exists():
        return None
    table = Table.open(folder, TRACE, create=False)
    files = [one for one in table.files() if one.partition["hour"][:10] == day]
    if sum(one.rows for one in files) > _MOST_ROWS:
        return None
    return table.read_files(files, _COLUMNS)


def _times(rows: pa.Table, name: str) -> Ints:
    found: Ints = rows[name].cast(pa.int64()).fill_null(_NEVER).to_numpy().astype(np.int64)
    return found


def _is(rows: pa.Table, state: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.equal(rows["state"], state).to_numpy(), dtype=np.bool_)


def _failures(rows: pa.Table) -> tuple[Ints, Ints]:
    """Return when attempts failed that are retried, and when messages failed for the last time."""
    flat = pc.list_flatten(rows["failures"])
    times = pc.struct_field(flat, "time").cast(pa.int64()).to_numpy().astype(np.int64)
    last = pc.is_in(pc.struct_field(flat, "outcome"), pa.array(["dead", "failed"]))
    died = np.asarray(last, dtype=np.bool_)
    return times[~died], times[died]


def _first_of_each(rows: pa.Table) -> Ints:
    """Return one row of each message; the trace has one for each of its groups."""
    places = np.stack(
        [rows[name].to_numpy().astype(np.int64) for name in ("topic_number", "queue", "offset")]
    )
    found: Ints = np.unique(places, axis=1, return_index=True)[1]
    return found


def _percentiles(at: Ints, values: npt.NDArray[np.float64], count: int) -> list[dict[str, int]]:
    """Return p50, p90, p99 and the maximum of each step; empty where a step has no values."""
    order = np.lexsort((values, at))
    at, values = at[order], values[order]
    ends = np.searchsorted(at, np.arange(count + 1))
    found: list[dict[str, int]] = []
    for low, high in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        some = values[low:high]
        shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        found.append(
            {name: int(some[int(share * (len(some) - 1))]) for name, share in shares}
            if len(some)
            else {}
        )
    return found


def _lags(
    rows: pa.Table, stored: Ints, passed: Ints, begins: list[int], step: int
) -> dict[tuple[str, str], list[int | None]]:
    """Return for each group the number of undelivered messages at the end of each step."""
    ends = np.array(begins, np.int64) + step
    groups = rows.select(["topic", "group"])
    found: dict[tuple[str, str], list[int | None]] = {}
    for one in groups.group_by(["topic", "group"]).aggregate([]).to_pylist():
        if one["group"] is None:
            continue
        mask = pc.and_(pc.equal(rows["topic"], one["topic"]), pc.equal(rows["group"], one["group"]))
        mine = np.asarray(mask.fill_null(False).to_numpy(), dtype=np.bool_)
        came = np.sort(stored[mine & (stored != _NEVER)])
        went = np.sort(passed[mine & (passed != _NEVER)])
        lag = np.searchsorted(came, ends) - np.searchsorted(went, ends)
        found[one["topic"], one["group"]] = [int(max(0, value)) for value in lag]
    return found
