"""The verb that tests ``ternmq.reliable`` with older libraries: what it promises and keeps."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reliable_matrix import __main__ as matrix

ROOT = Path(__file__).parents[2]
EXTRAS = ("reliable", "sqlalchemy", "django", "mysql", "postgresql", "redis")
_FLOOR = re.compile(r"([A-Za-z]+)(?:\[\w+\])?>=([\d.]+)\Z")
RUN = matrix.Run(
    name="oldest", versions={"SQLAlchemy": "2.0.0"}, python="3.11.7", commit="abc",
    date="2026-01-01", minutes=3.0, passed=10, failed=0, skipped=1, ok=True,
)  # fmt: skip


def floors() -> dict[str, str]:
    """Return the oldest versions that the extras promise."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    found = [_FLOOR.match(one) for one in wanted if not one.startswith("ternmq[")]
    assert all(found), wanted
    return {one[1]: one[2] for one in found if one is not None}


def as_numbers(version: str) -> list[int]:
    """Return a version without zeros at its end."""
    numbers = [int(one) for one in version.split(".")]
    while numbers[-1] == 0:
        numbers.pop()
    return numbers


def test_the_oldest_set_is_what_the_extras_promise():
    oldest = {name.partition("[")[0]: one for name, one in matrix.SETS["oldest"].items()}
    promised = floors()
    assert set(promised) == {"SQLAlchemy", "Django", "PyMySQL", "psycopg", "redis"}
    for package, version in promised.items():
        assert as_numbers(oldest[package]) == as_numbers(version), package


def test_what_is_kept_has_passed_with_the_versions_that_the_set_names():
    for name, run in matrix.read_results().items():
        assert run.ok, name
        assert run.failed == 0
        for package, version in matrix.SETS[name].items():
            beginning = version.removesuffix("*")
            assert f"{run.versions[package.partition('[')[0]]}.".startswith(beginning), package


def test_every_file_that_is_tested_is_there():
    assert all((ROOT / one).exists() for one in matrix.TESTS)


def test_a_run_takes_the_place_of_the_one_before(tmp_path: Path):
    path = tmp_path / "results.json"
    matrix.keep(RUN, path)
    matrix.keep(replace(RUN, name="older"), path)
    matrix.keep(replace(RUN, failed=1, ok=False), path)
    kept = matrix.read_results(path)
    assert (list(kept), kept["oldest"].failed, kept["older"].ok) == (["oldest", "older"], 1, True)


def test_a_line_says_what_came_of_it():
    said = matrix.line(RUN)
    assert said.startswith("passed  oldest: 10 passed, 0 failed, 1 skipped, 3 min")
    assert "SQLAlchemy 2.0.0" in said
    assert matrix.line(replace(RUN, ok=False)).startswith("FAILED")


def test_a_set_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        matrix.main(["newest"])
    assert "there are oldest, older" in capsys.readouterr().err


def test_a_run_that_was_interrupted_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kept: list[matrix.Run] = []
    monkeypatch.setattr(matrix, "keep", kept.append)
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    monkeypatch.setattr(matrix, "python_of", lambda name: Path(sys.executable))
    monkeypatch.setattr(matrix, "installed", lambda python, name: {})
    monkeypatch.setattr(matrix, "_pytest", lambda python, arguments: 2)
    assert matrix.main(["oldest"]) == 1
    assert kept == []
