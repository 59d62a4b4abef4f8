"""One mutant, one run of the simulator, or of a test, in a copy of the tree."""

from __future__ import annotations

import enum
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.patch import TEST, Patch, PatchError, patched, reader

CONTROL: Final = "(control: no patch)"
COPIED: Final = ("src", "tests")
SETTINGS: Final = "pyproject.toml"
"""Of pytest, for mutants that a test finds."""
GRACE_S: Final = 30.0
"""How much longer than it was told a simulator may run before it counts as hung."""
VIOLATION: Final = "VIOLATION "
"""How the line begins with which the simulator says how to repeat what it found; what that is
stands in the next line."""
FOUND_CODE: Final = 1
"""Its exit code then."""
NO_FINDING: Final = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")
"""What a patch ends with that no longer fits what stands around it: any run finds that."""
_PASSED: Final = re.compile(r"\d+ passed")
NOTHING_CODES: Final = (0, 3)
"""Its exit codes when it found nothing; 3 says that it has not come everywhere in that time."""


class Verdict(enum.Enum):
    """What became of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    HUNG = "HUNG"
    BROKEN = "BROKEN"
    """The run ended in a way that says nothing: another exit code, no violation named."""
    INAPPLICABLE = "INAPPLICABLE"


@dataclass(slots=True, frozen=True)
class Result:
    """A mutant's trial.

    Attributes:
        name: Of the mutant.
        verdict: What became of it.
        seconds: Wall time from the start of the simulator to its end.
        told: What the simulator said it found, or the patch's error.
        output: The end of what it printed, where that is needed.
    """

    name: str
    verdict: Verdict
    seconds: float
    told: str
    output: str = ""


def copy_tree(root: Path, to: Path) -> None:
    """Copy what the simulator needs of a checkout."""
    for folder in COPIED:
        shutil.copytree(
            root / folder,
            to / folder,
            ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "results*.json"),
        )
    if (root / SETTINGS).exists():
        shutil.copy(root / SETTINGS, to / SETTINGS)


def plant(patch: Patch, to: Path) -> None:
    """Apply a patch to a copy.

    Raises:
        PatchError: It does not fit.
    """
    for path, text in patched(patch, reader(to)).items():
        (to / path).write_text(text, encoding="utf-8")


def simulator(seconds: float, seed: int, kinds: str = "") -> list[str]:
    """Return the command that runs the simulator in the current folder.

    Args:
        seconds: How long.
        seed: The seed of the first case.
        kinds: Kinds of workloads, separated by commas; empty: all in turn.
    """
    chosen = ["--kinds", kinds] if kinds else []
    return [
        sys.executable, "-m", "tests.sim", "run",
        "--jobs", str(os.cpu_count() or 1), "--seconds", f"{seconds:g}", "--seed", str(seed),
        *chosen,
    ]  # fmt: skip


def a_test(*nodes: str) -> list[str]:
    """Return the command that runs tests of the current folder, until one fails.

    Args:
        nodes: As pytest names them: a file, a function, a case.
    """
    return [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *nodes]


def attempt(root: Path, patch: Patch | None, command: Sequence[str], seconds: float) -> Result:
    """Run the simulator, or a test, against a mutant, or against the tree as it is (None).

    Args:
        root: Of the checkout.
        patch: The mutant.
        command: Runs it; its current folder is the copy.
        seconds: How long it was told to run.
    """
    name = CONTROL if patch is None else patch.name
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        copy_tree(root, copy)
        if patch is not None:
            try:
                plant(patch, copy)
            except PatchError as error:
                return Result(name, Verdict.INAPPLICABLE, 0.0, str(error))
        # The copy's src goes before an installed ternmq; nothing is written beside the sources.
        environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        begin = time.perf_counter()
        process = subprocess.Popen(
            list(command),
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that whatever it starts ends with it
        )
        try:
            output, _ = process.communicate(timeout=seconds + GRACE_S)
            hung = False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            hung = True
        took = time.perf_counter() - begin
    if patch is not None and patch.field(TEST):
        return judge_test(name, process.returncode, output, took, hung=hung)
    return judge(name, process.returncode, output, took, hung=hung)


def judge_test(name: str, code: int, output: str, seconds: float, *, hung: bool) -> Result:
    """Say what a run of a test means."""
    lines = output.splitlines()
    tail = "\n".join(lines[-20:])
    if hung:
        return Result(name, Verdict.HUNG, seconds, "still running", tail)
    if code == 0 and any(_PASSED.match(line) for line in lines):
        return Result(name, Verdict.SURVIVED, seconds, "", tail)
    failed = next((line for line in lines if line.startswith("FAILED ")), "")
    reasons = [line[1:].strip() for line in lines if line.startswith("E  ")]
    told = " | ".join([*reasons[:1], failed.removeprefix("FAILED ").partition(" - ")[0]])
    if code == FOUND_CODE and failed and reasons and not reasons[0].startswith(NO_FINDING):
        return Result(name, Verdict.CAUGHT, seconds, told)
    return Result(name, Verdict.BROKEN, seconds, told or f"exit code {code}", tail)


def judge(name: str, code: int, output: str, seconds: float, *, hung: bool) -> Result:
    """Say what a run of the simulator means."""
    lines = output.splitlines()
    found = next((at for at, line in enumerate(lines) if line.startswith(VIOLATION)), None)
    told = ""
    if found is not None:
        case = lines[found].split()[-1]
        told = " | ".join([*(line.strip() for line in lines[found + 1 : found + 2]), case])
    tail = "\n".join(lines[-20:])
    if hung:
        return Result(name, Verdict.HUNG, seconds, told or "still running", tail)
    if code in NOTHING_CODES:
        return Result(name, Verdict.SURVIVED, seconds, "", tail)
    if code == FOUND_CODE and told and not told.startswith(NO_FINDING):
        return Result(name, Verdict.CAUGHT, seconds, told)
    return Result(name, Verdict.BROKEN, seconds, told or f"exit code {code}", tail)
