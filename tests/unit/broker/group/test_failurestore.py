"""Rows that come due, few or very many at one time."""

from __future__ import annotations

import random

from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.failurestore import DUE_ROWS
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.progress import Progress
from ternmq.record.fact.facts import Cause, LeasedRun, Outcome, Pulled, Settled


def failed(progress: Progress, position: int, runs: list[LeasedRun], due_us: int) -> None:
    progress.apply_settled(
        position,
        Settled(1, 1, 0, 1, 1, 1, 0, Outcome.RETRY, Cause.CONSUMER, due_us, runs),
    )


def waiting(rows: int, due_us: int = 1000) -> Progress:
    progress = Progress(1, 1, 0, 0, HeldPage(), SHARED)
    progress.apply_pulled(8, 1, Pulled(1, 1, 0, 1, 1, 10**9, rows, [(0, rows, 1, 1)]))
    failed(progress, 16, [(0, rows, 1, 1)], due_us)
    return progress


def test_many_that_come_due_together_are_found_in_pieces_and_all():
    rows = 12 * DUE_ROWS
    progress = waiting(rows)
    assert progress.look_for_due(999) == 0
    assert progress.failures.next_timer_us() == 1000
    found = progress.look_for_due(1000)
    assert DUE_ROWS <= found < DUE_ROWS + 1024
    assert progress.look_for_due(1000) == 0  # enough are known
    assert progress.failures.next_timer_us() == 1000
    got: list[int] = []
    while due := progress.due(1000, 700):
        assert len(due) <= 700
        assert len(progress.failures.due_rows) <= DUE_ROWS + 1024
        got += [row.offset for row in due]
        runs = [(row.offset, row.offset + 1, 2, 2) for row in due]
        progress.apply_pulled(24, 1, Pulled(1, 1, 0, 1, 2, 10**9, rows, runs))
    assert got == list(range(rows))
    assert progress.failures.next_timer_us() is None
    assert progress.failures.waiting_rows == 0


def test_a_pull_that_wants_more_finds_more():
    progress = waiting(3 * DUE_ROWS)
    assert len(progress.due(1000, 2 * DUE_ROWS)) == 2 * DUE_ROWS


def test_what_is_remembered_to_be_looked_at_does_not_grow_with_the_rows():
    rng = random.Random(4)
    progress = waiting(1024, due_us=10**6)
    for position in range(24, 24 + 8 * 5000, 8):
        offset = rng.randrange(1024)
        failed(progress, position, [(offset, offset + 1, 2, 2)], rng.randrange(10**5, 10**6))
    assert len(progress.failures._due) < 50


def test_every_row_is_found_at_its_time_whatever_came_before():
    """Rows fail again earlier and later than before, in three shards, while time goes on."""
    for seed in range(5):
        rng = random.Random(seed)
        progress = waiting(2500, due_us=500)
        due_at = dict.fromkeys(range(2500), 500)
        now = 0
        for step in range(120):
            now += rng.randrange(20)
            offset = rng.randrange(2500)
            due_at[offset] = now + rng.randrange(100)
            failed(progress, 24 + 8 * step, [(offset, offset + 1, 2, 2)], due_at[offset])
            expected = {offset for offset, when_us in due_at.items() if when_us <= now}
            found = [row.offset for row in progress.due(now, 2500)]
            assert len(found) == len(set(found))
            assert set(found) == expected, (seed, step)
            later = [when_us for when_us in due_at.values() if when_us > now]
            timer = progress.failures.next_timer_us()
            if later:
                assert timer is not None
                assert timer <= min(later)


def test_what_is_due_counts_until_it_is_fetched():
    progress = waiting(3)
    failed(progress, 24, [(1, 2, 1, 1)], 2000)
    failed(progress, 32, [(2, 3, 1, 1)], 5000)
    store = progress.failures
    assert store.due_found == 0, "nobody looked yet"
    for now_us, found in ((999, 0), (1000, 1), (1000, 1), (2000, 2), (4999, 2)):
        progress.look_for_due(now_us)
        assert store.due_found == found, now_us
    progress.apply_pulled(40, 1, Pulled(1, 1, 0, 1, 2, 10**9, 3, [(0, 1, 2, 2)]))
    assert store.due_found == 1
    failed(progress, 48, [(1, 2, 2, 2)], 9000)
    assert store.due_found == 0, "its next retry is later"
    failed(progress, 56, [(2, 3, 2, 2)], 1500)
    assert store.due_found == 1, "retried now: its time is over"
    progress.apply_settled(
        64, Settled(1, 1, 0, 1, 1, 1, 0, Outcome.DEAD, Cause.OPERATOR, 0, [(2, 3, 2, 2)])
    )
    progress.look_for_due(8999)
    assert store.due_found == 0
    progress.look_for_due(9000)
    assert store.due_found == 1
    progress.end(72)
    store.forget_waiting(0, 1 << 40)
    assert store.due_found == 0
