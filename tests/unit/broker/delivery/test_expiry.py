"""Rows that expire: when they are judged, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from msgspec.structs import replace

from ternmq.broker.delivery.expiry import Expiry
from ternmq.broker.delivery.plan import Plan
from ternmq.broker.upkeep import expiring
from ternmq.journal.cache.cold import WouldBlock
from ternmq.journal.index.tail import Places
from ternmq.model.errors import CorruptJournal, DiskReadError, InvalidRequest, MessageNotFound
from ternmq.model.specs import LONGEST_US, Expired, Limits, Mode, RetryPolicy
from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from tests.unit.broker.kit import (
    SECOND,
    STEADY,
    Nothing,
    World,
    attempts,
    difference,
    offsets,
    portrait,
)


def rows(world: World, *after: float, key: str = "", due: float = 0) -> list[Row]:
    """Return rows that expire so many seconds from now; 0: never."""
    return [
        Row(
            body=b"row %d" % world._serial(),
            expiry_us=world.now + int(one * SECOND) if one else 0,
            ordering_key=key,
            due_us=world.now + int(due * SECOND) if due else 0,
        )
        for one in after
    ]


def dead(
    world: World, topic: str = "t", group: str = "g", queue: int = 0
) -> dict[int, tuple[int, int]]:
    """Return offset -> (attempt, deliveries) of the dead letters."""
    failures = world.progress(topic, group, queue).failures
    return {
        one.offset: (one.attempt, one.deliveries) for one in failures.failed(dead=True, after=-1)
    }


def check_restart(world: World) -> None:
    """A start finds the same state."""
    before = portrait(world.broker.views)
    world.restart(gap_us=0)
    assert difference(before, portrait(world.broker.views)) == []


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.topic("t")
    world.group("t", "g")
    yield world
    check_restart(world)


def test_a_row_is_not_handed_out_from_its_expiry_on(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, 5, 0, 5, 9))
    world.now += 5 * SECOND - 1
    pulled = world.pull(session, "t", "g", 1)
    assert offsets(pulled) == [0]
    world.now += 1
    assert offsets(world.pull(session, "t", "g")) == [1, 3]
    assert dead(world) == {2: (0, 0)}
    assert world.progress("t", "g").cursor == 4
    assert (world.broker.expiry.dead_rows, world.broker.expiry.dropped_rows) == (1, 0)


def test_rows_are_dropped_if_the_group_says_so(world: World) -> None:
    session = world.join()
    world.change("t", "g", expired=Expired.DROP)
    world.send("t", rows(world, 1, 1, 0))
    world.now += SECOND
    assert offsets(world.pull(session, "t", "g")) == [2]
    assert dead(world) == {}
    assert (world.broker.expiry.dead_rows, world.broker.expiry.dropped_rows) == (0, 2)
    assert not world.broker.views.alarms.open


def test_the_topic_says_when_rows_expire(world: World) -> None:
    session = world.join()
    world.topic("short", expires_us=3 * SECOND)
    world.group("short", "g")
    world.send("short", rows(world, 0, 1, 9))
    world.now += SECOND
    world.send("short", rows(world, 0))
    world.now += 2 * SECOND
    assert offsets(world.pull(session, "short", "g")) == [3]
    assert sorted(dead(world, "short")) == [0, 1, 2]


def test_a_changed_topic_judges_what_is_stored(world: World) -> None:
    session = world.join()
    world.send("t", 3)
    world.now += 5 * SECOND
    spec = world.broker.views.catalog.topic("t").spec
    change = world.broker.administration.change_topic
    longer = spec.__class__(
        **{**{f: getattr(spec, f) for f in spec.__struct_fields__}, "expires_us": SECOND}
    )
    world.run(lambda: change(world.now, longer))
    assert world.pull(session, "t", "g") is None
    assert sorted(dead(world)) == [0, 1, 2]
    world.send("t", 1)
    world.now += 5 * SECOND
    world.run(lambda: change(world.now, spec))
    assert offsets(world.pull(session, "t", "g")) == [3]


def test_a_failed_row_is_judged_again(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, 3, 0))
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
    world.pass_time(4 * SECOND)
    assert offsets(world.pull(session, "t", "g")) == [1]
    assert dead(world) == {0: (1, 1)}


def test_a_released_row_is_not_judged_again(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, 3, 3))
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RELEASED)
    world.now += 4 * SECOND
    again = world.pull(session, "t", "g")
    assert again is not None
    assert attempts(again) == {0: (1, 2), 1: (1, 2)}


def test_redriven_and_replayed_rows_are_not_judged(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, 3, 3, 3))
    pulled = world.pull(session, "t", "g", 1)
    assert pulled is not None
    world.settle(session, "t", "g", pulled)
    world.now += 4 * SECOND
    assert world.pull(session, "t", "g") is None
    assert dead(world) == {1: (0, 0), 2: (0, 0)}
    operating = world.broker.operating
    world.commit()
    world.run(lambda: operating.redrive(world.now, session, "t", "g", 0, [1]))
    assert offsets(world.pull(session, "t", "g")) == [1]
    world.run(lambda: operating.replay(world.now, session, "t", "g", {0: [(0, 3)]}))
    assert offsets(world.pull(session, "t", "g")) == [0, 1, 2]


def test_a_dropped_row_can_be_replayed(world: World) -> None:
    session = world.join()
    world.change("t", "g", expired=Expired.DROP)
    world.send("t", rows(world, 1, 1))
    world.now += SECOND
    assert world.pull(session, "t", "g") is None
    world.pass_time(2 * SECOND)
    world.run(lambda: world.broker.operating.replay(world.now, session, "t", "g", {0: [(0, 2)]}))
    assert offsets(world.pull(session, "t", "g")) == [0, 1]


def test_many_expired_rows_take_few_records(world: World) -> None:
    session = world.join()
    for _ in range(30):
        world.send("t", rows(world, *[1] * 100), commit=False)
    world.send("t", rows(world, 0))
    world.now += SECOND
    appended = world.broker.journal.appended
    pulled = None
    for _ in range(10):
        pulled = pulled or world.pull(session, "t", "g", 1)
    assert offsets(pulled) == [3000]
    assert len(dead(world)) == 3000
    assert world.broker.journal.appended - appended < 20


def test_a_waiting_pull_gets_what_is_behind_many_expired_rows(world: World) -> None:
    session = world.join()
    for _ in range(30):
        world.send("t", rows(world, *[1] * 100), commit=False)
    world.send("t", rows(world, 0))
    world.now += SECOND
    assert world.pull(session, "t", "g") is None
    world.park(session, "t", "g")
    woken = [one for _ in range(5) for one in world.woken()]
    assert [offsets(one.reply) for one in woken] == [[3000]]


def test_near_the_cap_of_the_store_rows_are_dropped_with_an_alarm() -> None:
    world = World(Limits(failures=100))
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", rows(world, *[1] * 200, 0))
    world.now += SECOND
    assert offsets(world.pull(session, "t", "g")) == [200]
    assert sorted(dead(world)) == list(range(90))
    assert (world.broker.expiry.dead_rows, world.broker.expiry.dropped_rows) == (90, 110)
    assert [(one.name, one.subject) for one in world.broker.views.alarms.open] == [
        ("expired-dropped", "t/g/0")
    ]
    world.send("t", rows(world, 1))
    world.send("t", 5)
    world.now += SECOND
    assert offsets(world.pull(session, "t", "g")) == [202, 203, 204, 205, 206]
    check_restart(world)


def test_rows_that_are_in_the_store_already_are_kept_near_its_cap() -> None:
    """They waited for a retry there: as dead letters they take no more of it."""
    world = World(Limits(failures=10))
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", rows(world, *[10] * 8))
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY)
    world.send("t", rows(world, *[10] * 3))
    world.pass_time(20 * SECOND)
    assert world.pull(session, "t", "g") is None
    assert sorted(dead(world)) == list(range(9))
    assert (world.broker.expiry.dead_rows, world.broker.expiry.dropped_rows) == (9, 2)
    check_restart(world)


def test_a_filtered_row_never_expires_for_the_group(world: World) -> None:
    session = world.join()
    world.group("t", "red", tags="red")
    batch = [
        Row(body=b"%d" % n, tag=tag, expiry_us=world.now + SECOND)
        for n, tag in enumerate(["red", "blue", "red"])
    ]
    world.send("t", [*batch, Row(body=b"x", tag="red"), Row(body=b"y", tag="blue")])
    world.now += SECOND
    assert offsets(world.pull(session, "t", "red")) == [3]
    assert sorted(dead(world, "t", "red")) == [0, 2]


@pytest.mark.parametrize("pulls", [1, 32])
def test_an_expired_head_does_not_block_its_key(pulls: int) -> None:
    world = World()
    world.topic("o", ordered=True)
    world.group("o", "g", retry=STEADY)
    session = world.join()
    world.send("o", rows(world, 2, 0, 0, key="a"))
    pulled = world.pull(session, "o", "g", 1)
    assert offsets(pulled) == [0]
    assert pulled is not None
    world.settle(session, "o", "g", pulled, Outcome.RETRY, reason="no")
    world.pass_time(3 * SECOND)
    world.commit()
    got = world.pull(session, "o", "g", pulls)
    assert offsets(got) == [1, 2][:pulls]
    assert dead(world, "o") == {0: (1, 1)}
    check_restart(world)


def test_a_row_parked_behind_its_key_is_judged() -> None:
    world = World()
    world.topic("o", ordered=True)
    world.group("o", "g")
    session = world.join()
    world.send("o", rows(world, 0, key="a") + rows(world, 2, 0, key="a") + rows(world, 0, key="b"))
    first = world.pull(session, "o", "g", 1)
    assert first is not None
    assert offsets(world.pull(session, "o", "g")) == [3]
    world.now += 2 * SECOND
    world.settle(session, "o", "g", first)
    assert offsets(world.pull(session, "o", "g")) == [2]
    assert dead(world, "o") == {1: (0, 0)}
    check_restart(world)


def test_rows_of_a_transaction_expire(world: World) -> None:
    session = world.join()
    one = world.prepare("t", rows(world, 1, 0))
    world.decide([one.prepared])
    world.now += SECOND
    check_restart(world)
    session = world.join()
    assert offsets(world.pull(session, "t", "g")) == [1]
    assert sorted(dead(world)) == [0]


def test_a_scheduled_row_may_expire_after_it_is_due(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, 5, 9, due=3))
    world.pass_time(4 * SECOND)
    world.commit()
    world.now += 2 * SECOND
    assert offsets(world.pull(session, "t", "g")) == [1]
    assert len(dead(world)) == 1


def test_groups_that_nobody_pulls_are_swept(world: World) -> None:
    world.send("t", rows(world, *[1] * 1500, 0, 1))
    world.now += SECOND
    sweep(world, 30)
    assert len(dead(world)) == 1500
    assert world.progress("t", "g").cursor == 1500
    assert world.progress("t", "g").floor() == 1500


def test_a_sweep_does_nothing_without_expired_rows(world: World) -> None:
    world.send("t", rows(world, 100, 1))
    world.now += 2 * SECOND
    appended = world.broker.journal.appended
    sweep(world, 30)
    assert world.broker.journal.appended == appended


def sweep(world: World, seconds: int, pieces: int = 100) -> None:
    """Let a broker do its work for some seconds, so many pieces in each."""
    for _ in range(seconds):
        world.now += SECOND
        may_go_on = partial(next, iter([True] * (pieces - 1)), False)
        world.run(partial(world.broker.expiring.step, world.now, may_go_on))
        world.commit()


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.QUEUE_LOCK, Mode.ORDERED])
def test_a_redriven_row_does_not_overtake_rows_that_were_never_handed_out(mode: Mode) -> None:
    world = World()
    key = "a" if mode is Mode.ORDERED else ""
    world.topic("o", ordered=bool(key))
    world.group("o", "g", mode=mode)
    session = world.join()
    world.send("o", rows(world, 0, 1, *[0] * 8, 1, 0, key=key))
    world.now += SECOND
    pulled = world.pull(session, "o", "g", 4)
    assert offsets(pulled) == [0, 2, 3, 4]
    assert pulled is not None
    world.settle(session, "o", "g", pulled)
    assert sorted(dead(world, "o")) == [1]
    assert not world.progress("o", "g").ahead
    operating = world.broker.operating
    world.run(lambda: operating.redrive(world.now, 0, "o", "g", 0, [10]))
    assert world.drain(session, "o", "g") == [5, 6, 7, 8, 9, 11]
    assert sorted(dead(world, "o")) == [1, 10]
    check_restart(world)


def test_a_pull_of_few_bytes_records_nothing_behind_rows_that_it_leaves(world: World) -> None:
    session = world.join()
    world.group("t", "f", filter="a IS NULL")
    world.send("t", rows(world, 0, 1, 0, 1, 0, 1, 0, 0))
    world.send("t", rows(world, 0, 1, 0))
    world.now += SECOND
    for group in "g", "f":
        pulled = world.pull(session, "t", group, 6, max_bytes=1)
        assert offsets(pulled) == [0, 2, 4, 6, 7]
        assert sorted(dead(world, "t", group)) == [1, 3, 5]
        assert offsets(world.pull(session, "t", group, 6, max_bytes=1)) == [8, 10]


def test_living_rows_between_expired_ones_do_not_fill_the_intervals() -> None:
    world = World(Limits(intervals=64))
    world.topic("t")
    world.group("t", "g")
    session = world.join()
    world.send("t", rows(world, *[1, 0] * 300))
    world.now += SECOND
    got = []
    while (pulled := world.pull(session, "t", "g", 1)) is not None:
        got += offsets(pulled)
        world.settle(session, "t", "g", pulled)
    assert got == list(range(1, 600, 2))
    check_restart(world)


def test_rows_beyond_the_fresh_ones_are_not_skipped() -> None:
    plan = Plan(0)
    plan.runs = [(200, 201, 1, 2), (5, 8, 1, 1)]
    plan.skip_between(5, 10)
    assert plan.skipped == [(8, 10)]


@pytest.mark.parametrize("most", [1, 8 << 20])
def test_one_pull_records_some_expired_rows_in_all_of_its_queues(most: int) -> None:
    world = World()
    world.topic("q", queues=8)
    world.group("q", "g")
    session = world.join()
    for queue in range(8):
        for _ in range(8):
            world.send("q", rows(world, *[1] * 100), queue=queue, commit=False)
    world.send("q", rows(world, 0), queue=7)
    world.now += SECOND
    appended = world.broker.journal.appended
    assert world.pull(session, "q", "g", 10, max_bytes=most) is None
    assert world.broker.expiry.dead_rows <= 1200
    assert world.broker.journal.appended - appended <= 6
    world.park(session, "q", "g")
    woken = [one for _ in range(10) for one in world.woken()]
    assert [offsets(one.reply) for one in woken] == [[800]]
    assert world.broker.expiry.dead_rows == 6400
    check_restart(world)


def test_a_pull_that_has_recorded_rows_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.topic("q", queues=2)
    world.group("q", "g")
    session = world.join()
    for queue in range(2):
        world.send("q", rows(world, 1, 1), queue=queue)
    world.now += SECOND
    broker, end = world.broker, world.broker.journal.end
    locate = broker.index.locate

    def blocked(topic: int, queue: int, *rest: int) -> Places:
        if queue == 1:
            raise WouldBlock(Nothing())
        return locate(topic, queue, *rest)

    monkeypatch.setattr(broker.index, "locate", blocked)
    broker.views.catalog.subscription("q", "g").turn = 0
    assert broker.pull(world.now, session, "q", "g", 1, None, None, 0) is None
    assert broker.journal.end > end
    assert sorted(dead(world, "q")) == [0, 1]
    end = broker.journal.end
    with pytest.raises(WouldBlock):
        broker.pull(world.now, session, "q", "g", 1, None, None, 0)
    assert broker.journal.end == end


def test_a_sweep_passes_what_a_filter_does_not_pass(world: World) -> None:
    world.group("t", "red", tags="red")
    for _ in range(12):
        batch = [Row(body=b"x", tag="blue", expiry_us=world.now + SECOND)] * 1000
        world.send("t", batch, commit=False)
    world.send("t", [Row(body=b"y", tag="red", expiry_us=world.now + SECOND)])
    world.now += SECOND
    sweep(world, 40)
    assert world.progress("t", "red").cursor == 12001
    assert sorted(dead(world, "t", "red")) == [12000]


def test_a_sweep_passes_rows_that_a_pull_recorded_before_a_crash(world: World) -> None:
    session = world.join()
    world.send("t", rows(world, *[1] * 50))
    world.now += SECOND
    assert world.pull(session, "t", "g") is None
    world.restart()
    assert world.progress("t", "g").cursor == 0
    sweep(world, 12)
    assert world.progress("t", "g").cursor == 50
    assert not world.progress("t", "g").ahead


def test_a_sweep_looks_at_some_rows_at_a_time(world: World) -> None:
    for number in range(40):
        world.group("t", f"red{number}", tags="red")
    for _ in range(2):
        batch = [Row(body=b"x", tag="blue", expiry_us=world.now + 60 * SECOND)] * 2000
        world.send("t", batch)
    views = [world.progress("t", f"red{number}") for number in range(40)]
    seen = 0
    for _ in range(200):
        sweep(world, 1, pieces=1)
        now = sum(one.cursor for one in views)
        assert now - seen <= 12_000
        seen = now
    assert seen == 40 * 4000


def test_a_long_look_at_one_group_does_not_keep_the_sweep_from_others(world: World) -> None:
    world.group("t", "big", filter="amount >= 100")
    last = world.now + 3600 * SECOND
    world.send("t", [Row(body=b"x", headers={"amount": "500"}, expiry_us=last)])
    for _ in range(10):
        batch = [Row(body=b"x", headers={"amount": "1"}, expiry_us=last)] * 1500
        world.send("t", batch)
    world.topic("u")
    world.group("u", "g")
    world.send("u", rows(world, 1, 1))
    world.now += SECOND
    sweep(world, 30)
    assert sorted(dead(world, "u")) == [0, 1]
    assert world.progress("t", "big").cursor == 0


def test_expiries_that_make_no_sense_are_refused(world: World) -> None:
    far_us = world.now + LONGEST_US + 61 * SECOND
    batch = world.batch("t", [Row(body=b"x"), Row(body=b"y", expiry_us=far_us)])
    end = world.broker.journal.end
    with pytest.raises(InvalidRequest, match="expire"):
        world.send_batch("t", batch)
    assert world.broker.journal.end == end


@pytest.mark.parametrize("late", [-1, -61, -86_400])
def test_a_row_that_expired_on_its_way_is_stored_with_those_beside_it(
    world: World, late: float
) -> None:
    session = world.join()
    world.group("t", "drops")
    world.change("t", "drops", expired=Expired.DROP)
    world.send("t", rows(world, late, 0, 3600))
    for group, letters in (("g", [0]), ("drops", [])):
        assert offsets(world.pull(session, "t", group)) == [1, 2]
        assert sorted(dead(world, "t", group)) == letters


def test_a_late_row_is_prepared_and_scheduled_as_any_other(world: World) -> None:
    session = world.join()
    one = world.prepare("t", rows(world, -3600, 0))
    world.decide([one.prepared])
    world.send("t", rows(world, -3600, 3600, due=2))
    world.pass_time(3 * SECOND)
    world.commit()
    assert len(offsets(world.pull(session, "t", "g"))) == 2
    assert len(dead(world)) == 2


def test_a_resend_of_a_stored_batch_is_never_refused(world: World) -> None:
    batch = world.batch("t", rows(world, 1))
    world.send_batch("t", batch)
    world.now += 62 * SECOND
    assert world.send_batch("t", batch).duplicate


def test_a_topic_without_expiry_is_never_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Expiry, "expired", fail)
    session = world.join()
    world.send("t", 10)
    world.topic("u")
    world.group("u", "g")
    world.send("u", rows(world, 1))
    pulled = world.pull(session, "t", "g", 4)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
    world.pass_time(2 * SECOND)
    assert len(offsets(world.pull(session, "t", "g"))) == 10


def test_retries_end_when_the_policy_says(world: World) -> None:
    policy = RetryPolicy(
        first_us=2 * SECOND, factor=1.0, cap_us=2 * SECOND, jitter=0.0, expires_us=5 * SECOND
    )
    world.change("t", "g", retry=policy)
    session = world.join()
    world.send("t", 1)
    for _ in range(2):
        pulled = world.pull(session, "t", "g")
        assert pulled is not None
        world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
        assert dead(world) == {}
        world.pass_time(2 * SECOND)
        world.commit()
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, reason="no")
    assert dead(world) == {0: (3, 3)}


DAMAGES = [CorruptJournal, DiskReadError, MessageNotFound]


def damage(world: World, offset: int, error: type[Exception], topic: str = "t") -> None:
    """Make the record of a row unreadable."""
    index, store = world.broker.index, world.broker.store
    number = world.broker.views.catalog.topic(topic).number
    (place,) = index.locate(number, 0, offset, offset + 1, 1).positions
    get, time_us = store.get, store.time_us

    def damaged_get(position: int, length: int | None = None) -> bytes:
        if position == place:
            raise error("damaged")
        return get(position, length)

    def damaged_time(position: int) -> int:
        if position == place:
            raise error("damaged")
        return time_us(position)

    store.get, store.time_us = damaged_get, damaged_time  # type: ignore[method-assign]


@pytest.mark.parametrize("error", DAMAGES)
def test_what_cannot_be_read_has_no_age(world: World, error: type[Exception]) -> None:
    """It is set apart, or its lease ends, as without an end of retries."""
    world.change("t", "g", retry=replace(STEADY, expires_us=3600 * SECOND), lease_us=5 * SECOND)
    session = world.join()
    world.send("t", 4)
    pulled = world.pull(session, "t", "g")
    assert pulled is not None
    damage(world, 0, error)
    reply = world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 3)], reason="unreadable")
    assert list(reply.settled) == [(0, 3, 1, 1)]
    world.pass_time(6 * SECOND)
    progress = world.progress("t", "g")
    assert not progress.leases
    assert [one.offset for one in progress.failures.failed(dead=False, after=-1)] == [0, 1, 2, 3]


@pytest.mark.parametrize("error", DAMAGES)
def test_what_cannot_be_read_does_not_expire(world: World, error: type[Exception]) -> None:
    """It is handed out, so that it is set apart, also when it comes again."""
    session = world.join()
    world.send("t", rows(world, 3, 3))
    world.send("t", rows(world, 3, 0))
    damage(world, 0, error)
    world.now += 5 * SECOND
    pulled = world.broker.pull(world.now, session, "t", "g", 10, None, None, 0)
    assert offsets(pulled) == [0, 1, 3]
    assert sorted(dead(world)) == [2]
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, [(0, 2)], reason="unreadable")
    world.pass_time(20 * SECOND)
    again = world.broker.pull(world.now, session, "t", "g", 10, None, None, 0)
    assert offsets(again) == [0, 1]


def count_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which every position is added of which a record is read."""
    read: list[int] = []
    store = world.broker.store
    get, time_us = store.get, store.time_us

    def counted_get(position: int, length: int | None = None) -> bytes:
        read.append(position)
        return get(position, length)

    def counted_time(position: int) -> int:
        read.append(position)
        return time_us(position)

    monkeypatch.setattr(store, "get", counted_get)
    monkeypatch.setattr(store, "time_us", counted_time)
    return read


