"""What the audit remembers, and what it said: replaced all or nothing, whatever breaks off."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.model.errors import TableConflict
from ternmq.pipeline.audit.audit import buckets_of, fold, judge
from ternmq.pipeline.audit.policy import Policy
from ternmq.pipeline.audit.runs import gather
from ternmq.pipeline.audit.schema import AUDIT, BUCKET_US, FINDINGS, RUNS
from ternmq.pipeline.audit.tables import AuditTables, hour_of, usable
from ternmq.pipeline.tables.table import Table
from tests.unit.pipeline.facts import LATER, NOON, Facts, row

HOUR = 3_600_000_000


@pytest.fixture
def opened(tables):
    def make():
        return AuditTables(*(Table.open(tables, one) for one in (RUNS, AUDIT, FINDINGS)))

    return make


def gathered(facts):
    return gather(facts.table(), BUCKET_US)


def learn(audit, facts, position):
    audit.load(audit.hours)
    audit.remember(fold(audit.known, gathered(facts)), position, 0)


def say(audit, now=LATER):
    _, buckets = audit.open_hours(NOON + 24 * HOUR)
    audit.load(audit.hours)
    audit.replace(judge(audit.known, Policy(now)), buckets)
    return buckets


def files(audit):
    return {one.path for one in audit._runs.files()}


def test_it_goes_on_where_it_was(opened):
    audit = opened()
    assert (audit.position, audit.hours) == (None, set())
    learn(audit, Facts().stored(0, 3, 1), 100)
    assert say(audit) == {NOON}
    again = opened()
    assert (again.position, again.hours) == (100, {"2026-11-21T12"})
    learn(again, Facts().stored(3, 2, 4).counts(5), 200)
    again.load(again.hours)
    assert row(judge(again.known, Policy(LATER)))["verdict"] == "ok"
    assert opened().position == 200


def test_hours_of_which_nothing_new_is_told_are_not_written(opened):
    audit = opened()
    learn(audit, Facts().stored(0, 3, 1).stored(3, 1, 4, born=NOON + HOUR), 100)
    before = files(audit)
    again = opened()
    learn(again, Facts().stored(4, 1, 5, born=NOON + HOUR), 200)
    assert len(files(again) & before) == 1
    assert len(files(again)) == 2


def test_what_is_final_is_left_alone(opened):
    audit = opened()
    learn(audit, Facts().stored(0, 3, 1).counts(3), 100)
    say(audit, now=NOON + 1)
    assert opened().open_hours(NOON + 24 * HOUR) == ({"2026-11-21T12"}, {NOON})
    say(audit)
    assert opened().open_hours(NOON + 24 * HOUR) == (set(), set())


def test_a_run_that_broke_off_before_it_judged_is_made_up_for(opened):
    audit = opened()
    learn(audit, Facts().stored(0, 3, 1).counts(3), 100)
    say(audit)
    learn(audit, Facts().stored(3, 1, 3), 200)  # and there it was killed
    again = opened()
    assert say(again) == {NOON}
    assert again._audit.read(["verdict"]).to_pylist() == [{"verdict": "doubled"}]
    assert len(again._findings.read()) == 1
    assert opened().open_hours(NOON + 24 * HOUR) == (set(), set())


def test_facts_of_groups_find_messages_of_a_sender_whose_clock_is_ahead(opened):
    audit = opened()
    born = NOON + 2 * HOUR
    facts = Facts().stored(0, 3, 1, born=born).scheduled(1, 1, 4, NOON + 5 * HOUR, born=born)
    learn(audit, facts, 100)
    judged = judge(audit.known, Policy(NOON), [(7, "billing")])
    audit.replace(judged, buckets_of(audit.known))
    assert opened().open_hours(NOON) == ({hour_of(born)}, set())
    assert opened().open_hours(born) == ({hour_of(born)}, {born})


def test_other_ten_minutes_stay_as_they_are(opened):
    audit = opened()
    behind = NOON + BUCKET_US
    learn(audit, Facts().stored(0, 3, 1).stored(3, 1, 4, born=behind), 100)
    say(audit, now=LATER + BUCKET_US)
    before = audit._audit.read().to_pylist()
    assert [one["verdict"] for one in before] == ["unverified"] * 2
    changed = audit.replace(
        judge(audit.known.filter(audit.known["bucket"].cast("int64").to_numpy() == NOON),
              Policy(NOON)),
        [NOON],
    )  # fmt: skip
    assert changed
    after = audit._audit.read().to_pylist()
    assert [one["verdict"] for one in after] == ["open", "unverified"]
    assert after[1] == before[1]
    assert len(audit._findings.read()) == 1


def test_two_at_once_do_not_both_remember(opened):
    one, two = opened(), opened()
    new = gathered(Facts().stored(0, 3, 1))
    one.remember(fold(one.known, new), 100, 0)
    with pytest.raises(TableConflict):
        two.remember(fold(two.known, new), 100, 0)


def test_old_hours_are_forgotten(opened):
    audit = opened()
    learn(audit, Facts().stored(0, 3, 1).stored(3, 1, 4, born=NOON + HOUR), 100)
    audit.forget(NOON + HOUR)
    assert opened().hours == {hour_of(NOON + HOUR)}


def test_hours_with_messages_that_may_still_be_delivered_are_kept_if_it_is_asked_for(opened):
    later, due = NOON + 100 * HOUR, NOON + 2 * HOUR
    facts = Facts().scheduled(1, 3, 1, due).fulfilled(0, 2, 1, 1, due)
    learn(opened(), facts.scheduled(4, 1, 4, due + HOUR).cancelled(4, 1, due + HOUR), 100)
    opened().forget(later, pending=True)
    assert opened().hours == {hour_of(due)}
    opened().forget(later, {7}, pending=True)
    assert opened().hours == {hour_of(due)}
    opened().forget(later, {8}, pending=True)
    assert opened().hours == set(), "its topic is gone"
    learn(opened(), facts, 200)
    opened().forget(later)
    assert opened().hours == set()


def test_windows_that_have_not_begun_are_not_open(opened):
    due = NOON + 24 * HOUR
    audit = opened()
    learn(audit, Facts().scheduled(1, 1, 1, due).counts(1), 100)
    audit.replace(judge(audit.known, Policy(LATER)), [NOON, due])
    assert opened().open_hours(due - 1) == (set(), set())
    assert opened().open_hours(due) == ({hour_of(due)}, {due})


@pytest.mark.parametrize(
    ("due", "hours", "kept"),
    [
        (NOON, (), True),
        (NOON + 731 * 24 * HOUR, (), True),
        (NOON - 25 * HOUR, (), False),
        (NOON - 25 * HOUR, (hour_of(NOON - 25 * HOUR),), True),
    ],
)
def test_messages_may_be_due_at_any_later_time(due, hours, kept):
    new = gathered(Facts().scheduled(1, 1, 1, due).fulfilled(0, 1, 1, 1, due))
    left, out = usable(new, NOON, NOON - 24 * HOUR, hours)
    assert sorted(left["kind"].to_pylist()) == (
        ["fulfilled", "owed", "scheduled"] if kept else ["scheduled"]
    )
    assert out == 0


@pytest.mark.parametrize(
    ("born", "kept"),
    [(NOON, True), (NOON - 24 * HOUR, True), (NOON - 25 * HOUR, False), (NOON + 26 * HOUR, False),
     (1, False), (2**61, False)],
)  # fmt: skip
def test_what_was_born_at_a_strange_time_is_counted_and_left_out(born, kept):
    new = gathered(Facts().stored(0, 3, 1, born=born).pulled(0, 3))
    left, out = usable(new, NOON, NOON - 24 * HOUR)
    assert (len(left), out) == ((2, 0) if kept else (1, 3))
