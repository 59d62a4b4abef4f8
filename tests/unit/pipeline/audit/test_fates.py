"""Expired, dropped, passed over: what becomes of messages in groups is counted as what it is.

Each planted loss is named, and nothing else.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from ternmq.pipeline.audit.audit import fold, judge
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import gather
from tests.unit.pipeline.facts import (
    LATER,
    Facts,
    audited,
    findings,
    ids,
    kept,
    named,
    row,
    rows,
)

FATES = ("settled", "passed", "expired", "expired_dead", "expired_dropped", "lost")


def sent():
    return Facts().stored(0, 10, 1).counts(10)


def fates(found, group="billing"):
    one = row(found, tier="group", group=group)
    return one["verdict"], {name: one[name] for name in FATES if one[name]}


def expired(facts, start, stop, outcome="dead", **columns):
    return facts.settled(start, stop, outcome=outcome, cause="expired", lease=0, **columns)


def in_order():
    """Three are done, two are dead for their age, one is dropped, four are done."""
    facts = sent().pulled(0, 3, cursor=3).settled(0, 3, lease=1)
    expired(expired(facts, 3, 5), 5, 6, outcome="done")
    return facts.pulled(6, 10, cursor=10).settled(6, 10, lease=2)


@pytest.mark.row("R8")
def test_what_expired_is_counted_as_dead_or_dropped_and_is_no_fault():
    found = audited(in_order(), groups=["billing"])
    assert fates(found) == ("ok", {"settled": 7, "expired_dead": 2, "expired_dropped": 1})
    assert len(found.findings) == 0
    assert row(found, tier="group")["final"]


def test_a_dead_letter_that_was_kept_long_enough_stays_what_it_was():
    facts = sent().pulled(0, 9, cursor=9).settled(0, 9, outcome="dead", cause="rejected", lease=1)
    expired(expired(facts, 9, 10), 0, 10, outcome="done")
    found = audited(facts, groups=["billing"])
    assert fates(found) == ("ok", {"settled": 9, "expired_dead": 1})


def test_an_expired_one_that_is_redriven_is_settled_in_the_end():
    facts = in_order().add("replayed", group="billing", queue=0)
    facts.pulled(3, 6, cursor=10).settled(3, 6, lease=3)
    assert fates(audited(facts, groups=["billing"])) == ("ok", {"settled": 10})


def test_a_failure_that_its_retry_policy_finds_too_old_is_settled():
    facts = sent().pulled(0, 10, cursor=10)
    facts.settled(0, 9, lease=1).settled(9, 10, outcome="dead", cause="expired", lease=1)
    assert fates(audited(facts, groups=["billing"])) == ("ok", {"settled": 10})


@pytest.mark.row("R8")
def test_one_that_expired_while_it_waited_for_its_retry_is_expired():
    facts = sent().pulled(0, 10, cursor=10).settled(0, 9, lease=1)
    expired(facts.settled(9, 10, outcome="retry", lease=1), 9, 10)
    found = audited(facts, groups=["billing"])
    assert fates(found) == ("ok", {"settled": 9, "expired_dead": 1})


@pytest.mark.row("R8")
@pytest.mark.parametrize(("kind", "start"), [("settled", 3), ("settled", 5), ("pulled", 6)])
def test_what_a_group_passed_over_without_a_reason_is_lost(kind, start):
    facts = in_order()
    (gone,) = [one for one in facts.rows if (one["kind"], one.get("start")) == (kind, start)]
    if kind == "pulled":  # neither delivered nor settled; a later delivery tells the cursor
        facts.rows = [one for one in facts.rows if one.get("start") != start]
        facts.stored(10, 1, 11).counts(11).pulled(10, 11, cursor=11).settled(10, 11, lease=3)
    else:
        facts.rows.remove(gone)
    wanted = ids(*range(start + 1, gone["stop"] + 1))
    found = audited(facts, groups=["billing"])
    verdict, counts = fates(found)
    assert (verdict, counts["lost"]) == ("lost", len(wanted))
    assert named(found, "lost", group="billing", tier="group") == wanted
    assert len(findings(found)) == len(wanted)
    assert row(found)["verdict"] == "ok", "they are stored"
    assert not row(found, tier="group")["final"]
    early = audited(facts, groups=["billing"], now=LATER - 10**9)
    assert (fates(early)[0], len(early.findings)) == ("open", 0)


@pytest.mark.row("R8")
def test_a_message_that_was_sent_and_would_have_expired_is_lost_if_it_is_not_stored():
    facts = in_order()
    facts.rows[0] |= {"stop": 5, "rows": 5}
    facts.stored(6, 4, 7)
    found = audited(facts, groups=["billing"])
    assert named(found, "lost") == ids(6)
    assert fates(found) == ("ok", {"settled": 7, "expired_dead": 2})


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("parked", {}),
        ("skipped", {}),
        ("settled", {"outcome": "dead", "cause": "exhausted"}),
        ("pulled", {}),
    ],
)
def test_what_is_parked_skipped_dead_or_in_hand_is_not_passed_over(kind, columns):
    facts = sent().pulled(0, 4, cursor=10).settled(0, 4, lease=1).pulled(5, 10, cursor=10)
    facts.settled(5, 10, lease=2)
    bad = audited(facts, groups=["billing"])
    assert named(bad, "lost") == ids(5)
    facts.add(kind, start=4, stop=5, rows=1, group="billing", queue=0, **columns)
    found = audited(facts, groups=["billing"])
    assert fates(found)[0] == ("open" if kind in {"parked", "pulled"} else "ok")
    assert len(found.findings) == 0


def test_rows_that_a_reset_a_skip_or_retention_passed_are_not_lost():
    for cause in ("reset", "skip", "expired", "filtered", "commit"):
        facts = sent().cursor(5, cause).pulled(5, 10, cursor=10).settled(5, 10, lease=1)
        assert "lost" not in fates(audited(facts, groups=["billing"]))[1]


@pytest.mark.row("R8")
def test_what_was_stored_before_a_group_began_at_latest_is_not_owed():
    facts = sent().add(
        "config", group="billing", name="subscribed", detail='{"cursors": [4, 0]}'
    )  # fmt: skip
    facts.pulled(4, 10, cursor=10).settled(4, 10, lease=1)
    found = audited(facts, groups=["billing"])
    assert fates(found) == ("ok", {"settled": 6, "passed": 4})


@pytest.mark.row("R8")
def test_facts_of_a_group_that_came_when_its_window_was_final_are_not_missed():
    """The audit does not read the facts of a later group about windows that are final."""
    facts = sent().pulled(0, 10, cursor=10).settled(0, 10, lease=1)
    runs = kept(facts, groups=["billing"])
    late = Facts().pulled(10, 11, group="late", cursor=11)
    late.rows[0]["position"] = 10_000
    runs = fold(runs, gather(late.table(), 0), [(7, "billing"), (7, "late")])
    found = judge(runs, Policy(LATER), [(7, "billing"), (7, "late")])
    assert fates(found, "late") == ("open", {})
    assert fates(found) == ("ok", {"settled": 10})


@pytest.mark.row("R8")
def test_in_a_window_that_was_not_read_completely_nothing_is_missed():
    facts = sent().pulled(9, 10, cursor=10).settled(9, 10, lease=1)
    assert fates(audited(facts, groups=["billing"]))[1]["lost"] == 9
    found = audited(facts, groups=["billing"], since_us=LATER)
    assert fates(found) == ("open", {"settled": 1})
    assert named(found, "lost") == []


@pytest.mark.row("R8")
@pytest.mark.parametrize("instance", ["$b.web-1", "$b-17"])
def test_broadcast_instances_are_not_judged_and_hide_nothing(instance):
    facts = in_order()
    before = kept(facts, groups=["billing"])
    facts.pulled(0, 10, group=instance, cursor=10).settled(0, 4, group=instance)
    facts.settled(4, 10, group=instance, cause="failed").cursor(10, "expired", group=instance)
    assert kept(facts, groups=["billing"]).equals(before), "no fact of it is kept"
    facts.rows = [one for one in facts.rows if (one["kind"], one.get("start")) != ("settled", 3)]
    found = audited(facts, groups=["billing"])
    assert named(found, "lost") == ids(4, 5)
    assert {one["group"] for one in rows(found, tier="group")} == {"billing"}
    missing = Facts().stored(0, 9, 1).counts(10)
    missing.pulled(0, 10, group=instance, cursor=10).settled(0, 10, group=instance)
    assert named(audited(missing), "lost") == ids(10)


@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_it_does_not_matter_in_how_many_pieces_the_journal_is_read(pieces):
    facts = in_order()
    facts.rows = [one for one in facts.rows if (one["kind"], one.get("start")) != ("settled", 5)]
    runs = kept(facts, pieces=pieces, groups=["billing"])
    found = judge(runs, Policy(LATER), [(7, "billing")])
    assert named(found, "lost") == ids(6)
    assert fates(found) == ("lost", {"settled": 7, "expired_dead": 2, "lost": 1})
