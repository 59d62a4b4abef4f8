"""What every job is given."""

from __future__ import annotations

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.client.connection.address import Address
from ternmq.model.errors import DataLoss, OptionError
from ternmq.pipeline.archive.job import Archiving
from ternmq.pipeline.archive.spark import cut
from ternmq.pipeline.job.job import Context, Setting, Stopped, told
from ternmq.pipeline.running.jobs import all_tables, chosen, names
from ternmq.spark.broker.connecting import Broker
from ternmq.wire.control import HoldPlaced, Holds
from tests.unit.pipeline.made import NOON, span


class Keeper:
    """A broker's journal, as far as holds go."""

    def __init__(self, oldest, durable):
        self.oldest = oldest
        self.durable = durable
        self.stands = {}

    def holds(self):
        return Holds(holds=[], oldest=self.oldest, durable=self.durable)

    def hold(self, name, position, note="", *, back=False):
        position = max(position, self.oldest)
        if not back:
            position = max(position, self.stands.get(name, 0))
        self.stands[name] = position
        return HoldPlaced(position=position, oldest=self.oldest)


def context(tables, keeper, **more):
    return Context("trace", tables, Broker((Address("h", 1),)), keeper, NOON, **more)


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [(1, " 5 ", 5), (0.5, "2", 2.0), (False, "TRUE", True), ("", "a,b", "a,b")],
)
def test_a_setting_has_the_type_of_its_default(default, text, value):
    found = Setting("late", default, "What.").parse("stats", text)
    assert (found, type(found)) == (value, type(default))


@pytest.mark.parametrize(("default", "text"), [(1, "x"), (1, "1.5"), (0.5, "-"), (True, "1")])
def test_a_setting_that_cannot_be_is_named(default, text):
    with pytest.raises(OptionError, match=r"stats\.late"):
        Setting("late", default, "What.").parse("stats", text)


@pytest.mark.parametrize(
    ("job", "text"),
    [
        ("archive", "pass_mb=-1"), ("audit", "keep_days=-1"), ("audit", "keep_days=0"),
        ("audit", "keep_days=1000000000"), ("compaction", "keep_archive_days=-5"),
        ("compaction", "keep_archive_days=36526"), ("compaction", "clean_after_hours=0"),
        ("trace", "events=0"), ("deadletters", "days=-1"),
    ],
)  # fmt: skip
def test_a_number_that_cannot_be_meant_is_refused(job, text):
    name, _, value = text.partition("=")
    (one,) = chosen([job])
    with pytest.raises(OptionError, match=rf"{job}\.{name}='{value}': at (least|most) \d+"):
        told(one, {name: value})


def test_no_default_is_below_what_is_allowed():
    for job in chosen(names()):
        assert told(job, {one.name: str(one.default) for one in job.settings}) == told(job, {})


def test_settings_of_a_job():
    found = told(Archiving(), {"pass_mb": "1"})
    assert (found["pass_mb"], found["topics"]) == (1, "")
    with pytest.raises(OptionError, match=r"archive\.nothing: there is no such setting.*pass_mb"):
        told(Archiving(), {"nothing": "1"})


def test_jobs_run_in_their_order_each_once():
    assert [one.name for one in chosen(["compaction", "archive", "archive"])] == [
        "archive",
        "compaction",
    ]
    with pytest.raises(OptionError, match="no job 'nope'; there are: archive"):
        chosen(["archive", "nope"])
    with pytest.raises(OptionError, match="no job is named"):
        chosen([])


def test_each_job_is_what_its_entry_says_and_no_two_write_the_same_table():
    jobs = chosen(names())
    assert tuple(one.name for one in jobs) == names()
    written = [table.name for one in jobs for table in one.tables]
    assert len(written) == len(set(written))
    assert set(written) <= {one.name for one in all_tables()}
    for one in jobs:
        assert len({setting.name for setting in one.settings}) == len(one.settings)


def test_new_tables_begin_with_the_oldest_position_which_is_then_kept(tables):
    keeper = Keeper(4096, 9000)
    keeper.stands["spark.trace"] = 8000  # of tables that were thrown away
    assert context(tables, keeper).begin(None) == 4096
    assert keeper.stands == {"spark.trace": 4096}


def test_tables_go_on_where_they_are(tables):
    keeper = Keeper(4096, 9000)
    assert context(tables, keeper).begin(5000) == 5000
    assert keeper.stands == {"spark.trace": 5000}


def test_a_journal_that_begins_too_late(tables):
    with pytest.raises(DataLoss, match=r"begins at 4096, and trace has read it up to 4000"):
        context(tables, Keeper(4096, 9000)).begin(4000)
    assert context(tables, Keeper(4096, 9000), lenient=True).begin(4000) == 4096


def test_another_broker_is_found_out_and_no_hold_is_put(tables):
    keeper = Keeper(0, 9000)
    with pytest.raises(DataLoss, match="another broker"):
        context(tables, keeper).begin(9001)
    assert keeper.stands == {}


def test_the_hold_follows_commits_and_never_goes_back(tables):
    keeper = Keeper(0, 9000)
    one = context(tables, keeper)
    one.begin(None)
    for position in (100, 300, 200):
        one.reached(position)
    assert keeper.stands == {"spark.trace": 300}


def test_a_job_ends_where_it_asks(tables):
    told_to: list[int] = []
    one = context(tables, Keeper(0, 0), stopping=lambda: bool(told_to))
    one.check()
    told_to.append(1)
    with pytest.raises(Stopped):
        one.check()


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
def test_ranges_are_cut_without_losing_a_row(pieces):
    groups = [(span(5, 105),), (span(0, 10, queue=1), span(7, 8, queue=2))]
    found = cut(groups, pieces)
    assert [(one.queue, at) for some in found for one in some for at in rows_of(one)] == [
        (one.queue, at) for some in groups for one in some for at in rows_of(one)
    ]
    assert max(one.stop - one.start for (one,) in found[:-1]) <= -(-111 // pieces)
    assert found[-1] == groups[-1]


def rows_of(one):
    return range(one.start, one.stop)
