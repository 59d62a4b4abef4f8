"""Spark SQL's own functions read and merge the sketches of the statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("deltalake", reason="needs pyspark and a Java: pip install ternmq[spark]")

import pyarrow as pa

from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STEPS_US
from ternmq.pipeline.stats.sketches import ACCURACY, Distinct, Logs
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table

HOUR, DAY = STEPS_US["stats_hour"], STEPS_US["stats_day"]
START = 1_795_219_200_000_000
"""2026-11-21, midnight."""
HOURS = 48
SHARES = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0]
KINDS = "array(0.0D, 0.5D, 0.9D, 0.99D, 0.999D, 1.0D)"


def latencies(chance: Any, count: int) -> Any:
    """Return times in µs: most are a few ms, some retries take minutes."""
    quick, slow = chance.lognormal(8, 0.5, count), chance.lognormal(16, 2, count)
    return np.where(chance.random(count) < 0.97, quick, slow).astype(np.int64)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Folder, list[Any], list[list[str]]]:
    """Return tables of two days, the latencies of each hour, and the keys of each."""
    chance = np.random.default_rng(7)
    times = [latencies(chance, 2000) for _ in range(HOURS)]
    keys = [
        [f"ключ-{n}" for n in chance.integers(0, 20 if hour == 0 else 9000, 400).tolist()]
        for hour in range(HOURS)
    ]
    begins = pa.array(np.arange(HOURS) * HOUR + START)
    sketches = Logs.of(np.repeat(np.arange(HOURS), 2000), np.concatenate(times), HOURS).column()
    consumed = stats.complete(
        pa.table({
            "begin": begins, "group": pa.repeat("billing", HOURS),
            "done": pa.repeat(2000, HOURS), "end_to_end": sketches,
        }),
        "orders",
    )  # fmt: skip
    archived = pa.table({
        "topic": pa.repeat("orders", HOURS * 400),
        "stored_time": np.repeat(np.arange(HOURS) * HOUR + START, 400),
        "key": [one for some in keys for one in some],
    })  # fmt: skip
    stored = stats.distinct_keys(archived, STATS_HOUR)
    hours = stats.merge(pa.concat_tables([consumed, stored]), STATS_HOUR)
    tables = Folder(str(tmp_path_factory.mktemp("tables")))
    Table.open(tables, STATS_HOUR).append(hours)
    Table.open(tables, STATS_DAY).append(stats.merge(hours, STATS_DAY))
    return tables, times, keys


@pytest.fixture
def views(spark, made) -> Any:
    tables, _, keys = made
    for spec in (STATS_HOUR, STATS_DAY):
        read = spark.read.format("ternmq.table").option("tables", tables.uri).load(spec.name)
        read.createOrReplaceTempView(spec.name)
    every = [(n * HOUR // DAY, key) for n, some in enumerate(keys) for key in some]
    spark.createDataFrame(every, "day int, key string").createOrReplaceTempView("sent")
    return spark


@pytest.mark.row("R9")
def test_keys_of_hours_are_merged_to_those_of_days(views, made):
    _, _, keys = made
    merged = views.sql("""
        select hll_sketch_estimate(hll_union_agg(keys)) from stats_hour group by day order by day
    """).collect()
    days = views.sql("""
        select hll_sketch_estimate(keys), distinct_keys from stats_day
        where keys is not null order by begin
    """).collect()
    exact = [len({key for some in keys[at : at + 24] for key in some}) for at in (0, 24)]
    assert [one[0] for one in merged] == [one[0] for one in days]
    for (spark_says,), (_, ours), wanted in zip(merged, days, exact, strict=True):
        assert spark_says == pytest.approx(wanted, rel=0.05)
        assert ours == pytest.approx(spark_says, rel=0.015)
    first = views.sql("""
        select hll_sketch_estimate(keys), distinct_keys from stats_hour
        where keys is not null order by begin limit 1
    """).first()
    assert tuple(first) == (20, 20)


@pytest.mark.row("R9")
def test_keys_that_spark_has_counted_itself_are_counted_once(views):
    ours, union = views.sql("""
        with kept as (select keys from stats_day where keys is not null)
        select (select hll_sketch_estimate(hll_union_agg(keys)) from kept),
            (select hll_sketch_estimate(hll_union_agg(keys)) from (
                select keys from kept union all select hll_sketch_agg(key) from sent
            ))
    """).first()
    assert ours == union > 0


def near(found: list[int], times: Any, ranks: float = 0.0) -> None:
    """Check quantiles: within 1 %, of ranks with an error; the smallest and the largest exact."""
    in_order = np.sort(times)
    assert (found[0], found[-1]) == (in_order[0], in_order[-1])
    for share, one in zip(SHARES, found, strict=True):
        low, high = (
            in_order[int(min(max(at, 0.0), 1.0) * (len(times) - 1))]
            for at in (share - ranks, share + ranks)
        )
        assert low * (1 - ACCURACY) - 1 <= one <= high * (1 + ACCURACY) + 1, share


@pytest.mark.row("R9")
def test_times_of_hours_are_merged_to_those_of_days(views, made):
    _, times, _ = made
    merged = views.sql(f"""
        select kll_sketch_get_n_bigint(sketch) as n,
            kll_sketch_get_quantile_bigint(sketch, {KINDS}) as found
        from (select day, kll_merge_agg_bigint(end_to_end) as sketch from stats_hour group by day)
        order by day
    """).collect()
    days = views.sql(f"""
        select kll_sketch_get_n_bigint(end_to_end) as n,
            kll_sketch_get_quantile_bigint(end_to_end, {KINDS}) as found, end_to_end_p99_us as p99
        from stats_day where end_to_end is not null order by begin
    """).collect()
    assert len(merged) == len(days) == 2
    for number, rows in enumerate(zip(merged, days, strict=True)):
        exact = np.concatenate(times[number * 24 : number * 24 + 24])
        assert [row.n for row in rows] == [len(exact)] * 2
        near(rows[0].found, exact, ranks=0.003)  # Spark throws coins when it merges many values
        near(rows[1].found, exact)
        assert rows[1].p99 == pytest.approx(rows[1].found[3], rel=0.02)


@pytest.mark.row("R9")
def test_times_are_merged_with_a_sketch_that_spark_made(views):
    row = views.sql("""
        select kll_sketch_get_n_bigint(sketch) as n,
            kll_sketch_get_quantile_bigint(sketch, 1.0D) as most
        from (select kll_merge_agg_bigint(one) as sketch from (
            select end_to_end as one from stats_day
            union all select kll_sketch_agg_bigint(9000000000000000000 + id) from range(1000)
        ))
    """).first()
    assert (row.n, row.most) == (2 * 24 * 2000 + 1000, 9_000_000_000_000_000_999)


EDGES = [1, 2, 7, 8, 24, 25, 384, 385, 4096, 4097]
"""Numbers of different values at which the sketches change their form; the last two: ``kll.K``."""


@pytest.mark.row("R9")
def test_sketches_of_every_form_are_read_and_merged(spark):
    """Of one value and of two, of equal values, and on both sides of each change of the form."""
    rows = []
    for count in EDGES:
        texts, times = [f"k{n}" for n in range(count)] * 2, np.arange(count) * 1000
        keys = Distinct.of(np.zeros(2 * count, np.int64), pa.array(texts), 1)
        ours = Logs.of(np.zeros(count, np.int64), times, 1)
        equal = Logs.of(np.zeros(count, np.int64), np.full(count, 2**62), 1)
        columns = (one.column()[0].as_py() for one in (keys, ours, equal))
        rows.append((count, *map(bytearray, columns)))
    schema = "count int, keys binary, times binary, equal binary"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("edges")
    found = spark.sql("""
        select count, hll_sketch_estimate(keys) as keys, kll_sketch_get_n_bigint(times) as n,
            kll_sketch_get_quantile_bigint(times, array(0.0D, 1.0D)) as ends,
            kll_sketch_get_n_bigint(equal) as alike,
            kll_sketch_get_quantile_bigint(equal, 0.5D) as middle
        from edges order by count
    """).collect()
    for row in found:
        exact = row["count"]
        assert row["keys"] == (exact if exact <= 384 else pytest.approx(exact, rel=0.05))
        assert (row.n, row.ends) == (exact, [0, (exact - 1) * 1000])
        assert (row.alike, row.middle) == (exact, 2**62)
    merged = spark.sql("""
        select hll_sketch_estimate(hll_union_agg(keys)) as keys,
            kll_sketch_get_n_bigint(kll_merge_agg_bigint(times)) as n,
            kll_sketch_get_n_bigint(kll_merge_agg_bigint(equal)) as alike
        from edges
    """).first()
    assert merged["keys"] == pytest.approx(EDGES[-1], rel=0.05)
    assert (merged.n, merged.alike) == (sum(EDGES), sum(EDGES))
