"""Child processes: how they are stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ternmq.demo.processes import Processes, ProcessFailed

# It does not handle SIGTERM, as a Python that is still importing.
SLEEPS = ("timeit", "-n1", "-r1", "-s", "import time", "time.sleep(60)")


async def test_one_that_has_just_been_started_may_die_of_the_signal(tmp_path: Path) -> None:
    async with Processes(tmp_path, remove=False) as processes:
        child = await processes.start("early", *SLEEPS, env=dict(os.environ))
        await child.stop(listens=False)
        assert child.end == f"killed by {signal.SIGTERM.name}"


async def test_one_that_listens_may_not(tmp_path: Path) -> None:
    async with Processes(tmp_path, remove=False) as processes:
        child = await processes.start("sleeper", *SLEEPS, env=dict(os.environ))
        with pytest.raises(ProcessFailed, match="sleeper ended with status -15"):
            await child.stop()


async def test_one_that_has_ended_with_an_error_has_failed_in_any_case(tmp_path: Path) -> None:
    async with Processes(tmp_path, remove=False) as processes:
        child = await processes.start("wrong", "timeit", "-n1", "1/0", env=dict(os.environ))
        await child.ended()
        with pytest.raises(ProcessFailed, match="wrong ended with status 1"):
            await child.stop(listens=False)
