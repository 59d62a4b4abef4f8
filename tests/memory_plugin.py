"""pytest plugin: the process of the tests stays small, or the run fails.

Tests that each leave a gigabyte behind pass on a large machine and are killed on a small one, with
no word about which it was. A run ends with status 1 when its process held more than ``MOST_MIB``,
and names the tests during which it grew the most.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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
    # A run within a run (pytester) is judged by what it adds.
    watch = config.stash[_WATCH]
    return watch.peak - watch.first > int(config.getini(_MOST_INI))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _too_much(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not _too_much(config):
        return
    watch = config.stash[_WATCH]
    terminalreporter.section(f"the tests held {watch.peak} MiB: the run fails", red=True)
    least = int(config.getini(_MOST_INI)) // _NAMED // 10
    grown = [(test, mib) for test, mib in watch.grown.items() if mib > least]
    most = sorted(grown, key=lambda item: -item[1])[:_NAMED]
    for test, mib in most:
        terminalreporter.write_line(f"{test}: {mib} MiB more than before")
