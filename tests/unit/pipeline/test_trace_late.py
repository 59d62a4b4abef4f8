"""A trace that begins late: what facts refer to was never seen. By cells, and in process."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.pipeline.tables.folder import Folder
from ternmq.pipeline.tables.table import Table
from ternmq.pipeline.trace import blocks
from ternmq.pipeline.trace.commits import TracePass
from ternmq.pipeline.trace.schema import TRACE
from tests.unit.pipeline.test_trace_cells import by_cells, rows
from tests.unit.pipeline.trace_streams import NOON, table


@pytest.mark.row("R7")
def test_rows_whose_preparing_was_never_seen_have_no_sender_in_any_block(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BITS", 3)
    monkeypatch.setattr(blocks, "OPEN_BITS", 2)
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0}
    events = [
        told | {"position": 24, "time": NOON, "kind": "resolved", "decision": "committed",
                "refers_to": 8, "start": 6, "stop": 11, "rows": 5, "bytes": 5},
        told | {"position": 32, "time": NOON, "kind": "moved", "start": 6, "stop": 11, "rows": 5,
                "producer_id": 9, "sequence": 100, "born_time": NOON - 50},
    ]  # fmt: skip
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    for begin, stop, some in ((16, 30, events[:1]), (30, 40, events[1:])):
        TracePass(lambda spec: Table.open(one, spec)).fold(begin, stop, table(some))
        by_cells(two, begin, stop, [[some]], 3)
        assert rows(two, TRACE).equals(rows(one, TRACE))


@pytest.mark.row("R7")
def test_a_group_that_no_catalog_lists_has_the_rows_that_facts_are_about(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BITS", 3)
    monkeypatch.setattr(blocks, "OPEN_BITS", 2)
    told = {"part": 0, "topic": "orders", "topic_number": 1, "queue": 0, "time": NOON}
    events = [
        told | {"position": 8, "kind": "stored", "start": 6, "stop": 10, "rows": 4, "bytes": 4,
                "producer_id": 1, "sequence": 1, "born_time": NOON},
        told | {"position": 16, "kind": "pulled", "group": "g", "group_number": 5, "start": 6,
                "stop": 7, "rows": 1, "attempt": 1, "deliveries": 1, "client": "c", "app": "a"},
    ]  # fmt: skip
    one, two = Folder(str(tmp_path / "one")), Folder(str(tmp_path / "two"))
    TracePass(lambda spec: Table.open(one, spec)).fold(0, 20, table(events))
    by_cells(two, 0, 20, [[events]], 3)
    for tables in (one, two):
        found = rows(tables, TRACE)
        assert [(row["offset"], row["group"]) for row in found.to_pylist() if row["group"]] == [
            (6, "g")
        ]
        assert sorted(found["offset"].to_pylist()) == [6, 7, 8, 9]
