"""The order of a queue: all rows that are owed wait for the first one."""

from __future__ import annotations

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.delivery.locked import QUEUE_LOCK
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.progress import Progress
from ternmq.broker.group.queueorder import QUEUE_ORDER
from ternmq.record.fact.facts import Cause, Outcome, Settled

LEASED = [(2, 4, 1, 1), (6, 9, 2, 3)]


def rows(*, ready: int = 0, waiting: int = 0) -> Progress:
    """Return a group queue with leased rows; 0: no ready row, none that waits."""
    progress = Progress(1, 1, 0, 20, HeldPage(), QUEUE_LOCK)
    progress.leases[7] = Lease(7, 1, 0, list(LEASED))
    if ready:
        progress.ready.add(ready, ready + 2, 1, 1)
    if waiting:
        progress.failures.put(1, Outcome.RETRY, (waiting, waiting + 1, 1, 1), 5)
    progress.failures.put(1, Outcome.DEAD, (0, 1, 1, 1), 5)
    return progress


def settled(outcome: Outcome, *runs: tuple[int, int, int, int]) -> Settled:
    return Settled(1, 1, 0, 1, 7, 0, 0, outcome, Cause.CONSUMER, 0, list(runs))


def test_every_row_waits_for_the_first_that_is_owed_and_not_dead():
    assert QUEUE_ORDER.first_before(rows(), 6) == 2
    assert QUEUE_ORDER.first_before(rows(), 2) is None
    assert QUEUE_ORDER.first_before(rows(waiting=1), 2) == 1
    assert QUEUE_ORDER.first_before(rows(ready=10), 10) == 2
    assert list(QUEUE_ORDER.before(rows(ready=10, waiting=5), 11)) == [2, 3, 5, 6, 7, 8, 10]
    empty = Progress(1, 1, 0, 20, HeldPage(), QUEUE_LOCK)
    assert QUEUE_ORDER.first_before(empty, 3) is None
    assert list(QUEUE_ORDER.before(empty, 3)) == []
    assert QUEUE_ORDER.begun(empty, LEASED) == ([], LEASED)


def test_of_rows_that_fail_together_the_first_was_handled():
    assert QUEUE_ORDER.handled([(6, 9, 2, 3), (2, 4, 1, 1)]) == (
        [(2, 3, 1, 1)],
        [(3, 4, 1, 1), (6, 9, 2, 3)],
    )


def test_what_is_behind_a_row_that_comes_again_is_released():
    lease = Lease(7, 1, 0, list(LEASED))
    for outcome in (Outcome.RETRY, Outcome.HELD, Outcome.RELEASED):
        assert QUEUE_ORDER.behind(lease, [settled(outcome, (3, 4, 1, 1))], [], [(3, 4, 1, 1)]) == [
            (6, 9, 2, 3)
        ]
    assert QUEUE_ORDER.behind(lease, [settled(Outcome.DEAD, (2, 3, 1, 1))], [], LEASED) == []
    # Of two that failed, the first is dead: the other one comes again.
    taken, others = [(2, 3, 1, 1), (6, 7, 2, 3)], [(6, 7, 2, 3)]
    dead = settled(Outcome.DEAD, (2, 3, 1, 1))
    assert QUEUE_ORDER.behind(lease, [dead], others, taken) == [(6, 9, 2, 3)]


def test_only_the_first_row_of_the_queue_counts_at_the_end_of_a_lease():
    assert QUEUE_ORDER.begun(rows(), LEASED) == ([(2, 3, 1, 1)], [(3, 4, 1, 1), (6, 9, 2, 3)])
    assert QUEUE_ORDER.begun(rows(), [(6, 9, 2, 3)]) == ([], [(6, 9, 2, 3)])
    assert QUEUE_ORDER.begun(rows(waiting=1), LEASED) == ([], LEASED)
    assert QUEUE_ORDER.end_first(LEASED, 2) == [(7, 9, 2, 3)]


def test_leased_rows_behind_a_replayed_one_are_released():
    progress = rows()
    lease = progress.leases[7]
    behind = QUEUE_ORDER.behind_replayed([lease], [(9, 10, 1, 0), (3, 4, 1, 0)], [])
    assert behind == [(lease, [(6, 9, 2, 3)])]
    assert QUEUE_ORDER.behind_replayed([lease], [(8, 10, 1, 0)], []) == []
    assert QUEUE_ORDER.behind_replayed([lease], [], []) == []


def test_ready_rows_wait_behind_each_row_that_waits_unless_a_row_is_leased():
    progress = rows(ready=10, waiting=12)
    assert list(QUEUE_ORDER.idle_lines(progress)) == []
    progress.leases.clear()
    assert list(QUEUE_ORDER.idle_lines(progress)) == [[12, 10, 11]]


def test_nothing_is_stored():
    QUEUE_ORDER.load([], [(0, 4)])
    QUEUE_ORDER.give_back(LEASED)
    QUEUE_ORDER.finish_load()
    assert QUEUE_ORDER.hashes(0, 10) == []
    assert QUEUE_ORDER.hash_of(3) == QUEUE_ORDER.hash_of(4)
    assert QUEUE_ORDER.come_due([3, 5]) == ()
    assert QUEUE_ORDER.emptied(Discarded()) is QUEUE_ORDER
