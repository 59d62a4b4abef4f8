"""Run the tests of ``ternmq.reliable`` with older libraries, and keep what came of it.

    python -m tests.reliable_matrix                        each set of libraries, in turn
    python -m tests.reliable_matrix oldest                 one
    python -m tests.reliable_matrix oldest -- tests/unit/reliable   some tests only; nothing is kept

Each set has a virtual environment of its own, in ``.venv-reliable-SET``, which is made if it is not
there. Wheels of the oldest versions are for Python 3.11. A set that cannot be had is said, and
fails the run. Tests whose server the machine lacks skip, as always: what is kept says how many.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.pythons.__main__ import counted

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
SETS: Final[Mapping[str, Mapping[str, str]]] = {
    # The oldest that the extras promise, and of drivers that are awaited: as old as these.
    "oldest": {
        "SQLAlchemy": "2.0.0", "Django": "4.2", "psycopg[binary]": "3.1.8", "PyMySQL": "1.1.0",
        "redis": "5.0.0", "greenlet": "3.0.0", "aiosqlite": "0.20.0", "aiomysql": "0.2.0",
    },
    # The last of the lines that these began.
    "older": {
        "SQLAlchemy": "2.0.*", "Django": "4.2.*", "psycopg[binary]": "3.1.*", "PyMySQL": "1.1.*",
        "redis": "5.*",
    },
}  # fmt: skip
"""Set -> package -> version, as pip takes both."""
TESTS: Final = (
    "tests/unit/reliable", "tests/integration/reliable", "tests/integration/test_reliable_modes.py",
    *(f"tests/cli/test_{name}.py" for name in ("outbox", "outbox_run", "sequence")),
    *(
        f"tests/black_box/test_rows_{name}.py"
        for name in (
            "inbox", "outbox", "outbox_modes", "outbox_operating", "sequences", "sessions", "tasks",
        )
    ),
)  # fmt: skip
_MOST_S: Final = 3 * 3600
_ENDED: Final = (0, 1)
"""Status of pytest when all tests have run, and some perhaps failed."""


class Interrupted(Exception):
    """Not all tests have run."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of the tests with one set.

    Attributes:
        versions: Package -> version, as it was installed.
    """

    name: str
    versions: dict[str, str]
    python: str
    commit: str
    date: str
    minutes: float
    passed: int
    failed: int
    skipped: int
    ok: bool


def python_of(name: str) -> Path:
    """Return the Python of a set's environment, which is made if it is not there.

    Raises:
        CalledProcessError: A version cannot be had.
    """
    folder = ROOT / f".venv-reliable-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", ".[dev]"], cwd=ROOT, check=True)
    # On their own: other extras of `dev` ask for newer ones, as pip says then.
    wanted = [f"{package}=={version}" for package, version in SETS[name].items()]
    subprocess.run([*pip, *wanted], cwd=ROOT, check=True)
    return python


def installed(python: Path, name: str) -> dict[str, str]:
    """Return the versions that a set's environment has."""
    packages = [package.partition("[")[0] for package in SETS[name]]
    program = (
        "import json, sys; from importlib.metadata import version;"
        "print(json.dumps({one: version(one) for one in sys.argv[1:]}))"
    )
    done = subprocess.run(
        [str(python), "-c", program, *packages], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def tested(name: str, python: Path) -> Run:
    """Run the tests with a set.

    Raises:
        Interrupted: Not all have run.
    """
    report = ROOT / f".pytest_reliable_{name}.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    status = _pytest(python, [f"--junitxml={report}", *TESTS])
    if status not in _ENDED:
        raise Interrupted(f"pytest ended with status {status}")
    passed, failed, skipped = counted(report)
    return Run(
        name=name,
        versions=installed(python, name),
        python=platform.python_version(),
        commit=_commit(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        minutes=round((time.monotonic() - began) / 60, 1),
        passed=passed,
        failed=failed,
        skipped=skipped,
        ok=status == 0,
    )


def _pytest(python: Path, arguments: Sequence[str]) -> int:
    command = [str(python), "-m", "pytest", "-q", "-n", "2", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=_MOST_S).returncode


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def read_results(path: Path = RESULTS) -> dict[str, Run]:
    """Return the kept runs by set."""
    if not path.exists():
        return {}
    return {one["name"]: Run(**one) for one in json.loads(path.read_text(encoding="utf-8"))}


def keep(run: Run, path: Path = RESULTS) -> None:
    """Keep a run in the place of the earlier one with its set."""
    kept = read_results(path) | {run.name: run}
    rows = [asdict(kept[name]) for name in SETS if name in kept]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def line(run: Run) -> str:
    """Return a run as a line of the table."""
    versions = ", ".join(f"{package} {version}" for package, version in run.versions.items())
    return (
        f"{'passed' if run.ok else 'FAILED'}  {run.name}: {run.passed} passed, "
        f"{run.failed} failed, {run.skipped} skipped, {run.minutes:.0f} min "
        f"(Python {run.python}, {versions})"
    )


def main(arguments: list[str]) -> int:
    """Run the command line given by ``arguments`` and return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.reliable_matrix", description="older libraries")
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names: list[str] = parser.parse_args(arguments[:cut]).sets or list(SETS)
    if unknown := [name for name in names if name not in SETS]:
        parser.error(f"no set {unknown[0]!r}: there are {', '.join(SETS)}")
    only = arguments[cut + 1 :]

    failed = False
    lines = []
    for name in names:
        try:
            python = python_of(name)
        except subprocess.CalledProcessError as error:
            print(f"{name} was not run: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"== {name}: {installed(python, name)}", flush=True)
        if only:
            failed |= _pytest(python, only) != 0
            continue
        try:
            run = tested(name, python)
        except Interrupted as error:
            print(f"{name} is not kept: {error}", file=sys.stderr)
            failed = True
            continue
        keep(run)
        lines.append(line(run))
        failed |= not run.ok
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
