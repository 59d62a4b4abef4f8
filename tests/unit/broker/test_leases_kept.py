"""Leases whose consumer could not extend them: the broker was away, or it stops."""

from __future__ import annotations

import pytest

from ternmq.broker.group.lease import LEASE_BITS, LEASE_LIMIT
from ternmq.model.types import SECOND_US
from ternmq.record.fact.facts import Outcome
from ternmq.wire.bodies import Settle
from tests.unit.broker.kit import World

LEASE_S = 3
GRACE_S = 10


def leased(world: World) -> tuple[int, int]:
    """Hand a message out with a lease of three seconds; return session and lease."""
    world.topic("t")
    world.group("t", "g", lease_us=LEASE_S * SECOND_US)
    world.send("t", 1)
    session = world.join()
    reply = world.pull(session, "t", "g")
    assert reply is not None
    return session, reply.lease


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("away_s", [1, LEASE_S + 1, 60])
def test_a_lease_outlives_a_restart_until_the_grace_is_over(clean: bool, away_s: int) -> None:
    world = World()
    session, _ = leased(world)
    other = world.join("other")
    world.restart(clean=clean, gap_us=away_s * SECOND_US)
    world.resume(other)
    world.resume(session)
    world.pass_time((GRACE_S - 1) * SECOND_US)
    progress = world.progress("t", "g")
    assert progress.leased_rows == 1
    assert world.pull(other, "t", "g") is None
    (lease,) = progress.leases.values()
    epoch, number = lease.id >> LEASE_BITS, lease.id & LEASE_LIMIT - 1
    world.run(
        lambda: world.broker.extend(
            world.now, session, "t", "g", 0, epoch, number, LEASE_S * SECOND_US
        )
    )
    world.pass_time((LEASE_S - 1) * SECOND_US)
    assert progress.leased_rows == 1, "it was extended"
    world.pass_time(2 * SECOND_US)
    assert progress.leased_rows == 0, "and then it was not"


def test_it_ends_with_its_session_if_that_does_not_come_back() -> None:
    world = World()
    leased(world)
    other = world.join("other")
    world.restart(gap_us=SECOND_US)
    world.resume(other)
    world.pass_time((GRACE_S - 1) * SECOND_US)
    assert world.progress("t", "g").leased_rows == 1
    world.pass_time(2 * SECOND_US)
    reply = world.pull(other, "t", "g")
    assert reply is not None
    assert reply.runs[0][2] == 2, "it counted"


def test_a_lease_of_after_the_start_ends_in_time() -> None:
    world = World()
    world.topic("t")
    world.group("t", "g", lease_us=LEASE_S * SECOND_US)
    world.send("t", 1)
    world.restart()
    session, other = world.join(), world.join("other")
    assert world.pull(session, "t", "g") is not None
    world.pass_time((LEASE_S + 1) * SECOND_US)
    assert world.pull(other, "t", "g") is not None


def test_no_lease_ends_while_the_broker_stops() -> None:
    world = World()
    session, number = leased(world)
    world.broker.leases.keep_all()
    world.pass_time((GRACE_S - 1) * SECOND_US)
    progress = world.progress("t", "g")
    assert progress.leased_rows == 1
    (lease,) = progress.leases.values()
    epoch = lease.id >> LEASE_BITS
    world.run(
        lambda: world.broker.settle(
            world.now, session, Settle("t", "g", 0, epoch, number, Outcome.DONE)
        )
    )
    assert progress.leased_rows == 0


def test_nor_does_a_session_that_is_not_let_in_again() -> None:
    world = World()
    session, number = leased(world)
    world.broker.leases.keep_all()
    world.broker.clients.disconnected(world.now, session)
    world.pass_time(3 * GRACE_S * SECOND_US)
    progress = world.progress("t", "g")
    assert progress.leased_rows == 1
    world.restart(clean=True, gap_us=SECOND_US)
    world.resume(session)
    (lease,) = world.progress("t", "g").leases.values()
    epoch = lease.id >> LEASE_BITS
    world.run(
        lambda: world.broker.settle(
            world.now, session, Settle("t", "g", 0, epoch, number, Outcome.DONE)
        )
    )
    assert world.progress("t", "g").leased_rows == 0


def test_the_grace_begins_when_the_broker_has_recovered() -> None:
    world = World()
    session, _ = leased(world)
    world.restart(gap_us=SECOND_US)
    world.now += 2 * GRACE_S * SECOND_US  # so long did the recovery take
    world.broker.clients.renew_graces(world.now)
    world.pass_time((GRACE_S - 1) * SECOND_US)
    assert world.progress("t", "g").leased_rows == 1
    world.resume(session)
    world.pass_time(2 * SECOND_US)
    assert world.progress("t", "g").leased_rows == 0, "it came back, and did not extend its lease"
