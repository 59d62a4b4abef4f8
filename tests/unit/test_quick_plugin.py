"""The quick tests: what is left out, what is told, and that the list is of tests that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quick_plugin

LISTED = "# made\ntest_it.py::test_listed\n"
SOURCE = """
import pytest
def test_quick(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_listed(n): pass
@pytest.mark.slow
def test_marked(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".txt", listed=LISTED)
    pytester.makeini("[pytest]\nslow_tests = listed.txt\nmarkers = slow\n")
    pytester.makepyfile(test_it=SOURCE)
    return pytester


def test_without_the_option_all_run(project):
    project.runpytest("-p", "tests.quick_plugin").assert_outcomes(passed=4)


def test_listed_and_marked_tests_are_left_out(project):
    result = project.runpytest("-p", "tests.quick_plugin", "--quick")
    result.assert_outcomes(passed=1, deselected=3)
    result.stdout.no_fnmatch_line("*too long for a quick run*")


def test_workers_leave_out_the_same(project):
    result = project.runpytest("-p", "tests.quick_plugin", "--quick", "-n", "2")
    result.assert_outcomes(passed=1)


def test_folders_are_left_out(project):
    for folder in ("fault", "unit"):
        place = project.path / "tests" / folder
        place.mkdir(parents=True)
        (place / f"test_{folder}.py").write_text("def test_one(): pass\n")
    result = project.runpytest("-p", "tests.quick_plugin", "--quick", "tests")
    result.assert_outcomes(passed=1, deselected=1)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_one_that_takes_long_is_told_and_does_not_fail(project, monkeypatch, workers):
    monkeypatch.setattr(quick_plugin, "TOLD_S", 0.0)
    result = project.runpytest_inprocess("-p", "tests.quick_plugin", "--quick", *workers)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*too long for a quick run*", "* s  test_it.py::test_quick"])


def test_the_list_is_made_of_a_report(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.unit.test_it" name="test_long[a.b]" time="2.5"/>'
        '<testcase classname="tests.unit.test_it" name="test_long[c]" time="0.1"/>'
        '<testcase classname="tests.unit.test_it" name="test_short" time="0.1"/>'
        '<testcase classname="tests.unit.test_it.TestClass" name="runTest" time="9"/>'
        '<testcase classname="tests.spark.test_it" name="test_long" time="9"/>'
        "</testsuite></testsuites>"
    )
    found = quick_plugin.slow(report)
    assert found == [
        "tests/unit/test_it.py::TestClass::runTest", "tests/unit/test_it.py::test_long",
    ]  # fmt: skip
    path = tmp_path / "slow_tests.txt"
    quick_plugin.write(found, path)
    assert quick_plugin.read(path) == set(found)


def test_what_a_run_did_not_measure_stays_in_the_list_while_it_is_there(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuite>"
        '<testcase classname="test_it" name="test_quick_now" time="0.1"/>'
        '<testcase classname="test_it" name="test_skipped" time="0"><skipped/></testcase>'
        '<testcase classname="test_it" name="test_failed" time="0.1"><failure/></testcase>'
        "</testsuite>"
    )
    names = ("quick_now", "skipped", "failed", "not_chosen")
    source = "".join(f"def test_{name}(): pass\n" for name in names)
    (tmp_path / "test_it.py").write_text(source)
    listed = [f"test_it.py::test_{name}" for name in (*names, "gone")]
    assert quick_plugin.slow(report, listed, root=tmp_path) == [
        "test_it.py::test_failed", "test_it.py::test_not_chosen", "test_it.py::test_skipped",
    ]  # fmt: skip


def test_every_listed_test_is_there():
    gone = [one for one in quick_plugin.read() if not quick_plugin.is_there(one)]
    assert not gone, "renamed or removed: mend tests/slow_tests.txt"
