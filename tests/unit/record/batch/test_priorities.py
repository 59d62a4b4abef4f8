"""Priorities read from the bytes of a batch, without a ``Batch``."""

from __future__ import annotations

import pytest

from ternmq.record.batch.batch import Row, encode, slice_batch, topic_seed
from ternmq.record.batch.layout import priorities_of

SEED = topic_seed("t")


def batch(*priorities: int, **more: str) -> bytes:
    """Return a batch of rows with these priorities."""
    return encode(
        [Row(body=b"%d" % one, priority=one, **more) for one in priorities],  # type: ignore[arg-type]
        topic_seed=SEED,
        producer_id=1,
        first_sequence=0,
        born_us=0,
    )


@pytest.mark.parametrize("more", [{}, {"key": "k", "tag": "t"}])
@pytest.mark.parametrize(
    ("priorities", "found"),
    [
        ((0,), b"\0"),
        ((0, 0, 0), b"\0"),
        ((3,), b"\3"),
        ((3, 3, 3), b"\3"),
        ((0, 1, 255), b"\0\1\xff"),
        ((1,) * 8 + (2,), b"\1" * 8 + b"\2"),
    ],
)
def test_each_row_or_one_for_all(
    priorities: tuple[int, ...], found: bytes, more: dict[str, str]
) -> None:
    assert priorities_of(batch(*priorities, **more)) == found


def test_of_a_slice() -> None:
    whole = batch(0, 1, 2, 2)
    assert priorities_of(slice_batch(whole, 1, 2, SEED)) == b"\1"
    assert set(priorities_of(slice_batch(whole, 2, 4, SEED))) == {2}
    assert set(priorities_of(slice_batch(batch(5, 5, 5), 1, 3, SEED))) == {5}
