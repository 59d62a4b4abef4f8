"""Events of transactions with check-back, of the journal of a broker."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from ternmq.record.batch.batch import Row
from ternmq.record.fact.facts import Outcome
from ternmq.spark.journal.events import COLUMNS
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND, START_US
from tests.unit.broker.upkeep.test_prepared_copies import prepared, start
from tests.unit.broker.upkeep.test_upkeep import pressed
from tests.unit.spark.journal.lived import events_of
from tests.unit.spark.journal.test_scheduled import of


@pytest.fixture
def world():
    one = Transacting()
    for name in ("t", "u"):
        one.topic(name)
        one.group(name, "g")
    one.checker()
    return one


def after(world, *seconds):
    return [Row(body=b"x", due_us=world.now + one * SECOND) for one in seconds]


def test_what_is_prepared_and_what_a_commit_makes_of_it(world):
    number = world.put(1, "t", 2, query_id="order-7").transaction
    world.put(1, "u", after(world, 5, 5, 70), number=number)
    world.decided(number)
    world.pass_time(10 * SECOND)
    found = events_of(world, COLUMNS)
    prepared = of("prepared", found, "topic", "rows", "transaction", "producer_group", "query_id")
    assert prepared == [("t", 2, number, "pay", "order-7"), ("u", 3, number, "pay", "order-7")]
    (at,), (later,) = of("prepared", found, "position")
    assert of("prepared", found, "queue", "refers_to") == [(0, None), (None, None)]
    names = ("decision", "topic", "start", "stop", "rows", "entry", "refers_to", "transaction")
    assert of("resolved", found, *names) == [
        ("committed", "t", 0, 2, 2, None, at, number),
        ("scheduled", "u", None, None, 3, 1, later, number),
    ]
    assert of("resolved", found, "producer_group", "cause") == [("pay", "writer")] * 2
    places = ("topic", "queue", "entry", "rows", "refers_to", "transaction", "producer_id")
    assert of("scheduled", found, *places) == [
        ("u", None, 1, 2, later, number, None), ("u", None, 3, 1, later, number, None),
    ]  # fmt: skip
    assert [json.loads(one)["first_row"] for (one,) in of("scheduled", found, "detail")] == [0, 2]
    due = [one["due"].timestamp() * 1e6 - START_US for one in found.to_pylist()
           if one["kind"] == "scheduled"]  # fmt: skip
    assert [round(one / SECOND) for one in due] == [5, 70]
    (delivered,) = of("stored", found, "entry", "rows", "refers_to")
    assert delivered == (1, 2, later)


def test_what_a_writer_prepares_with_due_times_and_what_its_commit_makes_of_it(world):
    later = world.prepare("u", after(world, 5, 5, 70), part="3/0").prepared
    at = world.prepare("t", 2).prepared
    dropped = world.prepare("u", after(world, 9), part="3/1").prepared
    world.decide([later, at])
    world.pass_time(10 * SECOND)
    found = events_of(world, COLUMNS)
    places = ("topic", "queue", "rows", "writer", "batch_id", "producer_group")
    assert of("prepared", found, *places) == [
        ("u", None, 3, "w", 1, None), ("t", 0, 2, "w", 1, None), ("u", None, 1, "w", 1, None),
    ]  # fmt: skip
    assert of("prepared", found, "position") == [(later,), (at,), (dropped,)]
    names = ("decision", "topic", "start", "rows", "entry", "refers_to", "writer", "batch_id")
    assert of("resolved", found, *names) == [
        ("committed", "t", 0, 2, None, at, "w", 1),
        ("scheduled", "u", None, 3, 1, later, "w", 1),
        ("dropped", None, None, None, None, dropped, "w", 1),
    ]
    some = ("topic", "queue", "entry", "rows", "refers_to", "writer", "batch_id")
    assert of("scheduled", found, *some) == [
        ("u", None, 1, 2, later, "w", 1), ("u", None, 3, 1, later, "w", 1),
    ]  # fmt: skip
    assert of("stored", found, "entry", "rows", "refers_to") == [(1, 2, later)]


def test_what_is_rolled_back_or_left_out_is_told(world):
    number = world.put(1, "t", 1).transaction
    world.decided(number, commit=False)
    number = world.put(2).transaction
    world.decided(number)
    found = events_of(world, COLUMNS)
    (at,) = of("prepared", found, "position")
    assert of("resolved", found, "decision", "refers_to", "topic") == [
        ("rolled_back", *at, None), ("committed", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("commit", [True, False])
def test_rows_are_taken_out_of_their_lease_and_settled_by_the_decision(world, commit):
    world.send("t", 2)
    session = world.checker("d")
    pulled = world.pull(session, "t", "g", 2)
    number = world.put(1, "u", 1, query_id="q").transaction
    world.hold(number, session, "t", pulled)
    world.commit()
    world.decided(number, commit=commit)
    found = events_of(world, COLUMNS)
    names = ("topic", "group", "start", "stop", "session", "outcome", "transaction", "query_id")
    assert of("taken", found, *names) == [("t", "g", 0, 2, session, "done", number, "q")]
    outcome = "done" if commit else "released"
    places = ("topic", "group", "start", "stop", "outcome", "transaction", "producer_group")
    assert of("settled", found, *places) == [("t", "g", 0, 2, outcome, number, "pay")]


def test_a_settle_of_its_own_belongs_to_no_transaction(world):
    world.send("t", 1)
    session = world.checker("d")
    world.settle(session, "t", "g", world.pull(session, "t", "g", 1), Outcome.DONE)
    assert of("settled", events_of(world, COLUMNS), "outcome", "transaction") == [("done", None)]


def test_questions_are_told(world):
    number = world.put(1, "t", 1).transaction
    ((session, *_),) = world.wait(61 * SECOND)
    found = events_of(world, COLUMNS)
    (told,) = of("checked", found, "transaction", "attempt", "session", "cause", "due")
    assert told[:4] == (number, 1, session, "asked")
    assert told[4].timestamp() * 1e6 > START_US + 61 * SECOND


def test_a_copy_of_prepared_rows_says_what_it_is_of():
    world = pressed()
    session = start(world)
    number = prepared(world, [Row(body=b"one")])
    at = place_of(world, number)
    while place_of(world, number) == at:
        world.grow("t", 1, session=session, group="g")
    assert of("prepared", events_of(world, COLUMNS), "refers_to")[-1] == (at,)
    at = place_of(world, number)
    world.run(lambda: world.broker.checking.decide(world.now, "app", number, commit=True))
    decided = events_of(world, COLUMNS)
    assert of("resolved", decided, "refers_to", "start", "stop") == [(at, 0, 1)]
    assert of("prepared", decided, "position")[-1] == (at,)


def place_of(world, number):
    """Return the position of the record with the batch of a transaction."""
    (batch,) = world.broker.views.checked.by_number[number].batches.values()
    return batch.position
