"""What groups were given, and what the archive has: every planted fault is named, nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from tests.unit.pipeline.facts import (
    LATER,
    NOON,
    Facts,
    audited,
    findings,
    ids,
    in_archive,
    named,
    row,
    rows,
)


def sent():
    return Facts().stored(0, 10, 1).stored(0, 5, 11, queue=1).counts(15)


def group(facts, **policy):
    return row(audited(facts, groups=["billing"], **policy), tier="group")


def done():
    return sent().pulled(0, 10).pulled(0, 5, queue=1).settled(0, 10).settled(0, 5, queue=1)


@pytest.mark.row("R8")
def test_a_group_that_is_done_with_everything():
    found = audited(done(), groups=["billing"])
    one = row(found, tier="group")
    assert (one["group"], one["verdict"], one["final"]) == ("billing", "ok", True)
    assert (one["stored"], one["delivered"], one["settled"]) == (15, 15, 15)
    assert one["stored_sum"] == one["delivered_sum"] == one["settled_sum"] != 0
    assert len(found.findings) == 0


@pytest.mark.parametrize(
    ("facts", "delivered", "settled"),
    [
        (sent(), 0, 0),
        (sent().pulled(0, 10), 10, 0),
        (sent().pulled(0, 10).settled(0, 9).pulled(0, 5, queue=1), 15, 9),
        (sent().pulled(0, 10).settled(0, 10, outcome="retry"), 10, 0),
        (sent().pulled(0, 10).settled(0, 10, outcome="released", kind="ended"), 10, 0),
    ],
)
def test_while_a_group_owes_something_it_is_open(facts, delivered, settled):
    one = group(facts)
    assert (one["verdict"], one["final"]) == ("open", False)
    assert (one["delivered"], one["settled"]) == (delivered, settled)
    assert one["stored_sum"] != one["settled_sum"]


@pytest.mark.row("R8")
def test_retries_and_a_killed_consumer_are_no_doubles():
    facts = sent().pulled(0, 10).settled(0, 10, outcome="retry", kind="ended", cause="session")
    facts.pulled(0, 10).settled(0, 4, outcome="retry").settled(4, 10).pulled(0, 4)
    facts.settled(0, 4, outcome="dead", cause="exhausted", kind="ended")
    facts.pulled(0, 5, queue=1).settled(0, 5, queue=1)
    found = audited(facts, groups=["billing"])
    one = row(found, tier="group")
    assert (one["verdict"], one["delivered"], one["settled"]) == ("ok", 15, 15)
    assert row(found)["verdict"] == "ok"
    assert len(found.findings) == 0


@pytest.mark.row("R8")
def test_rows_that_are_replayed_or_redriven_are_no_doubles():
    facts = done().add("replayed", group="billing", queue=0).pulled(0, 10).settled(0, 10)
    found = audited(facts, groups=["billing"])
    assert {one["verdict"] for one in rows(found)} == {"ok"}
    assert row(found, tier="group")["delivered"] == 15


@pytest.mark.parametrize("cause", ["filtered", "commit", "start"])
def test_rows_that_a_group_was_never_to_have(cause):
    facts = sent().pulled(0, 3).settled(0, 3).cursor(10, cause).cursor(5, cause, queue=1)
    one = group(facts)
    assert (one["verdict"], one["settled"], one["passed"]) == ("ok", 3, 12)
    in_hand = group(sent().pulled(0, 3).cursor(10, cause).cursor(5, cause, queue=1))
    assert (in_hand["verdict"], in_hand["passed"]) == ("open", 12)


@pytest.mark.parametrize("cause", ["skip", "reset"])
def test_what_an_operator_took_from_a_group(cause):
    one = group(sent().pulled(0, 3).cursor(10, cause).cursor(5, cause, queue=1))
    assert (one["verdict"], one["passed"]) == ("ok", 15)


@pytest.mark.row("R8")
def test_what_expired_before_a_group_had_it_is_named():
    facts = sent().pulled(0, 8).settled(0, 8).cursor(10, "expired").cursor(5, "expired", queue=1)
    found = audited(facts, groups=["billing"])
    one = row(found, tier="group")
    assert (one["verdict"], one["expired"]) == ("expired", 7)
    assert sorted(named(found, "expired", group="billing")) == sorted(ids(9, 10, *range(11, 16)))
    assert {(f["queue"], f["offset"]) for f in findings(found)} == {
        (0, 8), (0, 9), *((1, n) for n in range(5)),
    }  # fmt: skip


def test_two_groups_and_a_queue_of_the_same_number_elsewhere():
    facts = done().stored(0, 3, 16, topic="payments").counts(3, first=16, topic="payments")
    facts.pulled(0, 3, group="other").settled(0, 3, group="other", topic="payments")
    found = audited(facts, groups=["billing", "other"])
    assert row(found, tier="group", group="billing")["verdict"] == "ok"
    other = row(found, tier="group", group="other")
    assert (other["verdict"], other["delivered"], other["settled"]) == ("open", 3, 0)


def test_facts_of_rows_that_are_not_known_are_left_out():
    one = group(done().pulled(100, 200).settled(100, 200))
    assert (one["verdict"], one["settled"]) == ("ok", 15)


# -- the archive


def archive(*runs, stands=None, excused=(), facts=None, **policy):
    there = in_archive(*runs, stands={0: 10, 1: 5} if stands is None else stands, excused=excused)
    return audited(facts or sent(), archived=there, **policy)


@pytest.mark.row("R8")
def test_everything_is_archived():
    found = archive((0, 0, 4, 1), (0, 4, 10, 5), (1, 0, 5, 11))
    one = row(found, tier="archive")
    assert (one["verdict"], one["archived"], one["lost"]) == ("ok", 15, 0)
    assert one["archived_sum"] == one["stored_sum"] == row(found)["stored_sum"]
    assert len(found.findings) == 0


@pytest.mark.row("R8")
def test_rows_cut_from_the_archive_are_named():
    found = archive((0, 0, 4, 1), (0, 6, 10, 7), (1, 0, 4, 11))
    one = row(found, tier="archive")
    assert (one["verdict"], one["archived"], one["lost"]) == ("lost", 12, 3)
    assert named(found, "lost", tier="archive") == ids(5, 6, 15)
    assert [(f["queue"], f["offset"]) for f in findings(found)] == [(0, 4), (0, 5), (1, 4)]
    assert row(found)["verdict"] == "ok"


def test_an_archive_that_is_behind_is_open():
    found = archive((0, 0, 4, 1), stands={0: 4})
    one = row(found, tier="archive")
    assert (one["verdict"], one["lost"], one["final"]) == ("open", 0, False)
    found = archive((0, 0, 3, 1), stands={0: 4})
    assert named(found, "lost") == ids(4)


def test_rows_that_are_in_the_archive_twice_are_named():
    found = archive((0, 0, 10, 1), (1, 0, 5, 11), (0, 2, 4, 3))
    one = row(found, tier="archive")
    assert (one["verdict"], one["doubled"], one["archived"]) == ("doubled", 2, 17)
    assert named(found, "doubled") == ids(3, 4)


def test_a_row_that_is_another_message_is_named():
    found = archive((0, 0, 5, 1), (0, 5, 6, 77), (0, 6, 10, 7), (1, 0, 5, 11))
    assert row(found, tier="archive")["verdict"] == "lost"
    assert named(found, "damaged") == ids(6)
    assert row(found, tier="archive")["archived_sum"] != row(found)["stored_sum"]


def test_what_was_erased_or_never_came_in_is_excused():
    found = archive((0, 0, 4, 1), (0, 6, 10, 7), (1, 0, 5, 11), excused=[(4, 6)])
    assert (row(found, tier="archive")["verdict"], len(found.findings)) == ("ok", 0)


def test_a_topic_that_nobody_archives_has_no_row():
    found = archive(stands={})
    assert rows(found, tier="archive") == []
    assert row(found)["final"]


def test_before_its_time_nothing_is_named():
    found = archive(now=NOON + 1)
    assert row(found, tier="archive")["verdict"] == "open"
    assert len(found.findings) == 0
    assert len(archive(now=LATER).findings) == 15
