"""The command line of the fuzzers; see the package."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from tests.fuzz import expressions, frames, records
from tests.fuzz.engine import CORPUS, FindingError, Input, corpus, fuzz, judge, keep

FOUND = Path(__file__).parent / "found"
TARGETS = {target.name: target for target in (frames.TARGET, records.TARGET, expressions.TARGET)}


def main(arguments: list[str]) -> int:
    """Run the command line given by ``arguments``; return the exit status."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description="bent bytes for every decoder")
    parser.add_argument("--target", choices=sorted(TARGETS), help="one only")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, help="the same inputs again")
    parser.add_argument("--keep", action="store_true", help="add what reached new lines to corpus/")
    parser.add_argument("--sow", action="store_true", help="write the sound inputs, and end")
    parser.add_argument("--again", type=Path, help="try a file of found/ once more")
    options = parser.parse_args(arguments)
    if options.again:
        part = options.again.name.rpartition("-")[0]
        (target,) = [one for one in TARGETS.values() if part in one.parts]
        judge(target, Input(part, options.again.read_bytes()), measured=True)
        return 0
    seed = secrets.randbits(32) if options.seed is None else options.seed
    for name in [options.target] if options.target else sorted(TARGETS):
        target = TARGETS[name]
        if options.sow:
            print(f"{name}: {keep(target, list(target.sown()))} new in {CORPUS / name}")
            continue
        print(f"{name}, seed {seed}: {target.invariant}")
        try:
            report = fuzz(target, options.seconds, seed)
        except FindingError as finding:
            path = FOUND / f"{finding.tried.part}-{finding.tried.name}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(finding.tried.data)
            print(f"FOUND after seed {seed}: {finding}\nwhole in {path}; again: --again {path}")
            raise finding.__cause__ or finding from None
        kept = keep(target, report.kept) if options.keep else 0
        print(
            f"{name}: {report.runs} inputs, {report.lines} lines reached, {len(report.kept)} inputs"
            f" reached new ones, {kept} kept; corpus {len(list(corpus(target)))}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