def test_rows_that_come_again_are_judged_with_one_read_of_their_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.join()
    world.send("t", rows(world, *[5 if n % 3 else 90 for n in range(300)]))
    pulled = world.pull(session, "t", "g", 300)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, delay_us=SECOND)
    world.pass_time(6 * SECOND)
    read = count_reads(world, monkeypatch)
    again = world.broker.pull(world.now, session, "t", "g", 300, None, None, 0)
    assert offsets(again) == [n for n in range(300) if not n % 3]
    assert len(dead(world)) == 200
    assert len(read) < 10


def test_the_age_of_rows_that_fail_is_read_once_for_a_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.change("t", "g", retry=replace(STEADY, expires_us=10 * SECOND))
    session = world.join()
    world.send("t", 200)
    world.pass_time(5 * SECOND)
    world.send("t", 201)
    world.send("t", 3)
    pulled = world.pull(session, "t", "g", 404)
    assert pulled is not None
    read = count_reads(world, monkeypatch)
    spans = [(first, first + 2) for first in range(0, 404, 4)]
    world.settle(session, "t", "g", pulled, Outcome.RETRY, spans, delay_us=6 * SECOND)
    assert len(read) < 10
    failed = [row for start, stop in spans for row in range(start, stop)]
    assert sorted(dead(world)) == [row for row in failed if row < 200]
    waiting = world.progress("t", "g").failures.failed(dead=False, after=-1)
    assert [one.offset for one in waiting] == [row for row in failed if row >= 200]


