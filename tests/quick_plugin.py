"""pytest plugin: the tests that find most in ten minutes, with ``--quick``; `make quick` runs them.

Left out are

* what breaks real processes and disks, and what wants Spark: marked ``fault``, ``spark``, ``slow``;
* the folders ``tests/spark``, ``tests/fault``, ``tests/demo`` and ``tests/examples``;
* test functions in ``tests/slow_tests.txt``: one of their tests took more than ``MOST_S`` when all
  were measured last.

A new test belongs to the quick ones until it is measured. One that takes long in a quick run is
told at its end, never failed: a loaded machine says nothing about a test. The list is made of the
report of a run on a quiet machine: ``make quick-list``, or of any run's::

    .venv/bin/python -m pytest --junitxml=report.xml [tests ...]
    .venv/bin/python -m tests.quick_plugin report.xml

What the run did not measure (not chosen, skipped, failed) stays in the list if it is still there.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

ROOT: Final = Path(__file__).parents[1]
LIST: Final = Path(__file__).with_name("slow_tests.txt")
MOST_S: Final = 1.2
"""A test that takes longer on a quiet machine is not a quick one."""
TOLD_S: Final = 4 * MOST_S
"""A test that takes longer in a quick run, on a machine with other work, is told."""
FOLDERS: Final = ("tests/spark/", "tests/fault/", "tests/demo/", "tests/examples/")
MARKS: Final = ("fault", "spark", "slow")

_OPTION: Final = "--quick"
_LIST_INI: Final = "slow_tests"


def function(test: str) -> str:
    """Return a test's id without its parameters."""
    return test.partition("[")[0]


def read(path: Path = LIST) -> frozenset[str]:
    """Return the test functions that are listed as slow."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, action="store_true", help="only tests that are quick")
    parser.addini(_LIST_INI, "list of test functions that are not quick", default=str(LIST))


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(_OPTION):
        listed = read(Path(str(config.getini(_LIST_INI))))
        config.pluginmanager.register(_Quick(listed), "ternmq-quick-tests")


class _Quick:
    def __init__(self, listed: frozenset[str]) -> None:
        self._listed = listed
        self._took: defaultdict[str, float] = defaultdict(float)

    def _is_quick(self, item: pytest.Item) -> bool:
        return not (
            item.nodeid.startswith(FOLDERS)
            or function(item.nodeid) in self._listed
            or any(item.get_closest_marker(mark) for mark in MARKS)
        )

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [item for item in items if not self._is_quick(item)]
        items[:] = [item for item in items if self._is_quick(item)]
        config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        long = {test: took for test, took in self._took.items() if took > TOLD_S}
        if not long:
            return
        terminalreporter.section(f"longer than {TOLD_S:.1f} s: too long for a quick run?")
        for test, took in sorted(long.items(), key=lambda one: -one[1]):
            terminalreporter.write_line(f"{took:6.1f} s  {test}")
        terminalreporter.write_line("Make them faster, or measure anew: make quick-list.")


def slow(
    report: Path, listed: Iterable[str] = (), *, most_s: float = MOST_S, root: Path = ROOT
) -> list[str]:
    """Return the test functions that are not quick.

    Args:
        report: Pytest's, of a run: which of them took longer.
        listed: Those of before; what the run did not measure is kept.
        most_s: A test that takes longer is not quick.
        root: Where the tests are.
    """
    found, measured = set(), set()
    for case in ET.parse(report).getroot().iter("testcase"):
        name = nodeid(case.get("classname", ""), case.get("name", ""))
        if any(case.find(outcome) is not None for outcome in ("skipped", "failure", "error")):
            continue
        measured.add(function(name))
        if float(case.get("time", 0)) > most_s and not name.startswith(FOLDERS):
            found.add(function(name))
    kept = {one for one in listed if one not in measured and is_there(one, root)}
    return sorted(found | kept)


def is_there(listed: str, root: Path = ROOT) -> bool:
    """Return whether a listed test function is still in its file."""
    path, name, *_ = listed.split("::")
    text = (root / path).read_text(encoding="utf-8") if (root / path).exists() else ""
    return bool(re.search(rf"^(async def|def) {name}\(|^{name} = ", text, re.MULTILINE))


def nodeid(place: str, name: str) -> str:
    """Return a test's id; its place is written as ``tests.unit.test_it``, with a class behind."""
    parts = place.split(".")
    classes = [part for part in parts if part[:1].isupper()]
    module = "/".join(parts[: len(parts) - len(classes)])
    return "::".join([f"{module}.py", *classes, name])


def write(functions: Iterable[str], path: Path = LIST) -> None:
    """Write the list."""
    head = "# Test functions that `make quick` leaves out. Made by `make quick-list`.\n"
    path.write_text(head + "".join(f"{one}\n" for one in functions), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Make the list of a report."""
    if len(arguments) != 1:
        print(f"usage: python -m tests.quick_plugin REPORT.xml\n\n{__doc__}", file=sys.stderr)
        return 2
    functions = slow(Path(arguments[0]), read())
    write(functions)
    print(f"{LIST}: {len(functions)} test functions take longer than {MOST_S} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
