"""Some rows of a column, against the reader of all of them."""

from __future__ import annotations

import pytest

from ternmq.record.batch.batch import Batch, Row, encode
from ternmq.record.batch.layout import CONTENT_TYPE, HEADERS, KEY
from ternmq.record.batch.pick import rows_within, texts_of, values_of

ROWS = [
    Row(b"%d" % at, key="" if at % 3 else f"ü{at}", headers={"n": "x" * at}, content_type="t")
    for at in range(20)
]


def batch_of(rows: list[Row]) -> Batch:
    return Batch(encode(rows, topic_seed=1, producer_id=1, first_sequence=0, born_us=0))


@pytest.mark.parametrize("span", [(0, 20), (0, 1), (7, 8), (3, 17), (19, 20), (5, 5)])
def test_some_rows_are_those_of_all(span: tuple[int, int]) -> None:
    start, stop = span
    batch = batch_of(ROWS)
    assert texts_of(batch, KEY, start, stop) == batch.keys()[start:stop]
    assert batch.is_constant(CONTENT_TYPE)
    assert texts_of(batch, CONTENT_TYPE, start, stop) == ["t"] * (stop - start)
    assert values_of(batch, HEADERS, start, stop) == batch._values(HEADERS)[start:stop]


def test_a_column_that_is_absent() -> None:
    batch = batch_of([Row(b"x"), Row(b"y"), Row(b"z")])
    assert values_of(batch, HEADERS, 1, 3) == [b"", b""]
    assert rows_within(batch, HEADERS, 0, 3, 1) == 3


def test_as_many_rows_as_have_so_many_bytes() -> None:
    batch = batch_of(ROWS)
    sizes = [len(value) for value in batch._values(HEADERS)]
    for start in range(20):
        for stop in (start + 1, 15, 20):
            for most in (0, 1, 10, 50, 10_000):
                if start >= stop:
                    continue
                end = rows_within(batch, HEADERS, start, stop, most)
                expected = start + 1
                while expected < stop and sum(sizes[start : expected + 1]) <= most:
                    expected += 1
                assert end == expected
    same = batch_of([Row(b"", headers={"a": "b" * 1000})] * 5)
    assert same.is_constant(HEADERS)
    assert rows_within(same, HEADERS, 1, 5, 10) == 5
