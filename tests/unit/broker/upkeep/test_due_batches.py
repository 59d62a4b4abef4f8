"""Due rows are cut out of a record before their turn comes: fewer reads, the same deliveries."""

from __future__ import annotations

import random

import pytest

from ternmq.broker.upkeep import duebatches
from ternmq.record.batch.batch import Row
from tests.unit.broker.intake.test_scheduling import bodies, cancel, come_due, start
from tests.unit.broker.kit import SECOND, World, check, explore

_RECORDS = 5
_OF = 120


def mixed(world: World, step_us: int, keys: int = 0) -> list[list[Row]]:
    """Return the rows of some records, due in any order within a second."""
    chance = random.Random(step_us)
    return [
        [
            Row(
                body=b"row %d" % world._serial(),
                due_us=world.now + SECOND + chance.randrange(SECOND // step_us) * step_us,
                ordering_key=f"k{chance.randrange(keys)}" if keys else "",
            )
            for _ in range(_OF)
        ]
        for _ in range(_RECORDS)
    ]


def in_order(records: list[list[Row]]) -> list[bytes]:
    rows = [row for rows in records for row in rows]
    return [row.body for row in sorted(rows, key=lambda row: row.due_us)]


def delivered(world: World) -> None:
    """Let everything come due, in turns."""
    world.now += 3 * SECOND
    while world.broker.tick(world.now) or world.broker.views.schedule.rows:
        world.commit()
    world.commit()
    check(world.broker, world.now)


@pytest.mark.parametrize("step_us", [1, 50_000, 500_000])
def test_a_record_is_read_once_for_many_rows(step_us: int) -> None:
    world = World()
    session = start(world, queues=1)
    records = mixed(world, step_us)
    for rows in records:
        world.send("t", rows)
    delivered(world)
    batches = world.broker.fulfilling.batches
    assert batches.reads <= _RECORDS * (_OF // duebatches.MOST_AHEAD + 1) + 2
    assert batches.bytes == 0
    assert bodies(world, session) == in_order(records)


@pytest.mark.parametrize("cap", [0, 2_000, 20_000])
def test_without_room_records_are_read_again(monkeypatch: pytest.MonkeyPatch, cap: int) -> None:
    monkeypatch.setattr(duebatches, "KEPT_BYTES", cap)
    world = World()
    session = start(world, queues=1)
    records = mixed(world, 1)
    for rows in records:
        world.send("t", rows)
    delivered(world)
    batches = world.broker.fulfilling.batches
    assert batches.reads > 3 * _RECORDS
    assert batches.ahead < duebatches.MOST_AHEAD
    assert batches.bytes == 0
    assert bodies(world, session) == in_order(records)


def test_rows_of_an_ordered_topic_go_to_the_queues_of_their_keys() -> None:
    world = World()
    session = start(world, queues=3, ordered=True)
    records = mixed(world, 100_000, keys=8)
    for rows in records:
        world.send("t", rows)
    delivered(world)
    expected = in_order(records)
    keys = {row.body: row.ordering_key for rows in records for row in rows}
    found = bodies(world, session)
    for key in set(keys.values()):
        assert [one for one in found if keys[one] == key] == [
            one for one in expected if keys[one] == key
        ]


def test_what_was_cancelled_after_it_was_cut_out_is_not_delivered() -> None:
    def scenario(world: World) -> None:
        session = start(world, queues=1)
        world.broker.ticking.work_a_turn = 8
        rows = [Row(body=b"row %d" % world._serial(), due_us=world.now + SECOND) for _ in range(20)]
        world.send("t", rows)
        world.now += 2 * SECOND
        fulfilling = world.broker.fulfilling
        while not fulfilling.fulfilled_rows:
            world.broker.tick(world.now)
            world._read_for_due()
        got = fulfilling.fulfilled_rows
        assert got < 17
        for row in (got, got + 3, 19):
            cancel(world, 1, row)
        come_due(world, 1)
        gone = {b"row %d" % row for row in (got, got + 3, 19)}
        assert bodies(world, session) == [row.body for row in rows if row.body not in gone]

    explore(scenario, paces=((1, 1), (2, 3)), any_order=True)


def test_what_is_left_of_a_deleted_topic_goes_with_the_next_load() -> None:
    world = World()
    start(world)
    for rows in mixed(world, 1):
        world.send("t", rows)
    world.now += 3 * SECOND
    world.broker.tick(world.now)
    assert world.broker.fulfilling.batches.bytes
    world.run(lambda: world.broker.administration.delete_topic(world.now, "t"))
    come_due(world, 3600)
    assert world.broker.fulfilling.batches.bytes == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_a_record_of_which_all_rows_are_due_at_one_time_is_not_cut(
    ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that are sent alone, as most are, and a batch with one delay."""

    def cut(*_: object) -> None:
        raise AssertionError("it is taken whole")

    monkeypatch.setattr(duebatches, "Cutter", cut)
    world = World()
    session = start(world, queues=1, ordered=ordered)
    due_us, key = world.now + SECOND, "k" if ordered else ""
    singles = [[Row(body=b"%d" % n, due_us=due_us + n, ordering_key=key)] for n in range(20)]
    together = [Row(body=b"x%d" % n, due_us=due_us + 100, ordering_key=key) for n in range(5)]
    for rows in [*singles, together]:
        world.send("t", rows)
    delivered(world)
    assert bodies(world, session) == in_order([*singles, together])
