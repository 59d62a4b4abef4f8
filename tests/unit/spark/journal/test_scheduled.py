"""Events of scheduled messages, of the journal of a broker."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from ternmq.model.errors import UnknownRecordKind
from ternmq.record.batch.batch import Row
from ternmq.record.fact import messages
from ternmq.record.fact.header import Kind
from ternmq.spark.journal import events
from ternmq.spark.journal.events import COLUMNS, SCHEMA_VERSION
from tests.unit.broker.kit import SECOND, START_US, World
from tests.unit.broker.upkeep.test_schedule_copies import scheduled
from tests.unit.broker.upkeep.test_schedule_copies import start as started
from tests.unit.broker.upkeep.test_upkeep import pressed
from tests.unit.spark.journal.lived import events_of
from tests.unit.spark.journal.test_columns import a_body, page, told


def after(world, *seconds, name=""):
    return [
        Row(body=b"x", due_us=world.now + one * SECOND, application_id=name and f"{name}{number}")
        for number, one in enumerate(seconds)
    ]


def of(kind, found, *names):
    return [tuple(row[name] for name in names) for row in found.to_pylist() if row["kind"] == kind]


def due(second):
    return START_US + second * SECOND


def us(found, kind):
    return [
        round(row["due"].timestamp() * 1e6)
        for row in found.to_pylist()
        if row["kind"] == kind and row["due"] is not None
    ]


def test_rows_are_scheduled_stored_when_they_are_due_or_cancelled():
    world = World()
    topic = world.topic("t", queues=2)
    world.group("t", "g")
    world.send("t", after(world, 10, 10, 30))
    world.send("t", after(world, 10), producer=2, queue=1)
    world.send("t", 1)
    world.run(lambda: world.broker.cancel_scheduled(world.now, "t", 1, 2))
    world.commit()
    world.pass_time(20 * SECOND)
    found = events_of(world, COLUMNS)
    assert of(
        "scheduled", found, "topic_number", "queue", "entry", "rows", "sequence", "start"
    ) == [
        (topic, None, 1, 2, 0, None),
        (topic, None, 3, 1, 2, None),
        (topic, 1, 4, 1, 0, None),
    ]
    assert us(found, "scheduled") == [due(10), due(30), due(10)]
    sizes = of("scheduled", found, "bytes")
    assert sizes[0] > (0,) == sizes[1]
    at = of("scheduled", found, "position")
    plain, *delivered = of(
        "stored", found, "queue", "rows", "entry", "refers_to", "producer_id", "sequence"
    )
    assert plain[2:] == (None, None, 1, 3)
    assert [one[1:] for one in delivered] == [
        (2, 1, *at[0], 1, 0),
        (1, 4, *at[2], 2, 0),
    ]
    assert delivered[1][0] == 1
    assert us(found, "stored") == [due(10)] * 2
    assert of("cancelled", found, "topic", "entry", "rows", "cause") == [("t", 3, 1, "client")]
    assert us(found, "cancelled") == [due(30)]
    assert {row["schema_version"] for row in found.to_pylist()} == {SCHEMA_VERSION} == {2}


def test_application_ids_are_told_and_rows_left_out_are_duplicates():
    world = World()
    world.topic("t")
    world.send("t", [Row(body=b"x", application_id="n1")])
    world.send("t", after(world, 5, 5, 5, name="n"))
    found = events_of(world, COLUMNS)
    assert of("duplicate", found, "sequence", "rows", "queue") == [(2, 1, None)]
    assert of("scheduled", found, "entry", "sequence", "rows") == [(1, 1, 1), (2, 3, 1)]
    names = [json.loads(one)["application_ids"] for (one,) in of("scheduled", found, "detail")]
    assert names == [["n0"], ["n2"]]


def test_rows_that_are_copied_out_of_the_oldest_file_say_where_they_were_stored():
    world = pressed()
    session = started(world)
    first = world.broker.journal.end
    sent_us = world.now
    world.send("due", scheduled(world, 400, 2, "id-"))
    world.grow("t", 6, session=session, group="g")
    copied = [row for row in events_of(world, COLUMNS).to_pylist() if row["kind"] == "copied"]
    assert {(row["entry"], row["rows"]) for row in copied} == {(1, 1), (2, 1)}
    assert {row["refers_to"] for row in copied} == {first}
    details = [json.loads(row["detail"]) for row in copied]
    assert {one["scheduled_us"] for one in details} == {sent_us}
    assert {tuple(one["application_ids"]) for one in details} == {("id-0",), ("id-1",)}


@pytest.mark.parametrize(("kind", "flags"), [(Kind.MESSAGES, 2), (Kind.SCHEDULED, 1)])
@pytest.mark.parametrize("fast", [True, False])
def test_flags_of_a_newer_version_are_an_error(monkeypatch, kind, flags, fast):
    if not fast:
        monkeypatch.setattr(events, "FAST", {})
    body = bytearray(a_body(random.Random(1), kind))
    prefix = list(messages.PREFIX.unpack_from(body))
    prefix[5] = flags
    messages.PREFIX.pack_into(body, 0, *prefix)
    with pytest.raises(UnknownRecordKind, match=f"flags {flags}"):
        told(page([(kind, bytes(body))]))
