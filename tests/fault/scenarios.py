"""What a worker can be asked to do."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Final

from tests.fault.history import History, Line
from tests.fault.shell import Shell, Work
from tests.fault.traffic import Plan, Traffic


def traffic(
    shell: Shell, history: History, past: Sequence[Line], given: argparse.Namespace
) -> Work:
    """Workload W."""
    plan = Plan(
        messages=given.messages, window=given.window, resend_ids=given.remember >= 60
    )
    work = Traffic(shell, history, past, given.seed, plan)
    work.set_up()
    return work


SCENARIOS: Final[dict[str, Callable[[Shell, History, Sequence[Line], argparse.Namespace], Work]]] = {
    "traffic": traffic,
}
