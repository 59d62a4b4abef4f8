"""Scheduled messages in the audit: neither late nor double; what is missing is named."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

import pyarrow as pa

from ternmq.model.errors import AlreadyDelivered
from ternmq.pipeline.audit.audit import fold, judge
from ternmq.pipeline.audit.kept import KEPT, OF_SCHEDULE
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import EVENTS, gather, merged
from ternmq.pipeline.audit.schema import BUCKET_US
from ternmq.record.batch.batch import Row
from tests.unit.broker.kit import SECOND, World
from tests.unit.pipeline.facts import (
    LATER,
    NOON,
    Facts,
    P,
    audited,
    findings,
    ids,
    in_archive,
    kept,
    named,
    row,
    rows,
)
from tests.unit.spark.journal.lived import events_of

DAY = 86_400_000_000
DUE = NOON + 40 * DAY
"""A window of ten minutes begins here."""
OVER = DUE + 2 * BUCKET_US + 60_000_000
"""When what is due then is judged."""


def healthy():
    """Return facts: five are due together, two a moment later, one next to an ordinary message."""
    return (
        Facts().scheduled(1, 5, 1, DUE).scheduled(6, 2, 6, DUE + 5).stored(0, 1, 8)
        .scheduled(8, 1, 9, DUE + 9).counts(9)
        .fulfilled(1, 3, 1, 1, DUE).fulfilled(0, 2, 4, 4, DUE, queue=1)
        .fulfilled(4, 2, 6, 6, DUE + 5).fulfilled(6, 1, 8, 9, DUE + 9)
    )  # fmt: skip


def due(judgement, **wanted):
    return row(judgement, tier="due", **wanted)


def test_scheduled_rows_count_where_they_were_scheduled_and_once():
    found = audited(healthy(), now=OVER)
    one = row(found)
    assert (one["bucket"].timestamp() * 1e6, one["verdict"]) == (NOON, "ok")
    assert (one["sent"], one["stored"], one["doubled"], one["late"]) == (9, 9, 0, 0)
    assert one["sent_sum"] == one["stored_sum"] != 0
    one = due(found)
    assert (one["bucket"].timestamp() * 1e6, one["verdict"], one["final"]) == (DUE, "ok", True)
    assert (one["scheduled"], one["delivered"], one["late"], one["doubled"]) == (8, 8, 0, 0)
    assert len(found.findings) == 0


def test_what_is_not_due_yet_is_pending_and_open():
    found = audited(Facts().scheduled(1, 5, 1, DUE).cancelled(2, 2, DUE).counts(5))
    assert row(found)["verdict"] == "ok"
    one = due(found)
    assert (one["verdict"], one["final"]) == ("open", False)
    assert (one["scheduled"], one["cancelled"], one["pending"], one["lost"]) == (5, 2, 3, 0)
    assert len(found.findings) == 0


def test_a_delivery_that_is_missing_is_named():
    facts = healthy()
    del facts.rows[6]  # the two in queue 1
    found = audited(facts, now=OVER)
    one = due(found)
    assert (one["verdict"], one["lost"], one["delivered"]) == ("lost", 2, 6)
    assert one["scheduled"] == one["delivered"] + one["cancelled"] + one["pending"] + one["lost"]
    assert named(found, "lost") == ids(4, 5)
    assert {f["detail"] for f in findings(found)} == {
        "due from 2026-12-31 12:00 on, and not delivered"
    }
    assert row(found)["verdict"] == "ok"


def test_all_of_a_window_missing():
    found = audited(Facts().scheduled(1, 3, 1, DUE).cancelled(2, 1, DUE).counts(3), now=OVER)
    assert due(found)["verdict"] == "lost"
    assert named(found, "lost") == ids(1, 3)


def test_a_second_delivery_is_named_and_where_the_first_was():
    found = audited(healthy().fulfilled(7, 2, 2, 2, DUE), now=OVER)
    one = due(found)
    assert (one["verdict"], one["doubled"], one["delivered"], one["lost"]) == ("doubled", 2, 8, 0)
    assert named(found, "doubled", tier="due") == ids(2, 3)
    assert [(f["queue"], f["offset"]) for f in findings(found)] == [(0, 7), (0, 8)]
    assert findings(found)[0]["detail"] == "delivered first to queue 0 at 2"
    assert row(found)["verdict"] == "ok"


def test_the_delivery_of_a_cancelled_message_is_named():
    found = audited(healthy().cancelled(4, 1, DUE), now=OVER)
    one = due(found)
    assert (one["verdict"], one["doubled"], one["cancelled"], one["delivered"]) == (
        "doubled", 1, 0, 8,
    )  # fmt: skip
    (finding,) = findings(found)
    assert (finding["message_id"], finding["queue"], finding["offset"]) == (*ids(4), 1, 0)
    assert finding["detail"] == "it is cancelled, and was delivered"


def test_a_row_scheduled_twice_is_doubled_where_it_was_scheduled():
    facts = healthy().scheduled(9, 1, 2, DUE + 7).fulfilled(7, 1, 9, 2, DUE + 7)
    found = audited(facts, now=OVER)
    assert (row(found)["verdict"], row(found)["doubled"]) == ("doubled", 1)
    (finding,) = findings(found)
    assert (finding["tier"], finding["message_id"], finding["offset"], finding["detail"]) == (
        "stored", *ids(2), None, "scheduled first",
    )  # fmt: skip
    found = audited(healthy().stored(7, 1, 2), now=OVER)
    (finding,) = findings(found)
    assert (finding["message_id"], finding["offset"]) == (*ids(2), 7)


def test_what_is_scheduled_late_is_late():
    facts = healthy().scheduled(9, 1, 10, DUE, time=LATER).counts(10).fulfilled(7, 1, 9, 10, DUE)
    found = audited(facts, now=OVER)
    assert (row(found)["verdict"], due(found)["verdict"]) == ("late", "ok")
    assert named(found, "late", queue=None, offset=None) == ids(10)


def test_what_is_delivered_long_after_its_time_is_late():
    end = DUE + 2 * BUCKET_US
    facts = Facts().scheduled(1, 2, 1, DUE).counts(2)
    facts.fulfilled(0, 1, 1, 1, DUE, time=end).fulfilled(1, 1, 2, 2, DUE, time=end + 1)
    found = audited(facts, now=OVER)
    assert (due(found)["verdict"], due(found)["late"], due(found)["delivered"]) == ("late", 1, 2)
    assert named(found, "late", tier="due", queue=0, offset=1) == ids(2)


def test_while_the_broker_has_not_run_for_long_nothing_is_missing():
    facts = Facts().scheduled(1, 2, 1, DUE).counts(2)
    found = audited(facts, now=OVER, up_since_us=OVER - BUCKET_US)
    one = due(found)
    assert (one["verdict"], one["pending"], one["final"]) == ("open", 2, False)
    assert due(audited(facts, now=OVER, up_since_us=OVER - BUCKET_US - 1))["verdict"] == "lost"


def test_what_is_judged_early_is_not_due():
    """A run for a later time: the messages of that time are not due in truth."""
    facts = Facts().scheduled(1, 2, 1, DUE).fulfilled(0, 1, 1, 1, DUE, time=DUE).counts(2)
    one = due(audited(facts, now=OVER, real_us=DUE + 5))
    assert (one["verdict"], one["pending"], one["delivered"]) == ("open", 1, 1)


def test_rows_of_a_deleted_topic_are_gone():
    facts = healthy()
    del facts.rows[6]
    one = due(audited(facts, now=OVER, topics={8}))
    assert (one["verdict"], one["gone"], one["lost"], one["delivered"]) == ("ok", 2, 0, 6)
    assert due(audited(facts, now=OVER, topics={7}))["lost"] == 2


def test_before_the_audit_began_nothing_is_known():
    facts = Facts().scheduled(1, 2, 1, DUE).fulfilled(0, 1, 1, 1, DUE).counts(2)
    one = due(audited(facts, now=OVER, since_us=DUE + 1))
    assert (one["verdict"], one["unverified"], one["lost"]) == ("unverified", 1, 0)
    one = due(audited(Facts().fulfilled(0, 1, 1, 1, DUE), now=OVER))
    assert (one["verdict"], one["scheduled"], one["delivered"]) == ("ok", 1, 1)


def test_entries_of_two_topics_are_apart():
    facts = (
        Facts().scheduled(1, 1, 1, DUE).scheduled(2, 1, 1, DUE, topic="payments", producer=5)
        .fulfilled(0, 1, 1, 1, DUE)
    )  # fmt: skip
    found = audited(facts, now=OVER)
    assert due(found, topic="orders")["verdict"] == "ok"
    assert due(found, topic="payments")["verdict"] == "lost"
    assert named(found, "lost") == ids(1, producer=5)


def test_names_have_a_cap_and_the_count_has_not():
    facts = Facts().scheduled(1, 1000, 1, DUE).scheduled(1001, 500, 1001, DUE + 1, producer=9)
    found = audited(facts, now=OVER, most_named=10)
    assert due(found)["lost"] == 1500
    assert [one for one in named(found, "lost") if one] == ids(*range(1, 11))
    assert sum(one["count"] for one in findings(found, kind="lost")) == 1500
    for number in range(2):
        facts.fulfilled(2000 * number, 1000, 1, 1, DUE)
    found = audited(facts, now=OVER, most_named=10)
    assert due(found)["doubled"] == 1000
    assert len(findings(found, kind="doubled")) <= 10


# -- groups and the archive: as of any message, where it is due


def test_groups_receive_them_in_the_window_in_which_they_are_due():
    facts = healthy().pulled(0, 7).settled(0, 7).pulled(0, 1, queue=1).settled(0, 1, queue=1)
    found = audited(facts, now=OVER, groups=["billing"])
    early, later = rows(found, tier="group")
    assert (early["verdict"], early["stored"], early["settled"]) == ("ok", 1, 1)
    assert (later["verdict"], later["stored"], later["settled"]) == ("open", 8, 7)
    facts.settled(1, 2, queue=1)
    assert rows(audited(facts, now=OVER, groups=["billing"]), tier="group")[1]["verdict"] == "ok"


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_pieces_make_no_difference(pieces):
    facts = healthy().cancelled(3, 1, DUE).pulled(0, 3).settled(0, 2)
    whole = audited(facts, now=OVER, groups=["billing"])
    again = judge(kept(facts, pieces=pieces), Policy(OVER), [(7, "billing")])
    assert again.rows.equals(whole.rows)
    assert again.findings.equals(whole.findings)


def test_runs_are_joined():
    facts = Facts()
    for number in range(10):
        facts.scheduled(1 + number, 1, number, DUE).fulfilled(number, 1, 1 + number, number, DUE)
    runs = kept(facts)
    assert sorted(runs["kind"].to_pylist()) == ["fulfilled", "owed", "scheduled"]
    assert merged(runs).equals(runs)
    assert set(OF_SCHEDULE) > {"owed", "fulfilled"}
    facts = Facts().fulfilled(0, 1, 1, 1, DUE).fulfilled(1, 1, 3, 2, DUE)
    assert len(kept(facts)) == 2, "entries that do not follow one another"


def test_the_archive_has_them_where_they_are_due():
    facts = Facts().scheduled(1, 3, 1, DUE).fulfilled(0, 3, 1, 1, DUE).counts(3)
    archived = in_archive((0, 0, 2, 1), stands={0: 3}, bucket=DUE)
    found = audited(facts, now=OVER, archived=archived)
    (one,) = rows(found, tier="archive")
    assert (one["verdict"], one["lost"], one["archived"]) == ("lost", 1, 2)
    assert named(found, "lost", tier="archive") == ids(3)
    assert findings(found)[0]["producer_id"] == P


# -- of the journal of a broker


@pytest.fixture(scope="module")
def lived():
    """Return the events of a broker that scheduled messages over days, and when they are judged."""
    chance, world = random.Random(7), World()
    world.topic("t", queues=3)
    world.group("t", "g")
    for _ in range(40):
        seconds = [chance.choice((5, 5, 700, 4000, 90_000)) for _ in range(chance.randrange(1, 6))]
        rows_ = [Row(body=b"x", due_us=world.now + one * SECOND) for one in seconds]
        world.send("t", rows_ if chance.random() < 0.8 else len(rows_))
        if chance.random() < 0.3:
            sequence = chance.randrange(world.sequences[1])
            with suppress(AlreadyDelivered):
                world.run(partial(world.broker.cancel_scheduled, world.now, "t", 1, sequence))
            world.commit()
        world.pass_time(chance.choice((1, 600)) * SECOND)
    world.pass_time(100_000 * SECOND)
    return events_of(world, EVENTS), world.now + DAY


def judged(events, now, pieces=1):
    runs = KEPT.empty_table()
    step = -(-len(events) // pieces)
    for begin in range(0, len(events), step):
        runs = fold(runs, gather(events.slice(begin, step), 30 * DAY))
    return judge(runs, Policy(now, 30 * DAY))


def test_of_a_broker_nothing_is_missing_or_double(lived):
    events, now = lived
    found = judged(events, now + 60 * DAY, pieces=3)
    told = rows(found, tier="due")
    assert {one["verdict"] for one in told} == {"ok"}
    assert sum(one["cancelled"] for one in told) > 3
    for one in told:
        assert one["scheduled"] == one["delivered"] + one["cancelled"]
    (one,) = rows(found, tier="stored")
    assert (one["doubled"], one["late"], one["lost"]) == (0, 0, 0)
    assert {one["kind"] for one in findings(found)} == {"unverified"}, "this producer tells nothing"


@pytest.mark.parametrize("seed", range(5))
def test_what_is_planted_in_the_journal_of_a_broker_is_named_and_nothing_else(lived, seed):
    events, now = lived
    chance = random.Random(seed)
    whole = events.to_pylist()
    delivered = [one for one in whole if one["kind"] == "stored" and one["entry"] is not None]
    gone, again, never = chance.sample(delivered, 3)
    last = max(one["stop"] for one in whole if one["stop"])
    copy = again | {"position": whole[-1]["position"] + 64, "start": last,
                    "stop": last + again["rows"]}  # fmt: skip
    added = never | {"kind": "scheduled", "entry": 10**6, "rows": 2, "sequence": 10**6,
                     "start": None, "stop": None, "queue": None}  # fmt: skip
    told = [one for one in whole if one is not gone]
    planted = pa.Table.from_pylist([added, *told, copy], schema=events.schema)
    found = judged(planted, now + 60 * DAY, pieces=chance.choice((1, 4)))

    def named_of(one):
        return ids(*range(one["sequence"], one["sequence"] + one["rows"]), producer=1)

    assert sorted(named(found, "lost")) == sorted(named_of(gone) + named_of(added))
    assert sorted(named(found, "doubled")) == sorted(named_of(again))
    assert {one["tier"] for one in findings(found) if one["kind"] != "unverified"} == {"due"}
