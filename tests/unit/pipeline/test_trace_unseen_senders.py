"""A run of a transaction whose ``prepared`` was never seen, over a block's boundary."""

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
