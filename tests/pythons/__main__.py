"""Run `make test` with each newer Python, and keep what came of it.

    python -m tests.pythons                    each version, in turn
    python -m tests.pythons 3.13 3.14          some
    python -m tests.pythons 3.13 --debian      in a Debian folder, whatever the machine has
    python -m tests.pythons 3.14 --again         what failed in the last run with it, once more
    python -m tests.pythons 3.14 -- tests/unit   some tests only; nothing is kept

A version comes from the machine (PATH, pyenv) or, for root, from a Debian folder that debootstrap
makes. Each has a virtual environment of its own, in ``.venv-python-VERSION``. A version that cannot
be had is said and fails the run. All tests of a version take as long as `make test`. What is kept
is the run of all tests; what came of those that failed in it, run again, stands beside that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.pythons import debian
from tests.pythons.found import Found, NotHad, find
from tests.quick_plugin import function, nodeid

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
VERSIONS: Final = ("3.12", "3.13", "3.14")
"""Besides 3.11, the oldest, which development is done with."""
_MOST_S: Final = 3 * 3600


@dataclass(frozen=True, slots=True)
class Again:
    """What came of the test functions that had failed, run once more."""

    commit: str
    date: str
    tests: list[str]
    passed: int
    failed: int
    ok: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What came of all tests with one Python."""

    version: str
    python: str
    system: str
    commit: str
    date: str
    minutes: float
    passed: int
    failed: int
    skipped: int
    ok: bool
    again: Again | None = None

    @property
    def good(self) -> bool:
        """All passed, some of them perhaps when they were run again."""
        return self.ok or (self.again is not None and self.again.ok)


def _make(found: Found, goal: Sequence[str], junit: str) -> int:
    """Run `make` with a Python; return its exit status."""
    venv = f".venv-python-{found.version}{'-debian' if found.folder else ''}"
    command = ["make", *goal, f"PYTHON={found.python}", f"VENV={venv}"]
    environ = dict(os.environ)
    if found.folder is not None:
        command = debian.command(found.folder, ROOT, command)
        environ = debian.environment(environ)
    environ["PYTEST_ADDOPTS"] = f"--junitxml={junit}"
    done = subprocess.run(command, cwd=ROOT, env=environ, check=False, timeout=_MOST_S)
    return done.returncode


def _inside(found: Found, program: str) -> str:
    command = [found.python, "-c", program]
    environ = dict(os.environ)
    if found.folder is not None:
        command = debian.command(found.folder, ROOT, command)
        environ = debian.environment(environ)
    return subprocess.run(
        command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True
    ).stdout.strip()


def counted(report: Path) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped, by pytest's report."""
    passed = failed = skipped = 0
    for suite in ET.parse(report).getroot().iter("testsuite"):
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left = int(suite.get("skipped", 0))
        failed += bad
        skipped += left
        passed += int(suite.get("tests", 0)) - bad - left
    return passed, failed, skipped


def failed_in(report: Path) -> list[str]:
    """Return the test functions that failed, by pytest's report."""
    return sorted(
        {
            function(nodeid(case.get("classname", ""), case.get("name", "")))
            for case in ET.parse(report).getroot().iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        }
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _report(version: str) -> Path:
    return ROOT / f".pytest_python_{version}.xml"


def tested(found: Found) -> Run:
    """Run all tests with a Python."""
    report = _report(found.version)
    report.unlink(missing_ok=True)
    began = time.monotonic()
    status = _make(found, ["test"], report.name)
    passed, failed, skipped = counted(report) if report.exists() else (0, 0, 0)
    return Run(
        version=found.version,
        python=_inside(found, "import platform; print(platform.python_version())"),
        system=_inside(
            found, "import platform; print(platform.freedesktop_os_release()['PRETTY_NAME'])"
        )
        + f", Linux {platform.release().partition('-')[0]}",
        commit=_commit(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        minutes=round((time.monotonic() - began) / 60, 1),
        passed=passed,
        failed=failed,
        skipped=skipped,
        ok=status == 0,
    )


def tested_again(found: Found, run: Run) -> Run:
    """Run what failed in the last run of all tests once more; return that run with what came of it.

    Raises:
        ValueError: The report of the last run is not there, or says that nothing failed.
    """
    whole = _report(found.version)
    tests = failed_in(whole) if whole.exists() else []
    if not tests:
        raise ValueError(f"{whole.name} names no test that failed: run all tests with it")
    report = whole.with_suffix(".again.xml")
    report.unlink(missing_ok=True)
    status = _make(found, ["pytest", f"TESTS={' '.join(tests)}"], report.name)
    passed, failed, _ = counted(report) if report.exists() else (0, 0, 0)
    date = time.strftime("%Y-%m-%d", time.gmtime())
    return replace(run, again=Again(_commit(), date, tests, passed, failed, status == 0))


def read_results(path: Path = RESULTS) -> dict[str, Run]:
    """Return the kept runs by version."""
    if not path.exists():
        return {}
    runs = {}
    for one in json.loads(path.read_text(encoding="utf-8")):
        again = one.pop("again", None)
        runs[one["version"]] = Run(**one, again=Again(**again) if again else None)
    return runs


def keep(runs: Sequence[Run], path: Path = RESULTS) -> None:
    """Keep runs in the place of earlier ones with the same version."""
    kept = read_results(path) | {one.version: one for one in runs}
    rows = [asdict(kept[version]) for version in sorted(kept, key=_order)]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def line(run: Run) -> str:
    """Return a run as a line of the table."""
    again = run.again
    return (
        f"{'passed' if run.good else 'FAILED'}  Python {run.python:<8} {run.system}: "
        f"{run.passed} passed, {run.failed} failed, {run.skipped} skipped, {run.minutes:.0f} min"
        + (f"; again: {again.passed} passed, {again.failed} failed" if again else "")
    )


def main(arguments: list[str]) -> int:
    """Run the command line given by ``arguments`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.pythons", description="all tests, each Python")
    parser.add_argument("versions", nargs="*", default=list(VERSIONS), metavar="VERSION")
    parser.add_argument("--debian", action="store_true", help="in Debian folders only")
    parser.add_argument("--again", action="store_true", help="what failed in the last run of each")
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    only = arguments[cut + 1 :]

    failed = False
    lines = []
    for version in options.versions:
        try:
            found = find(version, debian_only=options.debian)
        except NotHad as error:
            print(f"Python {version} was not run: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"== Python {version}: {found.python}, {found.folder or 'this machine'}", flush=True)
        if only:
            goal = ["pytest", f"TESTS={' '.join(only)}"]
            failed |= _make(found, goal, f".pytest_python_{version}.xml") != 0
            continue
        try:
            run = tested_again(found, read_results()[version]) if options.again else tested(found)
        except (KeyError, ValueError) as error:
            print(f"Python {version} was not run again: {error}", file=sys.stderr)
            failed = True
            continue
        keep([run])
        lines.append(line(run))
        failed |= not run.good
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
