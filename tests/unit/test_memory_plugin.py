"""The rule about memory: a run that holds too much fails, and says which tests it was."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What the first test makes the interpreter load counts as that test's.
SOURCE = """
def test_first(): pass
def test_small(): pass
def test_large(): assert any(bytearray(b"x") * (180 << 20))
"""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(pytester: pytest.Pytester, most_mib: int, *workers: str) -> pytest.RunResult:
    pytester.makeini(f"[pytest]\nmost_mib = {most_mib}\n")
    pytester.makepyfile(test_it=SOURCE)
    return pytester.runpytest_subprocess("-p", "tests.memory_plugin", *workers)


def test_a_run_that_holds_too_much_fails_and_names_the_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, 100)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "*the tests held * MiB: the run fails*",
            "test_it.py::test_large: * MiB more than before",
        ]
    )
    result.stdout.no_fnmatch_line("*test_small: *")


def test_what_workers_hold_is_added_up(pytester: pytest.Pytester) -> None:
    """Each of two tests holds 180 MiB, in a worker of its own."""
    source = "def test_large(): assert any(bytearray(b'x') * (180 << 20))\n"
    pytester.makeini("[pytest]\nmost_mib = 300\n")
    pytester.makepyfile(test_it=source, test_more=source)
    arguments = ("-p", "tests.memory_plugin", "-n", "2", "--dist=loadfile")
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines_random(
        [
            "*the tests held * MiB: the run fails*",
            "test_it.py::test_large: * MiB more than before",
            "test_more.py::test_large: * MiB more than before",
        ]
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_run_within_its_bound_passes_and_says_nothing(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    result = run(pytester, 1000, *workers)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*the tests held*")
