"""Broadcast instances: where they begin, who has them, what fails in them, when they go."""

from __future__ import annotations

from typing import Any

import pytest

from ternmq.broker.catalog.catalog import Subscription
from ternmq.broker.delivery.settles import Disposition
from ternmq.broker.gate.replies import PullReply
from ternmq.broker.operation.broadcasting import InstanceAsked
from ternmq.broker.upkeep.judging import Judging
from ternmq.broker.upkeep.oldestsegment import OldestSegment
from ternmq.journal.disk.memory import MemoryDisk
from ternmq.journal.log.retention import QueueShare, RetentionSpec
from ternmq.model.errors import (
    Busy,
    InstanceTaken,
    InvalidFilter,
    InvalidName,
    InvalidRequest,
    LeaseExpired,
    ModeNotAllowed,
    UnknownSession,
    UnknownTopic,
)
from ternmq.model.specs import Limits, Mode, SubscriptionSpec, TopicSpec, instance_group
from ternmq.model.types import DAY_US
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Cause, Outcome
from tests.unit.broker.kit import SECOND, World, attempts, explore, offsets

GRACE = Limits().session_grace_us


def joined(
    world: World, session: int, instance: str = "", **asked: Any
) -> tuple[Subscription, bool]:
    """Join as an instance of topic t; return its group, and whether it is new."""
    reply = world.run(
        lambda: world.broker.broadcasting.join(
            world.now, session, "t", instance, InstanceAsked(**asked)
        )
    )
    world.commit()
    return reply.value.subscription, reply.value.created


def instances(world: World) -> list[str]:
    return sorted(world.broker.views.catalog.topic("t").by_group)


def pulled(world: World, session: int, instance: str = "", rows: int = 32) -> PullReply | None:
    return world.pull(session, "t", instance_group(instance, session), rows)


def got(world: World, session: int, instance: str = "") -> list[int]:
    """Return the offsets that an instance gets now, and ack them."""
    group = instance_group(instance, session)
    reply = world.pull(session, "t", group)
    if reply is None:
        return []
    world.settle(session, "t", group, reply)
    return offsets(reply)


def away(world: World, session: int) -> None:
    """Let the connection of a session end."""
    world.run(lambda: world.broker.clients.disconnected(world.now, session))


def test_each_instance_gets_every_message_stored_since_it_came() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        sessions = [world.join(f"c{at}") for at in range(3)]
        world.send("t", 2)
        joined(world, sessions[0], "a")
        joined(world, sessions[1])
        world.send("t", 3)
        joined(world, sessions[2])
        world.send("t", 1)
        assert got(world, sessions[0], "a") == [2, 3, 4, 5]
        assert got(world, sessions[1]) == [2, 3, 4, 5]
        assert got(world, sessions[2]) == [5]

    explore(scenario)


def test_a_failure_is_done_with_its_reason_and_is_no_dead_letter() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        session = world.join()
        group = joined(world, session, "a")[0]
        world.send("t", 3)
        reply = pulled(world, session, "a")
        assert reply is not None
        for outcome, span in ((Outcome.RETRY, (0, 1)), (Outcome.DEAD, (1, 2))):
            world.settle(session, "t", "$b.a", reply, outcome, spans=[span], reason="boom")
        progress = group.queues[0]
        assert progress.failures.waiting_rows == progress.failures.dead_rows == 0
        world.pass_time(3600 * SECOND)  # the lease of the third ends, which counts as no attempt
        again = pulled(world, session, "a")
        assert again is not None
        assert attempts(again) == {2: (1, 2)}

    explore(scenario)


def test_the_record_of_a_failure_says_why() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    group = joined(world, session, "a")[0]
    world.send("t", 1)
    reply = pulled(world, session, "a")
    assert reply is not None
    run = (0, 1, 1, 1)
    settle = Disposition(
        session, reply.epoch, reply.lease, Outcome.RETRY, Cause.CONSUMER, None, "boom"
    )
    (fact,) = world.broker.settling.settled(world.now, group, group.queues[0], settle, [run])
    assert (fact.outcome, fact.cause, fact.reason, fact.runs) == (
        Outcome.DONE, Cause.FAILED, b"boom", [run],
    )  # fmt: skip


