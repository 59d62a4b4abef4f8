"""Statistics: events summed by minute, topic, group and app; merging; rolling up.

A row without a group is the senders' side: stored messages. ``lag`` is the number of messages of
the topic not yet delivered to the group at the end of the minute; it is the same for all apps of
the group, and is stored in the row without an app.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.stats.schema import COUNTS, KEY, LATENCIES, SHARES, STATS_MINUTE, STEPS_US
from ternmq.pipeline.stats.sketches import Distinct, Logs
from ternmq.pipeline.tables.numbers import NULL, Numbers, from_position, member, numbers
from ternmq.pipeline.tables.spec import TableSpec

_MINUTE_US: Final = STEPS_US["stats_minute"]
_KINDS: Final = ("stored", "resolved", "pulled", "skipped", "settled", "ended")
_STORED, _RESOLVED, _PULLED, _SKIPPED, _SETTLED, _ENDED = range(6)
_OUTCOMES: Final = ("done", "retry", "released", "dead", "held")
_DONE, _RETRY, _RELEASED, _DEAD, _HELD = range(5)
_CAUSES: Final = ("operator", "expired", "failed")
_OPERATOR, _EXPIRED, _FAILED = range(3)
_DECISIONS: Final = ("committed",)
_COMMITTED: Final = 0
_OF_DONE: Final = ("end_to_end", "handling")
"""Latencies of messages that are done; ``lateness`` is of those that were scheduled."""
_LONG: Final = {"hour": 13, "day": 10, "month": 7}


def of_events(topic: str, events: pa.Table, done: pa.Table, begin: int) -> pa.Table:
    """Return the statistics by minute of a queue's events (without ``lag``), to be merged.

    Args:
        topic: Its topic.
        events: Columns ``trace.schema.EVENTS``.
        done: ``trace.fold.Folded.done``, with latencies.
        begin: Events before this position were counted already.
    """
    events = from_position(events, begin)
    done = done.filter(pc.greater_equal(done["position"], begin))
    rows, size = numbers(events["rows"], 0), numbers(events["bytes"], 0)
    kind, outcome = member(events["kind"], _KINDS), member(events["outcome"], _OUTCOMES)
    cause, decision = member(events["cause"], _CAUSES), member(events["decision"], _DECISIONS)
    stored = (kind == _STORED) | ((kind == _RESOLVED) & (decision == _COMMITTED))
    pulled, settled = kind == _PULLED, kind >= _SETTLED
    ended = settled & (outcome == _DONE)
    chosen = {
        "stored": stored,
        "delivered": pulled,
        "redelivered": pulled & (numbers(events["deliveries"], 0) > 1),
        "done": ended & (cause < 0),
        "released": settled & (outcome == _RELEASED),
        "retried": settled & (outcome == _RETRY) & (cause != _OPERATOR),
        "dead": (settled & (outcome >= _DEAD)) | (ended & (cause == _FAILED)),
        "expired": ended & (cause == _EXPIRED),
        "skipped": (kind == _SKIPPED) | (ended & (cause == _OPERATOR)),
    }
    some = np.zeros(len(events), bool)
    told = {}
    for name, which in chosen.items():
        some |= which
        told[name] = np.where(which, rows, 0)
    told["stored_bytes"] = np.where(stored, size, 0)
    counts = pa.table(
        {
            "begin": _floor(numbers(events["time"]), _MINUTE_US),
            "group": events["group"],
            "app": pc.if_else(pa.array(stored), None, events["app"].combine_chunks()),
            **{name: pa.array(values) for name, values in told.items()},
        }
    ).filter(pa.array(some))
    added = counts.group_by(["begin", "group", "app"]).aggregate([(name, "sum") for name in COUNTS])
    added = added.rename_columns({f"{name}_sum": name for name in COUNTS})
    of = pa.table(
        {
            "begin": _floor(numbers(done["time"]), _MINUTE_US),
            "group": done["group"],
            "app": done["app"],
            **{name: done[f"{name}_us"] for name in _OF_DONE},
        }
    )
    found = [added, _latencies(of, _OF_DONE), _lateness(events, kind == _STORED)]
    return pa.concat_tables([complete(one, topic) for one in found])


def _lateness(events: pa.Table, stored: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the lateness of scheduled messages that were delivered."""
    late = numbers(events["time"]) - numbers(events["due"], 0)
    rows = np.where(stored & events["entry"].is_valid().to_numpy(), numbers(events["rows"], 0), 0)
    begin = numbers(_floor(numbers(events["time"]), _MINUTE_US)).repeat(rows)
    nothing = pa.nulls(len(begin), pa.string())
    of = pa.table({"begin": begin, "group": nothing, "app": nothing, "lateness": late.repeat(rows)})
    return _latencies(of, ("lateness",))


