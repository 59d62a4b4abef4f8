"""Turns of levels: the highest first, each sixteenth pull lower, and no level is forgotten."""

from __future__ import annotations

from ternmq.broker.catalog.levels import LOWER_EACH, LevelTurns


def test_pulls_begin_at_the_highest_level() -> None:
    turns = LevelTurns(3)
    assert list(turns.queues(3)) == [2, 1, 0]
    assert turns.from_top


def test_the_queues_of_a_level_take_turns() -> None:
    turns = LevelTurns(2)
    assert list(turns.queues(6)) == [1, 3, 5, 0, 2, 4]
    turns.took(1)
    assert list(turns.queues(6)) == [3, 5, 1, 0, 2, 4]
    turns.took(2)
    assert list(turns.queues(6)) == [3, 5, 1, 4, 0, 2]
    turns.took(5)
    assert list(turns.queues(6)) == [1, 3, 5, 4, 0, 2]
    turns.took(5)
    assert list(turns.queues(8)) == [7, 1, 3, 5, 4, 6, 0, 2], "the topic has more queues now"


def test_each_sixteenth_pull_begins_at_a_lower_level_and_these_take_turns() -> None:
    turns = LevelTurns(4)
    lower: list[list[int]] = []
    for pull in range(1, 4 * LOWER_EACH + 1):
        order = list(turns.queues(4))
        if pull % LOWER_EACH:
            assert (turns.from_top, order) == (True, [3, 2, 1, 0])
        else:
            assert not turns.from_top
            lower.append(order)
        turns.took(order[0])
    assert lower == [[0, 1, 2, 3], [1, 0, 2, 3], [2, 0, 1, 3], [0, 1, 2, 3]]


def test_of_two_levels_each_sixteenth_pull_begins_at_the_lowest() -> None:
    turns = LevelTurns(2)
    found = []
    for _ in range(64):
        (first, _) = turns.queues(2)
        found.append(first)
        turns.took(first)
    assert found == ([1] * 15 + [0]) * 4


def test_with_rows_in_all_levels_none_starves() -> None:
    turns = LevelTurns(8)
    taken = [0] * 8
    for _ in range(16 * 7 * 3):
        number = next(turns.queues(8))
        taken[number] += 1
        turns.took(number)
    assert taken == [3] * 7 + [15 * 7 * 3]