def test_a_named_instance_goes_on_where_it_was_and_an_unnamed_one_is_new() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        one, other = world.join("one"), world.join("other")
        joined(world, one, "a")
        joined(world, other)
        world.send("t", 1)
        assert got(world, one, "a") == [0]
        world.leave(one)
        world.leave(other)
        world.pass_time(SECOND)
        assert instances(world) == ["$b.a"]
        world.send("t", 2)
        world.restart()
        one, other = world.join("one"), world.join("other")
        assert not joined(world, one, "a")[1]
        assert joined(world, other)[1]
        world.send("t", 1)
        assert got(world, one, "a") == [1, 2, 3]
        assert got(world, other) == [3]

    explore(scenario)


def test_rows_that_a_client_held_go_to_the_one_that_takes_the_instance_over() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        one = world.join("one")
        joined(world, one, "a")
        world.send("t", 2)
        held = pulled(world, one, "a")
        assert held is not None
        away(world, one)  # it was killed
        other = world.join("other")
        assert not joined(world, other, "a")[1]
        again = pulled(world, other, "a")
        assert again is not None
        assert attempts(again) == {0: (1, 2), 1: (1, 2)}
        world.resume(one)
        with pytest.raises(InstanceTaken, match="another client is instance 'a' of topic 't'"):
            pulled(world, one, "a")
        with pytest.raises(InstanceTaken, match="which is connected"):
            joined(world, one, "a")

    explore(scenario)


def test_a_second_living_client_is_refused_until_the_first_is_gone() -> None:
    world = World()
    world.topic("t")
    one, other = world.join("one"), world.join("other")
    joined(world, one, "a")
    end = world.end
    joined(world, one, "a")  # the same client, once more
    assert world.end == end
    with pytest.raises(InstanceTaken, match="instance 'a' of topic 't' is client 'one'"):
        joined(world, other, "a")
    joined(world, other, "b")
    world.leave(one)
    assert not joined(world, other, "a")[1]


def test_an_instance_with_a_name_is_removed_seven_days_after_it_left() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        session = world.join()
        joined(world, session, "a")
        world.leave(session)
        world.pass_time(SECOND)
        world.pass_time(7 * DAY_US - 60 * SECOND)
        assert instances(world) == ["$b.a"]
        world.pass_time(120 * SECOND)
        world.pass_time(SECOND)
        assert instances(world) == []
        assert world.broker.broadcasting.removed == 1
        assert len(world.broker.views.catalog.instances) == 0

    explore(scenario)


def test_the_days_count_from_when_its_client_was_last_there() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    joined(world, session, "a")
    records = world.broker.journal.appended
    for _ in range(24):
        world.pass_time(3600 * SECOND)
    assert world.broker.journal.appended - records == 1  # it was seen: once a day
    for _ in range(9):
        world.pass_time(DAY_US)
    world.restart(gap_us=30 * DAY_US)  # the broker was down: the client had no chance to come
    assert instances(world) == ["$b.a"]
    world.pass_time(GRACE + SECOND)
    world.pass_time(SECOND)
    seen = world.broker.views.catalog.subscription("t", "$b.a").spec.instance
    assert seen is not None
    assert seen.session == 0
    assert world.now - seen.seen_us <= 2 * SECOND
    world.pass_time(6 * DAY_US)
    assert instances(world) == ["$b.a"]
    world.pass_time(DAY_US)
    world.pass_time(SECOND)
    assert instances(world) == []


