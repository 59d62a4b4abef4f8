"""``python -m tests.mutants``: does the simulator, or the test named, find every planted bug?

Exit code 0 only if the control is clean and every mutant is caught.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import report
from tests.mutants.patch import TEST, WORKLOAD, Patch, PatchError, load, reader, refreshed
from tests.mutants.trial import Result, Verdict, a_test, attempt, simulator

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("run", "refresh", "list"), default="run")
    parser.add_argument("names", nargs="*", help="only mutants whose names begin so")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for each (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the simulator (default 1)")
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--no-control", action="store_true", help="leave out the unpatched run")
    parser.add_argument("--json", type=Path, default=None, help="default results.json, if all run")
    chosen = parser.parse_intermixed_args(arguments)
    try:
        patches = load(FOLDER)
    except PatchError as error:
        print(error)
        return 1
    if chosen.names:
        patches = [one for one in patches if one.name.startswith(tuple(chosen.names))]
    if not patches:
        print("there is no such mutant")
        return 1
    if chosen.command == "list":
        for patch in patches:
            print(f"{patch.name:<48} {patch.field('Mutant')}")
        return 0
    if chosen.command == "refresh":
        return refresh(patches)
    path = chosen.json or (None if chosen.names else FOLDER / "results.json")
    return run(
        patches,
        seconds=chosen.seconds,
        seed=chosen.seed,
        at_once=chosen.at_once,
        control=not chosen.no_control,
        path=path,
    )


def refresh(patches: list[Patch]) -> int:
    """Write every patch anew against the tree of today; return the exit code."""
    lost = 0
    read = reader(ROOT)
    for patch in patches:
        path = FOLDER / f"{patch.name}.patch"
        try:
            text = refreshed(patch, read)
        except PatchError as error:
            print(f"{patch.name}: plant it again by hand ({error})")
            lost += 1
            continue
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            print(f"{patch.name}: written anew")
    return 1 if lost else 0


def run(
    patches: list[Patch],
    *,
    seconds: float,
    seed: int,
    at_once: int,
    control: bool,
    path: Path | None,
) -> int:
    """Try all mutants, ``at_once`` at a time; return the exit code."""

    def tried(patch: Patch | None) -> Result:
        node = patch.field(TEST) if patch is not None else ""
        kinds = patch.field(WORKLOAD) if patch is not None else ""
        command = a_test(node) if node else simulator(seconds, seed, kinds)
        return attempt(ROOT, patch, command, seconds)

    todo: list[Patch | None] = [*patches]
    tests = None
    if control:
        todo.insert(0, None)
        tests = control_of_tests(patches, seconds)
    results: list[Result] = []
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        for one in pool.map(tried, todo):
            results.append(one)
            print(report.row(one), flush=True)
            if one.verdict in (Verdict.BROKEN, Verdict.HUNG):
                print(one.output, flush=True)
    clean = results.pop(0) if control else Result("(no control)", Verdict.SURVIVED, 0.0, "")
    print(report.summary(clean, results, tests))
    if path is not None:
        report.write(path, clean, results, tests, seconds=seconds, seed=seed, at_once=at_once)
    caught = all(one.verdict is Verdict.CAUGHT for one in results)
    clean_too = tests is None or report.control_ok(tests)
    return 0 if caught and clean_too and report.control_ok(clean) else 1


def control_of_tests(patches: list[Patch], seconds: float) -> Result | None:
    """Run the tests that mutants name in a copy without a patch; None: no mutant names one.

    A test that fails there, because the copy lacks a file, say, would "catch" every mutant.
    """
    nodes = dict.fromkeys(node for patch in patches if (node := patch.field(TEST)))
    if not nodes:
        return None
    result = attempt(ROOT, None, a_test(*nodes), seconds * len(nodes))
    print(report.row(result), flush=True)
    if not report.control_ok(result):
        print(result.output, flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
