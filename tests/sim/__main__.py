"""Run the simulator.

``python -m tests.sim run --seconds 60 [--seed 1] [--jobs 2] [--json FILE]``
    cases until the time is over; exit 0, or 1 after a violation, or 3 when inconclusive
``python -m tests.sim replay rolls/1.17``
    one case again: what a failing run prints
``python -m tests.sim digest rolls/1.17``
    the hash of a case's event log, without the sweep
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import queue
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tests.sim import paths
from tests.sim.run import ROTATION, Case
from tests.sim.workloads import KINDS

_INCONCLUSIVE = 3
_COUNTS = ("images", "double", "triple", "deep", "from_large", "reigns")


def work(worker: int, options: argparse.Namespace, seed: int, until: float, out: Any) -> None:
    """Run every ``jobs``-th case until the time is over, or (unless told otherwise) one fails."""
    jobs, first = options.jobs, options.first
    rotation = tuple(options.kinds.split(",")) if options.kinds else ROTATION
    number = first + worker
    while time.monotonic() < until:
        kind = rotation[number % len(rotation)]
        case = Case(f"{kind}/{seed}.{number}", until)
        failure = ""
        try:
            case.run()
        except Exception as error:  # noqa: BLE001 - the boundary: everything is reported
            text = "".join(traceback.format_exception(error)[-6:])
            failure = f"{type(error).__name__}: {error}\nat {case.where[-900:]}\n{text}"
        out.put((case.name, case.totals(), case.paths, failure))
        if failure and not options.keep_going:
            break
        number += jobs
    out.put(None)


def run(options: argparse.Namespace) -> int:
    """Run cases in several processes; return the exit status."""
    began = time.monotonic()
    seed = options.seed if options.seed is not None else int(time.time())
    until = began + options.seconds
    context = multiprocessing.get_context("fork")
    out: Any = context.Queue()
    workers = [
        context.Process(
            target=work,
            args=(worker, options, seed, until, out),
            daemon=True,
        )
        for worker in range(options.jobs)
    ]
    for worker in workers:
        worker.start()
    totals = dict.fromkeys(_COUNTS, 0)
    reached: dict[str, int] = {}
    failures: list[str] = []
    cases = 0
    running = options.jobs
    while running and (not failures or options.keep_going):
        try:
            told = out.get(timeout=1)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                failures.append("a worker died")
                break
            continue
        if told is None:
            running -= 1
            continue
        name, counts, found, failure = told
        cases += 1
        for key in _COUNTS:
            totals[key] += counts[key]
        for path, count in found.items():
            reached[path] = reached.get(path, 0) + count
        if failure:
            failures.append(name)
            print(f"VIOLATION  python -m tests.sim replay {name}\n{failure}", flush=True)
    for worker in workers:
        worker.terminate()
        worker.join()
    return report(options, seed, cases, totals, reached, failures, time.monotonic() - began)


def report(
    options: argparse.Namespace,
    seed: int,
    cases: int,
    totals: dict[str, int],
    reached: dict[str, int],
    failures: list[str],
    seconds: float,
) -> int:
    """Print and keep what was done; return the exit status."""
    images = totals["images"] + totals["double"] + totals["triple"]
    left = [] if options.kinds else paths.missing(reached)
    print(
        f"seed {seed}: {cases} cases, {images} crash images ({totals['from_large']} of workloads "
        f"with two rolls, two STATE sets, MOVED and dead letter; {totals['double']} double, "
        f"{totals['triple']} triple crashes; {totals['deep']} used to the end), "
        f"{images / max(seconds, 0.001):.0f} a second, {len(failures)} violations"
    )
    verdict = "violation" if failures else "inconclusive" if left else "passed"
    if left and not failures:
        print(f"INCONCLUSIVE  these paths were not reached: {', '.join(left)}")
    if options.json:
        summary = {
            "verdict": verdict,
            "seed": seed,
            "first": options.first,
            "jobs": options.jobs,
            "seconds": round(seconds, 1),
            "cases": cases,
            "crash_images": images,
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


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="tests.sim", description="crash simulator")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--seconds", type=float, default=60)
    running.add_argument("--seed", type=int, default=None)
    running.add_argument("--first", type=int, default=0, help="number of the first case")
    running.add_argument("--jobs", type=int, default=2)
    running.add_argument("--kinds", default="", help="comma-separated; default: all in turn")
    running.add_argument("--json", default="")
    running.add_argument("--keep-going", action="store_true")
    for name in ("replay", "digest"):
        one = commands.add_parser(name)
        one.add_argument("case", help="kind/seed.number")
    options = parser.parse_args(arguments)
    named = (
        options.kinds.split(",") if options.command == "run" else [options.case.split("/", 1)[0]]
    )
    if unknown := sorted({kind for kind in named if kind} - KINDS.keys()):
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(sorted(KINDS))}")
    if options.command == "run":
        return run(options)
    case = Case(options.case)
    try:
        case.run(sweep=options.command == "replay")
    except Exception:
        print(f"at {case.where}")
        raise
    print(case.digest() if options.command == "digest" else case.totals())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
