"""What iteration over a batch hands out when leases have ended, as after a freeze."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq.client.consumer.deliveries import Deliveries, Leased, conclude_all
from ternmq.client.consumer.lease import Lease
from ternmq.model.errors import LeaseExpired
from ternmq.record.fact.facts import Outcome


class Settler:
    """Loses leases as the client's does; ``frozen``: whether it doubts all of them."""

    loop = None  # as of ``running_loop`` where none runs

    def __init__(self) -> None:
        self.frozen = False
        self.policies = SimpleNamespace(of=lambda topic, group: None)

    def doubts(self, lease: Lease) -> bool:
        return self.frozen

    def dirty(self, lease: Lease) -> None:
        lease.dirty = True

    def lose(self, lease: Lease) -> None:
        lease.end()
        lease.lost = True


@pytest.fixture
def settler() -> Settler:
    return Settler()


def batch_of(settler: Settler, *leases: int, ordered: bool = False) -> Deliveries:
    """Return a batch of one lease for each number of rows."""
    parts = []
    first = 0
    for number, rows in enumerate(leases):
        span = (first, first + rows)
        lease = Lease(cast("Any", settler), "t", "g", 0, 1, number, [span], 30_000_000, 0)
        chunk: Any = SimpleNamespace(offset=first, count=rows, queue=0, attempt=1, row=0)
        parts.append(Leased(lease, [chunk], ordered=ordered))
        first += rows
    return Deliveries("t", parts, cast("Any", None))


def offsets(batch: Deliveries) -> list[int]:
    return [one.offset for one in batch]


@pytest.mark.parametrize("ordered", [False, True])
def test_iteration_ends_where_a_lease_has_ended_and_nothing_after_is_acked(
    settler: Settler, *, ordered: bool
) -> None:
    """The loop has heard of nothing yet: what was not begun must not be acked with the batch."""
    batch = batch_of(settler, 2, 3, 2, ordered=ordered)
    first, second, third = (part.lease for part in batch._parts)
    begun = []
    for one in batch:
        begun.append(one.offset)
        if one.offset == 2:
            settler.frozen = True
            second.until = time.monotonic()
    assert begun == [0, 1, 2]
    assert (first.lost, second.lost, third.lost) == (False, True, False)
    assert third.verdicts == {(Outcome.RELEASED, None, ""): [(5, 7)]}

    conclude_all(batch, None)
    assert first.verdicts == {(Outcome.DONE, None, ""): [(0, 2)]}
    assert not second.verdicts
    assert len(third.verdicts) == 1
    with pytest.raises(LeaseExpired):
        second.ack(2)


def test_a_lease_that_the_keeper_lost_has_ended_before_its_time(settler: Settler) -> None:
    batch = batch_of(settler, 3)
    batch._parts[0].lease.end()  # in its thread: the loop is blocked
    assert offsets(batch) == []
    assert all(one.lost for one in batch[:])


def test_an_outage_ends_no_lease(settler: Settler) -> None:
    """The broker keeps leases until the client is back: as handlers do, iteration goes on."""
    batch = batch_of(settler, 3)
    batch._parts[0].lease.until = time.monotonic() - 60
    assert offsets(batch) == [0, 1, 2]
    assert not batch._parts[0].lease.lost


def test_a_settled_batch_is_iterated_over_at_any_time(settler: Settler) -> None:
    batch = batch_of(settler, 2, 1)
    conclude_all(batch, None)
    settler.frozen = True
    for part in batch._parts:
        part.lease.until = time.monotonic() - 60
    assert offsets(batch) == [0, 1, 2]
