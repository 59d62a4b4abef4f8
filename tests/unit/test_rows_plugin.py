"""The table of mission rows: marks are checked, outcomes are reported, nothing is overstated."""

from __future__ import annotations

import pytest

from tests import rows
from tests.rows_plugin import read_table

TABLE = """
[[section]]
title = "One"
[section.rows]
A1 = "first"
A2 = "second"

[[section]]
title = "Two"
[section.rows]
C3 = "third"
"""


# With workers, these know what a test is marked with.
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".toml", rows=TABLE)
    pytester.makeini("[pytest]\nrows_table = rows.toml\nxfail_strict = true\n")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest(
        "-p", "tests.rows_plugin", "--strict-markers", "--rows-report=report.json", *arguments
    )


def report_of(project: pytest.Pytester) -> dict[str, dict[str, str]]:
    return rows.read_report(project.path / "report.json")


@WORKERS
def test_report_has_each_row_with_its_tests_and_outcomes(project, workers):
    project.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.row("A1", "C3")
        def test_good(): pass
        @pytest.mark.row("A1")
        def test_bad(): assert False
        @pytest.mark.row("A2")
        def test_skipped(): pytest.skip("no tool")
        def test_unmarked(): pass
        """
    )
    run(project, *workers).assert_outcomes(passed=2, failed=1, skipped=1)
    assert report_of(project) == {
        "A1": {"test_it.py::test_good": "passed", "test_it.py::test_bad": "failed"},
        "A2": {"test_it.py::test_skipped": "skipped"},
        "C3": {"test_it.py::test_good": "passed"},
    }


def test_the_worst_phase_counts(project):
    project.makepyfile(
        test_it="""
        import pytest
        @pytest.fixture
        def breaks_after():
            yield
            raise RuntimeError
        @pytest.fixture
        def breaks_before():
            raise RuntimeError
        @pytest.mark.row("A1")
        def test_teardown(breaks_after): pass
        @pytest.mark.row("A2")
        def test_setup(breaks_before): pass
        @pytest.mark.row("C3")
        @pytest.mark.xfail
        def test_expected(): assert False
        """
    )
    run(project)
    assert report_of(project) == {
        "A1": {"test_it.py::test_teardown": "failed"},
        "A2": {"test_it.py::test_setup": "failed"},
        "C3": {"test_it.py::test_expected": "xfailed"},
    }


def test_marks_on_classes_and_parameters_are_found(project):
    project.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.row("A1")
        class TestIt:
            @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.row("C3"))])
            def test_good(self, n): pass
        """
    )
    run(project).assert_outcomes(passed=2)
    assert report_of(project) == {
        "A1": {
            "test_it.py::TestIt::test_good[1]": "passed",
            "test_it.py::TestIt::test_good[2]": "passed",
        },
        "C3": {"test_it.py::TestIt::test_good[2]": "passed"},
    }


@pytest.mark.parametrize("mark", ['"C33"', "", "3", 'id="C3"'])
def test_a_mark_that_names_no_row_fails_the_collection(project, mark):
    project.makepyfile(
        test_it=f"""
        import pytest
        @pytest.mark.row({mark})
        def test_it(): pass
        def test_other(): pass
        """
    )
    # Also when this run would not have run that test.
    result = run(project, "-k", "test_other")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::test_it: *row*"])


def test_a_mark_that_names_no_row_keeps_workers_from_running_any_test(project):
    project.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.row("C33")
        def test_it(): pass
        def test_other(): pass
        """
    )
    result = run(project, "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.assert_outcomes()
    told = "test_it.py::test_it: there is no mission row 'C33'; near it: C3"
    assert result.outlines.count(told) == 1


@WORKERS
def test_tests_left_out_are_not_reported(project, workers):
    project.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.row("A1")
        def test_one(): pass
        @pytest.mark.row("A2")
        def test_two(): pass
        """
    )
    run(project, "-k", "two", *workers).assert_outcomes(passed=1, deselected=0 if workers else 1)
    assert set(report_of(project)) == {"A2"}


def test_a_marked_test_that_was_not_reached_did_not_pass(project):
    project.makepyfile(
        test_it="""
        import pytest
        def test_first(): assert False
        @pytest.mark.row("A1")
        def test_second(): pass
        """
    )
    run(project, "-x")
    assert report_of(project) == {"A1": {"test_it.py::test_second": "not run"}}


def test_a_test_that_kills_its_worker_failed(project):
    project.makepyfile(
        test_it="""
        import os, signal, pytest
        @pytest.mark.row("A1")
        def test_first(): pass
        @pytest.mark.row("A1")
        def test_second(): os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert run(project, "-n", "1").ret == pytest.ExitCode.TESTS_FAILED
    assert report_of(project) == {
        "A1": {"test_it.py::test_first": "passed", "test_it.py::test_second": "failed"}
    }


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ({}, "-"),
        ({"a": "passed"}, "passed"),
        ({"a": "passed", "b": "skipped"}, "partly"),
        ({"a": "skipped"}, "partly"),
        ({"a": "not run"}, "partly"),
        ({"a": "passed", "b": "xfailed"}, "failed"),
        ({"a": "skipped", "b": "failed"}, "failed"),
    ],
)
def test_a_row_has_passed_only_when_all_of_its_tests_did(outcomes, state):
    assert rows.state_of(outcomes) == state


def test_table_prints_rows_with_tests_and_the_summary_counts_them():
    titles = {"A1": "first", "A2": "second", "C3": "third"}
    report = {"A1": {"t::a": "passed"}, "C3": {"t::c": "failed", "t::d": "passed"}}
    assert list(rows.table(titles, report)) == [
        "A1    passed  first",
        "      passed   t::a",
        "A2    -       second",
        "C3    failed  third",
        "      failed   t::c",
        "      passed   t::d",
    ]
    assert rows.summary(titles, report) == "mission rows: 1 of 3 passed, 1 failed, 0 partly"


def test_without_a_report_no_row_has_passed(tmp_path):
    assert rows.read_report(tmp_path / "none.json") == {}


def test_command_fails_when_a_row_failed(monkeypatch, capsys):
    monkeypatch.setattr(rows, "read_report", lambda: {"C3": {"t::c": "failed"}})
    assert rows.main(["--summary"]) == 1
    assert "1 failed" in capsys.readouterr().out
    monkeypatch.setattr(rows, "read_report", lambda: {"C3": {"t::c": "passed"}})
    assert rows.main(["--summary"]) == 0


def test_the_projects_table_is_whole():
    table = read_table()
    assert len(table) == 242
    assert all(title.strip() for title in table.values())
