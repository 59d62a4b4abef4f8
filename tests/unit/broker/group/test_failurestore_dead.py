"""What a store says of many dead rows at once, against the rows one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.failedrows import SHARD_ROWS
from ternmq.broker.group.failurestore import FailureStore
from ternmq.record.fact.facts import Outcome

offsets = st.integers(0, 30) | st.integers(SHARD_ROWS - 5, 3 * SHARD_ROWS + 5)


def store_of(dead: set[int], waiting: set[int]) -> FailureStore:
    store = FailureStore()
    for offset in sorted(dead):
        store.put(offset + 100, Outcome.DEAD, (offset, offset + 1, 4, offset % 7), 0)
    for offset in sorted(waiting - dead):
        store.put(offset + 100, Outcome.RETRY, (offset, offset + 1, 4, offset % 7), 50)
    return store


@given(st.sets(offsets, max_size=60), st.sets(offsets, max_size=20), st.sets(offsets, max_size=60))
def test_deliveries_of_dead_rows(dead: set[int], waiting: set[int], named: set[int]) -> None:
    store = store_of(dead, waiting)
    found = store.dead_deliveries(sorted(named))
    assert {at: found[at] for at in named if at in found} == {at: at % 7 for at in named & dead}
    assert found.keys() <= dead


@given(st.sets(offsets, max_size=60), offsets, st.integers(1, 70))
def test_offsets_of_dead_rows(dead: set[int], after: int, limit: int) -> None:
    store = store_of(dead, set())
    for low in (-1, after):
        behind = [at for at in sorted(dead) if at > low]
        assert store.dead_offsets(after=low, limit=limit) == behind[:limit]


@given(st.sets(offsets, max_size=60), st.sets(offsets, max_size=20), offsets, offsets)
def test_rows_that_are_taken_keep_their_history(
    dead: set[int], waiting: set[int], start: int, stop: int
) -> None:
    store = store_of(dead, waiting)
    if start < stop:
        store.take(start, stop, keep_history=True)
    inside = {at for at in dead | waiting if start <= at < stop}
    assert store.history == {at: at + 100 for at in inside}
    assert store.dead_rows == len(dead - inside)
    assert store.waiting_rows == len(waiting - dead - inside)
