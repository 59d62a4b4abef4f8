"""What is sent against what is stored: every planted fault is named, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from ternmq.pipeline.audit.audit import judge
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.schema import AUDIT, BUCKET_US, FINDINGS
from tests.unit.pipeline.facts import (
    LATER,
    NOON,
    Facts,
    P,
    audited,
    findings,
    ids,
    kept,
    named,
    row,
    rows,
)

GRACE = BUCKET_US


def healthy():
    return Facts().stored(0, 10, 1).stored(10, 5, 11).stored(0, 5, 16, queue=1).counts(20)


@pytest.mark.row("R8")
def test_all_that_was_sent_is_stored():
    found = audited(healthy())
    one = row(found)
    assert (one["verdict"], one["final"]) == ("ok", True)
    assert (one["sent"], one["stored"], one["lost"], one["doubled"]) == (20, 20, 0, 0)
    assert one["sent_sum"] == one["stored_sum"] != 0
    assert len(found.findings) == 0
    assert found.rows.schema == AUDIT.schema
    assert found.findings.schema == FINDINGS.schema


@pytest.mark.row("R8")
def test_lost_messages_are_named_first_last_and_between():
    facts = Facts().stored(0, 3, 2).stored(3, 4, 7).stored(7, 1, 12).counts(14)
    found = audited(facts)
    one = row(found)
    assert (one["verdict"], one["sent"], one["stored"], one["lost"]) == ("lost", 14, 8, 6)
    assert named(found, "lost") == ids(1, 5, 6, 11, 13, 14)
    assert len(found.findings) == 6


@pytest.mark.row("R8")
def test_everything_lost():
    found = audited(Facts().counts(3, first=5))
    assert row(found)["verdict"] == "lost"
    assert named(found, "lost") == ids(5, 6, 7)


@pytest.mark.row("R8")
def test_the_last_of_a_killed_producer_where_a_report_counts_them():
    found = audited(Facts().stored(0, 10, 1).counts(13, closed=False))
    assert row(found)["verdict"] == "lost"
    assert named(found, "lost") == ids(11, 12, 13)
    (one,) = findings(found, kind="unverified")
    assert one["producer_id"] == P


@pytest.mark.row("R8")
@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (Facts().stored(0, 10, 1), "no counts"),
        (Facts().stored(0, 10, 1).counts(10, closed=False), "it never reported"),
        (Facts().stored(0, 10, 1).counts(8), "counts 8 messages, and 10 arrived"),
        (Facts().stored(0, 10, 1).counts(8, closed=False), "counts 8 messages, and 10 arrived"),
    ],
)
def test_without_counts_that_are_a_proof_nothing_is_ok(facts, says):
    found = audited(facts)
    one = row(found)
    assert (one["verdict"], one["unverified"], one["lost"]) == ("unverified", 1, 0)
    (finding,) = findings(found)
    assert (finding["kind"], finding["producer_id"]) == ("unverified", P)
    assert says in finding["detail"]


def test_one_producer_without_counts_among_others():
    found = audited(healthy().stored(100, 1, 1, producer=99))
    assert row(found)["verdict"] == "unverified"
    assert [one["producer_id"] for one in findings(found)] == [99]
    assert (
        row(audited(healthy().stored(100, 1, 1, producer=99).counts(1, producer=99)))["verdict"]
        == "ok"
    )


@pytest.mark.row("R8")
def test_doubled_messages_are_named_each_copy_but_the_first():
    facts = healthy().stored(15, 2, 4).stored(17, 1, 4)
    found = audited(facts)
    one = row(found)
    assert (one["verdict"], one["doubled"], one["lost"], one["stored"]) == ("doubled", 3, 0, 23)
    assert sorted(named(found, "doubled")) == sorted(ids(4, 4, 5))
    assert {(f["queue"], f["offset"]) for f in findings(found)} == {(0, 15), (0, 16), (0, 17)}
    assert findings(found)[0]["detail"] == "stored first in queue 0 at 3"


def test_one_lost_and_one_doubled_do_not_make_up_for_each_other():
    found = audited(Facts().stored(0, 4, 1).stored(4, 1, 2).counts(5))
    one = row(found)
    assert (one["sent"], one["stored"]) == (5, 5)
    assert one["sent_sum"] != one["stored_sum"]
    assert (one["verdict"], one["lost"], one["doubled"]) == ("lost", 1, 1)
    assert (named(found, "lost"), named(found, "doubled")) == (ids(5), ids(2))


@pytest.mark.row("R8")
def test_late_messages_are_named():
    end = NOON + BUCKET_US + GRACE
    facts = healthy().stored(15, 2, 21, time=end + 1).stored(17, 1, 23, time=end).counts(23)
    found = audited(facts)
    one = row(found)
    assert (one["verdict"], one["late"], one["lost"]) == ("late", 2, 0)
    assert named(found, "late") == ids(21, 22)
    assert [f["offset"] for f in findings(found)] == [15, 16]


def test_what_was_lost_when_judged_and_came_late_is_late():
    facts = Facts().stored(0, 10, 1).counts(11)
    assert row(audited(facts))["verdict"] == "lost"
    facts.stored(10, 1, 11, time=LATER + 5)
    found = audited(facts, now=LATER + 10)
    assert row(found)["verdict"] == "late"
    assert (named(found, "lost"), named(found, "late")) == ([], ids(11))


def test_before_its_time_a_bucket_is_open():
    facts = Facts().stored(0, 3, 1).counts(5)
    end = NOON + BUCKET_US + GRACE
    found = audited(facts, now=end)
    assert (row(found)["verdict"], row(found)["final"], len(found.findings)) == ("open", False, 0)
    assert row(audited(facts, now=end + 1))["verdict"] == "lost"


def test_what_its_sender_knows_of_is_not_lost():
    """Given up: the application was told."""
    facts = Facts().stored(0, 5, 1).counts(10, given_up=[(6, 8), (10, 11)])
    found = audited(facts)
    assert (row(found)["lost"], row(found)["given_up"]) == (2, 3)
    assert named(found, "lost") == ids(8, 9)
    ok = audited(Facts().stored(0, 5, 1).counts(8, given_up=[(6, 9)]))
    assert (row(ok)["verdict"], len(ok.findings)) == ("ok", 0)


def test_given_up_and_stored_all_the_same():
    """Its answer was lost; it excuses no other message."""
    found = audited(Facts().stored(0, 5, 1).counts(6, given_up=[(3, 4)]))
    assert (row(found)["verdict"], named(found, "lost")) == ("lost", ids(6))


def test_more_given_up_than_was_named():
    found = audited(Facts().stored(0, 5, 1).counts(8, gave=3))
    assert row(found)["verdict"] == "unverified"
    assert "named too few" in findings(found)[0]["detail"]
    found = audited(Facts().stored(0, 5, 1).counts(8, gave=2))
    assert (row(found)["verdict"], row(found)["lost"]) == ("lost", 3)
    assert named(found, "lost") == ids(6, 7, 8)


def test_what_was_left_out_had_been_stored_before():
    found = audited(Facts().stored(0, 5, 1).left_out(2, 6).counts(7))
    assert (row(found)["verdict"], row(found)["left_out"]) == ("ok", 2)
    found = audited(Facts().stored(0, 5, 1).left_out(2, 6).counts(8))
    assert (named(found, "lost"), findings(found)[0]["detail"]) == (ids(8), None)


def test_a_batch_that_was_left_out_whole_leaves_no_record():
    """Its sender was told so, and says which it was."""
    facts = Facts().stored(0, 5, 1).left_out(1, 6)
    found = audited(facts.counts(8, given_up=[(6, 9)], gave=0, left_out=3))
    one = row(found)
    assert (one["verdict"], one["left_out"], one["given_up"]) == ("ok", 3, 0)


def test_a_producer_of_two_topics():
    facts = (
        Facts().stored(0, 4, 1).stored(0, 3, 5, topic="payments").stored(4, 2, 8)
        .counts(7).counts(3, first=5, topic="payments")
    )  # fmt: skip
    orders = 7  # sent 1-4 and 8-10: the tenth is lost
    facts.counts(orders, first=1, stop=11)
    found = audited(facts)
    assert row(found, topic="payments")["verdict"] == "ok"
    assert named(found, "lost", topic="orders") == ids(10)
    assert row(found, topic="orders")["sent_sum"] is None


def test_both_topics_of_a_producer_lack_messages():
    facts = (
        Facts().stored(0, 2, 1).stored(0, 1, 4, topic="payments").stored(2, 1, 6)
        .counts(4, first=1, stop=7).counts(2, first=4, stop=6, topic="payments")
    )  # fmt: skip
    found = audited(facts)
    assert named(found, "lost", topic="payments") == ids(5)
    assert named(found, "lost", topic="orders") == ids(3)
    assert {one["detail"] for one in findings(found)} == {None}
    facts = (
        Facts().stored(0, 1, 1).stored(0, 1, 2, topic="payments").stored(1, 1, 5)
        .stored(1, 1, 6, topic="payments")
        .counts(3, first=1, stop=6).counts(3, first=2, stop=7, topic="payments")
    )  # fmt: skip
    found = audited(facts)
    assert [one["lost"] for one in rows(found)] == [1, 1]
    assert named(found, "lost") == ids(3, 4)
    assert {one["detail"] for one in findings(found)} == {"sent to orders or payments"}


def test_counts_that_name_no_sequences():
    """Of a client that tells only how many."""
    found = audited(Facts().stored(0, 3, 1).stored(3, 3, 5).counts(8, stop=0))
    assert row(found)["lost"] == 2
    assert named(found, "lost") == [*ids(4), None]
    assert findings(found)[1]["count"] == 1


def test_the_newest_report_counts_in_any_order_of_pieces():
    facts = Facts().counts(3, closed=False).stored(0, 9, 1).counts(9).counts(5, closed=False)
    facts.rows[-1]["position"] = 1  # told before, read later
    for pieces in (1, 2, 4):
        one = row(judge(kept(facts, pieces=pieces), Policy(LATER)))
        assert (one["verdict"], one["sent"]) == ("ok", 9)


def test_before_the_audit_began_nothing_is_known():
    found = audited(Facts().stored(0, 3, 1).counts(5), since_us=NOON + 1)
    one = row(found)
    assert (one["verdict"], one["lost"]) == ("unverified", 0)
    assert "began later" in findings(found)[0]["detail"]


def test_names_have_a_cap_and_the_count_has_not():
    found = audited(Facts().counts(1000), most_named=10)
    assert row(found)["lost"] == 1000
    assert named(found, "lost") == [*ids(*range(1, 11)), None]
    assert sum(one["count"] for one in findings(found)) == 1000


def test_each_ten_minutes_are_judged_for_themselves():
    behind = NOON + BUCKET_US
    facts = healthy().stored(15, 5, 21, born=behind + 5).counts(6, first=21, bucket=behind)
    found = audited(facts, now=LATER + BUCKET_US)
    verdicts = [(one["bucket"].minute, one["verdict"]) for one in rows(found)]
    assert verdicts == [(0, "ok"), (10, "lost")]
    assert named(found, "lost") == ids(26)


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_pieces_make_no_difference(pieces):
    facts = Facts()
    for number in range(10):
        facts.stored(10 * number, 8, 10 * number + 1).counts(10 * number + 10, closed=number == 9)
    whole = audited(facts)
    again = judge(kept(facts, pieces=pieces), Policy(LATER))
    assert again.rows.equals(whole.rows)
    assert again.findings.equals(whole.findings)
    assert row(whole)["lost"] == 20


# -- transactions


def transaction():
    return Facts().prepared(5, 1, position=640).prepared(3, 6, position=704)


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
def test_what_a_transaction_made_visible_was_sent_by_its_commit(pieces):
    facts = transaction().resolved(0, 5, 640).resolved(5, 3, 704, queue=1)
    one = row(judge(kept(facts, pieces=pieces), Policy(LATER)))
    assert (one["verdict"], one["sent"], one["stored"], one["unverified"]) == ("ok", 8, 8, 0)


def test_until_it_is_decided_it_is_open():
    facts = transaction().resolved(0, 5, 640)
    assert (row(audited(facts))["verdict"], row(audited(facts))["stored"]) == ("open", 5)
    one = row(audited(facts.withdrawn(704)))
    assert (one["verdict"], one["sent"], one["stored"], one["lost"]) == ("ok", 5, 5, 0)


def test_what_was_never_committed_is_not_lost():
    assert rows(audited(transaction().withdrawn(640).withdrawn(704))) == []


def test_a_producer_of_both_sorts():
    facts = transaction().resolved(0, 5, 640).resolved(5, 3, 704).stored(8, 2, 9).counts(3, first=9)
    found = audited(facts)
    assert (row(found)["sent"], row(found)["lost"]) == (11, 1)
    assert named(found, "lost") == ids(11)


def test_a_commit_may_come_late():
    end = NOON + BUCKET_US + GRACE
    facts = transaction().resolved(0, 5, 640, time=end).resolved(5, 3, 704, time=end + 1)
    found = audited(facts)
    assert (row(found)["verdict"], named(found, "late")) == ("late", ids(6, 7, 8))
