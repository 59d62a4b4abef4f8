"""What the audit remembers, and what it said: replaced all or nothing, whatever breaks off."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.model.errors import TableConflict
from ternmq.pipeline.audit.audit import fold, judge
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
    _, buckets = audit.open_hours()
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
    assert opened().open_hours() == ({"2026-11-21T12"}, {NOON})
    say(audit)
    assert opened().open_hours() == (set(), set())


def test_a_run_that_broke_off_before_it_judged_is_made_up_for(opened):
    audit = opened()
    learn(audit, Facts().stored(0, 3, 1).counts(3), 100)
    say(audit)
    learn(audit, Facts().stored(3, 1, 3), 200)  # and there it was killed
    again = opened()
    assert say(again) == {NOON}
    assert again._audit.read(["verdict"]).to_pylist() == [{"verdict": "doubled"}]
    assert len(again._findings.read()) == 1
    assert opened().open_hours() == (set(), set())


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


@pytest.mark.parametrize(
    ("born", "kept"),
    [(NOON, True), (NOON - 24 * HOUR, True), (NOON - 25 * HOUR, False), (NOON + 26 * HOUR, False),
     (1, False), (2**61, False)],
)  # fmt: skip
def test_what_was_born_at_a_strange_time_is_counted_and_left_out(born, kept):
    new = gathered(Facts().stored(0, 3, 1, born=born).pulled(0, 3))
    left, out = usable(new, NOON, NOON - 24 * HOUR)
    assert (len(left), out) == ((2, 0) if kept else (1, 3))
