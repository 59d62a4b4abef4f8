"""Rows in no order: nothing waits for anything, and nothing is stored."""

from __future__ import annotations

from ternmq.broker.containers.discarded import Discarded
from ternmq.broker.delivery.shared import SHARED
from ternmq.broker.group.heldpage import HeldPage
from ternmq.broker.group.lease import Lease
from ternmq.broker.group.order import UNORDERED
from ternmq.broker.group.progress import Progress

PROGRESS = Progress(1, 1, 0, 0, HeldPage(), SHARED)
ROWS = [(8, 10, 2, 3), (0, 4, 1, 1)]


def test_a_failure_releases_nothing():
    lease = Lease(1, 1, 0, ROWS)
    assert UNORDERED.handled(ROWS) == (ROWS, [])
    assert UNORDERED.behind(lease, [], [], ROWS[:1]) == []
    assert UNORDERED.behind_replayed([lease], ROWS, []) == []


def test_a_lease_that_ends_in_pieces_ends_from_its_first_row_and_all_rows_may_be_begun():
    assert UNORDERED.end_first(ROWS, 5) == [(0, 4, 1, 1), (8, 9, 2, 3)]
    assert UNORDERED.begun(PROGRESS, ROWS) == (ROWS, [])


def test_rows_that_come_due_are_listed_by_the_caller():
    assert UNORDERED.come_due([3, 5]) == [3, 5]


def test_nothing_is_stored():
    UNORDERED.load([], [(0, 4)])
    UNORDERED.give_back(ROWS)
    assert UNORDERED.hashes(0, 10) == [] == list(UNORDERED.idle_lines(PROGRESS))
    assert UNORDERED.hash_of(3) is None is UNORDERED.first_before(PROGRESS, 3)
    assert UNORDERED.emptied(Discarded()) is UNORDERED
