"""Run the simulator of a broker group.

``python -m tests.sim.group run --seconds 60 [--seed S] [--first N] [--json FILE]``
    cases until the time is over, in one process; exit 0, or 1 after a violation, or 3 when
    inconclusive
``python -m tests.sim.group replay pair/1.17``
    one case again: what a failing run prints
``python -m tests.sim.group digest pair/1.17``
    the hash of a case's event log
``python -m tests.sim.group mutants [NAME ...]``
    each mutant, until it is noticed; exit 1 if one is not
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Final

from tests.sim.group import paths
from tests.sim.group.case import ROTATION, Case
from tests.sim.group.mutants import MUTANTS, kind_of, planted

_INCONCLUSIVE: Final = 3
_PATIENCE_S: Final = 120.0
"""How long a mutant may live."""


def attempt(case: Case) -> str:
    """Run a case; return what it violated, empty if nothing."""
    try:
        case.run()
    except Exception as error:  # noqa: BLE001 - the boundary: everything is reported
        text = "".join(traceback.format_exception(error)[-6:])
        return f"{type(error).__name__}: {error}\nat {case.where}\n{text}"
    return ""


def run(options: argparse.Namespace) -> int:
    """Run cases; return the exit status."""
    began = time.monotonic()
    seed = options.seed if options.seed is not None else int(time.time())
    totals = {"cases": 0, "crashes": 0, "images": 0, "answers": 0, "simulated_us": 0}
    reached: dict[str, int] = {}
    failures: list[str] = []
    number = options.first
    while time.monotonic() < began + options.seconds and (not failures or options.keep_going):
        kind = options.kind or ROTATION[number % len(ROTATION)]
        case = Case(f"{kind}/{seed}.{number}")
        failure = attempt(case)
        number += 1
        for key, count in case.totals().items():
            totals[key] += count
        for path, count in case.paths.items():
            reached[path] = reached.get(path, 0) + count
        if failure:
            failures.append(case.name)
            print(f"VIOLATION  python -m tests.sim.group replay {case.name}\n{failure}", flush=True)
    return _report(options, seed, totals, reached, failures, time.monotonic() - began)


def _report(
    options: argparse.Namespace,
    seed: int,
    totals: dict[str, int],
    reached: dict[str, int],
    failures: list[str],
    seconds: float,
) -> int:
    left = paths.missing(reached)
    print(
        f"seed {seed}: {totals['cases']} cases, {totals['crashes']} crashes of processes and "
        f"machines ({totals['crashes'] / max(seconds, 0.001):.0f} a second), {totals['images']} "
        f"crash images, {totals['answers']} answers, {totals['simulated_us'] / 3.6e9:.1f} hours "
        f"simulated, {len(failures)} violations"
    )
    verdict = "violation" if failures else "inconclusive" if left else "passed"
    if left and not failures:
        print(f"INCONCLUSIVE  these paths were not reached: {', '.join(left)}")
    if options.json:
        summary = {
            "verdict": verdict,
            "seed": seed,
            "first": options.first,
            "seconds": round(seconds, 1),
            **totals,
            "violations": failures,
            "paths_not_reached": left,
            "paths": dict(sorted(reached.items())),
            "python": platform.python_version(),
        }
        Path(options.json).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if failures:
        return 1
    return _INCONCLUSIVE if left else 0


def mutants(names: list[str]) -> int:
    """Run each mutant until it is noticed; return the exit status."""
    survived = 0
    for name in names:
        began = time.monotonic()
        failure, number = "", 0
        with planted(name):
            while not failure and time.monotonic() < began + _PATIENCE_S:
                failure = attempt(Case(f"{kind_of(name, number)}/mutant.{number}"))
                number += 1
        survived += not failure
        told = failure.partition("\n")[0] or "SURVIVED"
        print(f"{name}: {number} cases, {time.monotonic() - began:.1f} s: {told}", flush=True)
    return 1 if survived else 0


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.sim.group", description="broker group simulator")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--seconds", type=float, default=60)
    running.add_argument("--seed", type=int, default=None)
    running.add_argument("--first", type=int, default=0, help="number of the first case")
    running.add_argument("--kind", default="", choices=["", *sorted(set(ROTATION))])
    running.add_argument("--json", default="")
    running.add_argument("--keep-going", action="store_true")
    for name in ("replay", "digest"):
        commands.add_parser(name).add_argument("case", help="kind/seed.number")
    commands.add_parser("mutants").add_argument("names", nargs="*", choices=[[], *MUTANTS])
    options = parser.parse_args(arguments)
    if options.command == "run":
        return run(options)
    if options.command == "mutants":
        return mutants(options.names or list(MUTANTS))
    if (kind := options.case.partition("/")[0]) not in ROTATION:
        parser.error(f"no such kind: {kind}; there are {', '.join(sorted(set(ROTATION)))}")
    case = Case(options.case)
    failure = attempt(case)
    if failure:
        print(failure)
        return 1
    print(case.digest() if options.command == "digest" else case.totals())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