@pytest.mark.parametrize("spans", [[(198, 202)], [(0, 1), (199, 200), (201, 204)]])
def test_spans_may_reach_into_the_next_batch(world: World, spans: list[tuple[int, int]]) -> None:
    world.change("t", "g", retry=replace(STEADY, expires_us=10 * SECOND))
    session = world.join()
    world.send("t", 200)
    world.pass_time(5 * SECOND)
    world.send("t", 1)
    world.send("t", 3)
    pulled = world.pull(session, "t", "g", 300)
    assert pulled is not None
    world.settle(session, "t", "g", pulled, Outcome.RETRY, spans, delay_us=6 * SECOND)
    failed = [row for start, stop in spans for row in range(start, stop)]
    assert sorted(dead(world)) == [row for row in failed if row < 200]
    waiting = world.progress("t", "g").failures.failed(dead=False, after=-1)
    assert [one.offset for one in waiting] == [row for row in failed if row >= 200]


@pytest.mark.parametrize("mode", [Mode.SHARED, Mode.QUEUE_LOCK, Mode.ORDERED])
def test_a_full_failure_store_does_not_keep_expired_rows(mode: Mode) -> None:
    """Real failures fill it: a pull gets no row then, and the rows behind kept the journal."""
    world = World(Limits(failures=10))
    key = "a" if mode is Mode.ORDERED else ""
    world.topic("o", ordered=bool(key))
    world.group("o", "g", mode=mode, retry=replace(STEADY, enabled=False))
    session = world.join()
    world.send("o", rows(world, *[0] * 10, key=key))
    pulled = world.pull(session, "o", "g", 10)
    assert pulled is not None
    world.settle(session, "o", "g", pulled, Outcome.DEAD)
    assert len(dead(world, "o")) == 10
    world.send("o", rows(world, *[1] * 30, 0, key=key))
    world.now += SECOND
    assert world.pull(session, "o", "g") is None
    sweep(world, 12)
    assert world.progress("o", "g").cursor == 40
    assert len(dead(world, "o")) == 10
    assert (world.broker.expiry.dead_rows, world.broker.expiry.dropped_rows) == (0, 30)
    assert [one.subject for one in world.broker.views.alarms.open] == ["o/g/0"]
    check_restart(world)