def test_a_start_after_a_long_time_gives_a_forgotten_instance_the_grace_to_come_back() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    joined(world, session, "a")
    world.leave(session)
    world.pass_time(SECOND)
    world.restart(gap_us=30 * DAY_US)
    world.pass_time(GRACE // 2)
    assert instances(world) == ["$b.a"]
    back = world.join()
    assert not joined(world, back, "a")[1]
    world.pass_time(GRACE)
    assert instances(world) == ["$b.a"]


def test_instances_whose_session_ended_before_a_crash_go_after_the_start() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    joined(world, session)
    joined(world, session, "a")
    world.run(lambda: world.broker.clients.leave(world.now, session))  # and no tick follows
    world.restart()
    world.pass_time(2 * SECOND)
    assert instances(world) == ["$b.a"]
    seen = world.broker.views.catalog.subscription("t", "$b.a").spec.instance
    assert seen is not None
    assert seen.session == 0


def test_an_instance_does_not_keep_the_journal() -> None:
    world = World()
    number = world.topic("t")
    session = world.join()
    joined(world, session, "a")
    world.send("t", 3)
    share = QueueShare(number, 0, 3)
    ledger, writer = world.broker.ledger, world.broker.writer
    judging = Judging(ledger, OldestSegment(ledger), writer, RetentionSpec())
    assert not judging.unread_below(share)
    world.group("t", "g")
    assert judging.unread_below(share)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.RELEASED])
def test_what_a_lease_lost_with_power_says_of_removed_rows_does_not_count(
    outcome: Outcome,
) -> None:
    """Nobody would have their content, if they came again."""
    world = World()
    world.topic("t")
    session = world.join()
    joined(world, session, "a")
    world.send("t", 5)
    image = world.disk.image()
    reply = pulled(world, session, "a")
    assert reply is not None
    assert offsets(reply) == [0, 1, 2, 3, 4]
    world.disk = MemoryDisk(image)
    world.now += SECOND
    world._open(world.now)
    queue = world.broker.views.catalog.topic("t").queues[0]
    assert queue.first == 0
    queue.known_first = 3  # as after the removal of a segment
    for spans in ([(0, 2)], [(2, 4)]):
        with pytest.raises(LeaseExpired):
            world.settle(session, "t", "$b.a", reply, outcome, spans)
    assert world.settle(session, "t", "$b.a", reply, outcome, [(3, 5)]).settled == [(3, 5, 1, 1)]


def test_there_are_only_so_many_instances() -> None:
    world = World(Limits(instances=2))
    world.topic("t")
    session = world.join()
    joined(world, session, "a")
    joined(world, session, "b")
    with pytest.raises(Busy, match="there are 2 broadcast instances"):
        joined(world, session, "c")
    world.run(lambda: world.broker.administration.unsubscribe(world.now, "t", "$b.a"))
    joined(world, session, "c")
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    assert len(world.broker.views.catalog.instances) == 0


def test_settings_that_a_client_states_replace_those_of_its_instance() -> None:
    def scenario(world: World) -> None:
        world.topic("t")
        session = world.join()
        joined(world, session, "a", tags="x", lease_us=5 * SECOND)
        world.send("t", [Row(body=b"1", tag="x"), Row(body=b"2", tag="y"), Row(body=b"3", tag="x")])
        assert got(world, session, "a") == [0, 2]
        again, created = joined(world, session, "a", tags="y")
        assert not created
        assert (again.spec.tags, again.spec.lease_us) == ("y", 5 * SECOND)
        world.send("t", [Row(body=b"4", tag="x"), Row(body=b"5", tag="y")])
        assert got(world, session, "a") == [4]

    explore(scenario)


