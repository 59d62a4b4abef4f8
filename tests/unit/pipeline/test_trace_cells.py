"""The fold by cells, as Spark's workers do it, against the fold in process."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.job.packets import packed, unpacked
from ternmq.pipeline.stats.schema import STATS_MINUTE
from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks, sharedfiles, sharing
from ternmq.pipeline.trace.cells import Cells, Scan
from ternmq.pipeline.trace.commits import TracePass
from ternmq.pipeline.trace.folding import Piece, fold_bucket, of_manifest
from ternmq.pipeline.trace.schema import KNOWN, SCHEDULED, TRACE
from tests.unit.pipeline.due_streams import DueStream, of_scheduled
from tests.unit.pipeline.trace_reference import of_table
from tests.unit.pipeline.trace_streams import table


def by_cells(tables, begin, stop, stretches, buckets):
    """Fold a piece as Spark's workers do; return the number of rows written."""
    passing = TracePass(lambda spec: Table.open(tables, spec))
    known = passing.known(begin)
    cells = Cells.of(passing.trace.files(), buckets)
    piece = Piece(
        cells, begin, stop, known.position, passing.counted(begin), packed(known.table()),
        passing.scheduled_from(begin), passing.since(begin),
    )  # fmt: skip
    facts: dict[int, list[pa.Table]] = {bucket: [] for bucket in range(buckets)}
    for calls in stretches:
        scan = Scan(cells, piece.known_from)
        for bucket, some in [*itertools.chain(*map(scan.add, map(table, calls))), *scan.end()]:
            facts[bucket].append(unpacked(packed(some)))
    nothing = table([]).append_column("block", pa.array([], pa.int64()))
    dones, moved, entries = [], [], []
    for bucket, some in facts.items():
        manifest = fold_bucket(
            passing.trace, passing.scheduled, piece, bucket, pa.concat_tables([nothing, *some])
        )
        one, steps, scheduled, learnt = of_manifest(manifest)
        entries.append(scheduled)
        dones += one
        moved += steps
        if learnt is not None:
            assert bucket == 0
            known.learn(learnt, stop)
    return passing.commit(known, begin, stop, dones, moved, entries)


def rows(tables, spec):
    found = Table.open(tables, spec, create=False).read()
    names = [one.name for one in spec.schema if not pa.types.is_nested(one.type)]
    return found.sort_by([(name, "ascending") for name in names])


def cut(chance, events, count):
    """Cut events between records into ``count`` lists at most."""
    positions = sorted({one["position"] for one in events})
    cuts = sorted(chance.sample(positions, min(len(positions), chance.randrange(count))))
    bounds = [0, *cuts, 1 << 60]
    return [
        [one for one in events if begin <= one["position"] < stop]
        for begin, stop in itertools.pairwise(bounds)
    ]


@pytest.mark.row("R7", "R9")
@pytest.mark.parametrize("seed", range(12))
def test_any_life_folded_by_cells_is_as_folded_in_process(tmp_path, seed, monkeypatch):
    shared = (0, 30, 1024)[seed % 3]
    monkeypatch.setattr(sharing, "SMALL_QUEUE", shared)
    monkeypatch.setattr(sharing, "OPEN_ROWS", 7)
    monkeypatch.setattr(sharing, "QUIET_ROWS", (65_536, 9)[seed % 2])
    monkeypatch.setattr(sharing, "AT_ONCE_ROWS", (262_144, 25)[seed // 2 % 2])
    monkeypatch.setattr(sharedfiles, "HELD_ROWS", 10)
    monkeypatch.setattr(sharedfiles, "LEAST_HELD", 2)
    chance = random.Random(seed)
    stream = DueStream(chance)
    for _ in range(160):
        stream.step()
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    for number, events in enumerate(cut(chance, stream.events, 5)):
        if not events:
            continue
        # The files of the first piece are those of an older version: larger.
        monkeypatch.setattr(blocks, "BLOCK_BITS", 4 if number else chance.choice((4, 5, 6)))
        monkeypatch.setattr(blocks, "OPEN_BITS", 3 if number else blocks.BLOCK_BITS)
        monkeypatch.setattr(blocks, "MOST_SMALL", 4)
        begin, stop = events[0]["position"] if number else 0, events[-1]["position"] + 1
        passing = TracePass(lambda spec: Table.open(one, spec))
        written = passing.fold(begin, stop, table(events))
        stretches = [cut(chance, some, 3) for some in cut(chance, events, 5)]
        by_tasks = by_cells(two, begin, stop, stretches, chance.choice((1, 2, 7)))
        assert by_tasks == written or shared, "which queues share a file differs"
        for spec in (TRACE, STATS_MINUTE, KNOWN, SCHEDULED):
            assert rows(two, spec).equals(rows(one, spec)), (number, spec.name)
    assert of_table(rows(two, TRACE)) == stream.reference.told()
    assert of_scheduled(rows(two, SCHEDULED)) == stream.told()
