"""Failed rows of a shard against a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ternmq.broker.group.failedrows import SHARD_ROWS, Failure, FailureRows

BASE = 5 * SHARD_ROWS

offsets = st.integers(BASE, BASE + 40) | st.integers(BASE, BASE + SHARD_ROWS - 1)
rows = st.builds(
    Failure,
    offsets,
    st.integers(0, 20),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF),
    st.integers(0, 2**48 - 1),
)
puts = st.tuples(st.just("put"), rows)
removes = st.tuples(st.just("remove"), st.tuples(offsets, offsets))
refers = st.tuples(st.just("refer"), st.tuples(offsets, st.integers(0, 2**48 - 1)))


def build(some: list[Failure]) -> FailureRows:
    progress = FailureRows(BASE)
    for row in some:
        progress.put(row)
    return progress


@given(st.lists(puts | removes | refers, max_size=60))
def test_rows_are_a_dictionary_by_offset(steps: list[tuple[str, Any]]) -> None:
    progress = FailureRows(BASE)
    model: dict[int, Failure] = {}
    for what, how in steps:
        if what == "put":
            assert isinstance(how, Failure)
            assert progress.put(how) == (how.offset not in model)
            model[how.offset] = how
        elif what == "remove":
            start, stop = how
            gone = [at for at in model if start <= at < stop]
            assert progress.remove(start, stop) == len(gone)
            for at in gone:
                del model[at]
        else:
            where, told = how[0], how[1]
            progress.refer(where, told)
            if where in model:
                model[where] = model[where]._replace(position=told)
        assert len(progress) == len(model)
        assert list(progress) == [model[at] for at in sorted(model)]


@given(st.lists(rows, max_size=60), offsets, offsets, st.integers(-1, 21))
def test_questions(some: list[Failure], start: int, stop: int, now_us: int) -> None:
    progress = build(some)
    model = {row.offset: row for row in some}
    assert progress.get(start) == model.get(start)
    inside = [model[at] for at in sorted(model) if start <= at < stop]
    assert list(progress.span(start, stop)) == inside
    assert list(progress.positions_in(start, stop)) == [
        (one.offset, one.position) for one in inside
    ]
    assert list(progress.deliveries_in(start, stop)) == [
        (one.offset, one.deliveries) for one in inside
    ]
    behind = [at for at in sorted(model) if at >= start]
    for limit in (1, 3, 100):
        assert progress.offsets_from(start, limit) == behind[:limit]
    assert progress.until(now_us) == [at for at in sorted(model) if model[at].when_us <= now_us]
    later = [row.when_us for row in model.values() if row.when_us > now_us]
    assert progress.later_us(now_us) == (min(later) if later else None)
    if model:
        assert progress.first_us() == min(row.when_us for row in model.values())


@given(st.lists(rows, max_size=60), st.binary(max_size=24), st.binary(max_size=24))
def test_round_trip_through_state(some: list[Failure], before: bytes, after: bytes) -> None:
    progress = build(some)
    data = progress.encode()
    assert len(data) % 8 == 0
    back = FailureRows(BASE)
    assert back.decode(before + data + after, len(before)) == len(before) + len(data)
    assert list(back) == list(progress)
    back.put(Failure(BASE, 1, 2, 3, 4))  # the columns that were read can be changed
    assert back.get(BASE) == Failure(BASE, 1, 2, 3, 4)


def test_a_row_costs_at_most_24_bytes() -> None:
    progress = build([Failure(BASE + at, 1, 2, 3, 4) for at in range(SHARD_ROWS)])
    columns = (progress.relative, progress.when, progress.references, progress.deliveries)
    assert sum(column.itemsize for column in columns) <= 24
    assert len(progress.encode()) <= 24 * SHARD_ROWS


def test_counts_that_do_not_fit_are_held_at_the_largest() -> None:
    progress = build([Failure(BASE, 1, 70_000, 80_000, 2**48 - 1)])
    assert list(progress) == [Failure(BASE, 1, 0xFFFF, 0xFFFF, 2**48 - 1)]