def _floor(times: Numbers, step: int) -> pa.Array:
    return pa.array(times // step * step, pa.int64())


def _latencies(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return a row for each minute, group and app, with sketches."""
    which, keys = _grouped(rows, ["begin", "group", "app"])
    for name in names:
        values = numbers(rows[name])
        there = values != NULL
        sketches = Logs.of(which[there], values[there], len(keys))
        keys = keys.append_column(name, sketches.column())
    return keys


def _grouped(rows: pa.Table, names: list[str]) -> tuple[Numbers, pa.Table]:
    """Number the distinct combinations of columns; return each row's number, and the list."""
    numbered = rows.select(names).append_column("row", pa.array(np.arange(len(rows))))
    grouped = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
    lists = grouped["row_list"].combine_chunks()
    which = np.zeros(len(rows), np.int64)
    members = lists.flatten().to_numpy(zero_copy_only=False)
    which[members] = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return which, grouped.select(names)


def complete(rows: pa.Table, topic: str | None = None) -> pa.Table:
    """Return rows with all columns needed for merging."""
    made = {}
    for name in (*KEY, *COUNTS, "lag", *LATENCIES, "keys"):
        kind = STATS_MINUTE.schema.field(name).type
        if name == "topic" and topic is not None:
            made[name] = pa.repeat(pa.scalar(topic), len(rows))
        elif name in rows.schema.names:
            made[name] = rows[name].cast(kind)
        else:
            made[name] = (
                pa.repeat(pa.scalar(0), len(rows)) if name in COUNTS else pa.nulls(len(rows), kind)
            )
    return pa.table(made)


def lags(topic: str, begin: Numbers, group: list[str], lag: Numbers) -> pa.Table:
    """Return rows with the lags of groups, to be merged."""
    rows = pa.table({"begin": pa.array(begin), "group": pa.array(group, pa.string()), "lag": lag})
    return complete(rows, topic)


def merge(rows: pa.Table, spec: TableSpec, step_us: int = 0) -> pa.Table:
    """Merge rows of statistics into one for each time, topic, group and app.

    Counts are added, sketches merged; the lag is that of the latest row.

    Args:
        rows: Rows with any times.
        spec: Table of the result: times are rounded down to its steps,
        step_us: or to this step.
    """
    rows = complete(rows).sort_by("begin")  # a stable sort: the last lag counts
    begin = _floor(numbers(rows["begin"]), step_us or STEPS_US[spec.name])
    rows = rows.set_column(0, "begin", begin)
    which, keys = _grouped(rows, list(KEY))
    count = len(keys)
    made: dict[str, pa.Array | pa.ChunkedArray] = {name: keys[name] for name in KEY}
    for name in COUNTS:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, which, numbers(rows[name], 0))
        made[name] = pa.array(sums)
    made["lag"] = _last(which, numbers(rows["lag"]), count)
    for name in LATENCIES:
        sketches = Logs.merged(rows[name], which, count)
        made[name] = sketches.column()
        for shown, share in SHARES.items():
            made[f"{name}_{shown}_us"] = sketches.quantile(share)
        made[f"{name}_max_us"] = sketches.largest()
    there = rows["keys"].is_valid().to_numpy()
    if there.any():
        distinct = Distinct.merged(rows["keys"], which, count)
        made["keys"], made["distinct_keys"] = distinct.column(), distinct.estimates()
    else:
        made["keys"], made["distinct_keys"] = (
            pa.nulls(count, pa.binary()),
            pa.nulls(count, pa.int64()),
        )
    part = spec.partition_by[0]
    times = keys["begin"].combine_chunks().cast(pa.timestamp("us"))
    made[part] = pc.utf8_slice_codeunits(pc.strftime(times, "%Y-%m-%dT%H"), 0, _LONG[part])
    made["schema_version"] = pa.repeat(pa.scalar(spec.version), count)
    kinds = spec.schema
    made["begin"] = keys["begin"].combine_chunks()
    whole = pa.table([made[one.name].cast(one.type) for one in kinds], schema=kinds)
    return whole.sort_by([(name, "ascending") for name in KEY])


def _last(which: Numbers, lag: Numbers, count: int) -> pa.Array:
    """Return the last known lag of each group."""
    found = np.full(count, NULL)
    there = lag != NULL
    found[which[there]] = lag[there]
    return pa.array(found, pa.int64(), mask=found == NULL)


def distinct_keys(rows: pa.Table, spec: TableSpec) -> pa.Table:
    """Return rows of statistics with the number of distinct keys.

    Args:
        rows: Rows of the archive: ``topic``, ``stored_time``, ``key``.
        spec: Table of the result.
    """
    begin = _floor(numbers(rows["stored_time"]), STEPS_US[spec.name])
    some = pa.table({"begin": begin, "topic": rows["topic"]})
    which, keys = _grouped(some, ["begin", "topic"])
    texts = rows["key"].combine_chunks()
    sketches = Distinct.of(which, texts, len(keys))
    return complete(keys.append_column("keys", sketches.column()))