@pytest.mark.parametrize("mode", [Mode.QUEUE_LOCK, Mode.ORDERED])
def test_a_closed_queue_or_key_does_not_keep_expired_rows(mode: Mode) -> None:
    world = World()
    key = "a" if mode is Mode.ORDERED else ""
    world.topic("o", ordered=bool(key))
    world.group("o", "g", mode=mode, retry=replace(STEADY, first_us=100 * SECOND))
    session = world.join()
    world.send("o", rows(world, 0, key=key) + rows(world, *[1] * 40, 0, key=key))
    pulled = world.pull(session, "o", "g", 1)
    assert pulled is not None
    world.settle(session, "o", "g", pulled, Outcome.RETRY)
    world.now += SECOND
    sweep(world, 12)
    progress = world.progress("o", "g")
    assert progress.cursor == 41
    assert sorted(dead(world, "o")) == list(range(1, 41))
    assert world.pull(session, "o", "g") is None
    world.pass_time(100 * SECOND)
    world.commit()
    assert world.drain(session, "o", "g") == [0, 41]
    check_restart(world)


def test_a_sweep_of_rows_behind_a_closed_key_looks_at_some_at_a_time() -> None:
    world = World()
    world.topic("o", ordered=True)
    world.group("o", "g", retry=replace(STEADY, first_us=100 * SECOND))
    session = world.join()
    world.send("o", rows(world, *[3600] * 300, key="a"))
    pulled = world.pull(session, "o", "g", 1)
    assert pulled is not None
    world.settle(session, "o", "g", pulled, Outcome.RETRY)
    world.now += SECOND
    appended = world.broker.journal.appended
    sweep(world, 12)
    assert world.broker.journal.appended == appended
    assert world.progress("o", "g").cursor == 1


