"""Pieces that do not shrink are sent as they are, and those behind them are not tried."""

from __future__ import annotations

from ternmq.cluster.replication.packing import LEAST_BYTES, SKIPPED, Packing


def test_a_piece_that_shrinks_is_compressed_and_so_is_the_next() -> None:
    one = Packing()
    for _ in range(3):
        assert one.wants(LEAST_BYTES)
        assert one.shrank(1600, 1500)


def test_behind_one_that_does_not_shrink_some_are_left_alone() -> None:
    one = Packing()
    assert one.wants(1600)
    assert not one.shrank(1600, 1501)
    assert [one.wants(1600) for _ in range(SKIPPED)] == [False] * SKIPPED
    assert one.wants(1600)


def test_a_small_piece_is_left_alone_and_says_nothing_of_the_next() -> None:
    one = Packing()
    assert not one.wants(LEAST_BYTES - 1)
    assert one.wants(LEAST_BYTES)
