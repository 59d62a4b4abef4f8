"""The verb that runs all tests with each Python: what it finds, counts and keeps."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pythons import __main__ as pythons
from tests.pythons import debian, found

ROOT = Path(__file__).parents[2]
RUN = pythons.Run(
    version="3.13", python="3.13.5", system="Debian", commit="abc", date="2026-01-01",
    minutes=30.0, passed=10, failed=0, skipped=1, ok=True,
)  # fmt: skip


def test_the_classifiers_name_the_versions_that_passed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    named = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith(prefix)]
    passed = [version for version, run in pythons.read_results().items() if run.good]
    assert named == ["3.11", *passed]  # 3.11: every run of `make test`


def test_every_promised_version_is_run_by_the_verb():
    assert set(pythons.read_results()) <= set(pythons.VERSIONS)


def test_this_python_is_found():
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.find(version).folder is None


def test_a_python_that_is_not_to_be_had_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(found.NotHad, match=r"no python3\.99 on this machine, and no Debian"):
        found.find("3.99")


def test_a_debian_folder_wants_root_and_tools(monkeypatch: pytest.MonkeyPatch):
    version = next(iter(debian.SUITES))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "root" in debian.available(version)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert "apt-get install debootstrap" in debian.available(version)


def test_the_environment_of_a_folder_has_no_paths_of_the_machine():
    outside = {"PATH": "/opt/bin", "PYTHONPATH": "/x", "PIP_CERT": "/c", "JAVA_HOME": "/j"}
    inside = debian.environment(outside)
    assert inside["PIP_CERT"] == "/c"
    assert not {"PYTHONPATH", "JAVA_HOME"} & set(inside)
    assert "/opt/bin" not in inside["PATH"]


def test_a_report_is_counted(tmp_path: Path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="10" failures="2" errors="1" skipped="3"/></testsuites>'
    )
    assert pythons.counted(report) == (4, 3, 3)


def test_a_run_takes_the_place_of_the_one_before(tmp_path: Path):
    path = tmp_path / "results.json"
    pythons.keep([RUN, replace(RUN, version="3.9")], path)
    pythons.keep([replace(RUN, passed=11)], path)
    kept = pythons.read_results(path)
    assert list(kept) == ["3.9", "3.13"]
    assert kept["3.13"].passed == 11


def test_what_failed_is_kept_beside_what_came_of_it_again(tmp_path: Path):
    again = pythons.Again("def", "2026-01-02", ["tests/unit/test_it.py::test_a"], 3, 0, ok=True)
    whole = replace(RUN, passed=7, failed=3, ok=False)
    assert not whole.good
    path = tmp_path / "results.json"
    pythons.keep([whole], path)
    assert not pythons.read_results(path)["3.13"].good
    pythons.keep([replace(whole, again=again)], path)
    kept = pythons.read_results(path)["3.13"]
    assert (kept.ok, kept.good, kept.again) == (False, True, again)
    assert not replace(whole, again=replace(again, ok=False)).good
    assert "3 failed, 1 skipped" in pythons.line(kept)
    assert pythons.line(kept).endswith("again: 3 passed, 0 failed")


def test_what_failed_is_read_from_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    report = tmp_path / ".pytest_python_3.13.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.cli.test_it" name="test_a[1]"><failure/></testcase>'
        '<testcase classname="tests.cli.test_it" name="test_a[2]"><failure/></testcase>'
        '<testcase classname="tests.cli.test_it" name="test_b"><error/></testcase>'
        '<testcase classname="tests.cli.test_it" name="test_c"/>'
        '<testcase classname="tests.cli.test_it" name="test_d"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    failed = ["tests/cli/test_it.py::test_a", "tests/cli/test_it.py::test_b"]
    assert pythons.failed_in(report) == failed
    goals = []

    def fails(found: found.Found, goal: list[str], junit: str) -> int:
        goals.append(goal)
        return 1

    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    monkeypatch.setattr(pythons, "_make", fails)
    run = pythons.tested_again(found.Found("3.13", "python3.13"), RUN)
    assert goals == [["pytest", f"TESTS={' '.join(failed)}"]]
    assert run.again is not None
    assert (run.again.tests, run.again.ok) == (failed, False)


def test_nothing_is_run_again_without_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pythons, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="names no test that failed"):
        pythons.tested_again(found.Found("3.13", "python3.13"), RUN)


def test_a_failed_run_is_told():
    assert pythons.line(replace(RUN, ok=False)).startswith("FAILED  Python 3.13.5")
