"""pytest plugin: a skipped test must be explained, or the run fails.

A skip hides a test from everyone who reads "passed". So each one that may happen stands in
``tests/allowed_skips.toml`` with the reason that the test gives and why that is acceptable::

    [[skip]]
    test = "tests/fault/test_power_cut.py::*"
    reason = "needs mkfs.xfs*"
    why = "a developer's machine need not have xfsprogs; .ci/run installs it"

``test`` and ``reason`` are shell patterns (``*``, ``?``, ``[...]``) for the whole test id and the
whole reason. Expected failures (``xfail``) count as skips. A run that breaks the rule ends with
status 1 and a list; the closing line of pytest stays as it is.

In a run with workers (``-n``), the process that started them judges: it gets the reports of tests.
Of files that skip as a whole it gets one report for each place in the code that skips, so the
workers hand over all of these.
"""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.workers import hand_over, handed_over, is_worker

ALLOWED = Path(__file__).with_name("allowed_skips.toml")

_ALLOWED_INI = "allowed_skips"


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of the table."""

    test: str
    reason: str
    why: str

    def matches(self, skip: Skip) -> bool:
        """Tell whether this entry explains the skip."""
        return fnmatch.fnmatchcase(skip.test, self.test) and fnmatch.fnmatchcase(
            skip.reason, self.reason
        )


@dataclass(frozen=True, slots=True)
class Skip:
    """A test (or a whole file) that did not run, or was expected to fail."""

    test: str
    reason: str


# In the order in which they happened; several workers tell of the same file.
_SKIPS = pytest.StashKey[dict[Skip, None]]()
_UNEXPLAINED = pytest.StashKey[list[Skip]]()


def read_allowed(path: Path = ALLOWED) -> list[Allowed]:
    """Read the table; an entry without its three texts is an error."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("skip", [])
    allowed: list[Allowed] = []
    for number, entry in enumerate(entries, 1):
        if set(entry) != {"test", "reason", "why"} or not all(
            isinstance(text, str) and text.strip() for text in entry.values()
        ):
            raise pytest.UsageError(f"{path}: entry {number} must have test, reason and why")
        allowed.append(Allowed(entry["test"], entry["reason"], entry["why"]))
    return allowed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_ALLOWED_INI, "table of skips that may happen", default=str(ALLOWED))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SKIPS] = {}
    config.stash[_UNEXPLAINED] = []


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


# Reports come without the config: a small object registered per run carries it.
class _Watch:
    def __init__(self, config: pytest.Config) -> None:
        self._skips = config.stash[_SKIPS]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skips[Skip(report.nodeid, _reason(report))] = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            expected: str | None = getattr(report, "wasxfail", None)
            reason = _reason(report) if expected is None else f"xfail: {expected}"
            self._skips[Skip(report.nodeid, reason)] = None


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(_Watch(session.config), "ternmq-skips-watch")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn from a worker that ends which files it skipped."""
    for test, reason in handed_over(node, "skips") or ():
        node.config.stash[_SKIPS][Skip(test, reason)] = None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if is_worker(config):
        hand_over(config, "skips", [[skip.test, skip.reason] for skip in config.stash[_SKIPS]])
        return
    allowed = read_allowed(Path(str(config.getini(_ALLOWED_INI))))
    unexplained = [
        skip for skip in config.stash[_SKIPS] if not any(entry.matches(skip) for entry in allowed)
    ]
    config.stash[_UNEXPLAINED].extend(unexplained)
    if unexplained and session.exitstatus in {
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    }:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    unexplained = config.stash[_UNEXPLAINED]
    if unexplained:
        terminalreporter.section("skips that nothing explains: the run fails", red=True)
        for skip in unexplained:
            terminalreporter.write_line(f"{skip.test}: {skip.reason}")
        terminalreporter.write_line("Run them, or explain them in tests/allowed_skips.toml.")
