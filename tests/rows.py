"""Print mission rows -> tests -> passed.

``python -m tests.rows``             from the report of the last `make test` or `make rows`
``python -m tests.rows --run``       run the tests that are marked with a row first
``python -m tests.rows --summary``   one line only

A row has *passed* when at least one test shows it and every one of its tests passed; a skipped test
shows nothing. Exit status 1 when a row's test failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.rows_plugin import TABLE, read_table

ROOT = Path(__file__).parent.parent
REPORT = ROOT / ".pytest_rows.json"

_NOTHING_COLLECTED = 5  # pytest's exit status when no test carries the mark yet


def state_of(outcomes: Mapping[str, str]) -> str:
    """Return ``passed``, ``failed``, ``partly`` (something did not run) or ``-`` (no test)."""
    seen = set(outcomes.values())
    if not seen:
        return "-"
    if seen & {"failed", "xfailed"}:
        return "failed"
    return "passed" if seen == {"passed"} else "partly"


def summary(rows: Mapping[str, str], report: Mapping[str, Mapping[str, str]]) -> str:
    """Return the one line that says how many rows are shown."""
    states = [state_of(report.get(row, {})) for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in ("failed", "partly"))
    return f"mission rows: {states.count('passed')} of {len(rows)} passed, {counts}"


def table(rows: Mapping[str, str], report: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of the whole table, in the order of ``tests/rows.toml``."""
    for row, title in rows.items():
        tests = report.get(row, {})
        yield f"{row:<5} {state_of(tests):<7} {title}"
        for test, outcome in sorted(tests.items()):
            yield f"      {outcome:<8} {test}"


def read_report(path: Path = REPORT) -> dict[str, dict[str, str]]:
    """Return row -> test -> outcome of the last run that wrote a report; empty without one."""
    if not path.exists():
        return {}
    rows: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def main(arguments: list[str]) -> int:
    """Run the command line given by ``arguments`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.rows", description="mission rows and their tests")
    parser.add_argument("--run", action="store_true", help="run the marked tests first")
    parser.add_argument("--summary", action="store_true", help="print one line only")
    options = parser.parse_args(arguments)

    status = 0
    if options.run:
        command = [sys.executable, "-m", "pytest", "-m", "row", f"--rows-report={REPORT.name}"]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        status = 0 if status == _NOTHING_COLLECTED else status
    try:
        rows = read_table()
    except (OSError, tomllib.TOMLDecodeError) as error:
        print(f"{TABLE}: {error}", file=sys.stderr)
        return 2
    report = read_report()
    if not options.summary:
        print("\n".join(table(rows, report)))
    print(summary(rows, report))
    failed = any(state_of(tests) == "failed" for tests in report.values())
    return status or int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
