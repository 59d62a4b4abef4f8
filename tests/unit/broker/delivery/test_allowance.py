"""Clients that are switched off, and the most rows that one session may have of a group."""

from __future__ import annotations

import pytest

from ternmq.broker.query.listings import Consumed, Listings
from ternmq.model.errors import InvalidRequest
from ternmq.model.specs import Mode, SubscriptionSpec
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import World, explore, offsets


def start(world: World, **settings: object) -> tuple[int, int]:
    world.topic("t", queues=2)
    world.group("t", "g", **settings)
    return world.join("bad-0000-secret"), world.join("good-000-secret")


def test_a_client_that_is_switched_off_gets_nothing_and_others_continue() -> None:
    def scenario(world: World) -> None:
        bad, good = start(world)
        world.send("t", 1, queue=0)
        held = world.pull(bad, "t", "g", 1)
        assert held is not None
        world.park(bad, "t", "g")  # it is the older one
        world.change("t", "g", offline=("bad-0000",))
        world.park(good, "t", "g")
        world.send("t", 2, queue=0)
        (woken,) = world.woken()
        assert woken.reply is not None
        assert offsets(woken.reply) == [1, 2]
        world.settle(good, "t", "g", woken.reply, Outcome.RELEASED)
        assert world.pull(bad, "t", "g") is None
        assert world.pull(bad, "t", "g", queue=0) is None
        assert world.drain(good, "t", "g") == [1, 2]
        world.settle(bad, "t", "g", held)  # what it has it may settle
        world.send("t", 1, queue=1)
        assert world.woken() == []
        world.change("t", "g", offline=())
        (woken,) = world.woken()
        assert woken.reply is not None
        assert (woken.reply.queue, offsets(woken.reply)) == (1, [0])

    explore(scenario)


def test_a_client_may_be_named_by_its_app() -> None:
    world = World()
    bad, good = start(world, offline=("other/*", "app/bad*"))
    world.send("t", 1)
    assert world.pull(bad, "t", "g") is None
    world.restart()
    assert world.pull(bad, "t", "g") is None
    assert world.pull(good, "t", "g") is not None


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.QUEUE_LOCK])
def test_a_session_gets_at_most_the_concurrency_in_all_queues(mode: Mode) -> None:
    def scenario(world: World) -> None:
        one, other = start(world, concurrency=3, mode=mode)
        for queue in (0, 1):
            world.send("t", 6, queue=queue)
        first = world.pull(one, "t", "g", 2)
        second = world.pull(one, "t", "g", 10)
        assert first is not None
        assert second is not None
        assert len(offsets(second)) == 1
        assert world.pull(one, "t", "g") is None
        world.park(one, "t", "g")
        world.settle(one, "t", "g", first)
        (woken,) = world.woken()
        assert woken.reply is not None
        assert len(offsets(woken.reply)) == 2
        if mode is Mode.SHARED:
            assert len(offsets(world.pull(other, "t", "g"))) == 3
        world.change("t", "g", concurrency=0)
        if mode is Mode.SHARED:
            assert world.pull(one, "t", "g") is not None

    explore(scenario)


def test_settings_that_are_not_valid_are_refused() -> None:
    for entries in (("",), ("a b",), ("x" * 9,), ("*/a/b",), ("a*b",), ("*",) * 257, ("a/",)):
        with pytest.raises(InvalidRequest):
            SubscriptionSpec(offline=entries).check()
    with pytest.raises(InvalidRequest, match="concurrency must be 0"):
        SubscriptionSpec(concurrency=-1).check()
    for entry in ("*", "a", "12345678", "app/*", "ap*/12345678", "*/ab*", "12345678*"):
        SubscriptionSpec(offline=(entry,)).check()


def test_lists_show_what_a_client_consumes_and_whether_it_is_switched_off() -> None:
    world = World()
    bad, good = start(world)
    world.group("t", "h")
    world.change("t", "g", offline=("bad*",))
    world.park(bad, "t", "g")
    world.send("t", 1)
    world.pull(bad, "t", "h")
    broker = world.broker
    page = Listings(broker.ledger, broker.parking).sessions()
    assert {one.session: one.consumes for one in page.sessions} == {
        bad: [Consumed("t", "g", offline=True), Consumed("t", "h", offline=False)],
        good: [],
    }


def test_rows_that_a_transaction_takes_over_make_room_for_a_waiting_pull() -> None:
    world = Transacting()
    one = start(world, concurrency=2)[0]
    world.offer(one)
    world.send("t", 4, queue=0)
    held = world.pull(one, "t", "g", 4)
    assert held is not None
    assert offsets(held) == [0, 1]
    world.park(one, "t", "g")
    number = world.put(1, session=one).transaction
    world.hold(number, one, "t", held)
    (woken,) = world.woken()
    assert offsets(woken.reply) == [2, 3]
