"""The job ``stats`` after tables of version 2 were converted."""

from __future__ import annotations

import tarfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from ternmq.client.connection.address import Address
from ternmq.pipeline.job.job import Context
from ternmq.pipeline.running.converting import convert_tables
from ternmq.pipeline.stats import stats
from ternmq.pipeline.stats.job import StatsJob
from ternmq.pipeline.stats.schema import STATS_DAY, STATS_HOUR, STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.spark.broker.connecting import Broker

if TYPE_CHECKING:
    from ternmq.client.bulk import Bulk

GOLDEN = Path(__file__).parents[3] / "golden" / "stats_v2.tar.xz"


@pytest.mark.row("R9")
def test_numbers_of_keys_whose_sketches_were_not_converted_stay(tmp_path):
    with tarfile.open(GOLDEN) as packed:
        packed.extractall(tmp_path, filter="data")
    tables = Folder(str(tmp_path / "tables"))
    convert_tables(tables)
    minutes, hours, days = (
        Table.open(tables, spec, create=False) for spec in (STATS_MINUTE, STATS_HOUR, STATS_DAY)
    )
    before, old = days.read(), minutes.read()
    assert {row["distinct_keys"] for row in before.to_pylist()} == {None, 20, 504}
    # Minutes of the next day of the same month; the hours of the day before are final.
    later = pa.array([one + timedelta(days=1) for one in old["begin"].to_pylist()])
    new = stats.merge(old.set_column(0, "begin", later.cast(old["begin"].type)), STATS_MINUTE)
    minutes.append(new)
    final = hours.remembered("stats")
    assert final is not None
    hours.commit(remember={"stats": final + 24})
    broker = Broker((Address("h", 1),))
    nobody = cast("Bulk", object())
    context = Context("stats", tables, broker, nobody, 0, settings={"keys": True})
    assert StatsJob().run(context).rows > 0
    days.refresh()
    rows = days.read()
    assert rows.slice(0, len(before)).equals(before)
    assert len(rows) == 2 * len(before)
    added = rows.slice(len(before)).drop_columns(["begin", "distinct_keys"])
    assert added.equals(before.drop_columns(["begin", "distinct_keys"]))
    assert StatsJob().run(context).rows == 0
