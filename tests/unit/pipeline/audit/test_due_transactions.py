"""Messages that transactions schedule, in the audit: as if a send had, and none is missed."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

import pyarrow as pa

from ternmq.pipeline.audit.audit import judge
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import EVENTS
from ternmq.record.batch.batch import Row
from tests.unit.broker.checkback.kit import Transacting
from tests.unit.broker.kit import SECOND
from tests.unit.pipeline.audit.test_due import DAY, DUE, OVER, due, judged
from tests.unit.pipeline.facts import (
    Facts,
    audited,
    findings,
    ids,
    kept,
    named,
    row,
    rows,
)
from tests.unit.spark.journal.lived import events_of


def healthy():
    """Return facts: a transaction schedules five, of which two are due a moment later."""
    return (
        Facts().prepared(5, 1, position=640).prepared(2, 6, position=704)
        .by_commit(1, 3, 640, DUE).by_commit(4, 2, 640, DUE + 5, row=3).resolved(0, 2, 704)
        .fulfilled(2, 3, 1, 1, DUE).fulfilled(5, 2, 4, 4, DUE + 5)
    )  # fmt: skip


def test_they_count_as_sent_where_they_were_prepared_and_as_scheduled_where_they_are_due():
    found = audited(healthy(), now=OVER)
    one = row(found)
    assert (one["verdict"], one["sent"], one["stored"], one["doubled"]) == ("ok", 7, 7, 0)
    one = due(found)
    assert (one["verdict"], one["scheduled"], one["delivered"]) == ("ok", 5, 5)
    assert len(found.findings) == 0


def test_one_that_is_not_delivered_is_named():
    facts = healthy()
    del facts.rows[-1]
    found = audited(facts, now=OVER)
    assert (due(found)["verdict"], due(found)["lost"]) == ("lost", 2)
    assert named(found, "lost") == ids(4, 5)
    assert row(found)["verdict"] == "ok"


def test_one_that_is_delivered_twice_or_cancelled_and_delivered_is_named():
    facts = healthy().fulfilled(7, 1, 5, 5, DUE + 5).cancelled(1, 1, DUE)
    found = audited(facts, now=OVER)
    assert sorted(named(found, "doubled", tier="due")) == ids(1, 5)
    assert (due(found)["verdict"], due(found)["doubled"]) == ("doubled", 2)


def test_before_the_decision_and_after_a_roll_back_nothing_is_scheduled():
    facts = Facts().prepared(5, 1, position=640)
    assert rows(audited(facts, now=OVER), tier="due") == []
    assert kept(facts)["kind"].to_pylist() == ["prepared"]
    assert len(kept(facts.withdrawn(640))) == 0


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_pieces_make_no_difference(pieces):
    facts = healthy().cancelled(9, 1, DUE)
    whole = audited(facts, now=OVER)
    again = judge(kept(facts, pieces=pieces), Policy(OVER), [])
    assert again.rows.equals(whole.rows)
    assert again.findings.equals(whole.findings)


@pytest.mark.parametrize("pieces", [1, 2, 3, 6])
def test_a_copy_of_prepared_rows_is_what_the_decision_is_about(pieces):
    facts = (
        Facts().prepared(2, 1, position=640).prepared(1, 3, position=704)
        .copied(2, 1, 640, position=768).copied(1, 3, 704, position=832)
        .resolved(0, 2, 768).by_commit(1, 1, 832, DUE)
    )  # fmt: skip
    runs = kept(facts, pieces=pieces)
    assert sorted(runs["kind"].to_pylist()) == ["owed", "scheduled", "stored"]
    one = row(judge(runs, Policy(OVER), []))
    assert (one["verdict"], one["sent"], one["stored"]) == ("ok", 3, 3)


def test_the_loss_of_one_that_was_prepared_before_the_audit_began_is_counted():
    found = audited(Facts().by_commit(1, 3, 640, DUE).fulfilled(0, 1, 1, 1, DUE), now=OVER)
    assert (due(found)["verdict"], due(found)["lost"]) == ("lost", 2)
    (finding,) = findings(found, kind="lost")
    assert (finding["count"], finding["message_id"], finding["topic"]) == (2, None, "orders")


# -- of the journal of a broker


def by_writer(world, chance):
    """Live through transactions of a writer; some of what they prepared is left out of a commit."""
    for number in range(40):
        ids = []
        for part in range(chance.randrange(1, 4)):
            later = [chance.choice((5, 5, 700, 90_000)) for _ in range(chance.randrange(1, 5))]
            some = [Row(body=b"x", due_us=world.now + one * SECOND) for one in later]
            rows_ = some if chance.random() < 0.7 else len(some)
            told = world.prepare("t", rows_, batch=number, part=f"{part}/0")
            if chance.random() < 0.9:
                ids.append(told.prepared)
        world.pass_time(chance.choice((0, 10)) * SECOND)
        if chance.random() < 0.8:
            world.decide(ids, batch=number)
        else:
            world.abort(batch=number)
        world.pass_time(chance.choice((1, 600)) * SECOND)
    world.pass_time(100_000 * SECOND)
    return events_of(world, EVENTS), world.now + 60 * DAY


@pytest.fixture(scope="module", params=["client", "writer"])
def lived(request):
    """Return the events of a broker whose transactions scheduled rows, and when to judge them."""
    chance, world = random.Random(11), Transacting()
    world.topic("t", queues=2)
    world.group("t", "g")
    if request.param == "writer":
        return by_writer(world, chance)
    world.checker()
    for counter in range(1, 41):
        number = 0
        for _ in range(chance.randrange(1, 4)):
            later = [chance.choice((5, 5, 700, 90_000)) for _ in range(chance.randrange(1, 5))]
            some = [Row(body=b"x", due_us=world.now + one * SECOND) for one in later]
            rows_ = some if chance.random() < 0.7 else len(some)
            number = world.put(counter, "t", rows_, number=number).transaction
        world.pass_time(chance.choice((0, 10)) * SECOND)
        world.decided(number, commit=chance.random() < 0.8)
        world.pass_time(chance.choice((1, 600)) * SECOND)
    world.pass_time(100_000 * SECOND)
    return events_of(world, EVENTS), world.now + 60 * DAY


def test_of_a_broker_nothing_is_missing_or_double(lived):
    events, now = lived
    found = judged(events, now, pieces=4)
    told = rows(found, tier="due")
    assert {one["verdict"] for one in told} == {"ok"}
    assert sum(one["scheduled"] for one in told) == sum(one["delivered"] for one in told) > 50
    (one,) = rows(found, tier="stored")
    assert (one["verdict"], one["sent"]) == ("ok", one["stored"])
    assert findings(found) == []


@pytest.mark.parametrize("seed", range(5))
def test_what_is_planted_in_the_journal_of_a_broker_is_named_and_nothing_else(lived, seed):
    events, now = lived
    chance = random.Random(seed)
    whole = events.to_pylist()
    delivered = [one for one in whole if one["kind"] == "stored" and one["entry"] is not None]
    gone, again = chance.sample(delivered, 2)
    last = {one["queue"]: 0 for one in delivered}
    for one in whole:
        if one["kind"] in {"stored", "resolved"} and one["stop"]:
            last[one["queue"]] = max(last[one["queue"]], one["stop"])
    start = last[again["queue"]]
    copy = again | {"position": whole[-1]["position"] + 64, "start": start,
                    "stop": start + again["rows"]}  # fmt: skip
    planted = pa.Table.from_pylist(
        [*(one for one in whole if one is not gone), copy], schema=events.schema
    )
    found = judged(planted, now, pieces=chance.choice((1, 4)))

    def named_of(one):
        return ids(*range(one["sequence"], one["sequence"] + one["rows"]), producer=1)

    assert sorted(named(found, "lost")) == sorted(named_of(gone))
    assert sorted(named(found, "doubled")) == sorted(named_of(again))
    assert {one["tier"] for one in findings(found)} == {"due"}
