"""Which rows of a fact are news, once some of their shards came out of a STATE set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.failedrows import SHARD_ROWS
from ternmq.broker.group.stamps import Admission

SHARDS = 6


@given(
    st.dictionaries(st.integers(0, SHARDS - 1), st.integers(1, 20)),
    st.integers(0, 22),
    st.integers(0, SHARDS * SHARD_ROWS - 1),
    st.integers(1, 3 * SHARD_ROWS),
)
def test_spans_are_the_rows_that_are_admitted_one_by_one(
    stamps: dict[int, int], position: int, start: int, rows: int
) -> None:
    admission = Admission()
    for key, stamp in stamps.items():
        admission.load_shard(key, stamp)
    spans = list(admission.spans(position, start, start + rows))
    admitted = [offset for low, high in spans for offset in range(low, high)]
    assert admitted == [
        offset for offset in range(start, start + rows) if admission.admits(position, offset)
    ]
    assert admitted == [
        offset
        for offset in range(start, start + rows)
        if position >= stamps.get(offset // SHARD_ROWS, 0)
    ]
    runs = admission.runs(position, [(start, start + rows, 3, 4)])
    assert list(runs) == [(low, high, 3, 4) for low, high in spans]


def test_everything_is_news_once_it_is_finished() -> None:
    assert not Admission().loaded
    admission = Admission()
    admission.load_main(7)
    admission.load_shard(2, 9)
    assert admission.loaded
    assert (admission.main, admission.until) == (7, 9)
    assert not admission.admits(8, 2 * SHARD_ROWS)
    assert admission.admits(8, 3 * SHARD_ROWS)
    admission.finish()
    assert (admission.main, admission.until, admission.shards) == (0, 0, {})
    assert admission.admits(0, 2 * SHARD_ROWS)