def test_what_is_refused() -> None:
    world = World()
    world.topic("t")
    session = world.join()
    with pytest.raises(UnknownTopic):
        world.broker.broadcasting.join(world.now, session, "u", "", InstanceAsked())
    with pytest.raises(UnknownSession):
        joined(world, 77, "a")
    with pytest.raises(InvalidFilter):
        joined(world, session, "a", filter="region =")
    with pytest.raises(InvalidName, match="names that begin with \\$ are reserved"):
        world.group("t", "$b.a")
    with pytest.raises(ModeNotAllowed, match="only instances have"):
        world.group("t", "g", mode=Mode.BROADCAST)
    joined(world, session, "a")
    with pytest.raises(InvalidRequest, match="which has no dead letters"):
        world.change("t", "$b.a", expired=SubscriptionSpec().expired)
    with pytest.raises(InvalidRequest, match="which has no retries"):
        world.change("t", "$b.a", retry=SubscriptionSpec().retry)
    with pytest.raises(ModeNotAllowed):
        world.change("t", "$b.a", mode=Mode.SHARED)
    world.group("t", "g")
    with pytest.raises(ModeNotAllowed):
        world.change("t", "g", mode=Mode.BROADCAST)
    world.change("t", "$b.a", paused=True, instance=None)
    changed = world.broker.views.catalog.subscription("t", "$b.a").spec
    assert changed.paused
    assert changed.instance is not None


@pytest.mark.parametrize(
    "asked", [{"lease_us": 1}, {"filter": "region ="}], ids=["lease", "filter"]
)
def test_a_join_that_is_refused_leaves_the_former_client_its_messages(
    asked: dict[str, Any],
) -> None:
    world = World()
    world.topic("t")
    one, other = world.join("one"), world.join("other")
    group = joined(world, one, "a")[0]
    world.send("t", 3)
    reply = pulled(world, one, "a")
    assert reply is not None
    away(world, one)
    with pytest.raises((InvalidRequest, InvalidFilter)):
        joined(world, other, "a", **asked)
    world.commit()
    assert group.spec.instance is not None
    assert group.spec.instance.session == one
    assert group.queues[0].leased_rows == 3
    settled = world.settle(one, "t", "$b.a", reply)  # its client is back within its grace
    assert settled.settled == [(0, 3, 1, 1)]


def test_what_is_refused_before_the_topic_is_made() -> None:
    world = World(Limits(instances=1, group_queues=4))
    world.topic("t")
    session = world.join()

    def check(queues: int = 1, **asked: Any) -> None:
        new = TopicSpec(name="u", queues=queues)
        world.broker.broadcasting.check_new(world.now, session, new, "a", InstanceAsked(**asked))

    check(queues=4)
    with pytest.raises(InvalidRequest, match="lease"):
        check(lease_us=1)
    with pytest.raises(InvalidFilter):
        check(filter="region =")
    with pytest.raises(Busy, match="group_queues"):
        check(queues=5)
    joined(world, session, "a")
    with pytest.raises(Busy, match="there are 1 broadcast instances"):
        check()


def test_a_broadcast_topic_has_instances_and_no_other_groups() -> None:
    world = World()
    world.topic("t", broadcast=True)
    session = world.join()
    joined(world, session, "a")
    with pytest.raises(ModeNotAllowed, match="topic 't' is a broadcast topic"):
        world.group("t", "g")
    with pytest.raises(InvalidRequest, match="cannot be changed"):
        world.broker.administration.change_topic(world.now, TopicSpec(name="t"))


def test_who_takes_an_instance_over_gets_all_that_the_former_client_held() -> None:
    """One turn gives back 512 rows; the next ones go on, while the former session still lives."""

    def scenario(world: World) -> None:
        world.topic("t", queues=2)
        one, other = world.join("one"), world.join("other")
        joined(world, one, "a")
        joined(world, one, "b")
        for queue in (0, 1):
            world.send("t", 700, queue=queue)
        held = [pulled(world, one, "a", 100) for _ in range(14)]
        assert sum(len(offsets(reply)) for reply in held if reply) == 1400
        assert pulled(world, one, "b", 100) is not None
        away(world, one)
        joined(world, other, "a")
        world.pass_time(SECOND)
        again = [pulled(world, other, "a", 1000), pulled(world, other, "a", 1000)]
        assert [offsets(reply) for reply in again if reply] == [list(range(700))] * 2
        progress = world.broker.views.catalog.topic("t").by_group["$b.b"].queues[0]
        assert progress.leased_rows == 100  # of another instance, whose client may come back
        assert GRACE > 2 * SECOND

    explore(scenario)
