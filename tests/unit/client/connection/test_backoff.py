"""Pauses double up to the longest."""

from __future__ import annotations

from itertools import islice

import pytest

from ternmq.client.connection.backoff import Backoff


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert list(islice(Backoff(0.5, 3.0).pauses(), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("failed", "pause"), [(1, 0.05), (2, 0.1), (6, 1.6), (7, 2.0), (10**9, 2.0)]
)
def test_the_pause_after_so_many_tries(failed: int, pause: float) -> None:
    assert Backoff(0.05, 2.0).pause(failed) == pytest.approx(pause)


def test_the_first_may_be_longer_than_the_longest() -> None:
    assert Backoff(5.0, 2.0).pause(1) == 2.0
