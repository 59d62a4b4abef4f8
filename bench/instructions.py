"""Compares two versions of the tree by the instructions that they execute; see ``pairs`` for time.

    git worktree add ../before HEAD~1
    python bench/instructions.py --before ../before --name one-struct --text "what was changed"

Time on a machine with neighbours differs by a fifth from one run to the next; the number of
instructions of the same work differs by less than a hundredth. So this shows a change of 2 % that
``pairs`` cannot show. It does not show what memory, the disk or the kernel cost. Needs valgrind
(callgrind), under which the work takes fifty times as long: some minutes for each tree.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from core_machine import machine, versions
from instructions_work import LOADS, SAMPLES
from pairs import HERE, commit_of
from runner import RESULTS

WORK: Final = Path(__file__).with_name("instructions_work.py")
COMMANDS: Final = (["--help"], ["--version"])
"""Commands of ``ternmq`` whose whole process is counted."""
_TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def _valgrind(tree: Path, folder: Path, *arguments: str, parts: bool) -> list[int]:
    """Run Python under callgrind; return the instructions of each part, or of the whole."""
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'counts'}",
        *(["--dump-before=os_getppid"] if parts else []), sys.executable, *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    numbered = [one for one in folder.glob("counts.*") if one.suffix[1:].isdigit()]
    files = sorted(numbered, key=lambda one: int(one.suffix[1:])) if parts else [folder / "counts"]
    found = [_TOTAL.search(one.read_text()) for one in files]
    return [int(one[1]) for one in found if one is not None]


def counts(tree: Path) -> dict[str, list[float]]:
    """Return the instructions of one operation, in each sample of each load."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        parts = _valgrind(tree, Path(folder), str(WORK), parts=True)
    if len(parts) != 2 * SAMPLES * len(LOADS):
        raise SystemExit(f"{len(parts)} parts were counted: this Python has no symbol os_getppid")
    for place, (name, (operations, _)) in enumerate(LOADS.items()):
        first = 2 * SAMPLES * place + 1  # the part before each sample is not its own
        samples = parts[first : first + 2 * SAMPLES : 2]
        found[name] = [one / operations for one in samples]
    for arguments in COMMANDS:
        name = " ".join(["ternmq", *arguments])
        for _ in range(SAMPLES):
            with tempfile.TemporaryDirectory() as folder:
                found.setdefault(name, []).extend(
                    _valgrind(tree, Path(folder), "-m", "ternmq", *arguments, parts=False)
                )
    return found


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Compare two trees by their instructions.")
    parser.add_argument("--before", type=Path, required=True, help="a tree")
    parser.add_argument("--after", type=Path, default=HERE, help="another (this one)")
    parser.add_argument(
        "--name", help="of the file in results/instructions; none: nothing is written"
    )
    parser.add_argument("--text", default="", help="what was changed, and what came of it")
    asked = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not there")
    old, new = counts(asked.before.resolve()), counts(asked.after.resolve())
    figures: dict[str, object] = {}
    for name, samples in old.items():
        ratio = statistics.median(new[name]) / statistics.median(samples)
        figures[name] = {
            "about": LOADS[name][1] if name in LOADS else "the process of the command",
            "before": [round(one) for one in samples],
            "after": [round(one) for one in new[name]],
            "ratio_of_medians": round(ratio, 4),
        }
        print(f"{name}: {statistics.median(samples):,.0f} -> {statistics.median(new[name]):,.0f}, "
              f"ratio {ratio:.3f}", flush=True)  # fmt: skip
    if asked.name:
        out = RESULTS / "instructions" / f"{asked.name}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "text": asked.text, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(), "versions": versions(), "before": commit_of(asked.before),
            "after": commit_of(asked.after), "instructions": figures,
        }  # fmt: skip
        out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
