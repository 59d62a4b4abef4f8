"""How a call of ``send_many`` is cut into loads."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest

from ternmq.client.producer.load import Lane
from ternmq.client.producer.many import Many
from ternmq.client.producer.outgoing import MESSAGE_BYTES
from ternmq.client.producer.placing import _cut


def cut(
    sizes: list[int], batch_bytes: int, batch_rows: int, *, alone: bool = False
) -> list[tuple[int, int, int]]:
    """Return (first row, rows, bytes) of each load."""
    limits = SimpleNamespace(batch_bytes=batch_bytes, batch_rows=batch_rows)
    lane = cast("Lane", SimpleNamespace(limits=limits, alone=alone))
    parts = _cut(lane, cast("Many", None), range(len(sizes)), sizes, 1.0)
    return [
        (part.rows[0], len(part.rows), part.size_bytes - MESSAGE_BYTES * len(part.rows))
        for part in parts
    ]


def expected(sizes: list[int], batch_bytes: int, batch_rows: int) -> list[tuple[int, int, int]]:
    """The same, row by row."""
    found = [(0, 1, sizes[0])]
    for row, size in enumerate(sizes[1:], 1):
        first, rows, total = found[-1]
        if total + size > batch_bytes or rows >= batch_rows:
            found.append((row, 1, size))
        else:
            found[-1] = (first, rows + 1, total + size)
    return found


@pytest.mark.parametrize(
    "sizes",
    [[5], [100], [50, 50], [50, 51], [101, 1, 101], [0] * 9, [100, 100], [1, 99, 1, 99, 100]],
)
def test_a_load_is_as_large_as_it_may_be(sizes: list[int]) -> None:
    """At most so many bytes and rows, one row at least: where exactly it is cut."""
    assert cut(sizes, 100, 4) == expected(sizes, 100, 4)


def test_any_sizes_are_cut_as_row_by_row() -> None:
    """The same loads as a loop over the rows makes."""
    rng = random.Random(7)
    for _ in range(300):
        sizes = [rng.choice([0, 1, 10, 99, 100, 101, 500]) for _ in range(rng.randint(1, 40))]
        rows = rng.randint(1, 8)
        assert cut(sizes, 100, rows) == expected(sizes, 100, rows)


def test_of_a_lane_whose_loads_go_alone_the_first_has_one_row() -> None:
    assert cut([10] * 5, 100, 2, alone=True) == [(0, 1, 10), (1, 2, 20), (3, 2, 20)]
