"""How a command that works in the background gives way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ternmq.cli.pipeline.priority import Priority

SCRIPT = """
import os, subprocess, sys
from ternmq.cli.pipeline.priority import Priority, take
take(Priority(sys.argv[1]))
SHOW = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"
subprocess.run([sys.executable, "-c", SHOW], check=True)
"""


def taken(wanted: Priority, *before: str) -> tuple[int, int]:
    """Return policy and nice value of a process that was started by one with a priority."""
    command = [*before, sys.executable, "-c", SCRIPT, wanted.value]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    policy, nice = told.stdout.split()
    return int(policy), int(nice)


NICE = os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(
    ("wanted", "policy", "nice"),
    [
        (Priority.IDLE, os.SCHED_IDLE, NICE),
        (Priority.LOW, os.SCHED_OTHER, min(19, NICE + 10)),
        (Priority.NORMAL, os.SCHED_OTHER, NICE),
    ],
)
def test_what_is_started_inherits_it(wanted: Priority, policy: int, nice: int) -> None:
    assert taken(wanted) == (policy, nice)


def test_where_there_is_no_such_policy_it_is_the_lowest_nice_value(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\ndel os.SCHED_IDLE\n")
    assert taken(Priority.IDLE, "env", f"PYTHONPATH={tmp_path}:{_path()}") == (os.SCHED_OTHER, 19)


def _path() -> str:
    import ternmq

    return str(Path(ternmq.__file__).parents[1])
