"""Rounds of jobs, without a broker that answers anything."""

from __future__ import annotations

import urllib.error
import urllib.request
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from ternmq.client.connection.address import Address
from ternmq.model.errors import DataLoss, OptionError, TableConflict, TableError
from ternmq.pipeline.archive.schema import ARCHIVE, ERASED, GAPS
from ternmq.pipeline.job.job import Outcome, Setting, Stopped
from ternmq.pipeline.running import runner as module
from ternmq.pipeline.running.health import HealthPort, Numbers
from ternmq.pipeline.running.runner import Ran, Round, Runner, check_tables, source_options
from ternmq.pipeline.tables.lock import only_one
from ternmq.pipeline.tables.table import Table
from ternmq.spark.broker.connecting import Broker
from tests.unit.pipeline.made import NOON

BROKER = Broker((Address("h", 1),), "pipeline", "secret-token")


class Fake:
    """A job that does as it is told."""

    tables = ()
    keeps_journal = False
    settings = (Setting("late", 3, "What."),)

    def __init__(self, name, does=None):
        self.name = name
        self.does = does
        self.given = []

    def run(self, context):
        self.given.append(context)
        if isinstance(self.does, BaseException):
            raise self.does
        return Outcome(rows=7, findings=("look",))


class Behind(Fake):
    """A job that another runner is faster with, twice."""

    def run(self, context):
        outcome = super().run(context)
        if len(self.given) <= 2:
            raise TableConflict("was changed")
        return outcome


@pytest.fixture
def run(monkeypatch, tables):
    monkeypatch.setattr(module, "reach", nullcontext)

    def made(*jobs, **more):
        return Runner(jobs, tables, BROKER, lambda: NOON, **more)

    return made


def test_one_that_fails_does_not_stop_the_others(run):
    jobs = [Fake("a"), Fake("b", DataLoss("rows are gone")), Fake("c", KeyError("x")), Fake("d")]
    done = run(*jobs).round()
    assert [(one.job, one.error) for one in done.ran] == [
        ("a", ""),
        ("b", "rows are gone (--lenient records what is missing, and continues)"),
        ("c", "KeyError: 'x'"),
        ("d", ""),
    ]
    assert [one.job for one in done.failed] == ["b", "c"]
    assert done.ran[0].outcome.rows == 7


def test_a_job_starts_again_where_another_runner_was_first(run, monkeypatch):
    monkeypatch.setattr("ternmq.pipeline.running.runner.time.sleep", lambda _pause: None)
    behind, always = Behind("a"), Fake("b", TableConflict("was changed"))
    done = run(behind, always).round()
    assert [one.error.partition(" (")[0] for one in done.ran] == ["", "was changed"]
    assert (len(behind.given), len(always.given)) == (3, 6)


def test_a_stop_ends_the_attempts_of_a_job(run):
    job = Fake("a", TableConflict("was changed"))
    stops = iter([False])
    done = run(job, stopping=lambda: next(stops, True)).round()
    assert (done.stopped, len(job.given)) == (True, 1)


def test_all_jobs_of_a_round_have_the_same_time_and_their_settings(run):
    jobs = [Fake("a"), Fake("b")]
    run(*jobs, settings={"b": {"late": "9"}}).round()
    assert [one.given[0].now_us for one in jobs] == [NOON, NOON]
    assert [one.given[0].integer("late") for one in jobs] == [3, 9]
    assert jobs[0].given[0].hold_name() == "spark.a"


def test_a_setting_of_a_job_that_does_not_run(run):
    with pytest.raises(OptionError, match="'trace'"):
        run(Fake("a"), settings={"trace": {"late": "1"}})


def test_told_to_end_the_others_do_not_run(run):
    jobs = [Fake("a", Stopped()), Fake("b")]
    done = run(*jobs).round()
    assert (done.stopped, done.ran, jobs[1].given) == (True, [], [])
    done = run(Fake("a"), stopping=lambda: True).round()
    assert (done.stopped, done.ran) == (True, [])


def test_rounds_go_on_until_told_to_end(run):
    told, waited = [], []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            told.append(1)

    rounds = list(run(Fake("a"), stopping=lambda: bool(told)).rounds(60, sleep))
    assert [one.number for one in rounds] == [1, 2, 3]
    assert all(0 < one <= 60 for one in waited)


def test_what_a_task_of_spark_said_is_what_is_told(run):
    text = "An exception occurred\n  ternmq.model.errors.DataLoss: rows 1 to 2 are gone\n at java"
    done = run(Fake("a", RuntimeError(text))).round()
    assert done.ran[0].error == "rows 1 to 2 are gone"


def test_options_of_sources_show_no_token():
    found = source_options(BROKER)
    assert found == {"bootstrap.servers": "h:1", "ternmq.app": "pipeline"}
    assert "secret" not in repr(BROKER)


def test_tables_are_made_unless_one_is_somebody_elses(tables):
    folder = Path(tables.uri)
    (folder / "erased").mkdir(parents=True)
    (folder / "erased" / "mine.txt").write_text("mine")
    with pytest.raises(TableError, match="erased contains files that belong to no table"):
        check_tables([ARCHIVE, GAPS, ERASED], tables)
    assert [one.name for one in folder.iterdir()] == ["erased"]
    check_tables([ARCHIVE, GAPS], tables)
    assert Table.open(tables, ARCHIVE, create=False).version == 0


def test_one_runner_at_a_time(tables):
    with (
        only_one(tables),
        pytest.raises(TableError, match=r"another .* works on .*tables"),
        only_one(tables),
    ):
        pass
    with only_one(tables):
        pass


def test_a_folder_that_cannot_be(tmp_path):
    from ternmq.pipeline.tables.folder import Folder

    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(TableError, match="file"), only_one(Folder(str(file))):
        pass


def done_round(error="", number=1):
    ran = Ran("archive", None if error else Outcome(rows=5), error, 1.5)
    return Round(number, NOON, [ran, Ran("stats", Outcome(rows=2), "", 0.5)], 2.0)


def test_readiness_is_that_of_the_last_round():
    numbers = Numbers(60)
    assert numbers.not_ready(0) == "no round has ended yet"
    numbers.add(done_round("it broke"), 100)
    assert numbers.not_ready(101) == "archive failed: it broke"
    numbers.add(done_round(), 100)
    assert numbers.not_ready(101) == ""
    assert numbers.not_ready(283) == "no round has ended for 183 s"


def test_one_round_is_never_late():
    numbers = Numbers(0)
    numbers.add(done_round(), 100)
    assert numbers.not_ready(1e9) == ""


def test_the_health_port():
    numbers = Numbers(60)
    port = HealthPort(numbers, "127.0.0.1", 0)

    def get(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    try:
        assert get("/livez") == (200, "ok\n")
        assert get("/readyz") == (503, "no round has ended yet\n")
        assert get("/else")[0] == 404
        numbers.add(done_round("x"), 1e12)
        numbers.add(done_round(), 1e12)
        assert get("/readyz") == (200, "ok\n")
        status, text = get("/metrics")
        assert status == 200
        for line in (
            'ternmq_pipeline_runs_total{job="archive",result="done"} 1.0',
            'ternmq_pipeline_runs_total{job="archive",result="failed"} 1.0',
            'ternmq_pipeline_rows_total{job="stats"} 4.0',
            'ternmq_pipeline_seconds{job="archive"} 1.5',
        ):
            assert line in text.splitlines()
    finally:
        port.close()
