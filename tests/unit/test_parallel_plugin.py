"""Tests beside each other: what a group is, that those of one never overlap, and their order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests import parallel_plugin

ROOT = Path(__file__).parents[2]

# Writes when a test began and ended, and where; the clock is that of the whole machine.
SOURCE = """
import os, time
def record(word, name):
    with open("log", "a") as log:
        log.write(f"{word} {name} {os.environ['PYTEST_XDIST_WORKER']}\\n")
def run(name):
    record("begin", name)
    time.sleep(0.05)
    record("end", name)
def test_1(): run(__name__)
def test_2(): run(__name__)
def test_3(): run(__name__)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Two files of one group, and three of no group but their own."""
    monkeypatch.setattr(parallel_plugin, "GROUPS", {"alone": ("test_z_alone", "test_y_alone")})
    monkeypatch.setattr(parallel_plugin, "FIRST", ("test_z_alone", "test_y_alone", "test_b"))
    names = ("test_a", "test_b", "test_c", "test_y_alone", "test_z_alone")
    pytester.makepyfile(**dict.fromkeys(names, SOURCE))
    return pytester


def lines(project: pytest.Pytester) -> list[list[str]]:
    return [line.split() for line in (project.path / "log").read_text().splitlines()]


def test_tests_of_a_group_never_run_beside_each_other(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("-p", "tests.parallel_plugin", "-n", "2")
    result.assert_outcomes(passed=15)
    found = lines(project)
    alone = [line for line in found if "alone" in line[1]]
    assert len(alone) == 12
    for begun, ended in zip(alone[::2], alone[1::2], strict=True):
        assert (begun[0], ended[0]) == ("begin", "end")
        assert begun[1:] == ended[1:]
    assert len({worker for _, _, worker in alone}) == 1
    assert {worker for _, _, worker in found} == {"gw0", "gw1"}, "the other worker was not used"
    for name in ("test_a", "test_b", "test_c"):
        assert len({worker for _, module, worker in found if module == name}) == 1


def test_another_way_to_distribute_can_be_asked_for(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("-p", "tests.parallel_plugin", "-n2", "--dist=loadfile")
    result.assert_outcomes(passed=15)
    result.stdout.no_fnmatch_line("*scheduling tests via Groups*")


def test_a_worker_gives_a_test_more_time(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntimeout = 20\n")
    pytester.makepyfile(
        test_it="""
        import pytest
        def limit(request): return request.node.get_closest_marker("timeout").args
        @pytest.mark.timeout(7)
        def test_marked(request): assert limit(request) == (14,)
        def test_other(request): assert limit(request) == (40,)
        """
    )
    result = pytester.runpytest_inprocess("-p", "tests.parallel_plugin", "-n", "1")
    result.assert_outcomes(passed=2)


def test_every_beginning_is_that_of_a_test() -> None:
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    beginnings = {one for group in parallel_plugin.GROUPS.values() for one in group}
    for beginning in beginnings.union(parallel_plugin.FIRST):
        assert any(file.startswith(beginning) for file in files), f"no test is in {beginning}"


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("tests/spark/test_read.py::test_it[a::b]", "spark"),
        ("tests/fault/server/test_disk.py::test_it", "machine"),
        (
            "tests/unit/model/test_units.py::TestIt::test_it[tests/spark/]",
            "tests/unit/model/test_units.py",
        ),
    ],
)
def test_a_group_is_found_by_the_id(test: str, group: str) -> None:
    assert parallel_plugin.group(test) == group


def test_ranks_are_in_the_order_of_first() -> None:
    ranks = [
        parallel_plugin.rank(f"{beginning}x") for beginning in (*parallel_plugin.FIRST, "other")
    ]
    assert all(before < after for before, after in pairwise(ranks))
