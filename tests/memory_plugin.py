"""pytest plugin: the processes of the tests stay small, or the run fails.

Tests that each leave a gigabyte behind pass on a large machine and are killed on a small one, with
no word about which it was. A run ends with status 1 when its process, or all its workers together
(``-n``), held more than ``MOST_MIB``, and names the tests during which they grew the most.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workers import hand_over, handed_over, is_worker

MOST_MIB = 6144
"""A whole run holds 3.1 GB, of which one test, with a copy of a journal in memory, is 1.3."""
_NAMED = 10
"""How many tests are named at most; one that grew by a hundredth of the bound is not."""


_STATUS = Path("/proc/self/status")


def peak_mib() -> int:
    """Return the most memory that this process has held, in MiB; 0 where it cannot be told."""
    # On Linux getrusage also tells what the process held that forked this one.
    if not _STATUS.exists():
        return 0
    return int(_STATUS.read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]) >> 10


class _Watch:
    def __init__(self) -> None:
        self.peak = self.first = peak_mib()
        self.grown: dict[str, int] = {}
        self.in_workers = 0
        """What workers that have ended added, at most, in MiB."""

    @property
    def added(self) -> int:
        """What the tests added to what the process held before, in MiB."""
        # A run within a run (pytester) is judged by what it adds.
        return self.peak - self.first + self.in_workers

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        peak = peak_mib()
        if peak > self.peak:
            self.grown[report.nodeid] = self.grown.get(report.nodeid, 0) + peak - self.peak
            self.peak = peak


_WATCH = pytest.StashKey[_Watch]()
_MOST_INI = "most_mib"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _MOST_INI,
        "the most memory the process of the tests may hold, in MiB",
        default=str(MOST_MIB),
    )


def pytest_configure(config: pytest.Config) -> None:
    watch = config.stash[_WATCH] = _Watch()
    config.pluginmanager.register(watch)


def _too_much(config: pytest.Config) -> bool:
    return config.stash[_WATCH].added > int(config.getini(_MOST_INI))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker that ends held."""
    found = handed_over(node, "memory")
    if found is not None:
        watch = node.config.stash[_WATCH]
        watch.in_workers += found["added"]
        watch.grown.update(found["grown"])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_worker(session.config):
        watch = session.config.stash[_WATCH]
        hand_over(session.config, "memory", {"added": watch.added, "grown": watch.grown})
    elif _too_much(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not _too_much(config):
        return
    watch = config.stash[_WATCH]
    held = watch.peak + watch.in_workers
    terminalreporter.section(f"the tests held {held} MiB: the run fails", red=True)
    least = int(config.getini(_MOST_INI)) // _NAMED // 10
    grown = [(test, mib) for test, mib in watch.grown.items() if mib > least]
    most = sorted(grown, key=lambda item: -item[1])[:_NAMED]
    for test, mib in most:
        terminalreporter.write_line(f"{test}: {mib} MiB more than before")
