"""Rows of the archive that were scheduled belong to the window in which they were due."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.compute as pc

from ternmq.pipeline.archive.commit import Archive
from ternmq.pipeline.audit.archive import read_archive
from ternmq.pipeline.audit.audit import Archived, judge
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import gather
from ternmq.pipeline.audit.schema import BUCKET_US
from tests.unit.pipeline import made
from tests.unit.pipeline.facts import LATER, NOON, Facts, rows
from tests.unit.pipeline.kept import fill

BORN = NOON - BUCKET_US
"""The window in which the rows of ``made`` are born."""
DUE = NOON + 40 * made.DAY
P = 0x1234


def facts():
    """Return facts: ten messages, of which the sixth to the eighth were scheduled."""
    return (
        Facts().stored(0, 5, 1, born=BORN).scheduled(1, 3, 6, DUE, born=BORN)
        .stored(8, 2, 9, born=BORN).fulfilled(5, 3, 1, 6, DUE, born=BORN)
    )  # fmt: skip


@pytest.fixture
def archive(tables):
    found = Archive(tables)
    fill(found, 0, 10, stored=NOON, step=0)
    return found


def read(archive, *buckets) -> tuple[pa.Table, Archived]:
    runs = gather(facts().table(), 100 * made.DAY)
    runs = runs.filter(pc.is_in(runs["bucket"].cast(pa.int64()), pa.array(buckets)))
    return runs, read_archive(archive.table, [], runs, sorted(buckets))


@pytest.mark.parametrize(
    ("buckets", "wanted"),
    [
        ((BORN, DUE), {BORN: 7, DUE: 3}),
        ((BORN,), {BORN: 7}),
        ((DUE,), {DUE: 3}),
        ((DUE + BUCKET_US,), {}),
    ],
)
def test_each_row_is_in_one_window(archive, buckets, wanted):
    runs, archived = read(archive, *buckets)
    found: dict[int, int] = {}
    for run in archived.runs.to_pylist():
        bucket = round(run["bucket"].timestamp() * 1e6)
        found[bucket] = found.get(bucket, 0) + run["stop"] - run["start"]
    assert found == wanted
    judged = judge(runs, Policy(LATER + 50 * made.DAY, 100), [], archived)
    for one in rows(judged, tier="archive"):
        assert (one["verdict"], one["archived"]) == ("ok", one["stored"])
        assert one["archived_sum"] == one["stored_sum"]
    assert len(rows(judged, tier="archive")) == len(wanted)
