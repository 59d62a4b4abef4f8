"""Statistics against counting event by event."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import COUNTS, STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace.queue import KINDS
from tests.unit.pipeline.due_streams import DueStream
from tests.unit.pipeline.test_trace import fold
from tests.unit.pipeline.trace_reference import MINUTE, micros
from tests.unit.pipeline.trace_streams import TOPICS, Stream


def counted(events):
    """Return counts by (minute, topic, group, app), as a person would count them."""
    found: defaultdict[Any, Counter[str]] = defaultdict(Counter)
    for one in events:
        kind, outcome, cause = one["kind"], one.get("outcome"), one.get("cause")
        key = one["time"] // MINUTE * MINUTE, one["topic"], one.get("group"), one["app"]
        rows = one.get("rows", 0)
        if kind == "stored" or one.get("decision") == "committed":
            found[key] += Counter(stored=rows, stored_bytes=one.get("bytes", 0))
        elif kind == "pulled":
            found[key] += Counter(delivered=rows)
            if one["deliveries"] > 1:
                found[key] += Counter(redelivered=rows)
        elif kind == "skipped":
            found[key] += Counter(skipped=rows)
        elif kind in {"settled", "ended"}:
            name = {"retry": "retried", "held": "dead"}.get(outcome, outcome)
            if outcome == "done":
                name = {"operator": "skipped", "expired": "expired", "failed": "dead"}.get(
                    cause, "done"
                )
            if not (outcome == "retry" and cause == "operator"):
                found[key] += Counter({name: rows})
    return {key: +counts for key, counts in found.items() if +counts}


def lags(events):
    """Return how far each group was behind at the end of each minute in which a topic had facts."""
    ends: Counter[Any] = Counter()
    cursors, topics, found = {}, {}, {}
    minutes = sorted({one["time"] // MINUTE * MINUTE for one in events})
    for minute in minutes:
        some = [one for one in events if minute <= one["time"] < minute + MINUTE]
        for one in some:
            place = one.get("topic_number"), one.get("queue")
            if one["kind"] == "stored" or one.get("decision") == "committed":
                ends[place] = one["stop"]
            elif one.get("name") == "subscribed":
                told = json.loads(one["detail"])
                topics[told["group"]] = told["topic"]
                for queue, cursor in enumerate(told["cursors"]):
                    cursors[told["topic"], queue, told["group"]] = cursor
            elif one.get("name") == "unsubscribed":
                del topics[json.loads(one["detail"])["group"]]
            elif one["kind"] == "cursor":
                cursors[*place, one["group_number"]] = one["cursor"]
        for topic in {one["topic_number"] for one in some if one["kind"] in KINDS}:
            for group, of in topics.items():
                if of == topic:
                    behind = [max(0, ends[topic, q] - cursors[topic, q, group]) for q in (0, 1)]
                    found[minute, TOPICS[topic], f"g{group}"] = sum(behind)
    return found


def of_table(rows):
    return {
        (micros(row["begin"]), row["topic"], row["group"], row["app"]): row
        for row in rows.to_pylist()
    }


@pytest.mark.row("R9")
@pytest.mark.parametrize("seed", range(6))
def test_minutes_are_what_counting_event_by_event_gives(tables, seed):
    chance = random.Random(seed)
    stream = Stream(chance)
    for _ in range(120):
        stream.step()
    cuts = chance.sample(sorted({one["position"] for one in stream.events}), chance.randrange(4))
    fold(tables, stream.events, cuts)
    rows = of_table(Table.open(tables, STATS_MINUTE).read())
    wanted = counted(stream.events)
    found = {
        key: +Counter({name: row[name] for name in COUNTS}) for key, row in rows.items()
    }  # fmt: skip
    assert {key: one for key, one in found.items() if one} == wanted
    behind = {key[:3]: row["lag"] for key, row in rows.items() if row["lag"] is not None}
    assert behind == lags(stream.events)
    latencies = defaultdict(list)
    times = {one["position"]: one["time"] for one in stream.events}
    for position, topic, _, _, group, app, whole, handling in stream.reference.done:
        key = times[position] // MINUTE * MINUTE, TOPICS[topic], f"g{group}", app
        latencies["end_to_end", *key].append(whole)
        latencies["handling", *key].append(handling)
    for (name, *which), values in latencies.items():
        row = rows[tuple(which)]
        assert row[f"{name}_max_us"] == max(values)
        exact = sorted(values)[int(0.9 * (len(values) - 1))]
        assert abs(row[f"{name}_p90_us"] - exact) <= 0.01 * exact + 1
    assert sum(row["end_to_end"] is not None for row in rows.values()) * 2 == len(latencies)


@pytest.mark.row("R9")
def test_lateness_is_the_time_from_due_to_the_delivery(tables):
    stream = DueStream(random.Random(5))
    for _ in range(200):
        stream.step()
    fold(tables, stream.events, [one["position"] for one in stream.events[60:180:60]])
    wanted: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in stream.events:
        if one["kind"] == "stored" and one.get("entry"):
            minute = one["time"] // MINUTE * MINUTE
            wanted[minute, one["topic_number"]] += [one["time"] - one["due"]] * one["rows"]
    minutes = Table.open(tables, STATS_MINUTE).read()
    names = {**TOPICS, 3: "topic-3"}
    rows = of_table(minutes)
    found = {key for key, row in rows.items() if row["lateness"] is not None}
    assert found == {(minute, names[topic], None, None) for minute, topic in wanted}
    for (minute, topic), times in wanted.items():
        row = rows[minute, names[topic], None, None]
        values = [max(0, one) for one in times]
        assert row["lateness_max_us"] == max(values)
        exact = sorted(values)[int(0.5 * (len(values) - 1))]
        assert abs(row["lateness_p50_us"] - exact) <= 0.01 * exact + 1
    hours = stats.merge(minutes, STATS_HOUR)
    assert max(hours["lateness_max_us"].to_pylist(), key=lambda one: one or 0) == max(
        max(values) for values in wanted.values()
    )


@pytest.mark.row("R9")
def test_hours_and_days_are_the_minutes_added_up(tables):
    stream = Stream(random.Random(3))
    for _ in range(200):
        stream.step()
    fold(tables, stream.events)
    minutes = Table.open(tables, STATS_MINUTE).read()
    hours = stats.merge(minutes, STATS_HOUR)
    days = stats.merge(hours, STATS_DAY)
    assert days.equals(stats.merge(minutes, STATS_DAY))
    for name in COUNTS:
        sums = {pa.compute.sum(rows[name]).as_py() for rows in (minutes, hours, days)}
        assert len(sums) == 1
    assert len(minutes) > len(hours) > len(days)
