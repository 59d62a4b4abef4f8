"""Which files of the trace a change replaces."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.cells import Cells
from ternmq.pipeline.trace.commits import TracePass
from tests.unit.pipeline.trace_streams import NOON, table

TOLD = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0, "time": NOON}
GROUP = TOLD | {"group": "g", "group_number": 5, "attempt": 1, "deliveries": 1, "round": 0}
BEGIN = TOLD | {
    "position": 8, "kind": "config", "name": "subscribed",
    "detail": '{"group": 5, "group_name": "g", "topic": 1, "cursors": [0]}',
}  # fmt: skip


def stored(position, start, stop):
    return TOLD | {
        "position": position, "kind": "stored", "start": start, "stop": stop, "rows": stop - start,
        "bytes": 5, "producer_id": 1, "sequence": 1 + start, "born_time": NOON,
    }  # fmt: skip


def done(position, start, stop):
    run = GROUP | {"position": position, "start": start, "stop": stop, "rows": stop - start}
    return [run | {"kind": "pulled"}, run | {"kind": "settled", "outcome": "done", "part": 1}]


@pytest.fixture
def one(tables):
    return TracePass(lambda spec: Table.open(tables, spec))


def spans(one):
    """Return first and last offset of each file, and whether it is open."""
    return sorted(
        (file.low["offset"], file.high["offset"], file.high["open"]) for file in one.trace.files()
    )


@pytest.mark.row("R7")
def test_a_queue_that_is_consumed_in_order_writes_what_changed_and_little_more(one, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BITS", 12)
    monkeypatch.setattr(blocks, "OPEN_BITS", 10)
    written = changed = 0
    at, end = 0, 0
    for piece in range(20):  # 5,000 come in each piece, all but the newest 300 are consumed
        events = [*([BEGIN] if not piece else []), stored(100 * piece + 16, end, end + 5000)]
        end += 5000
        events += done(100 * piece + 24, at, end - 300)
        changed += end - at
        at = end - 300
        written += one.fold(100 * piece if piece else 0, 100 * piece + 99, table(events))
    assert changed == 100_000 + 19 * 300
    assert written <= 1.1 * changed


@pytest.mark.row("R7")
def test_small_files_of_rows_that_are_over_are_joined(one, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_SMALL", 4)
    most = 0
    for piece in range(10):
        begin = 100 * piece
        events = [*([BEGIN] if not piece else []), stored(begin + 16, 10 * piece, 10 * piece + 10)]
        events += done(begin + 24, 10 * piece, 10 * piece + 10)
        one.fold(begin if piece else 0, begin + 99, table(events))
        most = max(most, len(spans(one)))
    assert most == 3
    assert sorted(one.trace.read()["offset"].to_pylist()) == [*range(100)]


@pytest.mark.row("R7")
def test_a_file_of_a_version_before_is_one_cell_until_a_row_of_it_changes(one, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BITS", 6)
    monkeypatch.setattr(blocks, "OPEN_BITS", 6)
    one.fold(0, 99, table([BEGIN, stored(16, 0, 160)]))
    monkeypatch.setattr(blocks, "BLOCK_BITS", 4)
    monkeypatch.setattr(blocks, "OPEN_BITS", 4)
    assert spans(one) == [(0, 63, 1), (64, 127, 1), (128, 159, 1)]
    cells = Cells.of(one.trace.files(), 8)
    assert {place: [*map(list, told)] for place, told in cells.joined.items()} == {
        (1, 0): [[0, 4, 8], [3, 7, 9]]
    }
    assert [
        cells.of_file(file) for file in sorted(one.trace.files(), key=lambda f: f.low["offset"])
    ] == [0, 4, 8]
    assert one.fold(100, 199, table(done(120, 70, 74))) == 64
    assert [span[:2] for span in spans(one)] == [
        (0, 63), (64, 79), (70, 73), (80, 95), (96, 111), (112, 127), (128, 159),
    ]  # fmt: skip
