"""pytest plugin: which mission rows the tests show, and with what outcome.

A black-box test that shows what a row of ``tests/rows.toml`` promises carries the row's id::

    @pytest.mark.row("C3")
    @pytest.mark.row("C3", "C4")

An id that the table does not hold is an error of collection. With ``--rows-report=FILE`` the run
writes, as JSON, each row with its tests and their outcomes; ``tests/rows.py`` prints it. In a run
with workers (``-n``), they hand over which tests have which rows.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.workers import hand_over, handed_over, is_worker

TABLE = Path(__file__).with_name("rows.toml")

_TABLE_INI = "rows_table"
_REPORT_OPTION = "--rows-report"

# When a test has several phases, the worst one counts.
_RANK = {"passed": 0, "skipped": 1, "xfailed": 2, "failed": 3}


@dataclass(slots=True)
class RowsReport:
    """Outcome of every collected test that is marked with a row."""

    tests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Test id -> the rows it is marked with."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Test id -> the worst outcome of its phases so far."""
    wrong: list[str] = field(default_factory=list)
    """Marks that name no row, as lines to print."""

    def note(self, test: str, outcome: str) -> None:
        """Take in the outcome of one phase of a test."""
        before = self.outcomes.get(test)
        if before is None or _RANK[outcome] > _RANK[before]:
            self.outcomes[test] = outcome

    def by_row(self) -> dict[str, dict[str, str]]:
        """Return row -> test -> outcome; a test that never ran is ``not run``."""
        rows: dict[str, dict[str, str]] = {}
        for test, ids in self.tests.items():
            for row in ids:
                rows.setdefault(row, {})[test] = self.outcomes.get(test, "not run")
        return rows


_REPORT = pytest.StashKey[RowsReport]()


def read_table(path: Path = TABLE) -> dict[str, str]:
    """Return row id -> title, in the order of the table."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return {row: title for section in document["section"] for row, title in section["rows"].items()}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_REPORT_OPTION, metavar="FILE", help="write row -> tests -> outcome as JSON")
    parser.addini(_TABLE_INI, "table of mission rows", default=str(TABLE))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(id, ...): the test shows what these mission rows say")
    config.stash[_REPORT] = RowsReport()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Learn each test's rows, before -k and -m take tests away: a typo always fails."""
    known = read_table(Path(str(config.getini(_TABLE_INI))))
    report = config.stash[_REPORT]
    wrong: list[str] = []
    for item in items:
        rows: list[str] = []
        for mark in item.iter_markers("row"):
            if not mark.args or mark.kwargs:
                wrong.append(f"{item.nodeid}: the row marker takes one or more row ids")
            for row in mark.args:
                if row in known:
                    rows.append(row)
                else:
                    near = difflib.get_close_matches(str(row), known, n=1)
                    hint = f"; near it: {near[0]}" if near else ""
                    wrong.append(f"{item.nodeid}: there is no mission row {row!r}{hint}")
        if rows:
            report.tests[item.nodeid] = tuple(dict.fromkeys(rows))
    if wrong and is_worker(config):
        # An error here would be one of the run's machinery: the worker runs nothing, and tells why.
        report.wrong = wrong
        items.clear()
    elif wrong:
        raise pytest.UsageError("\n".join(wrong))


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Forget tests that this run leaves out."""
    for item in items:
        item.config.stash[_REPORT].tests.pop(item.nodeid, None)


# Reports come without the config: a small object registered per run carries it.
class _Watch:
    def __init__(self, config: pytest.Config) -> None:
        self._rows = config.stash[_REPORT]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note an outcome: also of a test that crashed its worker, which says no more."""
        if report.when == "call" or report.outcome != "passed":
            expected = report.skipped and hasattr(report, "wasxfail")
            self._rows.note(report.nodeid, "xfailed" if expected else report.outcome)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(_Watch(session.config), "ternmq-rows-watch")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn from a worker that ends which tests have which rows: each worker knows all."""
    found = handed_over(node, "rows")
    if found is not None:
        report = node.config.stash[_REPORT]
        report.tests.update({test: tuple(rows) for test, rows in found["tests"].items()})
        report.wrong = found["wrong"]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    report = session.config.stash[_REPORT]
    if is_worker(session.config):
        tests = {test: list(rows) for test, rows in report.tests.items()}
        hand_over(session.config, "rows", {"tests": tests, "wrong": report.wrong})
        return
    if report.wrong:
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    target = session.config.getoption(_REPORT_OPTION)
    if target:
        by_row = report.by_row()
        text = json.dumps({"rows": by_row}, indent=1, sort_keys=True)
        (session.config.rootpath / str(target)).write_text(text + "\n", encoding="utf-8")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    wrong = config.stash[_REPORT].wrong
    if wrong:
        terminalreporter.section("marks that name no mission row: no test ran", red=True)
        for line in wrong:
            terminalreporter.write_line(line)
