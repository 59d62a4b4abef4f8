"""The table that people read and the JSON that is kept."""

from __future__ import annotations

import json
import os
import platform
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.trial import Result, Verdict

WIDTH = 150


def row(result: Result) -> str:
    """Return a result as a line of the table."""
    told = textwrap.shorten(result.told, WIDTH - 66, placeholder=" ...")
    return f"{result.name:<48} {result.verdict.value:<12} {result.seconds:6.1f} s  {told}"


def control_ok(control: Result) -> bool:
    """Return whether the simulator found nothing in the unpatched tree."""
    return control.verdict is Verdict.SURVIVED


def summary(control: Result, results: Sequence[Result], tests: Result | None = None) -> str:
    """Return the last lines: how many were caught, and what is wrong.

    Args:
        control: The simulator's run of the unpatched tree.
        results: Of the mutants.
        tests: The same of the tests that mutants name; None: there are none.
    """
    caught = [one for one in results if one.verdict is Verdict.CAUGHT]
    lines = [f"{len(caught)} of {len(results)} mutants caught"]
    if caught:
        slowest = max(caught, key=lambda one: one.seconds)
        lines[0] += f"; slowest {slowest.name} in {slowest.seconds:.1f} s"
    if not control_ok(control):
        lines.append(
            f"the control is {'not clean' if control.verdict is Verdict.CAUGHT else 'void'}: "
            f"{control.told}; these results mean nothing"
        )
    if tests is not None and not control_ok(tests):
        lines.append("a test that mutants name fails without them: what tests caught means nothing")
    lines += [
        f"{one.name} is {one.verdict.value}: {one.told or 'a defect of the simulator'}"
        for one in results
        if one.verdict is not Verdict.CAUGHT
    ]
    return "\n".join(lines)


def machine() -> dict[str, object]:
    """Return what the times were taken on."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.processor()
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def write(
    path: Path,
    control: Result,
    results: Sequence[Result],
    tests: Result | None = None,
    *,
    seconds: float,
    seed: int,
    at_once: int,
) -> None:
    """Write everything that was found as JSON; ``tests`` is as for ``summary``."""
    content = {
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "limit_seconds": seconds,
        "seed": seed,
        "at_once": at_once,
        "control": _plain(control),
        "control_of_tests": None if tests is None else _plain(tests),
        "mutants": [_plain(one) for one in results],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _plain(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "verdict": result.verdict.value.lower(),
        "seconds": round(result.seconds, 1),
        "found": result.told,
    }
