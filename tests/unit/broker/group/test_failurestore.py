"""Rows that come due, few or very many at one time."""

from __future__ import annotations

import random

from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.failurestore import DUE_ROWS
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.progress import GroupQueue
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome, Pulled, Settled


def failed(held: GroupQueue, position: int, runs: list[LeasedRun], due_us: int) -> None:
    held.apply_settled(
        position,
        Settled(1, 1, 0, 1, 1, 1, 0, Outcome.RETRY, Cause.CONSUMER, due_us, runs),
    )


def waiting(rows: int, due_us: int = 1000) -> GroupQueue:
    held = GroupQueue(1, 1, 0, 0, HeldPage(), SHARED)
    held.apply_pulled(8, 1, Pulled(1, 1, 0, 1, 1, 10**9, rows, [(0, rows, 1, 1)]))
    failed(held, 16, [(0, rows, 1, 1)], due_us)
    return held


def test_many_that_come_due_together_are_found_in_pieces_and_all():
    rows = 12 * DUE_ROWS
    held = waiting(rows)
    assert held.look_for_due(999) == 0
    assert held.failures.next_timer_us() == 1000
    found = held.look_for_due(1000)
    assert DUE_ROWS <= found < DUE_ROWS + 1024
    assert held.look_for_due(1000) == 0  # enough are known
    assert held.failures.next_timer_us() == 1000
    got: list[int] = []
    while due := held.due(1000, 700):
        assert len(due) <= 700
        assert len(held.failures.due_rows) <= DUE_ROWS + 1024
        got += [row.offset for row in due]
        runs = [(row.offset, row.offset + 1, 2, 2) for row in due]
        held.apply_pulled(24, 1, Pulled(1, 1, 0, 1, 2, 10**9, rows, runs))
    assert got == list(range(rows))
    assert held.failures.next_timer_us() is None
    assert held.failures.waiting_rows == 0


def test_a_pull_that_wants_more_finds_more():
    held = waiting(3 * DUE_ROWS)
    assert len(held.due(1000, 2 * DUE_ROWS)) == 2 * DUE_ROWS


def test_what_is_remembered_to_be_looked_at_does_not_grow_with_the_rows():
    rng = random.Random(4)
    held = waiting(1024, due_us=10**6)
    for position in range(24, 24 + 8 * 5000, 8):
        offset = rng.randrange(1024)
        failed(held, position, [(offset, offset + 1, 2, 2)], rng.randrange(10**5, 10**6))
    assert len(held.failures._due) < 50


def test_every_row_is_found_at_its_time_whatever_came_before():
    """Rows fail again earlier and later than before, in three shards, while time goes on."""
    for seed in range(5):
        rng = random.Random(seed)
        held = waiting(2500, due_us=500)
        due_at = dict.fromkeys(range(2500), 500)
        now = 0
        for step in range(120):
            now += rng.randrange(20)
            offset = rng.randrange(2500)
            due_at[offset] = now + rng.randrange(100)
            failed(held, 24 + 8 * step, [(offset, offset + 1, 2, 2)], due_at[offset])
            expected = {offset for offset, when_us in due_at.items() if when_us <= now}
            found = [row.offset for row in held.due(now, 2500)]
            assert len(found) == len(set(found))
            assert set(found) == expected, (seed, step)
            later = [when_us for when_us in due_at.values() if when_us > now]
            timer = held.failures.next_timer_us()
            if later:
                assert timer is not None
                assert timer <= min(later)


def test_what_is_due_counts_until_it_is_fetched():
    held = waiting(3)
    failed(held, 24, [(1, 2, 1, 1)], 2000)
    failed(held, 32, [(2, 3, 1, 1)], 5000)
    store = held.failures
    assert store.due_found == 0, "nobody looked yet"
    for now_us, found in ((999, 0), (1000, 1), (1000, 1), (2000, 2), (4999, 2)):
        held.look_for_due(now_us)
        assert store.due_found == found, now_us
    held.apply_pulled(40, 1, Pulled(1, 1, 0, 1, 2, 10**9, 3, [(0, 1, 2, 2)]))
    assert store.due_found == 1
    failed(held, 48, [(1, 2, 2, 2)], 9000)
    assert store.due_found == 0, "its next retry is later"
    failed(held, 56, [(2, 3, 2, 2)], 1500)
    assert store.due_found == 1, "retried now: its time is over"
    held.apply_settled(
        64, Settled(1, 1, 0, 1, 1, 1, 0, Outcome.DEAD, Cause.OPERATOR, 0, [(2, 3, 2, 2)])
    )
    held.look_for_due(8999)
    assert store.due_found == 0
    held.look_for_due(9000)
    assert store.due_found == 1
    held.end(72)
    store.forget_waiting(0, 1 << 40)
    assert store.due_found == 0
