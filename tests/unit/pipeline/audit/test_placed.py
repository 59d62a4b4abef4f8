"""Runs of groups get the window of the rows that they cover."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ternmq.pipeline.audit.kept import IN_QUEUES, OF_GROUPS, table
from ternmq.pipeline.audit.runs import placed

STORED = {
    "kind": IN_QUEUES[0], "topic": "t", "topic_number": [1], "queue": [0], "bucket": [600],
    "start": [0], "stop": [10],
}  # fmt: skip


def facts(starts: list[int], stops: list[int], group: str = "g") -> pa.Table:
    count = len(starts)
    return table(
        count, kind=OF_GROUPS[0], group=group, topic="t", topic_number=[1] * count,
        queue=[0] * count, start=starts, stop=stops,
    )  # fmt: skip


def test_rows_are_cut_at_what_is_stored() -> None:
    found = placed(facts([4, 8], [6, 12]), table(1, **STORED))
    assert found["bucket"].null_count == 0
    assert [(one["start"], one["stop"]) for one in found.to_pylist()] == [(4, 6), (8, 10)]


@pytest.mark.parametrize("group", ["g", "other"])
def test_facts_about_no_row_are_left_out(group: str) -> None:
    """Of a group whose facts are all about no row, nothing is left."""
    none, stored = facts([5], [5], group), table(1, **STORED)
    assert not len(placed(none, stored))
    found = placed(pa.concat_tables([none, facts([4], [6])]), stored)
    assert [(one["group"], one["start"], one["stop"]) for one in found.to_pylist()] == [("g", 4, 6)]