def test_a_sweep_keeps_up_with_thousands_of_rows_a_second(world: World) -> None:
    """In pieces: a look at one group queue is short, and others come in between."""
    world.topic("u")
    world.group("u", "g")
    for _ in range(20):
        world.send("t", rows(world, *[1] * 1000), commit=False)
    world.send("u", rows(world, 1))
    world.now += SECOND
    world.commit()
    step, most = world.broker.expiring.step, 0
    world.now += 10 * SECOND
    for _ in range(60):
        before = world.progress("t", "g").cursor
        world.run(partial(step, world.now, lambda: False))
        most = max(most, world.progress("t", "g").cursor - before)
    assert world.progress("t", "g").cursor == 20_000
    assert world.progress("u", "g").cursor == 1
    assert most <= 1100
    assert not world.broker.expiring.goes_on


def test_a_sweep_has_an_end_in_each_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "WORK", 1000)
    world.send("t", rows(world, *[1] * 2500))
    world.now += 11 * SECOND
    for _ in range(20):
        world.run(partial(world.broker.expiring.step, world.now, lambda: False))
    assert 950 <= world.progress("t", "g").cursor < 1600
    assert not world.broker.expiring.goes_on
    world.now += SECOND
    for _ in range(20):
        world.run(partial(world.broker.expiring.step, world.now, lambda: False))
    assert 1900 <= world.progress("t", "g").cursor < 2500


def test_a_group_that_waits_for_a_read_is_told_of_after_what_others_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that raises WouldBlock has changed nothing."""
    world.topic("u")
    world.group("u", "g")
    session = world.join()
    world.change("t", "g", paused=True)
    world.send("t", rows(world, 1))
    world.pass_time(2 * SECOND)
    world.park(session, "t", "g")
    token = world.park(session, "u", "g")
    world.change("t", "g", paused=False)
    world.send("u", 1)
    slow, locate = [True], world.broker.index.locate
    topic = world.broker.views.catalog.topic("u").number

    def once(*where: int) -> Places:
        if slow and where[0] == topic:
            raise WouldBlock(Nothing())
        return locate(*where)

    monkeypatch.setattr(world.broker.index, "locate", once)
    end = world.broker.journal.end
    assert world.broker.woken_pulls(world.now) == []
    assert world.broker.journal.end > end, "the expired row is recorded"
    assert world.broker.next_deadline_us() == 0, "at once"
    end = world.broker.journal.end
    with pytest.raises(WouldBlock):
        world.broker.woken_pulls(world.now)
    assert world.broker.journal.end == end
    slow.clear()
    assert [one.token for one in world.broker.woken_pulls(world.now)] == [token]
